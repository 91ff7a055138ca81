"""The metrics file is what docs/reference/contract.md, section 3, says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anychip.metrics import Metrics, host_memory
from legs import Training

NUMBER = (int, float)
STEP = {"t": NUMBER, "step": int, "loss": NUMBER, "step_s": NUMBER, "tokens_s": NUMBER,
        "rss_bytes": int, "peak_rss_bytes": int}  # fmt: skip
EVENTS: dict[str, dict[str, Any]] = {
    "start": {"backend": str, "chip": str, "device": str, "accelerator": str,
              "parameter_device": str, "torch": str, "params": int, "step": int},
    "checkpoint": {"step": int, "save_s": NUMBER, "path": str},
    "sample": {"step": int, "prompt": str, "text": str},
    "stopped": {"step": int, "by": str},
    "finished": {"step": int},
    "device_stats": {"executions": int, "host_to_device_bytes": int, "device_to_host_bytes": int},
    "error": {"reason": str, "message": str},
    "checkpoint_skipped": {"path": str, "message": str},
}  # fmt: skip
OPTIONAL = {"device_bytes": int, "peak_device_bytes": int}


def check(line: dict[str, Any]) -> None:
    if "event" in line:
        wanted = {"t": NUMBER, **EVENTS[line["event"]]}
    else:
        wanted = STEP
        assert set(line) <= set(STEP) | set(OPTIONAL), line
    for key, kind in wanted.items():
        assert isinstance(line[key], kind) and not isinstance(line[key], bool), (key, line)


def test_every_line_of_a_training(training: Training) -> None:
    training.leg("cpu", stop_at=5)
    training.leg("ascend", "npu-sim", args=("--steps", "60"), stop_at=8)
    training.leg("cpu", args=("--steps", "10"))
    training.leg("cpu", args=("--seed", "9"))
    lines = [line for leg in training.legs for line in leg.lines]
    for line in lines:
        check(line)
    seen = {line["event"] for line in lines if "event" in line}
    wanted = {"start", "checkpoint", "sample", "stopped", "finished", "device_stats", "error"}
    assert seen == wanted
    for leg in training.legs[:3]:
        times = [line["t"] for line in leg.lines]
        assert times == sorted(times)
        assert leg.lines[0]["event"] == "start"
    steps = [line for line in training.legs[0].lines if "loss" in line]
    assert all(line["tokens_s"] == pytest.approx(64 / line["step_s"], rel=0.02) for line in steps)


def test_not_a_number_never_becomes_bad_json(tmp_path: Path) -> None:
    metrics = Metrics(str(tmp_path / "m.jsonl"))
    with pytest.raises(ValueError, match="JSON"):
        metrics.step(1, float("nan"), 0.1, 1, {})
    metrics.event("sample", step=1, prompt="", text="月\n\u2028")
    assert [json.loads(line) for line in (tmp_path / "m.jsonl").open()][-1]["text"] == "月\n\u2028"


def test_full_disk_does_not_end_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics("/dev/full")
    for step in range(3):
        metrics.event("checkpoint", step=step)
    assert capsys.readouterr().err.count("no metrics from here on") == 1


def test_memory_is_this_process() -> None:
    memory = host_memory()
    assert 1 << 20 < memory["rss_bytes"] <= memory["peak_rss_bytes"]
