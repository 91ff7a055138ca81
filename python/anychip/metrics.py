"""The run's metrics: JSON lines, one per step or event (contract, section 3)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TextIO


class Metrics:
    """Appends lines. A full disk is told once and does not end the training."""

    def __init__(self, path: str) -> None:
        self._broken = False
        self._file: TextIO | None = None
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            # Line buffering: a reader sees whole lines, and a kill loses at most the current one.
            self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            self._give_up(error)

    def step(
        self, step: int, loss: float, step_s: float, tokens: int, memory: dict[str, int]
    ) -> None:
        """One line of the curve."""
        self._write(
            {
                "step": step,
                "loss": loss,
                "step_s": round(step_s, 6),
                "tokens_s": round(tokens / step_s, 1) if step_s > 0 else 0.0,
                **host_memory(),
                **memory,
            }
        )

    def event(self, event: str, **fields: object) -> None:
        """One line about something that happened."""
        self._write({"event": event, **fields})

    def _write(self, fields: dict[str, object]) -> None:
        if self._file is None:
            return
        line = json.dumps(
            {"t": round(time.time(), 6), **fields}, ensure_ascii=False, allow_nan=False
        )
        try:
            self._file.write(line + "\n")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if not self._broken:
            print(f"anychip: no metrics from here on: {error}", file=sys.stderr)
        self._broken = True
        self._file = None


def host_memory() -> dict[str, int]:
    """Resident memory of this process, now and at most.

    The peak is read from the kernel's high-water mark and not from getrusage, whose figure
    survives exec and would show the size of whatever forked us.
    """
    found = {"rss_bytes": 0, "peak_rss_bytes": 0}
    names = {"VmRSS:": "rss_bytes", "VmHWM:": "peak_rss_bytes"}
    try:
        with open(f"/proc/{os.getpid()}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, rest = line.partition("\t")
                if key in names:
                    found[names[key]] = int(rest.split()[0]) * 1024
    except (OSError, ValueError):
        pass
    return found
