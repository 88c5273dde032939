"""Makes an ONNX model of a live module and one call. Nothing outside knows torch's exporters."""
