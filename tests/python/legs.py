"""Starts a training script as the agent does, one process a leg, and reads what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
TINY = Path(__file__).with_name("tiny.py")
TPU_SITE = Path(sys.prefix) / "tpu-sim"
PLUGIN = TPU_SITE / "lammps_jax_pjrt_cpu" / "pjrt_c_api_cpu_plugin.so"


def find_shim() -> Path | None:
    """The built shim: $ANYCHIP_PJRT_SHIM, else the newest in a build folder."""
    named = os.environ.get("ANYCHIP_PJRT_SHIM")
    if named:
        return Path(named)
    built = sorted(ROOT.glob("build*/**/lib/libanychip_pjrt.so"), key=lambda p: p.stat().st_mtime)
    return built[-1] if built else None


def environment(backend: str, chip: str = "") -> dict[str, str]:
    """The variables of an instance, and nothing inherited that could make a broken one work."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(PACKAGE),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "OMP_NUM_THREADS": "1",
        "ANYCHIP_BACKEND": backend,
        "ANYCHIP_CHIP": chip,
        "ANYCHIP_SIMULATED": "1" if chip.endswith("-sim") else "0",
    }
    if chip == "tpu-sim":
        shim = find_shim()
        if shim is None:
            if os.environ.get("ANYCHIP_REQUIRE_SHIM") == "1":
                pytest.fail("libanychip_pjrt.so is not built")
            pytest.skip("libanychip_pjrt.so is not built (module pjrt)")
        env.update(
            PYTHONPATH=f"{PACKAGE}:{TPU_SITE}",
            TPU_LIBRARY_PATH=str(shim),
            ANYCHIP_PJRT_REAL=str(PLUGIN),
            ANYCHIP_PJRT_DEVICE_COUNT="1",
            ANYCHIP_PJRT_MEMORY_BYTES=str(16 << 30),
            TPU_SKIP_MDS_QUERY="1",
            TF_CPP_MIN_LOG_LEVEL="3",
            PYTHONWARNINGS="ignore:<TorchTpu/Performance/TcMalloc/",
        )
    return env


@dataclass
class Leg:
    """What one leg left behind."""

    code: int
    output: str
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.lines if "loss" in line}

    def event(self, name: str) -> dict[str, Any]:
        found = [line for line in self.lines if line.get("event") == name]
        assert found, f"no event {name!r}; the leg said:\n{self.output}"
        return found[-1]


class Training:
    """A checkpoint folder and the legs that use it, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.legs: list[Leg] = []
        folder.mkdir(parents=True, exist_ok=True)

    def leg(
        self,
        backend: str,
        chip: str = "",
        *,
        stop_at: int | None = None,
        signal_at: int | None = None,
        send: signal.Signals = signal.SIGTERM,
        env: dict[str, str | None] | None = None,
        args: tuple[str, ...] = (),
        script: Path = TINY,
        timeout_s: float = 400,  # generous: the machine may be shared and its disk busy
    ) -> Leg:
        number = len(self.legs)
        metrics = self.folder / f"metrics-{number}.jsonl"
        control = self.folder / f"control-{number}.json"
        if stop_at is not None:
            control.write_text(json.dumps({"stop_at_step": stop_at}))
        variables = environment(backend, chip)
        variables.update(
            ANYCHIP_CKPT=str(self.checkpoints),
            ANYCHIP_METRICS=str(metrics),
            ANYCHIP_CONTROL=str(control),
        )
        for key, value in (env or {}).items():
            if value is None:
                variables.pop(key, None)
            else:
                variables[key] = value
        command = [sys.executable, str(script), "--backend", backend, *args]
        if signal_at is not None:
            command += ["--pause", "0.02"]
        log = self.folder / f"log-{number}.txt"
        with log.open("w") as output:
            process = subprocess.Popen(
                command, env=variables, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                if signal_at is not None:
                    wait_for_step(metrics, signal_at, process)
                    process.send_signal(send)
                code = process.wait(timeout_s)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        leg = Leg(code, log.read_text(errors="replace"), read_lines(metrics))
        self.legs.append(leg)
        return leg

    def losses(self) -> dict[int, float]:
        """The whole curve: a repeated step counts as the last leg had it."""
        return {step: loss for leg in self.legs for step, loss in leg.losses.items()}

    def newest(self) -> Path:
        return self.checkpoints / (self.checkpoints / "latest").read_text().strip()

    def meta(self) -> dict[str, Any]:
        return json.loads((self.newest() / "meta.json").read_text())

    def optimizer_steps(self) -> set[float]:
        """The step counters inside the optimizer, over all parameters."""
        from safetensors.torch import load_file

        tensors = load_file(self.newest() / "optim.safetensors")
        return {float(value) for key, value in tensors.items() if key.endswith(":step")}


def read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def wait_for_step(metrics: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and f'"step": {step},' in metrics.read_text(encoding="utf-8"):
            return
        time.sleep(0.05)


def largest_difference(left: dict[int, float], right: dict[int, float]) -> float:
    assert left.keys() == right.keys(), f"{sorted(left.keys() ^ right.keys())} are in one only"
    return max(abs(left[step] - right[step]) for step in left)
