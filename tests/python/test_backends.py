"""The table of back ends is data, and agrees with the catalogue."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import anychip
import pytest
from anychip import backends
from anychip.errors import Failure
from legs import ROOT


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    backends.table.cache_clear()
    yield
    backends.table.cache_clear()


def test_the_words_after_backend() -> None:
    wanted = {"cpu", "cuda", "rocm", "tpu", "ascend", "mlu", "gcu", "mtia", "musa", "xpu", "hpu"}
    assert wanted <= set(backends.names())


def test_agrees_with_the_catalogue() -> None:
    rows: dict[str, str] = {}
    name = ""
    for line in (ROOT / "catalog" / "back_ends.yaml").read_text().splitlines():
        key, _, value = line.strip().removeprefix("- ").partition(": ")
        if key == "id":
            name = value
        elif key == "torch_device":
            rows[name] = value
    assert rows | {n: row.device for n, row in backends.table().items()} == rows


def test_no_vendor_in_the_code() -> None:
    words = ["nvidia", "huawei", "cambricon", "enflame", "habana", '"cuda"', '"npu"', '"tpu"']
    for path in (ROOT / "python" / "anychip").glob("*.py"):
        if path.name.startswith("sim_"):
            continue
        text = path.read_text().lower()
        assert not [word for word in words if word in text], path.name


def test_an_image_can_bring_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "backends.json"
    path.write_text(json.dumps({"backends": {"abacus": {"device": "beads", "future": 1}}}))
    monkeypatch.setenv("ANYCHIP_BACKENDS", str(path))
    assert backends.names() == ["abacus"]
    path.write_text("{")
    backends.table.cache_clear()
    with pytest.raises(Failure) as caught:
        backends.names()
    assert caught.value.reason == "backends_unreadable"


def test_arguments_default_to_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCHIP_BACKEND", "ascend")
    monkeypatch.setenv("ANYCHIP_CKPT", "/c")
    monkeypatch.setenv("ANYCHIP_METRICS", "/m")
    args = anychip.parse_args(argparse.ArgumentParser(), [])
    assert (args.backend, args.ckpt, args.metrics, args.seed) == ("ascend", "/c", "/m", 1)
    assert anychip.parse_args(argv=["--backend", "cpu"]).backend == "cpu"
    for bad in (["--keep", "0"], ["--save-every", "-1"], ["--backend", "x"]):
        with pytest.raises(SystemExit) as caught:
            anychip.parse_args(argv=bad)
        assert caught.value.code == 2


def test_failure_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure("reason_word", "what is wrong")
    assert failure.code == "anychip: what is wrong" and failure.reason == "reason_word"
