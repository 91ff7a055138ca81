"""The image's packages are pinned by version and hash, and nothing they import is missing."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from legs import ROOT, TPU_SITE

FOLDER = ROOT / "catalog" / "images" / "requirements"
FILES = [*sorted(FOLDER.glob("*.txt")), Path(__file__).with_name("requirements.txt")]
# Named by a package, not imported by us; each is explained in the file's head.
LEFT_OUT = {"jax", "libtpu", "tensorboard", "frozendict", "psutil", "torch"}


def pins(path: Path) -> dict[str, str]:
    text = path.read_text().replace("\\\n", " ")
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith(("#", "-r ")):
            continue
        match = re.fullmatch(r"([a-z0-9-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        assert match, f"{path.name}: {line!r}"
        found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_line_is_pinned_and_hashed(path: Path) -> None:
    pins(path)
    assert "://" not in path.read_text()


def test_torch_layer_is_complete() -> None:
    pinned = pins(FOLDER / "torch.txt")
    for name, version in pinned.items():
        package = importlib.metadata.distribution(name)
        assert package.version == version
        for requirement in package.requires or []:
            if "extra ==" not in requirement:
                needed = re.match(r"[\w-]+", requirement)
                assert needed and needed[0].lower().replace("_", "-") in pinned, requirement


def test_tpu_layer_is_complete_but_for_what_is_explained() -> None:
    pinned = pins(FOLDER / "tpu-sim.txt")
    below = pins(FOLDER / "torch.txt")
    assert not pinned.keys() & below.keys()
    packages = list(importlib.metadata.distributions(path=[str(TPU_SITE)]))
    found = {p.name.lower().replace("_", "-"): p for p in packages}
    assert found.keys() == pinned.keys()
    for package in packages:
        for requirement in package.requires or []:
            if ";" not in requirement:
                needed = re.match(r"[\w-]+", requirement)
                assert needed
                name = needed[0].lower().replace("_", "-")
                assert name in pinned or name in below or name in LEFT_OUT, requirement
