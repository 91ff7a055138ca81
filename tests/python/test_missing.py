"""A chip that is not there: one sentence, exit code 1, and never a run on the CPU instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from legs import PACKAGE, Leg, Training


def refused(leg: Leg, reason: str) -> str:
    assert leg.code == 1, leg.output
    assert not leg.losses, "it trained on something"
    assert "Traceback" not in leg.output, leg.output
    assert not any(line.get("event") == "start" for line in leg.lines)
    error = leg.event("error")
    assert error["reason"] == reason, error
    assert "\n" not in error["message"]
    return str(error["message"])


@pytest.mark.parametrize(
    ("backend", "reason", "word"),
    [
        ("cuda", "torch_build_wrong", "built for cuda"),
        ("rocm", "torch_build_wrong", "built for hip"),
        ("ascend", "plugin_missing", "torch_npu"),
        ("tpu", "plugin_missing", "torch_tpu"),
        ("xpu", "device_missing", "no accelerator at all"),
    ],
)
def test_real_chip_missing(training: Training, backend: str, reason: str, word: str) -> None:
    assert word in refused(training.leg(backend), reason)


def test_other_chip_than_the_rented(training: Training) -> None:
    leg = training.leg("cpu", env={"ANYCHIP_BACKEND": "tpu"})
    assert "'tpu'" in refused(leg, "backend_other")


def test_simulation_missing(training: Training) -> None:
    leg = training.leg("mlu", env={"ANYCHIP_SIMULATED": "1"})
    assert "'mlu'" in refused(leg, "simulation_missing")


def test_variable_missing(training: Training) -> None:
    leg = training.leg("tpu", "tpu-sim", env={"TPU_LIBRARY_PATH": None})
    assert "TPU_LIBRARY_PATH" in refused(leg, "environment_incomplete")


@pytest.mark.parametrize("variable", ["TPU_LIBRARY_PATH", "ANYCHIP_PJRT_REAL"])
def test_library_taken_away(training: Training, variable: str) -> None:
    leg = training.leg("tpu", "tpu-sim", env={variable: "/nowhere/plugin.so"})
    assert variable in refused(leg, "plugin_missing")


def test_library_rotten(training: Training, tmp_path: Path) -> None:
    rotten = tmp_path / "plugin.so"
    rotten.write_bytes(b"\x7fELF and then nothing")
    leg = training.leg("tpu", "tpu-sim", env={"ANYCHIP_PJRT_REAL": str(rotten)})
    assert "ANYCHIP_PJRT_REAL" in refused(leg, "plugin_missing")


def test_package_taken_away(training: Training) -> None:
    leg = training.leg("tpu", "tpu-sim", env={"PYTHONPATH": str(PACKAGE)})
    assert "torch_tpu" in refused(leg, "plugin_missing")


def test_too_little_device_memory(training: Training) -> None:
    leg = training.leg("tpu", "tpu-sim", env={"ANYCHIP_PJRT_MEMORY_BYTES": "30000"})
    assert leg.code == 1 and not leg.losses
    assert leg.event("error")["reason"] == "out_of_memory", leg.output


def test_failing_device_leaves_the_last_checkpoint(training: Training) -> None:
    assert training.leg("cpu", stop_at=5).code == 75
    leg = training.leg("tpu", "tpu-sim", env={"ANYCHIP_PJRT_FAULT": "execute:900=error"})
    assert leg.code not in (0, 75), leg.output
    assert leg.event("error")["reason"] == "step_failed"
    assert training.newest().name == "step-00000005"


def test_unknown_back_end_is_a_usage_error(training: Training) -> None:
    leg = training.leg("teapot")
    assert leg.code == 2 and "teapot" in leg.output and not leg.lines
