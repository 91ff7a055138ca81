"""scripts/fetch-poems, with stand-ins for the network."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from legs import ROOT

SCRIPT = ROOT / "scripts" / "fetch-poems"


@pytest.fixture
def fetch() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("fetch_poems", str(SCRIPT))
    spec = importlib.util.spec_from_loader("fetch_poems", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def make_archive(path: Path, poems: dict[str, list[list[str]]]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in poems.items():
            data = json.dumps([{"paragraphs": p} for p in content]).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


GOOD = ["甲乙丙丁戊，己庚辛壬癸。", "子丑寅卯辰，巳午未申酉。"]
SEVEN = ["甲乙丙丁戊己庚，己庚辛壬癸子丑。"] * 2
TORN = ["甲乙丙丁戊，己庚辛壬□。"] * 2


def test_only_whole_poems_in_order_and_once(fetch: ModuleType, tmp_path: Path) -> None:
    folder = "package/dist/quantangshi"
    later = [line.replace("甲", "亥") for line in GOOD]
    archive = tmp_path / "a.tgz"
    make_archive(
        archive,
        {
            f"{folder}/poet.tang.10000.json": [later],
            f"{folder}/poet.tang.0.json": [GOOD, SEVEN, TORN, GOOD[:1], GOOD],
            f"{folder}/poet.song.0.json": [GOOD],
        },
    )
    assert fetch.choose(fetch.poems_of_archive(archive)) == ["".join(GOOD), "".join(later)]


def test_rare_characters_are_left_out(fetch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "CHARACTERS", 22)
    others = [[line.replace(old, new) for line in GOOD] for old, new in ("甲戌", "乙亥")]
    assert fetch.choose(iter([*others, GOOD])) == ["".join(GOOD)]


def run(tmp_path: Path, npm: str) -> subprocess.CompletedProcess[str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "npm").write_text(f"#!/bin/sh\n{npm}\n")
    (tools / "npm").chmod(0o755)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"),
           "PATH": f"{tools}:/usr/bin:/bin"}  # fmt: skip
    out = tmp_path / "poems.txt"
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(out)], env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("npm", "word"),
    [
        ("echo 'no such thing' >&2; exit 1", "no such thing"),
        ('echo rubbish >"$4/chinese-poetry-2.0.1.tgz"', "not the file that was pinned"),
    ],
)
def test_without_the_package(tmp_path: Path, npm: str, word: str) -> None:
    done = run(tmp_path, npm)
    assert word in done.stderr and "Traceback" not in done.stderr
    if Path("/usr/share/games/fortunes/tang300").exists():
        assert done.returncode == 0
    else:
        assert done.returncode == 1 and "fortunes-zh" in done.stderr
        assert not (tmp_path / "poems.txt").exists()
    assert not list((tmp_path / "cache").rglob("*.tgz")), "a bad file must not be kept"


def test_fallback_reads_fortunes(
    fetch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"\x1b[32m《题》\x1b[m\n作者：某\n\n{GOOD[0]}\n{GOOD[1]}\n%\n《二》\n{SEVEN[0]}\n%\n"
    (tmp_path / "tang300").write_text(text, encoding="utf-8")
    monkeypatch.setattr(fetch, "FORTUNES", tmp_path / "tang300")
    assert fetch.choose(fetch.poems_of_fortunes()) == ["".join(GOOD)]
