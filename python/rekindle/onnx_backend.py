"""Runs ONNX models on Rekindle's session, as an ``onnx.backend.base.Backend``.

An example, for a model with one input float32[2]:

    onnx_backend.prepare(model).run([np.array([1.0, 2.0], np.float32)])  # a named tuple of arrays, one an output

A model runs without gradients on the CPU: from a plan when the sizes of all values follow from those of the
inputs, node by node when they depend on data. What cannot be run is refused when the model is prepared, with
the node's name and op. docs/onnx.md says what is supported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
import torch
from onnx.backend.base import Backend, BackendRep, namedtupledict

from rekindle import _native

# NumPy has these through ml_dtypes only, and torch.from_numpy does not know them: they travel as bits.
_BITS = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
}
_NAME_OF = {dtype: name for name, (_, dtype) in _BITS.items()}


def to_torch(value: Any) -> Any:
    """Returns an array or TensorProto as a tensor, a list (a sequence) as a list of them, None as None (absent)."""
    if value is None:
        return None
    if isinstance(value, onnx.TensorProto):
        return to_torch(onnx.numpy_helper.to_array(value))
    if isinstance(value, list | tuple):
        return [to_torch(item) for item in value]
    if isinstance(value, torch.Tensor):
        return value
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if array.dtype.name in _BITS:
        bits, dtype = _BITS[array.dtype.name]
        return torch.from_numpy(array.view(bits).copy()).view(dtype)
    if array.dtype.kind not in "biufc":
        raise _native.Unsupported(f"arrays of {array.dtype} are not supported")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))


def to_numpy(value: Any) -> Any:
    """Does the inverse of to_torch."""
    if value is None:
        return None
    if isinstance(value, list):
        return [to_numpy(item) for item in value]
    if value.dtype in _NAME_OF:
        import ml_dtypes  # comes with onnx

        name = _NAME_OF[value.dtype]
        bits = torch.int16 if value.dtype == torch.bfloat16 else torch.uint8
        return value.contiguous().view(bits).numpy().view(getattr(ml_dtypes, name))
    return value.numpy()


def _element_type(array: np.ndarray) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def _runs(node: onnx.NodeProto) -> bool:
    """Tells whether the session has the node's op itself."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    name = f"{domain}::{node.op_type}" if domain else node.op_type
    control_flow = not domain and node.op_type in ("If", "Loop", "Scan", "SequenceMap")
    return control_flow or name in _native.supported_ops() or name in _native.interpreted_ops()


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with ops that ONNX defines by others, and that the session has not, replaced by those."""
    own = {(function.domain, function.name) for function in model.functions}
    foreign = {(node.domain, node.op_type) for node in model.graph.node if not _runs(node)} - own
    # Older releases of onnx have only the model's own functions; the importer then names what it lacks.
    if not foreign or "inline_schema_functions" not in signature(onnx.inliner.inline_selected_functions).parameters:
        return model
    return onnx.inliner.inline_selected_functions(model, sorted(foreign), inline_schema_functions=True)


class RekindleRep(BackendRep):
    """Runs one prepared model."""

    def __init__(self, model: onnx.ModelProto, device: torch.device | str = "cpu") -> None:
        """Imports the model, to be run on a device; raises Unsupported or Corruption, naming the node, where that fails."""
        self._device = torch.device(device)
        self._model = _native.OnnxModel(_inlined(model).SerializeToString())

    @property
    def why_interpreted(self) -> str:
        """Says why the last run had no plan; empty when it had one."""
        return self._model.why_interpreted

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs on arrays, in the order of the model's inputs or by name; returns a named tuple of arrays.

        Raises ValueError for an input by a name that the model has not.
        """
        names = self._model.inputs
        if isinstance(inputs, Mapping):
            unknown = inputs.keys() - set(names)
            if unknown:
                raise ValueError(f"the model has no input {sorted(unknown)}; it has {names}")
            inputs = [inputs.get(name) for name in names]
        elif isinstance(inputs, np.ndarray | torch.Tensor):
            inputs = [inputs]
        results = self._model.run([_moved(to_torch(value), self._device) for value in inputs])
        return namedtupledict("Outputs", self._model.outputs)(*(to_numpy(_moved(one, torch.device("cpu"))) for one in results))


def _moved(value: Any, device: torch.device) -> Any:
    """Returns a tensor, a list of such or None on a device."""
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    return value if value is None else value.to(device)


class RekindleBackend(Backend):
    """Implements the interface that ONNX's backend tests expect."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Tells whether prepare would succeed."""
        try:
            cls.prepare(model, device)
        except _native.RekindleError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> RekindleRep:
        """Returns a runnable model; raises Unsupported or Corruption (both RuntimeError) when it cannot be run."""
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r} is not supported; use 'CPU'")
        return RekindleRep(model)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepares the model and runs it once."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node on arrays, one for each input it names.

        node: the node
        inputs: arrays
        device: "CPU"
        opset_version: the newest by default
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        values = [np.asarray(value) for value in inputs]
        infos = [
            onnx.helper.make_tensor_value_info(name, _element_type(value), value.shape)
            for name, value in zip(names, values, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, results)
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        opset = onnx.helper.make_opsetid(node.domain, version)
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=[opset]), values, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tells whether the device is "CPU", with any number."""
        return device.split(":")[0] == "CPU"


is_compatible = RekindleBackend.is_compatible
prepare = RekindleBackend.prepare
run_model = RekindleBackend.run_model
run_node = RekindleBackend.run_node
supports_device = RekindleBackend.supports_device
