"""The simulated TPU: PyTorch's own TPU back end over a PJRT plugin that runs on the CPU.

Everything above the plugin is what a real TPU would use. The instance's environment names the
libraries before Python starts, because torch_tpu opens them while it is imported:
TPU_LIBRARY_PATH is our shim, ANYCHIP_PJRT_REAL the plugin behind it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import json
import os
import sys
from typing import Any

from anychip.errors import Failure

_attention_choice = contextlib.ExitStack()


@functools.cache
def load() -> None:
    """Registers the device `tpu` with torch."""
    library = os.environ.get("TPU_LIBRARY_PATH", "")
    if not library:
        raise Failure(
            "environment_incomplete",
            "the simulated TPU needs TPU_LIBRARY_PATH in the environment before Python starts",
        )
    # torch_tpu aborts the process when the plugin is not there: look first and say so instead.
    _check_library("TPU_LIBRARY_PATH", library)
    real = os.environ.get("ANYCHIP_PJRT_REAL")
    if real:
        _check_library("ANYCHIP_PJRT_REAL", real)
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # else it may ask a cloud's metadata address for minutes
    said = io.StringIO()  # it chats about what a simulation has not: libtpu, another allocator
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            loader: Any = importlib.import_module("torch_tpu._loader")
            # Public loading looks for chips on the PCI bus, and there is none.
            loader._init_device("tpu")
    except Exception as error:
        sys.stderr.write(said.getvalue())
        why = str(error).strip().splitlines()
        raise Failure(
            "plugin_missing",
            f"the simulated TPU needs the package torch_tpu: {why[0] if why else error!r}",
        ) from None
    _use_plain_attention()


def _check_library(variable: str, path: str) -> None:
    try:
        # RTLD_LOCAL (the default): the plugin's own copies of common libraries stay its own.
        library = ctypes.CDLL(path)
    except OSError as error:
        raise Failure(
            "plugin_missing", f"{variable} names a library that cannot be loaded: {error}"
        ) from None
    if not hasattr(library, "GetPjrtApi"):
        raise Failure("plugin_missing", f"{variable} names {path}, which is no PJRT plugin")


def _use_plain_attention() -> None:
    # The fused attention of torch_tpu is a kernel that only a TPU can run.
    from torch.nn.attention import SDPBackend, sdpa_kernel

    _attention_choice.enter_context(sdpa_kernel(SDPBackend.MATH))


def synchronize() -> None:
    """Waits for the chip."""
    import torch

    torch.accelerator.synchronize()


@functools.cache
def _stats_function() -> Any:
    path = os.environ.get("TPU_LIBRARY_PATH", "")
    try:
        function = ctypes.CDLL(path).anychip_pjrt_stats_json
    except (OSError, AttributeError):
        return None  # another plugin than our shim counts nothing
    function.argtypes = []
    function.restype = ctypes.c_char_p
    return function


def stats() -> dict[str, int] | None:
    """The shim's counters, or None without the shim."""
    function = _stats_function()
    if function is None:
        return None
    try:
        values = json.loads((function() or b"{}").decode("utf-8"))
    except ValueError:
        return None
    return {key: value for key, value in values.items() if isinstance(value, int)}
