"""Adapts torch.onnx's TorchScript exporter: traces, symbolic functions, nodes of the torch domain."""
