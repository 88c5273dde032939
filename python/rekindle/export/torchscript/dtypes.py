"""Lists the dtypes of a graph: as PyTorch has them, by their names in a trace and by their numbers in ONNX."""

from __future__ import annotations

import torch

_TABLE = (
    ("Float", torch.float32, 1), ("Byte", torch.uint8, 2), ("Char", torch.int8, 3), ("Short", torch.int16, 5),
    ("Int", torch.int32, 6), ("Long", torch.int64, 7), ("Bool", torch.bool, 9), ("Half", torch.float16, 10),
    ("Double", torch.float64, 11), ("ComplexFloat", torch.complex64, 14), ("ComplexDouble", torch.complex128, 15),
    ("BFloat16", torch.bfloat16, 16),
)  # fmt: skip
DTYPES = {name: dtype for name, dtype, _ in _TABLE}
NUMBERS = {dtype: number for _, dtype, number in _TABLE}
