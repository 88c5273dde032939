"""The switches of torch: each is a field of the key, is seen by the guard of a call, and is as it was for a replay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from fingerprint_support import World
from module_support import Twins, rows
from rekindle import _native
from rekindle.key.ambient import PLACES
from torch import nn


@contextlib.contextmanager
def _set(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = read()
    try:
        write(value)
    except RuntimeError as error:
        pytest.skip(str(error))  # this processor has no such kernels
    try:
        yield
    finally:
        write(before)


def attribute(owner: Any, name: str) -> Callable[[], Any]:
    """The other value of a flag, for a while."""
    read = lambda: getattr(owner, name)  # noqa: E731
    return lambda: _set(read, lambda value: setattr(owner, name, value), not read())


def item(namespace: dict[str, Any], name: str) -> Callable[[], Any]:
    """Another value in a namespace of torch's, for a while."""
    return lambda: _set(lambda: namespace[name], lambda value: namespace.update({name: value}), f"not {namespace[name]}")


def precision(backend: str, op: str) -> Callable[[], Any]:
    """Another precision of float32 products, for a while."""
    read = lambda: torch._C._get_fp32_precision_getter(backend, op)  # noqa: E731
    write = lambda value: torch._C._set_fp32_precision_setter(backend, op, value)  # noqa: E731
    return lambda: _set(read, write, "ieee" if read() == "tf32" else "tf32")


_CUDA, _CUDNN = torch.backends.cuda, torch.backends.cudnn
_FP16 = torch._C._get_cpu_allow_fp16_reduced_precision_reduction, torch._C._set_cpu_allow_fp16_reduced_precision_reduction

CHANGES: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "anomaly_mode": lambda: torch.autograd.set_detect_anomaly(True),
    "default_dtype": lambda: _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default_device": lambda: torch.device("cpu", 0),
    "deterministic.enabled": lambda: _set(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "deterministic.warn_only": lambda: _set(
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda value: torch.use_deterministic_algorithms(False, warn_only=value),
        True,
    ),
    "deterministic.fill_uninitialized": attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    "float32_matmul_precision": lambda: _set(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "cuda.reduced_fp16": attribute(_CUDA.matmul, "allow_fp16_reduced_precision_reduction"),
    "cuda.reduced_bf16": attribute(_CUDA.matmul, "allow_bf16_reduced_precision_reduction"),
    "cuda.fp16_accumulation": attribute(_CUDA.matmul, "allow_fp16_accumulation"),
    "cpu.reduced_fp16": lambda: _set(*_FP16, not _FP16[0]()),
    "cudnn.enabled": attribute(_CUDNN, "enabled"),
    "cudnn.benchmark": attribute(_CUDNN, "benchmark"),
    "cudnn.deterministic": attribute(_CUDNN, "deterministic"),
    "mkldnn.enabled": attribute(torch.backends.mkldnn, "enabled"),
    "mkldnn.deterministic": attribute(torch.backends.mkldnn, "deterministic"),
    "nnpack.enabled": lambda: torch.backends.nnpack.flags(enabled=not torch._C._get_nnpack_enabled()),
    "sdp.flash": lambda: _set(_CUDA.flash_sdp_enabled, _CUDA.enable_flash_sdp, False),
    "sdp.mem_efficient": lambda: _set(_CUDA.mem_efficient_sdp_enabled, _CUDA.enable_mem_efficient_sdp, False),
    "sdp.math": lambda: _set(_CUDA.math_sdp_enabled, _CUDA.enable_math_sdp, False),
    "sdp.cudnn": lambda: _set(_CUDA.cudnn_sdp_enabled, _CUDA.enable_cudnn_sdp, False),
    "sdp.reduced_math": lambda: _set(_CUDA.fp16_bf16_reduction_math_sdp_allowed, _CUDA.allow_fp16_bf16_reduction_math_sdp, True),
    "autocast.cache": lambda: _set(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    **{
        f"fp32_precision.{backend}.{op}": precision(backend, op)
        for backend, op in (
            ("generic", "all"),
            *((backend, op) for backend in ("cuda", "mkldnn") for op in ("matmul", "conv", "rnn")),
        )
    },
    **{f"{namespace['__name__']}.{name}": item(namespace, name) for namespace, name in PLACES},
}
for _device in ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla", "privateuseone"):
    CHANGES[f"autocast.{_device}.enabled"] = lambda device=_device: _set(
        lambda: torch.is_autocast_enabled(device), lambda value: torch.set_autocast_enabled(device, value), True
    )
    CHANGES[f"autocast.{_device}.dtype"] = lambda device=_device: _set(
        lambda: torch.get_autocast_dtype(device), lambda value: torch.set_autocast_dtype(device, value), torch.float64
    )


def fields() -> dict[str, Any]:
    return {name.removeprefix("ambient."): value for name, value in World().describe().fields if name.startswith("ambient.")}


@pytest.fixture(autouse=True)
def _switches_were_set_before() -> None:
    torch.use_deterministic_algorithms(False)  # imports more of torch at its first call
    torch.set_float32_matmul_precision("highest")  # torch tells a default from the same value set by hand


def test_every_switch_has_a_case() -> None:
    assert fields().keys() == CHANGES.keys()


@pytest.mark.parametrize("name", CHANGES)
def test_a_switch_is_a_field_of_the_key_and_seen_by_a_guard(name: str) -> None:
    guard = _native.Guard([], [], [*PLACES], [])
    before = fields()
    with CHANGES[name]():
        assert fields()[name] != before[name]
        assert not guard.check()
    assert fields() == before
    assert guard.check()


class Smooth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x)).square()


@pytest.mark.parametrize("name", CHANGES)
def test_a_backward_that_builds_a_graph_runs_under_another_switch(name: str) -> None:
    torch.manual_seed(0)
    model = Smooth()
    wrapped = rekindle.Module(model, rekindle.Options(cache="off", fallback="error"))

    def gradient(net: nn.Module) -> torch.Tensor:
        y = net(rows()).sum()
        with CHANGES[name](), torch.inference_mode(False), torch.enable_grad():
            state = _native.ambient_state()
            made = torch.autograd.grad(y, model.layer.weight, create_graph=True)[0]
            assert _native.ambient_state() == state
        return made

    for _ in range(2):
        torch.testing.assert_close(gradient(wrapped), gradient(model))


def test_older_and_newer_names_of_the_precision_together_are_no_error() -> None:
    model = Smooth()
    wrapped = rekindle.Module(model, rekindle.Options(cache="off"))
    wrapped(rows())
    with CHANGES["fp32_precision.generic.all"](), CHANGES["fp32_precision.cuda.matmul"]():
        for _ in range(2):
            torch.testing.assert_close(wrapped(rows()), model(rows()))


def test_a_call_inside_of_a_capture_is_eagers(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(nn.Linear(4, 4), log="error")
    twins.call(torch.randn(3, 4))
    monkeypatch.setattr("rekindle.calls.runtime.is_capturing", lambda: True)
    twins.call(torch.randn(3, 4))
    assert twins.reasons() == ["mode_stack"] and twins.status.eager_calls == 1
    monkeypatch.undo()
    twins.call(torch.randn(3, 4))
    assert twins.status.eager_calls == 1
