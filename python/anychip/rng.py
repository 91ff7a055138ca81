"""The states of the random generators a script may draw from, as JSON."""

from __future__ import annotations

import base64
import contextlib
import random
import sys
from typing import Any

import torch


def _pack(state: torch.Tensor) -> str:
    return base64.b64encode(bytes(state.cpu().tolist())).decode("ascii")


def _unpack(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).clone()


def capture(backend: str, device: str) -> dict[str, Any]:
    """Host generators always; the device's own where its module tells it."""
    state: dict[str, Any] = {"torch": _pack(torch.get_rng_state()), "backend": backend}
    version, words, gauss = random.getstate()
    state["python"] = [version, list(words), gauss]
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [str(kind), [int(key) for key in keys], *rest]
    getter = getattr(getattr(torch, device, None), "get_rng_state", None)
    if device != "cpu" and getter is not None:
        # Not every plug-in has such a state; then dropout differs after a resume, as on a switch.
        with contextlib.suppress(Exception):
            state["device"] = _pack(getter())
    return state


def restore(state: dict[str, Any]) -> None:
    """The host generators."""
    torch.set_rng_state(_unpack(state["torch"]))
    if "python" in state:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(state["numpy"]))


def restore_device(state: dict[str, Any], backend: str, device: str) -> None:
    """The device's generator, on the same back end only: another chip draws other numbers."""
    if state.get("backend") != backend or "device" not in state:
        return
    setter = getattr(getattr(torch, device, None), "set_rng_state", None)
    if setter is not None:
        setter(_unpack(state["device"]))
