"""Starting, stopping, starting again; nothing left after `down --all`."""
from __future__ import annotations

import os

from cloud import alive


def test_up_twice_says_so(cloud):
    before = (cloud.pid("server"), cloud.pid("agent"))
    cloud.up()
    assert (cloud.pid("server"), cloud.pid("agent")) == before


def test_account_with_ten_yuan(cloud):
    account = cloud.json("account")
    assert account["balance_micros"] == 10_000_000 and account["currency"] == "CNY"


def test_secrets_are_readable_by_the_owner_alone(cloud):
    for path in ("client.json", "server/admin.token", "server/join.token", "agent/node.json"):
        assert (cloud.data / path).stat().st_mode & 0o077 == 0, path
    for role in ("server", "agent"):
        command = open(f"/proc/{cloud.pid(role)}/cmdline").read()
        token = (cloud.data / "server/admin.token").read_text().strip()
        assert token not in command


def test_down_and_up_keeps_what_was(cloud):
    run = cloud.train("kept", "--steps", "5")
    cloud.wait("kept", "--state", "finished")
    pids = (cloud.pid("server"), cloud.pid("agent"))
    cloud.run("down")
    assert not any(alive(pid) for pid in pids)
    status, _, err = cloud.call("ps")
    assert status == 1 and "anychip up" in err, "says how to start it"
    cloud.up()
    assert cloud.show("kept")["id"] == run["id"]
    assert cloud.show("kept")["cost_micros"] > 0
    assert os.getpid()
