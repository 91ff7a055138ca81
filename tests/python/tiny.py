"""A script as a user writes it, small enough for tests: shared weights, a schedule, clipping."""

import argparse
import os
import time

import anychip

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--explode-at", type=int, default=0)
parser.add_argument("--own-loss", action="store_true")
parser.add_argument("--sabotage", choices=["", "repoint", "repoint+prove"], default="")
args = anychip.parse_args(parser)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from anychip import prepare  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
CHARACTERS, LENGTH, BATCH = 40, 16, 4


class Tiny(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, width)
        self.head = nn.Linear(width, CHARACTERS, bias=False)
        self.head.weight = self.embed.weight  # shared: a move to a device must not part them

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        q, k, v = self.qkv(self.norm(h)).unsqueeze(1).chunk(3, dim=3)
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        h = h + F.gelu(self.up(h))
        loss = F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())
        if args.explode_at and run.steps_done + 1 == args.explode_at:
            loss = loss * float("nan")
        return loss


def batch(position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A text with something to learn: each character follows from the one before, mostly."""
    generator = torch.Generator().manual_seed(args.seed * 1_000_003 + position)
    x = torch.randint(CHARACTERS, (BATCH, 1), generator=generator)
    rows = [x]
    for _ in range(LENGTH):
        jump = torch.randint(10, (BATCH, 1), generator=generator) == 0
        rows.append((rows[-1] * 3 + 1 + jump.long()) % CHARACTERS)
    text = torch.cat(rows, dim=1)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


if "repoint" in args.sabotage:
    prepare.repoint = lambda optimizer, moved: None
if "prove" in args.sabotage:
    prepare.prove = lambda model, optimizer, device: None

torch.manual_seed(args.seed)
model = Tiny(args.width)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 30))
run = anychip.Run(args, model, optimizer, schedule=schedule, clip_norm=1.0)
while run.go(args.steps):
    if args.own_loss:
        x, y = (t.to(run.device.type) for t in batch(run.samples))
        run.update(model(x, y), samples=x.shape[0], tokens=x.numel())
    else:
        run.step(*batch(run.samples))
    if args.pause:
        time.sleep(args.pause)
run.sample("", "shared" if model.head.weight is model.embed.weight else "parted")
if os.environ.get("TINY_ACCELERATOR"):
    print(torch.accelerator.current_accelerator())
run.finish()
