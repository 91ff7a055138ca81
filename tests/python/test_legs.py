"""Trainings that move between back ends, as processes."""

from __future__ import annotations

import signal
import time

import pytest
from anychip import checkpoint
from legs import Training, largest_difference

TOLERANCE = 1e-5
SIMULATED = [("ascend", "npu-sim", "npu"), ("tpu", "tpu-sim", "tpu")]


def test_reference_learns(reference: Training) -> None:
    losses = reference.losses()
    assert sorted(losses) == list(range(1, 61))
    assert losses[60] < losses[1] - 0.5
    assert reference.optimizer_steps() == {60.0}


def test_stopped_and_resumed_on_the_same_chip_is_bitwise(
    training: Training, reference: Training
) -> None:
    stopped = training.leg("cpu", signal_at=15)
    assert stopped.code == 75
    at = stopped.event("stopped")["step"]
    assert stopped.event("stopped")["by"] == "SIGTERM" and 15 <= at < 60
    assert stopped.event("checkpoint")["step"] == at
    resumed = training.leg("cpu")
    assert resumed.code == 0
    assert resumed.event("start")["step"] == at and min(resumed.losses) == at + 1
    assert training.losses() == reference.losses()
    # Weights and moments too: the digests are of the files.
    assert training.meta()["files"] == reference.meta()["files"]


def test_cpu_to_npu_and_back_stays_within_tolerance(
    training: Training, reference: Training
) -> None:
    assert training.leg("cpu", signal_at=15).code == 75
    there = training.leg("ascend", "npu-sim", stop_at=40)
    assert there.code == 75
    start = there.event("start")
    assert (start["accelerator"], start["parameter_device"]) == ("npu", "npu:0")
    assert there.event("device_stats")["executions"] > 0
    assert there.event("stopped") | {"t": 0} == {
        "t": 0, "event": "stopped", "step": 40, "by": "stop_at_step",
    }  # fmt: skip
    assert training.optimizer_steps() == {40.0}
    back = training.leg("cpu")
    assert back.code == 0 and back.event("start")["parameter_device"] == "cpu"
    assert largest_difference(training.losses(), reference.losses()) < TOLERANCE
    assert training.optimizer_steps() == {60.0}
    assert [h["backend"] for h in training.meta()["history"]] == ["cpu", "ascend", "cpu"]


