"""A second process trains from the cache, and runs nothing of the exporter or of the forward."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import python_process
import rekindle

# Trains for three steps and prints what happened. With "forbidden", all that an export would use raises.
_TRAIN = """
import json, sys
import module_support
import torch, rekindle
from module_support import tiny_gpt, tokens

mode = sys.argv[1]
model = tiny_gpt(0.1)
if mode == "eager":
    wrapped = model
else:
    wrapped = rekindle.Module(model, rekindle.Options(fallback="error"))
if mode == "forbidden":
    def forbidden(*args, **kwargs):
        raise AssertionError("this must not run on a hit")
    torch.onnx.export = torch.jit.trace = torch._C._create_graph_by_tracing = forbidden
    codes = {type(module).forward.__code__ for module in model.modules()}
    sys.setprofile(lambda frame, event, argument: forbidden() if event == "call" and frame.f_code in codes else None)
torch.manual_seed(5)
losses = []
for step in range(3):
    loss = wrapped(tokens(step), tokens(step))
    loss.backward()
    with torch.no_grad():  # by hand: torch.optim imports torch._dynamo, and that torch.onnx
        for parameter in wrapped.parameters():
            parameter -= 0.1 * parameter.grad
    wrapped.zero_grad()
    losses.append(loss.item())
sys.setprofile(None)
status = None if mode == "eager" else rekindle.status(wrapped)
print(json.dumps({
    "losses": losses,
    "parameters": [parameter.double().sum().item() for parameter in model.parameters()],
    "source": status and status.source,
    "export_seconds": status and status.export_seconds,
    "exporters": [name for name in ("onnx", "torch.onnx._internal.torchscript_exporter", "rekindle.export.torchscript.adapter")
                  if name in sys.modules],
}))
"""


def run(mode: str, script: str = _TRAIN) -> dict[str, Any]:
    """Run a script in a fresh process of this environment and return what it printed."""
    done = python_process.run("-c", script, mode, cwd=pathlib.Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_second_process_needs_no_exporter_and_no_forward() -> None:
    eager, first, second, third = (run(mode) for mode in ("eager", "populate", "forbidden", "populate"))
    assert (first["source"], second["source"], third["source"]) == ("export", "local", "local")
    assert first["exporters"]
    assert third["exporters"] == []  # in the second, replacing torch.onnx.export loaded its package
    assert second["export_seconds"] == third["export_seconds"] == 0.0
    for ours in (first, second, third):
        assert ours["losses"] == pytest.approx(eager["losses"], rel=1e-5)
        assert ours["parameters"] == pytest.approx(eager["parameters"], rel=1e-4, abs=1e-4)
    assert first["losses"] == second["losses"]
    assert first["parameters"] == second["parameters"]
    stats = rekindle.cache.stats()
    assert (stats["entries"], stats["stores"], stats["hits"], stats["misses"]) == (1, 1, 2, 1)


# Training and evaluation take turns; argv[1] says in which order the process begins.
_TURNS = """
import json, sys
import module_support
import torch, rekindle
from module_support import Twins, tiny_gpt, tokens

twins = Twins(tiny_gpt(0.1), fallback="error")
sources = []
for mode in sys.argv[1].split(","):
    for model in (twins.eager, twins.wrapped):
        model.train(mode == "train")
    twins.call(tokens())
    sources.append([twins.status.exports, twins.status.hits])
print(json.dumps(sources))
"""


def test_training_and_evaluation_share_a_directory_across_processes() -> None:
    assert run("train,eval,train", _TURNS) == [[1, 0], [2, 0], [2, 0]]
    assert run("eval,train,eval", _TURNS) == [[0, 1], [0, 2], [0, 2]]
    assert rekindle.cache.stats()["entries"] == 2
