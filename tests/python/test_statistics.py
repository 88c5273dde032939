"""The statistics of one tensor are those that NumPy computes in double precision, whatever the tensor is."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from typing import Any

import pytest
import rekindle
import torch
from rekindle.statistics import summary
from rekindle.statistics.summary import Summary, record_of
from statistics_support import by_numpy

INF, NAN = float("inf"), float("nan")

TENSORS: dict[str, Any] = {
    "normal": lambda: torch.randn(3, 5, 7),
    "a number": lambda: torch.tensor(-2.5),
    "empty": lambda: torch.empty(0, 4),
    "one NaN": lambda: torch.tensor([1.0, -2.0, NAN]),
    "only NaN": lambda: torch.full((4,), NAN),
    "infinities": lambda: torch.tensor([INF, -INF, 0.0, 3.0, -0.0]),
    "zeros": lambda: torch.zeros(5),
    "bfloat16": lambda: torch.randn(1000).to(torch.bfloat16) * 300,
    "half that overflows in half": lambda: torch.full((4096,), 60000.0, dtype=torch.float16),
    "8 bits": lambda: torch.randn(64).to(torch.float8_e4m3fn),
    "single of large numbers": lambda: torch.randn(100) * 1e38,
    "double of huge numbers": lambda: torch.randn(100, dtype=torch.float64) * 1e300,
    "double of tiny numbers": lambda: torch.randn(100, dtype=torch.float64) * 1e-300,
    "denormal in double": lambda: torch.tensor([5e-324, -1e-310, 0.0], dtype=torch.float64),
    "denormal": lambda: torch.full((3,), 1e-40),
    "far from zero": lambda: torch.randn(10000, dtype=torch.float64) + 1e6,
    "bytes": lambda: torch.arange(200, dtype=torch.uint8),
    "integers": lambda: torch.tensor([-(2**52), 3, 0, 7]),
    "booleans": lambda: torch.tensor([True, False, True]),
    "complex": lambda: torch.randn(7, dtype=torch.complex64).conj(),
    "strided": lambda: torch.randn(6, 8)[::2, 1::3].t(),
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(9), 0.1, 3, torch.quint8),
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "of inference mode": lambda: torch.inference_mode()(lambda: torch.randn(3))(),
}


@pytest.mark.parametrize("way", ("at once", "in buckets", "as on a device"))
@pytest.mark.parametrize("name", TENSORS)
def test_statistics_are_those_of_double_precision(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = TENSORS[name]()
    bucket_size = 3 if way == "in buckets" else None
    histogram = Summary(tensor, bucket_size).statistics().histogram
    if way == "as on a device":
        monkeypatch.setattr(summary, "_answers_at_once", lambda x: False)
    found = dataclasses.asdict(Summary(tensor, bucket_size).statistics())
    assert found["histogram"] == histogram
    dense = tensor.dequantize() if tensor.is_quantized else tensor.detach().to_dense()
    for field, expected in by_numpy(dense).items():
        if isinstance(expected, float):
            scale = 1e-12 * max(abs(by_numpy(dense)["max"] or 0.0), abs(by_numpy(dense)["min"] or 0.0))
            assert found[field] == pytest.approx(expected, rel=1e-12, abs=scale if field in ("mean", "std") else 0.0), field
        else:
            assert found[field] == expected, field


def test_the_histogram_counts_powers_of_two_by_sign() -> None:
    x = torch.tensor([1.0, 1.999, 2.0, -0.5, -0.75, 0.0, NAN, INF, 2.0**-80, -(2.0**100), 2.0**-64, -(2.0**63)])
    histogram = Summary(x, 4).statistics().histogram
    assert histogram == [(-64, 0, 2), (-1, 2, 0), (0, 0, 2), (1, 0, 1), (63, 2, 0)]
    tiny = torch.tensor([5e-324, -1e-310, 0.0], dtype=torch.float64)
    assert Summary(tiny, None).statistics().histogram == [(-64, 1, 1)]


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64, torch.int64))
def test_the_histogram_counts_each_element_once(dtype: torch.dtype) -> None:
    x = (torch.randn(5000) * 50).to(dtype)
    histogram = Summary(x, 777).statistics().histogram
    for power, negative, positive in histogram:
        inside = (x.double().abs() >= 2.0**power) & (x.double().abs() < 2.0 ** (power + 1))
        assert (negative, positive) == (int((inside & (x < 0)).sum()), int((inside & (x > 0)).sum()))
    assert sum(n + p for _, n, p in histogram) == int((x != 0).sum())


def test_a_summary_is_of_what_the_tensor_held() -> None:
    x = torch.ones(4)
    made = Summary(x, 1 << 20, with_samples=True)
    x.mul_(5)
    assert made.statistics().max == 1
    assert made.samples() == [1.0] * 4


def test_nothing_of_the_tensor_changes() -> None:
    x = torch.randn(6, requires_grad=True)
    y = x * 2
    before = torch.get_rng_state()
    version = y._version
    Summary(y, 2)
    assert y._version == version and torch.equal(torch.get_rng_state(), before)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((6,), 2.0))


def test_a_norm_that_overflows_is_none_in_a_record() -> None:
    largest = torch.full((16,), torch.finfo(torch.float64).max, dtype=torch.float64)
    statistics = Summary(largest, 1 << 20).statistics()
    assert math.isinf(statistics.norm)
    assert record_of(statistics)["norm"] is None
    assert record_of(statistics)["max"] == torch.finfo(torch.float64).max


def test_a_start_does_not_import_what_only_subscriptions_need() -> None:
    code = "import sys, rekindle; print([name for name in sys.modules if name.startswith('rekindle.statistics.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['rekindle.statistics.inspection']"
    with pytest.raises(AttributeError, match="has no attribute 'unsubscribe'"):
        _ = rekindle.statistics.unsubscribe
