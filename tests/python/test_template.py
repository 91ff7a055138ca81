"""The template a newcomer starts with: short, resumable, and free of chips."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from legs import ROOT, Training

SCRIPT = ROOT / "catalog" / "templates" / "tang-poem-gpt" / "train.py"
SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "12", "--batch", "4")


@pytest.fixture
def poems(training: Training) -> Training:
    # Not poems, only their form: five made-up characters, comma, five more, full stop.
    characters = [chr(0x4E00 + i) for i in range(60)]
    lines = []
    for k in range(200):
        pick = [characters[(k * 7 + j * j * 3) % 60] for j in range(20)]
        cut = ["".join(pick[i : i + 5]) for i in range(0, 20, 5)]
        lines.append(f"{cut[0]}，{cut[1]}。{cut[2]}，{cut[3]}。")
    (training.folder / "poems.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return training


def test_short_and_free_of_chips() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 150
    chips = r"\b(cuda|npu|tpu|mlu|gcu|rocm|accelerator|is_available|synchronize)\b"
    assert not re.findall(chips, text.lower())


def test_switched_equals_uninterrupted(poems: Training, tmp_path: Path) -> None:
    args = (*SMALL, "--steps", "30", "--prompt", "一")
    whole = Training(tmp_path / "whole")
    (whole.folder / "poems.txt").write_bytes((poems.folder / "poems.txt").read_bytes())
    assert whole.leg("cpu", script=SCRIPT, args=args).code == 0
    for stop_at in (10, 20, None):
        leg = poems.leg("cpu", script=SCRIPT, args=args, stop_at=stop_at)
        assert leg.code == (0 if stop_at is None else 75), leg.output
        events = [line.get("event") for line in leg.lines]
        assert events.index("checkpoint") < events.index("sample")
        sample = leg.event("sample")
        assert sample["step"] == (stop_at or 30) and len(sample["text"]) == 11
        assert sample["text"].startswith("一")
    assert poems.losses() == whole.losses()
    assert whole.losses()[30] < whole.losses()[1]
    # The sample is drawn from the step, not from where the training had been interrupted.
    assert poems.legs[-1].event("sample")["text"] == whole.legs[-1].event("sample")["text"]


def test_sample_is_drawn_on_the_chip(poems: Training) -> None:
    args = (*SMALL, "--steps", "2")
    leg = poems.leg("ascend", "npu-sim", script=SCRIPT, args=args)
    assert leg.code == 0, leg.output
    assert leg.event("start")["parameter_device"] == "npu:0"
    assert leg.event("sample")["text"]
    assert leg.event("sample")["t"] - leg.event("checkpoint")["t"] < 5
