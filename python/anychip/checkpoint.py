"""Checkpoints on disk: complete or not there at all.

A checkpoint is a folder `step-00000123` with model.safetensors, optim.safetensors and meta.json. It
is written under another name, every file and folder is synchronised, and the rename makes it exist.
meta.json holds the sha256 of the others and of itself, so that a torn or rotten one is recognised.
Nothing here needs torch; the tensors come as bytes on disk from the caller's `write`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anychip.errors import Failure

MODEL = "model.safetensors"
OPTIMIZER = "optim.safetensors"
META = "meta.json"
FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")


class Broken(Exception):
    """A checkpoint that does not verify; why is its text."""


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _meta_digest(meta: dict[str, Any]) -> str:
    text = json.dumps({**meta, "digest": ""}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _order(name: str) -> tuple[int, int] | None:
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else None


def names(folder: Path) -> list[str]:
    """The checkpoints in the folder, the newest first, good or not."""
    try:
        found = [(order, entry.name) for entry in folder.iterdir() if (order := _order(entry.name))]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(found, reverse=True)]


def save(folder: Path, step: int, meta: dict[str, Any], write: Callable[[Path], None]) -> str:
    """Writes a checkpoint of `step`; `write` puts the tensor files into the folder it is given.

    Returns the new name. An existing checkpoint is never written over: a second one of the same
    step gets a name of its own.
    """
    try:
        return _save(folder, step, meta, write)
    except OSError as error:
        raise Failure(
            "checkpoint_failed", f"the checkpoint of step {step} cannot be written: {error}"
        ) from None


def _save(folder: Path, step: int, meta: dict[str, Any], write: Callable[[Path], None]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    name = base = f"step-{step:08d}"
    repeat = 0
    while (folder / name).exists():
        repeat += 1
        name = f"{base}.{repeat}"
    temporary = folder / f".{name}.tmp-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        write(temporary)
        files = sorted(path for path in temporary.iterdir())
        meta = {
            **meta,
            "format": FORMAT,
            "step": step,
            "files": {p.name: {"sha256": _sha256(p), "bytes": p.stat().st_size} for p in files},
        }
        meta["digest"] = _meta_digest(meta)
        (temporary / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
        for path in [*files, temporary / META, temporary]:
            _sync(path)
        os.rename(temporary, folder / name)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(folder)
    _point_latest(folder, name)
    return name


def _point_latest(folder: Path, name: str) -> None:
    """`latest` is for people and tools; a resume looks at the checkpoints themselves."""
    temporary = folder / f".latest.tmp-{os.getpid()}"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(name + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / "latest")
    _sync(folder)


def prune(folder: Path, keep: int) -> None:
    """Removes all but the newest `keep` checkpoints, and what interrupted writers left."""
    for name in names(folder)[keep:]:
        # Renamed first: a removal that is cut short must not leave half a checkpoint by that name.
        doomed = folder / f".{name}.old-{os.getpid()}"
        try:
            os.rename(folder / name, doomed)
        except OSError:
            continue
        shutil.rmtree(doomed, ignore_errors=True)
    for entry in folder.iterdir():
        if re.fullmatch(r"\.(step-.*|latest)\.(tmp|old)-\d+", entry.name):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def verify(path: Path) -> dict[str, Any]:
    """The meta data of a checkpoint whose every byte is what was written; else Broken."""
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Broken(f"{META} is unreadable ({type(error).__name__})") from None
    if not isinstance(meta, dict) or meta.get("digest") != _meta_digest(meta):
        raise Broken(f"{META} does not match its own digest")
    if meta.get("format") != FORMAT:
        # Well formed and not ours: skipping it would silently throw a training away.
        raise Failure(
            "checkpoint_format",
            f"checkpoint {path.name} has format {meta.get('format')}, this package reads {FORMAT}",
        )
    for name, expected in meta["files"].items():
        file = path / name
        if not file.is_file():
            raise Broken(f"{name} is missing")
        if file.stat().st_size != expected["bytes"]:
            raise Broken(f"{name} has {file.stat().st_size} bytes instead of {expected['bytes']}")
        if _sha256(file) != expected["sha256"]:
            raise Broken(f"{name} has another sha256 than when it was written")
    return meta


def newest(
    folder: Path,
    max_step: int | None = None,
    on_broken: Callable[[str, str], None] | None = None,
) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that verifies, broken ones passed over; None when there is none at all.

    When there are some and none verifies, that is a Failure: starting from zero without a word
    would look like a loss of the whole training.
    """
    candidates = [
        name
        for name in names(folder)
        if max_step is None or (order := _order(name)) is None or order[0] <= max_step
    ]
    for name in candidates:
        try:
            return folder / name, verify(folder / name)
        except Broken as broken:
            print(f"anychip: checkpoint {name} is passed over: {broken}", file=sys.stderr)
            if on_broken is not None:
                on_broken(name, str(broken))
    if candidates:
        raise Failure(
            "checkpoints_broken",
            f"none of the {len(candidates)} checkpoints in {folder} verifies; "
            "remove them to start from the beginning",
        )
    return None