def test_cpu_to_tpu_stays_within_tolerance_and_repeats_bitwise(
    training: Training, reference: Training, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again = Training(tmp_path_factory.mktemp("again"))
    for one in (training, again):
        assert one.leg("cpu", stop_at=20).code == 75
        there = one.leg("tpu", "tpu-sim")
        assert there.code == 0, there.output
        start = there.event("start")
        assert (start["accelerator"], start["parameter_device"]) == ("tpu", "tpu:0")
        stats = there.event("device_stats")
        assert stats["executions"] > 40 and stats["compiles"] > 0
        assert stats["host_to_device_bytes"] > 0 and stats["peak_bytes"] > 0
        steps = [line for line in there.lines if "loss" in line]
        assert all(line["peak_device_bytes"] >= line["device_bytes"] > 0 for line in steps)
        assert one.optimizer_steps() == {60.0}
        assert largest_difference(one.losses(), reference.losses()) < TOLERANCE
    assert training.losses() == again.losses()
    assert training.meta()["files"] == again.meta()["files"]


def test_tpu_back_to_cpu(training: Training, reference: Training) -> None:
    there = training.leg("tpu", "tpu-sim", stop_at=30)
    assert there.code == 75, there.output
    assert training.leg("cpu").code == 0
    assert largest_difference(training.losses(), reference.losses()) < TOLERANCE


@pytest.mark.parametrize(("backend", "chip", "device"), SIMULATED)
def test_shared_weights_stay_shared(
    training: Training, backend: str, chip: str, device: str
) -> None:
    leg = training.leg(backend, chip, args=("--steps", "2"))
    assert leg.code == 0, leg.output
    assert leg.event("sample")["text"] == "shared"


def test_optimizer_left_behind_is_refused(training: Training) -> None:
    leg = training.leg("ascend", "npu-sim", args=("--sabotage", "repoint"))
    assert leg.code == 1 and not leg.losses
    assert leg.event("error")["reason"] == "optimizer_detached"


def test_comparison_sees_frozen_weights(training: Training, reference: Training) -> None:
    """The trap itself: without re-pointing and the guard, sixty steps run and nothing is learned.

    That the comparison of curves sees it is what gives the tolerance tests above their worth; and
    even then no checkpoint comes of it.
    """
    leg = training.leg("ascend", "npu-sim", args=("--sabotage", "repoint+prove"))
    assert leg.losses, leg.output
    assert largest_difference(training.losses(), reference.losses()) > 0.1
    assert leg.code == 1 and leg.event("error")["reason"] == "optimizer_detached"


def test_own_loss_gives_the_same_curve(training: Training, reference: Training) -> None:
    assert training.leg("cpu", args=("--own-loss",)).code == 0
    assert training.losses() == reference.losses()


def test_stop_at_step_is_exact_and_may_come_late(training: Training) -> None:
    leg = training.leg("cpu", stop_at=7)
    assert leg.code == 75 and max(leg.losses) == 7
    # A wish that is already in the past: stop at once, nothing lost, nothing done.
    leg = training.leg("cpu", stop_at=3)
    assert leg.code == 75 and not leg.losses and leg.event("stopped")["step"] == 7


def test_complete_wins_over_a_wish_to_stop(training: Training) -> None:
    leg = training.leg("cpu", stop_at=10, args=("--steps", "10"))
    assert leg.code == 0 and leg.event("finished")["step"] == 10


def test_sigusr1_saves_and_goes_on(training: Training) -> None:
    leg = training.leg("cpu", signal_at=10, send=signal.SIGUSR1, args=("--steps", "30"))
    assert leg.code == 0 and max(leg.losses) == 30
    saved = [line["step"] for line in leg.lines if line.get("event") == "checkpoint"]
    assert len(saved) == 2 and 10 <= saved[0] < 30 and saved[1] == 30


def test_periodic_checkpoints_are_pruned(training: Training) -> None:
    leg = training.leg("cpu", args=("--steps", "10", "--save-every", "2", "--keep", "2"))
    assert leg.code == 0
    kept = sorted(p.name for p in training.checkpoints.iterdir())
    assert kept == ["latest", "step-00000008", "step-00000010"]


def test_loss_that_is_not_finite_ends_the_run(training: Training) -> None:
    leg = training.leg("cpu", args=("--explode-at", "9", "--save-every", "4"))
    assert leg.code == 1 and max(leg.losses) == 8
    assert leg.event("error")["reason"] == "loss_not_finite"
    assert "Traceback" not in leg.output
    assert training.newest().name == "step-00000008"


def test_schedule_goes_on(training: Training, reference: Training) -> None:
    assert training.leg("cpu", stop_at=30).code == 75
    assert training.meta()["schedule"]["last_epoch"] == 30
    assert training.meta()["optimizer"]["groups"][0]["settings"]["lr"] == pytest.approx(1.5e-3)
    assert reference.meta()["optimizer"]["groups"][0]["settings"]["lr"] == pytest.approx(1e-3)


def test_torn_newest_checkpoint_is_passed_over(training: Training, reference: Training) -> None:
    leg = training.leg("cpu", stop_at=20, args=("--save-every", "10"))
    assert leg.code == 75
    weights = training.checkpoints / "step-00000020" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    leg = training.leg("cpu")
    assert leg.code == 0 and leg.event("start")["step"] == 10
    assert leg.event("checkpoint_skipped")["path"] == "step-00000020"
    assert training.losses() == reference.losses()


def test_another_model_or_seed_is_refused(training: Training) -> None:
    assert training.leg("cpu", stop_at=3).code == 75
    before = sorted(p.name for p in training.checkpoints.iterdir())
    leg = training.leg("cpu", args=("--width", "48"))
    assert leg.code == 1 and leg.event("error")["reason"] == "checkpoint_other_model"
    assert "40x32 there and 40x48 here" in leg.event("error")["message"]
    leg = training.leg("cpu", args=("--seed", "2"))
    assert leg.code == 1 and leg.event("error")["reason"] == "checkpoint_other_seed"
    assert "Traceback" not in leg.output and len(leg.output.strip().splitlines()) == 1
    assert sorted(p.name for p in training.checkpoints.iterdir()) == before


def test_resume_can_be_held_to_an_earlier_step(training: Training, reference: Training) -> None:
    assert training.leg("cpu", stop_at=20, args=("--save-every", "10")).code == 75
    leg = training.leg("cpu", env={"ANYCHIP_RESUME_MAX_STEP": "15"})
    assert leg.code == 0 and leg.event("start")["step"] == 10
    assert training.losses() == reference.losses()


def test_kill_9_while_saving_loses_nothing(training: Training, reference: Training) -> None:
    """A checkpoint at every step and a kill at no chosen moment: what has a name is whole."""
    begun = 0
    for step in (6, 17, 31):
        leg = training.leg("cpu", signal_at=step, send=signal.SIGKILL, args=("--save-every", "1"))
        assert leg.code == -signal.SIGKILL
        for name in checkpoint.names(training.checkpoints):
            checkpoint.verify(training.checkpoints / name)
        assert leg.event("start")["step"] >= begun
        begun = step - 1
    assert training.leg("cpu").code == 0
    assert training.losses() == reference.losses()


def test_down_time_of_a_switch_is_short(training: Training) -> None:
    """Not a benchmark: only that stopping does not wait for anything."""
    leg = training.leg("cpu", signal_at=10)
    assert leg.code == 75
    last_step = max(line["t"] for line in leg.lines if "loss" in line)
    assert leg.event("stopped")["t"] - last_step < 2.0
    assert time.time() - last_step < 30
