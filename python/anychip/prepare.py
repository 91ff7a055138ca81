"""Moves a model to a device and takes its optimizer along.

On many devices `model.to(device)` makes *new* parameter objects. An optimizer made before that goes
on updating the old ones: training runs, nothing fails, and the weights never change. Weights that
two layers share come apart in the same moment. Both are mended here, and the result is checked.
"""

from __future__ import annotations

import torch
from torch import nn

from anychip.errors import Failure

Place = tuple[nn.Module, str]


def move(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
    """Moves the model, mends shared weights, re-points the optimizer, and proves all three."""
    places = _places(model)
    before = {key: getattr(*group[0]) for key, group in places.items()}
    model.to(device)
    moved: dict[int, nn.Parameter] = {}
    for key, group in places.items():
        parameter = getattr(*group[0])
        for module, name in group[1:]:
            module._parameters[name] = parameter
        moved[key] = parameter
    repoint(optimizer, moved)
    del before  # kept the old objects alive, so that no id was used twice above
    prove(model, optimizer, device)


def _places(model: nn.Module) -> dict[int, list[Place]]:
    """For each parameter, by id, every module and attribute that holds it."""
    places: dict[int, list[Place]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
    return places


def repoint(optimizer: torch.optim.Optimizer, moved: dict[int, nn.Parameter]) -> None:
    """Gives the optimizer the new parameter objects, and their state to the same device."""
    for group in optimizer.param_groups:
        group["params"] = [moved.get(id(old), old) for old in group["params"]]
    for old in list(optimizer.state):
        state = optimizer.state.pop(old)
        new = moved.get(id(old), old)
        for key, value in state.items():
            # A step counter stays on the host unless the optimizer itself put it elsewhere.
            if torch.is_tensor(value) and not (key == "step" and value.device.type == "cpu"):
                state[key] = value.to(new.device)
        optimizer.state[new] = state


def prove(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
    """Fails unless the parameters are on the device and the optimizer holds exactly them."""
    wanted = torch.device(device).type
    for name, parameter in model.named_parameters():
        if parameter.device.type != wanted:
            raise Failure(
                "device_not_proved",
                f"parameter {name} is on {parameter.device}, not on {wanted}",
            )
    known = {id(parameter) for parameter in model.parameters()}
    for group in optimizer.param_groups:
        if any(id(parameter) not in known for parameter in group["params"]):
            raise Failure(
                "optimizer_detached",
                "the optimizer holds parameters that are not the model's: they would never train",
            )


def parameter_devices(model: nn.Module) -> str:
    """Where the parameters are: one device, or several joined by commas."""
    return ",".join(sorted({str(parameter.device) for parameter in model.parameters()})) or "none"
