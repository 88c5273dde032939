"""From a live module and one call to an ONNX model. Nothing outside knows torch's exporters."""
