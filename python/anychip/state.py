"""Model and optimizer as plain host tensors, named by parameter and by nothing else.

No index, no device and no order of construction is in these names, so what one chip wrote any
other can read.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from anychip.errors import Failure

SEPARATOR = ":"  # between a parameter's name and the optimizer's word; no parameter name has one


def _host_copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """On the host, dense, and no two sharing memory: shared weights are written twice."""
    seen: set[int] = set()
    copies: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        storage = copy.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != copy.numel() * copy.element_size():
            copy = copy.clone()
            storage = copy.untyped_storage()
        seen.add(storage.data_ptr())
        copies[name] = copy
    return copies


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights. Refuses weights that are not finite: such a checkpoint could only be resumed
    into the same misery."""
    copies = _host_copies(model.state_dict())
    for name, tensor in copies.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Failure("weights_not_finite", f"weight {name} is not finite: no checkpoint made")
    return copies


class _Names(dict[int, str]):
    """Parameter names by id."""

    def __missing__(self, key: int) -> str:
        raise Failure(
            "optimizer_detached",
            "the optimizer holds parameters that are not the model's: they would never train",
        )


def _names(model: nn.Module) -> _Names:
    return _Names({id(parameter): name for name, parameter in model.named_parameters()})


def optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The optimizer's tensors by `parameter:key`, and its plain values likewise."""
    names = _names(model)
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            full = f"{names[id(parameter)]}{SEPARATOR}{key}"
            if torch.is_tensor(value):
                tensors[full] = value
            elif _is_plain(value):
                values[full] = value
            else:
                raise Failure(
                    "optimizer_unsupported",
                    f"{type(optimizer).__name__} keeps {key!r} as {type(value).__name__}, "
                    "which a checkpoint cannot carry",
                )
    return _host_copies(tensors), values


def optimizer_groups(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Each group's settings and the names of its parameters."""
    names = _names(model)
    groups = []
    for group in optimizer.param_groups:
        settings = {key: _plain(value) for key, value in group.items() if key != "params"}
        settings = {key: value for key, value in settings.items() if _is_plain(value)}
        groups.append({"params": [names[id(p)] for p in group["params"]], "settings": settings})
    return groups


def model_difference(model: nn.Module, shapes: dict[str, list[int]]) -> str | None:
    """How the stored weights are of another model, in words; None when they fit."""
    own = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    parts = []
    for title, names in (
        ("it lacks", sorted(own.keys() - shapes.keys())),
        ("it has besides", sorted(shapes.keys() - own.keys())),
    ):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            parts.append(f"{title} {', '.join(names[:3])}{more}")
    for name in sorted(own.keys() & shapes.keys()):
        if own[name] != shapes[name]:
            parts.append(f"{name} is {_shape(shapes[name])} there and {_shape(own[name])} here")
            break
    return "; ".join(parts) or None


def _shape(sizes: list[int]) -> str:
    return "x".join(map(str, sizes)) or "a scalar"


def restore_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, torch.Tensor],
    values: dict[str, Any],
    groups: list[dict[str, Any]],
) -> None:
    """Puts state and settings back. What the checkpoint says wins over the script's arguments."""
    here = [group["params"] for group in optimizer_groups(model, optimizer)]
    if here != [group["params"] for group in groups]:
        raise Failure(
            "optimizer_other", "the checkpoint's optimizer has other groups of parameters than ours"
        )
    parameters = dict(model.named_parameters())
    for full, value in [*tensors.items(), *values.items()]:
        name, _, key = full.rpartition(SEPARATOR)
        if name in parameters:
            optimizer.state[parameters[name]][key] = value
    for group, stored in zip(optimizer.param_groups, groups, strict=True):
        for key, value in stored["settings"].items():
            own = group.get(key)
            if torch.is_tensor(own):
                own.fill_(value)
            else:
                group[key] = tuple(value) if isinstance(own, tuple) else value


def _plain(value: Any) -> Any:
    if torch.is_tensor(value) and value.numel() == 1:
        return value.item()
    return value


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def plain_dict(values: dict[str, Any]) -> dict[str, Any]:
    """What of a schedule's state JSON can carry; its functions come from the script."""
    return {key: _plain(value) for key, value in values.items() if _is_plain(_plain(value))}
