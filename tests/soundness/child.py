"""One process of a pair: imports the subject, calls it wrapped and in eager, and tells how the two compare.

Everything arrives in one JSON object, everything found out leaves in another.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

import rekindle
import torch
from rekindle.lookup import store
from torch.utils._pytree import tree_leaves

Job = dict[str, Any]


def run(job: Job) -> dict[str, Any]:
    """The outcome per mode: what the wrapped module did, whether it equals eager, and a digest of eager's results."""
    try:
        _enter(job)
        scope: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "os": os, "sys": sys}
        exec(job["both"] + "\n" + job["start"], scope)
        scope["subject"] = importlib.import_module("subject")
        return {mode: _outcome(job, mode, dict(scope)) for mode in job["modes"]}
    except Exception:
        return {"error": traceback.format_exc()}


def _enter(job: Job) -> None:
    for name, value in job["env"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.dont_write_bytecode = True
    sys.path.insert(0, job["code"])
    os.chdir(job["code"])
    torch.set_num_threads(1)


def _outcome(job: Job, mode: str, scope: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    model = scope["subject"].Net()
    model.train(mode == "train")
    scope["model"] = model
    exec(job["mutate"], scope)
    options = rekindle.Options(cache_dir=job["cache"], log="off")
    wrapped = scope["wrapped"] = rekindle.Module(model, options)
    state = [tensor.detach().clone() for tensor in model.state_dict().values()]
    explanation = _explanation(job["call"], scope, mode) if job["second"] else ""
    ours = _call(job["call"], {**scope, "model": wrapped}, mode)
    status = rekindle.status(wrapped)
    store.flush()
    with torch.no_grad():
        for tensor, before in zip(model.state_dict().values(), state, strict=True):
            tensor.copy_(before)
    theirs = _call(job["call"], scope, mode)
    return {
        "did": "hit" if status.hits else "export" if status.exports else "bypass",
        "why": [f"{code}: {message}" for code, message in status.bypass],
        "explanation": explanation,
        "differs": _difference(ours, theirs),
        "eager": [tensor.double().nan_to_num().flatten().tolist() for tensor in theirs.values()],
    }


def _explanation(expression: str, scope: dict[str, Any], mode: str) -> str:
    """What rekindle.explain says of the call that follows."""
    texts: list[str] = []
    wrapped = scope["wrapped"]

    def explain(*args: Any, **kwargs: Any) -> None:
        texts.append(str(rekindle.explain(wrapped, *args, **kwargs)))

    with torch.set_grad_enabled(mode == "train"):
        x = torch.zeros(3, 4, dtype=torch.float32, device="cpu", requires_grad=mode == "train")
        eval(expression, {**scope, "model": _Callable(explain), "x": x})
    return "\n".join(texts)


class _Callable:
    """Takes the place of a model in an expression: what it returns stands for any tensor."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._function(*args, **kwargs)
        return torch.zeros(1)


def _call(expression: str, scope: dict[str, Any], mode: str) -> dict[str, torch.Tensor]:
    """Outputs and, in training, gradients and buffers, by name."""
    torch.manual_seed(1)
    model = scope["model"]
    x = scope["x"] = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float32, device="cpu")
    found: dict[str, torch.Tensor] = {}
    model.zero_grad()
    with torch.set_grad_enabled(mode == "train"):
        x.requires_grad_(mode == "train")
        result = eval(expression, scope)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if mode == "train" and any(output.requires_grad for output in outputs):
            sum((output * _weights(output)).sum() for output in outputs if output.requires_grad).backward()
    for i, output in enumerate(outputs):
        found[f"output {i}"] = output.detach().clone()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient of {name}"] = parameter.grad.detach().clone()
    if x.grad is not None:
        found["gradient of x"] = x.grad
    for name, buffer in model.named_buffers():
        found[f"buffer {name}"] = buffer.detach().clone()
    return found


def _weights(output: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype, device=output.device).reshape(output.shape)


def _difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> str | None:
    if [*ours] != [*theirs]:
        return f"{[*ours]} instead of {[*theirs]}"
    for name, tensor in ours.items():
        other = theirs[name]
        if tensor.dtype != other.dtype or tensor.shape != other.shape:
            return f"{name} is {tensor.dtype}{list(tensor.shape)}, in eager {other.dtype}{list(other.shape)}"
        if not torch.allclose(tensor.double(), other.double(), rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"{name} is off by {(tensor.double() - other.double()).abs().max().item():.3g}"
    return None
