"""Tang-poem GPT: a small model learns to write five-character poems, one character at a time.

    python3 train.py --backend cpu

Stop it, start it on another chip with another --backend, and it goes on at the next step. That word
is the only one in this file that has to do with a chip. The data, poems.txt, is one poem a line.
"""

import argparse
from pathlib import Path

import anychip

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", default="poems.txt")
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=160)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--context", type=int, default=48, help="characters the model looks back")
parser.add_argument("--batch", type=int, default=24)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--prompt", default="明月", help="how the sample poems begin")
args = anychip.parse_args(parser)

import torch  # noqa: E402  after parse_args, which takes over SIGTERM before this slow import
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(args.threads)


class Poems:
    """Windows of the text in an order that depends on nothing but the seed and the position."""

    def __init__(self, path: str, context: int, batch: int, seed: int) -> None:
        text = "\n" + Path(path).read_text(encoding="utf-8")
        self.characters = sorted(set(text))
        self.number = {character: i for i, character in enumerate(self.characters)}
        self.data = torch.tensor([self.number[character] for character in text])
        self.context, self.batch_size, self.seed = context, batch, seed
        self.windows = (len(text) - 1) // context
        self.epoch, self.order = -1, torch.empty(0)

    def batch(self, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and targets that come after `position` samples were used."""
        starts = [self.start(k) for k in range(position, position + self.batch_size)]
        rows = torch.stack([self.data[s : s + self.context + 1] for s in starts])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def start(self, k: int) -> int:
        if k // self.windows != self.epoch:
            self.epoch = k // self.windows
            generator = torch.Generator().manual_seed(self.seed * 1000 + self.epoch)
            self.order = torch.randperm(self.windows, generator=generator)
        return int(self.order[k % self.windows]) * self.context


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in split)
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(heard.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, characters: int, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        h = self.character(x) + self.position.weight
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.logits(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def write_poem(model: GPT, poems: Poems, prompt: str, step: int, device: str) -> str:
    """What the model writes after the prompt, drawn on its own chip. Every look at the text has the
    same shape, so that a compiling back end compiles once."""
    generator = torch.Generator().manual_seed(step)
    known = [poems.number[character] for character in "\n" + prompt if character in poems.number]
    while len(known) < poems.context:
        x = torch.zeros(1, poems.context, dtype=torch.long)
        x[0, : len(known)] = torch.tensor(known)
        logits = model.logits(x.to(device)).cpu()[0, len(known) - 1]
        best, which = (logits / 0.8).topk(20)
        known.append(int(which[torch.multinomial(best.softmax(0), 1, generator=generator)]))
    return "".join(poems.characters[i] for i in known[1:]).replace("\n", " ")


torch.manual_seed(args.seed)
poems = Poems(args.data, args.context, args.batch, args.seed)
model = GPT(len(poems.characters), args.width, args.layers, args.heads, args.context)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)

run = anychip.Run(args, model, optimizer, clip_norm=1.0)
while run.go(args.steps):
    loss = run.step(*poems.batch(run.samples))
    if run.steps_done % 10 == 0:
        print(f"step {run.steps_done:5d}  loss {loss:.4f}", flush=True)
poem = write_poem(model, poems, args.prompt, run.steps_done, run.device.type)
run.sample(args.prompt, poem)
print(poem, flush=True)
run.finish()
