"""The command-line options every training script gets, with defaults from the instance."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from anychip import backends, control


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds our options; the defaults come from the variables the instance was started with."""
    env = os.environ.get
    group = parser.add_argument_group("anychip")
    group.add_argument(
        "--backend",
        default=env("ANYCHIP_BACKEND", "cpu"),
        choices=backends.names(),
        help="how to reach the chip (default: %(default)s)",
    )
    group.add_argument("--seed", type=int, default=int(env("ANYCHIP_SEED", "1")))
    group.add_argument(
        "--save-every",
        type=int,
        default=int(env("ANYCHIP_SAVE_EVERY", "0")),
        metavar="STEPS",
        help="also write a checkpoint every so many steps (0: only when stopped and at the end)",
    )
    group.add_argument(
        "--keep", type=int, default=3, metavar="N", help="checkpoints kept (default: %(default)s)"
    )
    group.add_argument("--ckpt", default=env("ANYCHIP_CKPT", "checkpoints"), metavar="FOLDER")
    group.add_argument("--metrics", default=env("ANYCHIP_METRICS", "metrics.jsonl"), metavar="FILE")


def parse_args(
    parser: argparse.ArgumentParser | None = None, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Adds our options to `parser` and parses. From here on SIGTERM no longer kills the process."""
    parser = parser or argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(argv)
    if args.keep < 1:
        parser.error("--keep must be at least 1")
    if args.save_every < 0:
        parser.error("--save-every must not be negative")
    control.install_signals()
    return args
