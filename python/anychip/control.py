"""How a run is asked to stop or to save: signals, and the control file of the instance."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from types import FrameType

_signals_seen: set[str] = set()


def install_signals() -> None:
    """SIGTERM: checkpoint at the next step boundary and stop. SIGUSR1: checkpoint and go on.

    SIGUSR1 is what batch systems send ahead of a time limit; SIGTERM follows if they mean it.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # Python refuses handlers elsewhere; an embedding program keeps its own
    signal.signal(signal.SIGTERM, _note)
    signal.signal(signal.SIGUSR1, _note)


def _note(number: int, _frame: FrameType | None) -> None:
    # Only noted: a handler may run in the middle of an update, where there is nothing to save.
    _signals_seen.add(signal.Signals(number).name)


class Control:
    """Answers, at each step boundary, whether to stop and whether to save."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path if path is not None else os.environ.get("ANYCHIP_CONTROL", "")
        self._stamp: tuple[int, int, int] | None = None
        self._complained: tuple[int, int, int] | None = None
        self._stop_at_step: int | None = None

    def stop_reason(self, step: int) -> str | None:
        """ "SIGTERM" or "stop_at_step" when the run is to stop now, else None."""
        if "SIGTERM" in _signals_seen:
            return "SIGTERM"
        stop_at = self.stop_at_step()
        return "stop_at_step" if stop_at is not None and step >= stop_at else None

    def take_save_request(self) -> bool:
        """True once per SIGUSR1."""
        if "SIGUSR1" not in _signals_seen:
            return False
        _signals_seen.discard("SIGUSR1")
        return True

    def stop_at_step(self) -> int | None:
        """The step named by the control file, which may appear or change at any time."""
        if not self._path:
            return None
        try:
            info = os.stat(self._path)
        except OSError:
            # Taken away means the wish is taken back.
            self._stamp, self._stop_at_step = None, None
            return None
        stamp = (info.st_mtime_ns, info.st_ino, info.st_size)
        if stamp != self._stamp:
            self._read(stamp)
        return self._stop_at_step

    def _read(self, stamp: tuple[int, int, int]) -> None:
        try:
            with open(self._path, encoding="utf-8") as file:
                value = json.load(file).get("stop_at_step")
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"stop_at_step is {value!r}, not a whole number")
        except (OSError, ValueError, AttributeError) as error:
            # Possibly half written: the last good wish stays and the file is read again next step.
            if stamp != self._complained:
                print(f"anychip: control file ignored: {error}", file=sys.stderr)
            self._complained = stamp
            return
        self._stamp, self._stop_at_step = stamp, value
