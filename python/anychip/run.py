"""Run: the training loop's other half. Opens the chip, resumes, steps, saves, stops."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from anychip import checkpoint, prepare, rng, state
from anychip.backends import open_device
from anychip.control import Control
from anychip.errors import Failure
from anychip.metrics import Metrics

EXIT_STOPPED = 75
STATS_EVERY_STEPS = 50

# Plug-ins raise a plain RuntimeError; these are the words of XLA, of torch_tpu and of our shim.
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of (device )?memory", re.IGNORECASE)


class Schedule(Protocol):
    """A learning-rate schedule as torch has them."""

    def step(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Run:
    """One leg of a training, continuing where the last leg stopped.

    Build the model and the optimizer on the host, seeded with `args.seed`; Run moves them.
    `samples` is how many samples were consumed so far: let the data order be a function of it and
    of the seed.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        schedule: Schedule | None = None,
        clip_norm: float | None = None,
    ) -> None:
        self.args = args
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.steps_done = 0
        self.samples = 0
        self.stopped_by: str | None = None
        self._folder = Path(args.ckpt)
        self._history: list[dict[str, Any]] = []
        self._saved_step: int | None = None
        self._step_started = 0.0
        self._finished = False
        self._metrics = Metrics(args.metrics)
        self._control = Control()
        try:
            self._begin()
        except Failure as failure:
            self._fail(failure)
        except RuntimeError as error:
            self._explain("start_failed", error)
            raise

    def _begin(self) -> None:
        rented = os.environ.get("ANYCHIP_BACKEND", self.args.backend)
        if rented != self.args.backend:
            # A word buried in a wrapper script would otherwise train on the CPU of a rented chip.
            raise Failure(
                "backend_other",
                f"this instance has back end {rented!r} and the command says "
                f"{self.args.backend!r}; leave --backend to the instance or unset ANYCHIP_BACKEND",
            )
        self.device = open_device(self.args.backend)
        random_state = self._resume()
        prepare.move(self.model, self.optimizer, self.device.type)
        if random_state is not None:
            rng.restore_device(random_state, self.args.backend, self.device.type)
        chip = os.environ.get("ANYCHIP_CHIP", "")
        self._history.append(
            {"backend": self.args.backend, "chip": chip, "from_step": self.steps_done}
        )
        parameters = prepare.parameter_devices(self.model)
        self._metrics.event(
            "start",
            backend=self.args.backend,
            chip=chip,
            device=parameters,
            accelerator=self.device.accelerator(),
            parameter_device=parameters,
            torch=torch.__version__,
            params=sum(p.numel() for p in self.model.parameters()),
            step=self.steps_done,
        )
        print(
            f"anychip: back end {self.args.backend}, device {parameters}, "
            + (f"resumed at step {self.steps_done}" if self.steps_done else "from the beginning"),
            file=sys.stderr,
        )
        if (count := os.environ.get("ANYCHIP_COUNT", "1")) != "1":
            print(f"anychip: {count} devices are rented, this process uses one", file=sys.stderr)

    # -- the loop ------------------------------------------------------------------------------

    def go(self, steps: int) -> bool:
        """True while there is a step to do. When False, the checkpoint is already written."""
        if self.steps_done >= steps:
            # Being complete wins over a wish to stop: there is nothing left to resume.
            self._guarded_save()
            self._device_stats()
            self._finished = True
            return False
        self.stopped_by = self._control.stop_reason(self.steps_done)
        if self.stopped_by is not None:
            self._guarded_save()
            self._device_stats()
            self._metrics.event("stopped", step=self.steps_done, by=self.stopped_by)
            print(
                f"anychip: stopped by {self.stopped_by} at step {self.steps_done}", file=sys.stderr
            )
            return False
        every = self.args.save_every
        due = every > 0 and self.steps_done > 0 and self.steps_done % every == 0
        if self._control.take_save_request() or due:
            self._guarded_save()
        self._step_started = time.perf_counter()
        return True

    def step(self, *batch: torch.Tensor) -> float:
        """One update with `loss = model(*batch)`; returns the loss."""
        # Without this the first wait of this step would pay for the rest of the one before.
        self.device.synchronize()
        self._step_started = time.perf_counter()
        try:
            moved = [tensor.to(self.device.type, non_blocking=True) for tensor in batch]
            loss = self.model(*moved)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            self._explain("step_failed", error)
            raise
        first = batch[0]
        return self.update(loss, samples=int(first.shape[0]), tokens=first.numel())

    def update(self, loss: torch.Tensor, *, samples: int, tokens: int = 0) -> float:
        """One update for a loss the script computed itself (on `run.device.type`)."""
        try:
            loss.backward()  # type: ignore[no-untyped-call]
            if self.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
            self.optimizer.zero_grad(set_to_none=True)
            value = float(loss.detach())
            self.device.synchronize()
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            self._explain("step_failed", error)
            raise
        step_s = time.perf_counter() - self._step_started
        self.steps_done += 1
        self.samples += samples
        if not math.isfinite(value):
            # The update has already spoiled the weights: nothing of this step may be saved.
            good = checkpoint.names(self._folder)
            last = f"the newest checkpoint is {good[0]}" if good else "there is no checkpoint"
            self._fail(
                Failure("loss_not_finite", f"step {self.steps_done} gave the loss {value}; {last}")
            )
        self._metrics.step(self.steps_done, value, step_s, tokens, self.device.memory())
        if self.steps_done % STATS_EVERY_STEPS == 0:
            self._device_stats()
        return value

    def sample(self, prompt: str, text: str) -> None:
        """Tells what the model says at this step."""
        self._metrics.event("sample", step=self.steps_done, prompt=prompt, text=text)

    def finish(self) -> None:
        """The last line of a script: returns when complete, exits with 75 when stopped early."""
        if self.stopped_by is not None:
            sys.exit(EXIT_STOPPED)
        if not self._finished:
            self._guarded_save()
        self._metrics.event("finished", step=self.steps_done)

    # -- checkpoints ---------------------------------------------------------------------------

    def save(self) -> None:
        """Writes a checkpoint of this step, unless there is one by this process already."""
        if self._saved_step == self.steps_done:
            return
        started = time.perf_counter()
        weights = state.model_tensors(self.model)
        tensors, values = state.optimizer_tensors(self.model, self.optimizer)
        meta = {
            "samples": self.samples,
            "seed": self.args.seed,
            "history": self._history,
            "optimizer": {
                "kind": type(self.optimizer).__name__,
                "groups": state.optimizer_groups(self.model, self.optimizer),
                "values": values,
            },
            "schedule": state.plain_dict(self.schedule.state_dict()) if self.schedule else None,
            "random": rng.capture(self.args.backend, self.device.type),
            "torch": torch.__version__,
        }

        def write(folder: Path) -> None:
            save_file(weights, folder / checkpoint.MODEL)
            save_file(tensors, folder / checkpoint.OPTIMIZER)

        name = checkpoint.save(self._folder, self.steps_done, meta, write)
        self._saved_step = self.steps_done
        checkpoint.prune(self._folder, self.args.keep)
        save_s = round(time.perf_counter() - started, 4)
        self._metrics.event("checkpoint", step=self.steps_done, save_s=save_s, path=name)

    def _guarded_save(self) -> None:
        try:
            self.save()
        except Failure as failure:
            self._fail(failure)

    def _resume(self) -> dict[str, Any] | None:
        """Loads the newest good checkpoint into the model on the host; returns its random state."""
        limit = os.environ.get("ANYCHIP_RESUME_MAX_STEP")
        found = checkpoint.newest(
            self._folder,
            int(limit) if limit else None,
            lambda name, why: self._metrics.event("checkpoint_skipped", path=name, message=why),
        )
        if found is None:
            return None
        path, meta = found
        if meta["seed"] != self.args.seed:
            raise Failure(
                "checkpoint_other_seed",
                f"checkpoint {path.name} was made with --seed {meta['seed']}, this run has "
                f"--seed {self.args.seed}: the order of the data would change",
            )
        with safe_open(path / checkpoint.MODEL, framework="pt") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        difference = state.model_difference(self.model, shapes)
        if difference is not None:
            raise Failure(
                "checkpoint_other_model",
                f"checkpoint {path.name} is of another model: {difference}",
            )
        self.model.load_state_dict(load_file(path / checkpoint.MODEL))
        kept = meta["optimizer"]
        if kept["kind"] != type(self.optimizer).__name__:
            raise Failure(
                "optimizer_other",
                f"checkpoint {path.name} is of {kept['kind']}, "
                f"this run has {type(self.optimizer).__name__}",
            )
        tensors = load_file(path / checkpoint.OPTIMIZER)
        state.restore_optimizer(self.model, self.optimizer, tensors, kept["values"], kept["groups"])
        if self.schedule is not None and meta["schedule"] is not None:
            self.schedule.load_state_dict(meta["schedule"])
        self.steps_done = self._saved_step = int(meta["step"])
        self.samples = int(meta["samples"])
        self._history = list(meta["history"])
        rng.restore(meta["random"])
        return dict(meta["random"])

    # -- what is told --------------------------------------------------------------------------

    def _device_stats(self) -> None:
        stats = self.device.stats()
        if stats is not None:
            self._metrics.event("device_stats", step=self.steps_done, **stats)

    def _explain(self, reason: str, error: RuntimeError) -> None:
        """Out of memory, in either way of saying it, becomes one sentence; anything else is told
        to the metrics and keeps its traceback."""
        text = str(error).strip()
        first = text.splitlines()[0][:300] if text else type(error).__name__
        if isinstance(error, torch.OutOfMemoryError) or _OUT_OF_MEMORY.search(text):
            self._fail(Failure("out_of_memory", f"the device has too little memory: {first}"))
        self._metrics.event("error", reason=reason, message=first)

    def _fail(self, failure: Failure) -> None:
        self._metrics.event("error", reason=failure.reason, message=failure.message)
        raise failure
