"""Names the device of a call in entries by what it is, not by its index, so that an entry of one rank is right for another.

An example: a module on cuda:1 returns (y, y.device). Its entry says {"device": "call"} where the result has {"device": "cuda:1"};
a process whose module is on cuda:0 returns torch.device("cuda:0").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

OF_CALL = "call"  # no name of a device


def without_index(value: Any, device: torch.device) -> Any:
    """Returns a structure, or a value of a call of a Function, as an entry has it; `device`: that of the exported call."""
    return value if device.type == "cpu" else _renamed(value, {str(device): OF_CALL})


def on_device(value: Any, device: torch.device) -> Any:
    """Returns what an entry has as it is for a call on `device`."""
    return _renamed(value, {OF_CALL: str(device)})


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"device"} and type(value["device"]) is str:
            return {"device": names.get(value["device"], value["device"])}
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(item, names) for item in value]
    return value
