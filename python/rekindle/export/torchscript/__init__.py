"""The adapter of torch.onnx's TorchScript exporter: traces, symbolic functions, nodes of the torch domain."""
