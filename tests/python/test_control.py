"""Wishes to stop and to save, without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anychip import control
from legs import PACKAGE


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)}
    control._signals_seen.clear()
    control.install_signals()
    yield
    control._signals_seen.clear()
    for number, handler in kept.items():
        signal.signal(number, handler)


def write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def test_file_may_appear_change_and_go(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    wishes = control.Control(str(path))
    assert wishes.stop_reason(100) is None
    write(path, json.dumps({"stop_at_step": 5}))
    assert wishes.stop_reason(4) is None
    assert wishes.stop_reason(5) == "stop_at_step"
    write(path, json.dumps({"stop_at_step": 50}))
    assert wishes.stop_reason(6) is None
    assert wishes.stop_reason(51) == "stop_at_step"
    write(path, "{}")
    assert wishes.stop_reason(51) is None
    write(path, json.dumps({"stop_at_step": 1}))
    path.unlink()
    assert wishes.stop_reason(51) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '"5"', '{"stop_at_step": "5"}',
                                  '{"stop_at_step": 5.5}', '{"stop_at_step": true}'])  # fmt: skip
def test_nonsense_is_told_once_and_the_last_wish_stays(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "control.json"
    write(path, json.dumps({"stop_at_step": 7}))
    wishes = control.Control(str(path))
    assert wishes.stop_at_step() == 7
    write(path, text)
    assert wishes.stop_at_step() == 7
    assert wishes.stop_at_step() == 7
    assert capsys.readouterr().err.count("control file ignored") == 1
    write(path, json.dumps({"stop_at_step": 9}))
    assert wishes.stop_at_step() == 9


def test_signals() -> None:
    wishes = control.Control("")
    assert wishes.stop_reason(1) is None and not wishes.take_save_request()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert wishes.stop_reason(1) is None
    assert wishes.take_save_request() and not wishes.take_save_request()
    os.kill(os.getpid(), signal.SIGTERM)
    assert wishes.stop_reason(1) == "SIGTERM" and wishes.stop_reason(2) == "SIGTERM"


def test_signals_are_taken_over_before_torch_is_imported() -> None:
    """Importing a back end takes seconds; a stop in that time must not kill the process."""
    code = (
        "import anychip, os, signal, sys; anychip.parse_args(argv=[]); "
        "os.kill(os.getpid(), signal.SIGTERM); "
        "assert 'torch' not in sys.modules; print('alive')"
    )
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
