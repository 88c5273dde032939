"""Measures torch.onnx.export of a model: a variant of trial.py that trains nothing."""

import argparse
import io
from typing import Any

import torch
from stopwatch import Stopwatch
from workloads import WORKLOADS


class Positional(torch.nn.Module):
    """Calls a model with the arguments of these names: the exporter hands keyword arguments on in another order."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Returns what the model returns."""
        return self.model(**dict(zip(self.names, tensors)))


class Export:
    """Exports a model in training with torch.onnx.export, by tracing, as Rekindle does.

    What the exporter has no ONNX op for stays PyTorch's operator, in Rekindle as well: without that GPT-2 has no export.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        workload = WORKLOADS[arguments.model]
        torch.manual_seed(arguments.seed)
        self._model = workload.make_model(arguments.dropout).train()
        self._batches = workload.batches(arguments.seed)
        self._steps = 0

    def step(self) -> dict[str, Any]:
        """Exports once and returns the event."""
        batch = next(self._batches)
        watch = Stopwatch()
        torch.onnx.export(
            Positional(self._model, [*batch]),
            tuple(batch.values()),
            io.BytesIO(),
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            export_params=False,
            operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
        )
        self._steps += 1
        return {"event": "step", "step": self._steps, "seconds": watch.lap()}

    def result(self) -> dict[str, Any]:
        """Returns an empty result: the step's time is the figure."""
        return {"event": "result"}
