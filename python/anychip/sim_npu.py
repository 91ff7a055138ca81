"""A stand-in for a domestic NPU: a torch device named `npu` in pure Python, memory on the host.

It is a test double. It shows that a script reaches a foreign device at all (its parameters live
there, its optimizer follows, its checkpoint comes back) and says nothing about a vendor's kernels,
precision or speed: each operator is executed by torch's CPU kernels.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

NAME = "npu"

operator_calls: Counter[str] = Counter()
_copied = Counter[str]()
_registered: list[torch.library.Library] = []


class NpuTensor(torch.Tensor):
    """A tensor whose device is `npu:0`; `host` is the CPU tensor that holds its values."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls: type[NpuTensor], host: torch.Tensor, requires_grad: bool = False) -> NpuTensor:
        wrapper: NpuTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(f"{NAME}:0"),
            requires_grad=requires_grad,
        )
        wrapper.host = host
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _execute(func, args, kwargs or {})


@functools.cache
def load() -> None:
    """Registers the device `npu` with torch. One foreign device fits a process."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    setup: Callable[[str], None] = _setup_privateuseone_for_python_backend
    setup(NAME)
    library = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    library.fallback(lambda op, *args, **kwargs: _execute(op, args, kwargs), "PrivateUse1")  # type: ignore[no-untyped-call]
    _registered.append(library)  # the registration lives as long as this object


def synchronize() -> None:
    """Nothing to wait for: every operator has run when its call returns."""


def stats() -> dict[str, int] | None:
    """What the double can count: operators run and bytes that crossed between host and device."""
    return {
        "executions": sum(operator_calls.values()),
        "host_to_device_bytes": _copied["in"],
        "device_to_host_bytes": _copied["out"],
    }


def _to_host(value: Any) -> Any:
    if isinstance(value, NpuTensor):
        return value.host
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return value


def _to_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not isinstance(value, NpuTensor):
        return NpuTensor(value)
    return value


def _execute(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    operator_calls[str(op)] += 1
    asked = kwargs.get("device")
    leaves_device = asked is not None and torch.device(asked).type == "cpu"
    host_args, host_kwargs = pytree.tree_map(_to_host, (tuple(args), kwargs))
    result = op(*host_args, **host_kwargs)
    first = args[0] if args else None
    if op is torch.ops.aten._local_scalar_dense.default:
        return result
    if op is torch.ops.aten._to_copy.default:
        _count_copy(isinstance(first, NpuTensor), not leaves_device, result)
        if leaves_device:
            return result
    if op is torch.ops.aten.copy_.default:
        _count_copy(isinstance(args[1], NpuTensor), isinstance(first, NpuTensor), result)
        if not isinstance(first, NpuTensor):
            return first
    return pytree.tree_map_only(
        torch.Tensor, lambda out: _as_returned(op, args, kwargs, out), result
    )


def _count_copy(from_device: bool, to_device: bool, result: torch.Tensor) -> None:
    if from_device != to_device:
        _copied["in" if to_device else "out"] += result.numel() * result.element_size()


def _as_returned(op: Any, args: Sequence[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Any:
    # An in-place operator must give back the very object it was given, or autograd loses it.
    if op._schema.is_mutable:
        for given in pytree.tree_leaves((tuple(args), kwargs)):
            if isinstance(given, NpuTensor) and given.host is out:
                return given
    return _to_device(out)
