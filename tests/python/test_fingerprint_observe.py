"""A recorder notes what a forward reads, and leaves the process as it was."""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from fingerprint_support import Recorder, World, verify
from recording_support import net, record
from rekindle.key import fingerprint
from rekindle.key.code.reads import reads_of
from rekindle.reasons import Bypass
from torch import nn


def test_a_forward_that_changes_its_module_changes_the_fingerprint() -> None:
    model = net("self.calls = getattr(self, 'calls', 0) + 1\nreturn x")
    x = torch.zeros(2)
    before = fingerprint.describe(model, (x,), {}, {})
    model(x)
    assert before.difference(fingerprint.describe(model, (x,), {}, {})) == "model.calls: absent -> 1"


ALLOWED = {
    "logging that is off": "logging.getLogger('x').debug('ran at')\nreturn x",
    "torch's generator": "return x + torch.rand(2)",
    "sorting with a key": "return x + sorted([2, 1], key=lambda v: -v)[0]",
    "namedtuple": "return x + P(1, 2).a",
    "dataclass": "return x + D(1).a",
    "generator": "return x + sum(v for v in (1, 2))",
    "instance of a helper class": "return H().go(x)",
    "super": "return S().go(x)",
    "partial of a lambda": "return part(x)",
    "dispatch table": "return TABLE['a'](x)",
    "cached": "return x + cached(2)",
    "context manager": "with manager():\n    return x + 1",
    "callable object": "return C(2)(x)",
    "property of a helper": "return x + H().double",
    "recursion": "return x + fact(4)",
    "mutual recursion": "return x + even(4)",
    "single dispatch": "return single(x)",
}
TOP = """
import collections, contextlib, dataclasses, functools
P = collections.namedtuple("P", "a b")
@dataclasses.dataclass
class D:
    a: int
    b: list = dataclasses.field(default_factory=list)
class H:
    scale = 2
    def go(self, x): return x * self.scale
    @property
    def double(self): return self.scale * 2
class S(H):
    def go(self, x): return super().go(x) + 1
class C:
    def __init__(self, n): self.n = n
    def __call__(self, x): return x * self.n
part = functools.partial(lambda y, x: x + y, 1)
TABLE = {"a": lambda x: x + 1}
@functools.lru_cache
def cached(n): return n * 2
@contextlib.contextmanager
def manager(): yield
def fact(n): return 1 if n < 2 else n * fact(n - 1)
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
@functools.singledispatch
def single(x): return x
@single.register
def _(x: torch.Tensor): return x + 1
"""


@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.parametrize("with_fingerprint", [True, False])
def test_everyday_python_is_recorded_and_verifies(name: str, with_fingerprint: bool) -> None:
    observed = record(net(ALLOWED[name], TOP), with_fingerprint)
    assert verify(observed) is None
    restored = json.loads(json.dumps(observed))
    assert restored == observed
    assert verify(restored) is None
    net(ALLOWED[name], TOP)  # a fresh load, as in another process
    assert verify(restored) is None


def test_class_attributes_read_by_a_helper_that_the_forward_makes_are_noticed() -> None:
    observed = record(net("return H().go(x)", TOP))
    sys.modules["subject"].H.scale = 3
    assert "subject.H" in (verify(observed) or "")


def test_a_class_without_a_name_is_recorded_as_part_of_the_module_tree() -> None:
    namespace: dict[str, Any] = {"nn": nn, "__name__": "nowhere"}
    exec("class Local(nn.Module):\n    def forward(self, x): return x + 1\n", namespace)
    assert verify(record(namespace["Local"]())) is None
    with pytest.raises(Bypass, match=r"Local\.forward ran"):
        record(namespace["Local"](), with_fingerprint=False)


def test_a_function_kept_as_an_attribute_needs_no_name() -> None:
    model = net("return self.act(x)")
    offset = 2
    model.act = lambda x: x + offset
    assert verify(record(model)) is None


