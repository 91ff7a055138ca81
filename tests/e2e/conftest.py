from __future__ import annotations

import os
import pathlib
import tempfile

import pytest

from cloud import CACHE, PROGRAM, Cloud


@pytest.fixture(scope="session", autouse=True)
def machine():
    if os.geteuid() != 0:
        pytest.skip("containers, mounts and loop devices need root", allow_module_level=True)
    assert PROGRAM.exists(), "build/anychip is missing: make build"
    CACHE.mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="module")
def cloud(request):
    """One server and agent for a module's tests, with nothing left behind afterwards."""
    base = pathlib.Path(os.environ.get("ANYCHIP_E2E_FOLDER", tempfile.gettempdir()))
    one = Cloud(pathlib.Path(tempfile.mkdtemp(prefix=f"anychip-{request.module.__name__[5:]}-", dir=base)) / "data")
    one.up()
    yield one
    one.run("down", "--all", timeout_s=120)
    left = (one.mounts(), one.loops(), one.containers(), one.monitors())
    one.close()
    assert left == ([], [], [], []), f"left behind after down --all: {left}"
