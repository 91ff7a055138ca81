"""What a training script imports to run on any chip and to survive a change of chip.

    import anychip
    args = anychip.parse_args(parser)            # adds --backend, --seed, --save-every, ...
    run = anychip.Run(args, model, optimizer)    # resumes by itself
    while run.go(args.steps):
        run.step(*data.batch(run.samples))
    run.finish()                                 # exit 0 complete, 75 stopped early

Importing this package does not import torch: the names below are loaded when first used, so that
parse_args can take over SIGTERM before the slow imports of a back end begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anychip.arguments import parse_args
from anychip.errors import Failure

if TYPE_CHECKING:
    from anychip.run import Run

__all__ = ["EXIT_STOPPED", "Failure", "Run", "__version__", "parse_args"]
__version__ = "0.1.0"

EXIT_STOPPED = 75


def __getattr__(name: str) -> object:
    if name == "Run":
        from anychip.run import Run

        return Run
    raise AttributeError(f"module 'anychip' has no attribute {name!r}")
