"""Which back ends there are and how each one's device is opened.

The facts are data: backends.json beside this file, or the file that ANYCHIP_BACKENDS names (an
image may carry its own). The code below knows no vendor. Every chip is reached through
torch.accelerator; a CPU has none, which is the one special case.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from anychip.errors import Failure


@dataclass(frozen=True)
class Backend:
    """One row of the table."""

    name: str
    device: str  # what torch calls it
    plugin: str | None = None  # the Python package that teaches torch the device
    simulation: str | None = None  # our module that stands in when there is no such chip
    torch_built_for: str | None = None  # tells builds apart that share a device name


class Simulation(Protocol):
    """What a module named as `simulation` offers."""

    def load(self) -> None:
        """Makes the device known to torch, or raises Failure."""

    def synchronize(self) -> None:
        """Waits until the device has done all it was told."""

    def stats(self) -> dict[str, int] | None:
        """The device's own counters, if it has any."""


@dataclass(frozen=True)
class Device:
    """An opened device."""

    backend: Backend
    simulation: Simulation | None = None

    @property
    def type(self) -> str:
        """torch's name of the device, for `.to(...)`."""
        return self.backend.device

    def accelerator(self) -> str:
        """What torch.accelerator calls the chip; "cpu" where there is none in use."""
        import torch

        if self.type == "cpu":
            return "cpu"
        return str(torch.accelerator.current_accelerator())

    def synchronize(self) -> None:
        """Waits for the device. Without it a time is that of the queueing only."""
        import torch

        if self.simulation is not None:
            self.simulation.synchronize()
        elif self.type != "cpu":
            torch.accelerator.synchronize()

    def memory(self) -> dict[str, int]:
        """Device memory now and at most, where the device itself can tell."""
        import torch

        if self.type == "cpu":
            return {}
        if self.simulation is not None:
            stats = self.simulation.stats() or {}
            pairs = {"device_bytes": "bytes_in_use", "peak_device_bytes": "peak_bytes"}
            return {ours: stats[theirs] for ours, theirs in pairs.items() if theirs in stats}
        try:
            now, peak = (
                torch.accelerator.memory_allocated(),
                torch.accelerator.max_memory_allocated(),
            )
        except (RuntimeError, NotImplementedError, AttributeError):
            return {}  # not every plug-in keeps these books
        return {"device_bytes": int(now), "peak_device_bytes": int(peak)}

    def stats(self) -> dict[str, int] | None:
        """Counters of the layer below the framework (the shim), if it is there."""
        return self.simulation.stats() if self.simulation is not None else None


@functools.cache
def table() -> dict[str, Backend]:
    """The back ends of this image, by name."""
    path = os.environ.get("ANYCHIP_BACKENDS") or str(Path(__file__).with_name("backends.json"))
    fields = set(Backend.__dataclass_fields__) - {"name"}
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))["backends"]
        return {
            name: Backend(name, **{key: row[key] for key in row if key in fields})
            for name, row in rows.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure("backends_unreadable", f"the table of back ends {path}: {error}") from None


def names() -> list[str]:
    """All values of --backend."""
    return sorted(table())


def open_device(name: str, simulated: bool | None = None) -> Device:
    """Loads what the back end needs and proves that torch now has its device.

    Raises Failure with one sentence when something is missing; never falls back to the CPU.
    """
    backend = table().get(name)
    if backend is None:
        raise Failure("backend_unknown", f"no back end {name!r}; there are {', '.join(names())}")
    if simulated is None:
        simulated = os.environ.get("ANYCHIP_SIMULATED", "0") == "1"
    if simulated and backend.device != "cpu":
        return _open_simulation(backend)
    _check_build(backend)
    if backend.plugin is not None:
        _import_plugin(backend, backend.plugin)
    _check_device(backend)
    return Device(backend)


def _open_simulation(backend: Backend) -> Device:
    if backend.simulation is None:
        raise Failure("simulation_missing", f"back end {backend.name!r} has no simulation here")
    module = cast(Simulation, importlib.import_module(backend.simulation))
    module.load()
    device = Device(backend, module)
    found = device.accelerator()
    if found != backend.device:
        raise Failure(
            "device_missing",
            f"the simulation of back end {backend.name!r} gave torch the device {found}, "
            f"not {backend.device!r}",
        )
    return device


def _check_build(backend: Backend) -> None:
    import torch

    wanted = backend.torch_built_for
    if wanted is not None and getattr(torch.version, wanted, None) is None:
        raise Failure(
            "torch_build_wrong",
            f"back end {backend.name!r} needs a PyTorch built for {wanted}, "
            f"this one is {torch.__version__}",
        )


def _import_plugin(backend: Backend, plugin: str) -> None:
    try:
        importlib.import_module(plugin)
    except Exception as error:
        # Plug-ins fail in many ways without their driver: ImportError, OSError of a library that is
        # not there, RuntimeError of their own. All mean the same to the user.
        why = str(error).strip().splitlines()
        raise Failure(
            "plugin_missing",
            f"back end {backend.name!r} needs the package {plugin} and its driver: "
            f"{why[0] if why else type(error).__name__}",
        ) from None


def _check_device(backend: Backend) -> None:
    import torch

    if backend.device == "cpu":
        return
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None or found.type != backend.device:
        has = f"only {found.type!r}" if found is not None else "no accelerator at all"
        raise Failure(
            "device_missing",
            f"back end {backend.name!r} needs the device {backend.device!r}, torch sees {has}",
        )