def test_environment_reads_are_noted_however_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RK_A", "RK_B", "RK_C", "RK_D", "RK_TOKEN"):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.delenv("RK_E", raising=False)
    body = (
        "os.environ['RK_A'], os.environ.get('RK_B'), os.getenv('RK_C'), 'RK_D' in os.environ\n"
        "os.getenv('RK_E', 'default'), os.getenv('RK_TOKEN')\nreturn x"
    )
    noted = {name: text for kind, _, name, text in record(net(body)) if kind == "env"}
    assert noted.pop("RK_TOKEN", "").startswith("str[17] ")
    assert noted == {
        "RK_A": "'value of RK_A'",
        "RK_B": "'value of RK_B'",
        "RK_C": "'value of RK_C'",
        "RK_D": "'value of RK_D'",
        "RK_E": None,
    }


def test_a_module_first_imported_by_the_forward_is_checked_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "subject_lazy.py"
    path.write_text("K = 2\ndef run(x): return x * K\n")
    importlib.invalidate_caches()
    model = net("from subject_lazy import run\nreturn run(x)")
    observed = record(model)
    assert verify(observed) is None
    del sys.modules["subject_lazy"]
    assert verify(observed) is None
    assert sys.modules.pop("subject_lazy").K == 2  # imported, as by the forward
    path.write_text("K = 3\ndef run(x): return x * K\n")
    assert "subject_lazy" in (verify(observed) or "")
    assert "subject_lazy" not in sys.modules
    path.unlink()
    importlib.invalidate_caches()
    assert "absent" in (verify(observed) or "")


def test_a_module_that_is_gone_is_noticed() -> None:
    observed = World().record()
    del sys.modules["subject_helper"]
    assert "subject_helper" in (verify(observed) or "")


def test_leaving_restores_everything_also_after_an_exception() -> None:
    def profiler(*_: Any) -> None:
        return None

    getitem = type(os.environ).__getitem__
    sys.setprofile(profiler)
    try:
        with pytest.raises(ZeroDivisionError), Recorder():
            1 / 0  # noqa: B018
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert type(os.environ).__getitem__ is getitem
    assert os.environ["PATH"] == os.getenv("PATH")


def test_an_exception_of_the_forward_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="mine"):
        record(net("raise ValueError('mine')"))


def test_a_garbage_collection_in_the_middle_is_not_part_of_the_forward() -> None:
    calls = []

    def callback(phase: str, info: dict[str, int]) -> None:
        calls.append((phase, time.perf_counter(), random.Random().random()))

    gc.callbacks.append(callback)
    try:
        observed = record(net("import gc\ngc.collect()\nreturn x"))
    finally:
        gc.callbacks.remove(callback)
    assert calls
    assert verify(observed) is None


def test_what_another_thread_does_meanwhile_is_not_part_of_the_forward() -> None:
    ended = threading.Event()

    def elsewhere() -> None:
        while not ended.is_set():
            time.time()

    interval, thread = sys.getswitchinterval(), threading.Thread(target=elsewhere)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        observed = record(net("for _ in range(1000):\n    x = x + 1\nreturn x"))
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert verify(observed) is None


def test_numpy_and_random_states_are_left_alone() -> None:
    states = random.getstate(), numpy.random.get_state()[1].tobytes()  # type: ignore[index]
    World().record()
    assert (random.getstate(), numpy.random.get_state()[1].tobytes()) == states  # type: ignore[index]


def test_reads_of_a_code_object() -> None:
    def function() -> Any:
        import d.e
        from a.b import c

        from . import f

        return g.h.i(j)[k.l], c, d, f  # type: ignore[name-defined]  # noqa: F821

    reads = reads_of(function.__code__)
    assert reads.chains == [("g", "h", "i"), ("j",), ("k", "l")]
    assert reads.imports == [("d.e", 0, None), ("a.b", 0, ("c",)), ("", 1, ("f",))]


def test_reads_past_256_names() -> None:
    names = [f"name{index}" for index in range(300)]
    namespace: dict[str, Any] = {}
    exec("def f():\n return [" + ", ".join(f"{name}.attr{name}" for name in names) + "]", namespace)
    assert reads_of(namespace["f"].__code__).chains == [(name, f"attr{name}") for name in names]
