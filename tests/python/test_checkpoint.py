"""Checkpoints on disk: whole or not there, whatever happens while writing. Without torch."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from anychip import checkpoint
from anychip.errors import Failure


def write_files(folder: Path) -> None:
    (folder / checkpoint.MODEL).write_bytes(b"weights" * 1000)
    (folder / checkpoint.OPTIMIZER).write_bytes(b"moments" * 2000)


def save(folder: Path, step: int) -> str:
    return checkpoint.save(folder, step, {"samples": step * 4}, write_files)


def newest_step(folder: Path, max_step: int | None = None) -> int | None:
    found = checkpoint.newest(folder, max_step)
    return found[1]["step"] if found else None


def test_empty_and_missing_folder(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "none") is None


def test_newest_by_step_and_latest(tmp_path: Path) -> None:
    for step in (5, 1000, 999):
        save(tmp_path, step)
    assert newest_step(tmp_path) == 1000
    assert newest_step(tmp_path, 999) == 999 and newest_step(tmp_path, 998) == 5
    assert newest_step(tmp_path, 4) is None
    assert (tmp_path / "latest").read_text() == "step-00000999\n"


def test_same_step_again_gets_its_own_name(tmp_path: Path) -> None:
    assert save(tmp_path, 7) == "step-00000007"
    assert save(tmp_path, 7) == "step-00000007.1"
    (tmp_path / "step-00000007.1" / checkpoint.META).write_text("{")
    assert checkpoint.newest(tmp_path)[0].name == "step-00000007"  # type: ignore[index]


def damage_cut(path: Path) -> None:
    file = path / checkpoint.MODEL
    file.write_bytes(file.read_bytes()[:-1])


def damage_flip(path: Path) -> None:
    data = bytearray((path / checkpoint.OPTIMIZER).read_bytes())
    data[5000] ^= 1
    (path / checkpoint.OPTIMIZER).write_bytes(bytes(data))


def damage_missing(path: Path) -> None:
    (path / checkpoint.OPTIMIZER).unlink()


def damage_meta_value(path: Path) -> None:
    meta = json.loads((path / checkpoint.META).read_text())
    meta["samples"] += 1
    (path / checkpoint.META).write_text(json.dumps(meta))


def damage_meta_empty(path: Path) -> None:
    (path / checkpoint.META).write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [damage_cut, damage_flip, damage_missing, damage_meta_value, damage_meta_empty],
)
def test_damage_is_seen_and_passed_over(
    tmp_path: Path, damage: object, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / "step-00000002")  # type: ignore[operator]
    told: list[str] = []
    found = checkpoint.newest(tmp_path, on_broken=lambda name, why: told.append(name))
    assert found is not None and found[1]["step"] == 1
    assert told == ["step-00000002"] and "passed over" in capsys.readouterr().err


def test_all_broken_is_said_and_not_begun_anew(tmp_path: Path) -> None:
    save(tmp_path, 1)
    damage_cut(tmp_path / "step-00000001")
    with pytest.raises(Failure) as caught:
        checkpoint.newest(tmp_path)
    assert caught.value.reason == "checkpoints_broken"


def test_format_of_the_future_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 1)
    meta = json.loads((tmp_path / "step-00000001" / checkpoint.META).read_text())
    meta["format"] = 99
    meta["digest"] = checkpoint._meta_digest(meta)
    (tmp_path / "step-00000001" / checkpoint.META).write_text(json.dumps(meta))
    with pytest.raises(Failure) as caught:
        checkpoint.newest(tmp_path)
    assert caught.value.reason == "checkpoint_format"


CALLS = ["fsync", "rename", "replace", "mkdir", "open"]


class Killed(BaseException):
    """Stands for a kill -9: nothing of ours catches it on purpose."""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["killed", "no space"])
def test_cut_short_at_any_call_the_old_one_stands(
    tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that changes the disk, made to fail at each of its turns."""
    save(tmp_path, 10)
    real = getattr(os, name)
    turns = 0
    for fail_at in range(1, 30):
        count = 0

        def broken(*args: object, at: int = fail_at, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count == at:
                raise Killed if kind == "killed" else OSError(errno.ENOSPC, "no space")
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, broken)
            try:
                save(tmp_path, 11)
                reached = False
            except Killed:
                reached = True
            except Failure as failure:
                assert kind == "no space" and failure.reason == "checkpoint_failed"
                reached = True
        if not reached:
            break
        turns += 1
        # Whatever carries a checkpoint's name is whole.
        for found in checkpoint.names(tmp_path):
            checkpoint.verify(tmp_path / found)
        assert newest_step(tmp_path) in (10, 11)
    assert name in ("open", "mkdir") or turns >= 1
    checkpoint.prune(tmp_path, 2)
    left = {p.name for p in tmp_path.iterdir()}
    assert not [n for n in left if n.startswith(".")]


def test_prune_keeps_the_newest_and_sweeps(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    (tmp_path / ".step-00000009.tmp-4242").mkdir()
    (tmp_path / ".latest.tmp-4242").write_text("x")
    (tmp_path / "notes.txt").write_text("the user's own")
    checkpoint.prune(tmp_path, 2)
    assert checkpoint.names(tmp_path) == ["step-00000005", "step-00000004"]
    assert {p.name for p in tmp_path.iterdir()} == {
        "step-00000005", "step-00000004", "latest", "notes.txt",
    }  # fmt: skip


def test_order_of_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and their folder are synchronised before the rename, the parent after it."""
    log: list[str] = []
    real_sync, real_rename = checkpoint._sync, os.rename
    monkeypatch.setattr(
        checkpoint, "_sync", lambda path: (log.append(path.name), real_sync(path))[1]
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (log.append("RENAME"), real_rename(a, b))[1])
    save(tmp_path, 1)
    cut = log.index("RENAME")
    assert {checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.META} < set(log[:cut])
    assert log[cut - 1].startswith(".step-00000001.tmp-")
    assert tmp_path.name in log[cut:]
