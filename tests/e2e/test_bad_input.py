"""Bad input: each has its own message, its stable code and its exit status; nothing moves."""
from __future__ import annotations

import json
import os
import socket

import pytest

from cloud import wait_until

ARGS = ("--steps", "2000", "--save-every", "20")


@pytest.fixture(scope="module")
def busy(cloud):
    """One long run to refuse things on."""
    cloud.train("busy", *ARGS)
    cloud.wait("busy", "--step", "10")
    yield cloud
    cloud.run("stop", "busy", "--wait", timeout_s=120)


def refused(cloud, *args, code, status, says=()):
    got, out, err = cloud.call(args[0], "-o", "json", *args[1:])
    assert got == status, (args, got, out, err)
    problem = json.loads(err.strip().splitlines()[-1])
    codes = {problem["code"], *(e.get("code", "") for e in problem.get("errors", []))}
    assert code in codes, problem
    for word in says:
        assert word in err, (word, err)
    assert out.strip() == ""


def start(cloud, *args):
    return ("run", "--name", "x", "--template", "tang-poem-gpt", *args)


def test_unknown_chip_offers_the_nearest_names(busy):
    refused(busy, *start(busy, "--chip", "tpu-smi"), code="chip_unknown", status=5, says=["tpu-sim"])
    refused(busy, "switch", "busy", "--to", "npu_sim", code="chip_unknown", status=5, says=["npu-sim"])


def test_count_zero_and_more_than_exist(busy):
    refused(busy, *start(busy, "--count", "0"), code="count_invalid", status=3)
    refused(busy, *start(busy, "--count", "4096"), code="count_exceeds_total", status=8)


def test_a_chip_that_no_variant_serves(busy):
    refused(busy, *start(busy, "--chip", "gaudi2"), code="variant_missing", status=6, says=["cpu"])


def test_script_not_found(busy):
    refused(busy, *start(busy), "--", "python", "trian.py", code="script_missing", status=3, says=["trian.py"])


def test_name_taken(busy):
    refused(busy, "run", "--name", "busy", "--template", "tang-poem-gpt", code="name_taken", status=6)


def test_two_switches_at_once(busy):
    busy.run("switch", "busy", "--to", "npu-sim", "--at-step", "1900")
    refused(busy, "switch", "busy", "--to", "tpu-sim", code="switch_active", status=6)
    busy.run("switch", "busy", "--cancel")
    wait_until("cancelled", lambda: busy.json("switch", "busy", "--list")["items"][-1]["state"] == "cancelled")
    assert busy.show("busy")["state"] == "running", "a cancelled switch leaves the old chip training"


def test_switch_to_the_same_chip(busy):
    refused(busy, "switch", "busy", "--to", "cpu", code="switch_to_same", status=6)


def test_switch_of_a_finished_run(busy):
    busy.train("short", "--steps", "3")
    busy.wait("short", "--state", "finished")
    refused(busy, "switch", "short", "--to", "npu-sim", code="run_ended", status=6)


def test_unknown_run_template_image(busy):
    refused(busy, "show", "nobody", code="run_unknown", status=5)
    refused(busy, "run", "--name", "x", "--template", "tang-poem", code="template_unknown", status=5, says=["tang-poem-gpt"])
    refused(busy, "run", "--name", "x", "--image", "pytroch", "--chip", "cpu", "--", "true", code="image_unknown", status=5, says=["pytorch"])


def test_binary_garbage_as_a_task_file(busy, tmp_path):
    garbage = tmp_path / "anychip.yaml"
    garbage.write_bytes(os.urandom(4096))
    refused(busy, "run", "-f", str(garbage), code="task_malformed", status=3, says=["anychip.yaml"])


def test_wrong_token(busy):
    status, _, err = busy.call("ps", ANYCHIP_TOKEN="not-a-token")
    assert status == 4 and "token" in err


@pytest.mark.parametrize("args", [("--seed", "2"), ("--width", "64")])
def test_checkpoint_of_another_model_or_seed(busy, args):
    """The same checkpoint folder with another seed or another model: one sentence, exit status 1, no restart loop."""
    name = "other-" + args[0].strip("-")
    script = ("python train.py --backend cpu --steps 2 && python train.py --backend cpu --steps 4 " + " ".join(args))
    busy.wait_free("cpu")
    busy.run("run", "--name", name, "--template", "tang-poem-gpt", "--", "sh", "-c", script)
    busy.wait(name, "--state", "failed")
    run = busy.show(name)
    assert run["restarts"] == 0, "it would fail the same way again"
    assert "checkpoint" in run["state_reason"], run["state_reason"]
    assert "checkpoint" in busy.run("logs", name)


def test_port_in_use_before_anything_is_changed(busy, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folder = tmp_path / "second"
        status, _, err = busy.call("up", "--port", str(port), ANYCHIP_DATA=str(folder))
    assert status != 0 and str(port) in err and "in use" in err
    assert not (folder / "agent").exists()


def test_usage_errors_name_the_nearest_command(busy):
    status, _, err = busy.call("swithc", "busy")
    assert status == 3 and "switch" in err
