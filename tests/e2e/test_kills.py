"""kill -9 of server and agent, in mid-run and in mid-switch: the run goes on, nothing is lost, nothing stays behind."""
from __future__ import annotations

import os
import signal
import time

import pytest

from cloud import alive, wait_until

ARGS = ("--steps", "120", "--save-every", "20")


@pytest.fixture(scope="module")
def reference(cloud):
    cloud.train("reference", *ARGS)
    cloud.wait("reference", "--state", "finished")
    return cloud.curve("reference")


def losses(curve):
    return [(point[0], point[2]) for point in curve]


def assert_same_curve(cloud, name, reference):
    mine = losses(cloud.curve(name))
    assert [step for step, _ in mine] == [step for step, _ in losses(reference)]
    worst = max(abs(a[1] - b[1]) for a, b in zip(mine, losses(reference)))
    assert worst <= 1e-5, worst


def assert_log_is_whole(cloud, name):
    """The template prints one numbered line every 10 steps; each must be there, once per pass, in order."""
    numbers = [int(line.split()[1]) for line in cloud.run("logs", name).splitlines() if line.startswith("step ")]
    assert set(range(10, 121, 10)) <= set(numbers)
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("role", ["server", "agent"])
def test_killed_in_mid_run(cloud, reference, role):
    name = f"mid-run-{role}"
    cloud.train(name, *ARGS)
    cloud.wait(name, "--step", "30")
    cloud.kill(role)
    time.sleep(3)
    cloud.up()
    cloud.wait(name, "--state", "finished")
    run = cloud.show(name)
    assert len(run["legs"]) == 1, "the same container went on"
    assert losses(cloud.curve(name)) == losses(reference), "bitwise: nothing was repeated"
    assert_log_is_whole(cloud, name)
    leg = cloud.json("compare", name)["legs"][0]
    assert leg["cost_micros"] == leg["price_micros_per_hour"] * leg["metered_us"] // 3_600_000_000


@pytest.mark.parametrize("role", ["server", "agent"])
@pytest.mark.parametrize("moment", ["prepare", "checkpoint", "inherit", "resume"])
def test_killed_in_mid_switch(cloud, reference, role, moment):
    name = f"mid-switch-{role}-{moment}"
    cloud.train(name, *ARGS)
    cloud.wait(name, "--step", "20")
    cloud.run("switch", name, "--to", "npu-sim", "--at-step", "60")

    def reached():
        switch = cloud.json("switch", name, "--list")["items"][-1]
        order = ["check", "reserve", "prepare", "checkpoint", "inherit", "resume", "verify", "settle"]
        return order.index(switch["step_name"]) >= order.index(moment)

    wait_until(f"switch of {name} at {moment}", reached, 120, 0.02)
    cloud.kill(role)
    time.sleep(1)
    cloud.up()
    cloud.wait(name, "--state", "finished")
    switch = cloud.json("switch", name, "--list")["items"][-1]
    assert switch["state"] == "done", switch
    assert switch["lost_steps"] == 0
    assert_same_curve(cloud, name, reference)
    assert_log_is_whole(cloud, name)


def test_nothing_is_left_of_them(cloud, reference):
    wait_until("no container within 30 s", lambda: cloud.containers() == [], 30)
    attached = {v["id"] for v in cloud.json("volume")["items"] if v["attached_to"]}
    assert attached == set()
    # The pool itself is one mount and one loop device; every disk is released.
    wait_until("only the pool stays mounted", lambda: len(cloud.mounts()) == 1, 30)
    assert len(cloud.loops()) == 1


def test_the_training_process_dies_and_comes_back_from_its_checkpoint(cloud, reference):
    cloud.train("crash", *ARGS)
    cloud.wait("crash", "--step", "50")
    instance = cloud.show("crash")["legs"][-1]["instance_id"]
    os.kill(cloud.init_pid(instance), signal.SIGKILL)
    cloud.wait("crash", "--state", "finished")
    run = cloud.show("crash")
    assert run["restarts"] == 1 and len(run["legs"]) == 2
    assert run["legs"][1]["first_step"] == 41, "from the checkpoint of step 40"
    assert_same_curve(cloud, "crash", reference)


def test_the_chip_vanishes_and_the_run_goes_on_elsewhere(cloud, reference):
    cloud.train("vanish", *ARGS, chip="npu-sim")
    cloud.wait("vanish", "--step", "45")
    device = next(d for n in cloud.json("node")["items"] for d in n["devices"]
                  if d["instance_id"] == cloud.show("vanish")["legs"][-1]["instance_id"])
    file = cloud.data / "agent" / "devices" / device["id"]
    file.rename(file.with_name("." + device["id"]))
    try:
        cloud.wait("vanish", "--state", "finished")
    finally:
        file.with_name("." + device["id"]).rename(file)
    run = cloud.show("vanish")
    assert run["restarts"] == 1
    assert "device" in run["legs"][0]["end_reason"]
    assert_same_curve(cloud, "vanish", reference)


def test_agent_away_every_command_answers_and_things_converge(cloud):
    cloud.wait_free("cpu")
    cloud.kill("agent", signal.SIGTERM)
    started = cloud.train("patient", *ARGS)
    assert started["state"] in ("queued", "preparing")
    for command in (("ps",), ("show", "patient"), ("offer",), ("node",), ("events", "patient"), ("logs", "patient")):
        begun = time.monotonic()
        cloud.run(*command)
        assert time.monotonic() - begun < 2, command
    cloud.up()
    cloud.wait("patient", "--state", "finished")
    assert alive(cloud.pid("agent"))
