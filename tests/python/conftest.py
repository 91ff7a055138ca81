"""Shared by the Python tests. They run in the environment that scripts/python-env makes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

from legs import Training  # noqa: E402


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """parse_args takes SIGTERM over; pytest itself must stay killable."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path / "training")


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Sixty steps on the CPU, uninterrupted: what every other run is compared with."""
    whole = Training(tmp_path_factory.mktemp("reference"))
    assert whole.leg("cpu").code == 0
    return whole
