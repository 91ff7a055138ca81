"""The story of the README by the CLI alone: one training, three chips, the same curve, an exact bill."""
from __future__ import annotations

import json
import subprocess

import pytest

from cloud import ROOT, wait_until

STEPS, FIRST_CUT, SECOND_CUT = 120, 40, 80
ARGS = ("--steps", str(STEPS), "--save-every", "20")


@pytest.fixture(scope="module")
def story(cloud):
    """Runs: `demo` cpu -> tpu-sim -> npu-sim, `twin` the same again, `reference` uninterrupted on cpu."""
    cloud.train("demo", *ARGS)
    cloud.train("reference", *ARGS, extra=("--reference-of", "demo"))
    cloud.wait("demo", "--step", "1")
    cloud.run("switch", "demo", "--to", "tpu-sim", "--at-step", str(FIRST_CUT), "--wait", timeout_s=900)
    cloud.run("switch", "demo", "--to", "npu-sim", "--at-step", str(SECOND_CUT), "--wait", timeout_s=900)
    cloud.wait("demo", "--state", "finished")
    cloud.wait("reference", "--state", "finished")
    return cloud


def test_three_legs_follow_each_other_without_a_gap(story):
    legs = story.json("compare", "demo")["legs"]
    assert [(leg["chip"], leg["backend"]) for leg in legs] == [("cpu", "cpu"), ("tpu-sim", "tpu"), ("npu-sim", "ascend")]
    assert [(leg["first_step"], leg["last_step"]) for leg in legs] == [
        (1, FIRST_CUT), (FIRST_CUT + 1, SECOND_CUT), (SECOND_CUT + 1, STEPS)]
    assert [point[0] for point in story.curve("demo")] == list(range(1, STEPS + 1))


def test_loss_equals_the_uninterrupted_run(story):
    parity = story.json("compare", "demo")["parity"]
    assert parity["compared_steps"] == STEPS
    assert 0 < parity["max_abs_loss_difference"] <= 1e-5, "0 would mean that nothing was switched"
    assert parity["verdict"] == "pass"
    losses = [point[2] for point in story.curve("demo")]
    assert losses[-1] < losses[0] - 1.0, "it has learned"


def test_each_leg_proves_its_device(story):
    legs = story.json("compare", "demo")["legs"]
    assert [leg["device"].split(":")[0] for leg in legs] == ["cpu", "tpu", "npu"]
    assert [leg["simulated"] for leg in legs] == [False, True, True]
    assert legs[1]["executions"] >= legs[1]["steps"], "the shim saw each step"
    assert legs[1]["compiles"] > 0
    for leg in legs:
        assert leg["sample"]["text"], "a poem from that leg's chip"
        assert leg["steps_per_second"] > 0 and leg["tokens_per_second"] > 0 and leg["peak_memory_bytes"] > 50 << 20


def test_cost_is_metered_time_times_price_to_the_micro_yuan(story):
    compare = story.json("compare", "demo")
    for leg in compare["legs"]:
        assert leg["metered_us"] > 0
        assert leg["cost_micros"] == leg["price_micros_per_hour"] * leg["metered_us"] // 3_600_000_000
    assert compare["totals"]["cost_micros"] == sum(leg["cost_micros"] for leg in compare["legs"])
    assert compare["totals"]["cost_micros"] < 2_000_000, "a whole experiment costs under 2 yuan"


def test_down_time_is_measured(story):
    legs = story.json("compare", "demo")["legs"]
    assert legs[0]["down_time_ms"] in (0, None)
    assert all(0 < leg["down_time_ms"] < 120_000 for leg in legs[1:])


def test_old_instances_are_gone_and_the_checkpoint_volume_has_moved(story):
    def settled():
        instances = [i for i in story.json("instance", "list")["items"] if i["run_id"] == story.show("demo")["id"]]
        return instances if all(i["state"] == "gone" for i in instances) else None

    assert len(wait_until("all instances of demo gone", settled)) == 3
    volumes = [v for v in story.json("volume")["items"] if v["run_id"] == story.show("demo")["id"]]
    checkpoint = [v for v in volumes if v["kind"] == "checkpoint"]
    assert len(checkpoint) == 1 and checkpoint[0]["attach_generation"] >= 3
    assert story.containers() == []


def test_the_same_switch_twice_is_bitwise_equal(story):
    story.train("twin", *ARGS)
    story.wait("twin", "--step", "1")
    story.run("switch", "twin", "--to", "tpu-sim", "--at-step", str(FIRST_CUT), "--wait", timeout_s=900)
    story.run("switch", "twin", "--to", "npu-sim", "--at-step", str(SECOND_CUT), "--wait", timeout_s=900)
    story.wait("twin", "--state", "finished")
    assert [(p[0], p[2]) for p in story.curve("twin")] == [(p[0], p[2]) for p in story.curve("demo")]
    assert story.json("compare", "twin", "--against", "demo")["parity"]["grade"] == "bitwise"


def test_report_opens_in_a_browser_without_error_or_request(story, tmp_path):
    report = tmp_path / "demo.html"
    story.run("compare", "demo", "--html", str(report))
    text = report.read_text()
    assert "tpu-sim" in text and "simulat" in text
    done = subprocess.run(["sh", str(ROOT / "scripts" / "open-page"), report.as_uri(), str(tmp_path / "shot.png")],
                          capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["errors"] == [] and seen["requests"] == []
    assert "demo" in seen["title"] and seen["text_length"] > 500


def test_logs_come_whole_and_in_order(story):
    text = story.run("logs", "demo")
    for leg in (0, 1, 2):
        assert story.run("logs", "demo", "--leg", str(leg)).strip()
    assert text == "".join(story.run("logs", "demo", "--leg", str(leg)) for leg in (0, 1, 2))


def test_snapshot_and_events_tell_what_happened(story):
    snapshots = [s for s in story.json("snapshot")["items"] if s["run_id"] == story.show("demo")["id"]]
    assert len(snapshots) == 4, "system disk and checkpoints of both switches"
    assert all(s["freeze_us"] < 100_000 for s in snapshots), "writers never stop for 0.1 s"
    kinds = [event["kind"] for event in story.json("events", "demo")["items"]]
    assert sum("switch" in kind for kind in kinds) >= 2
