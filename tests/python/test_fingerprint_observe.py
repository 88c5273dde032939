"""What a recorder notes, what it refuses, and what it leaves as it was."""

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
from fingerprint_support import Recorder, World, load, verify
from rekindle.key import fingerprint
from rekindle.key.code.reads import reads_of
from rekindle.reasons import Bypass, Reason
from torch import nn

HEADER = """
import datetime, logging, os, random, secrets, socket, time, uuid, warnings
import numpy, torch
from torch import nn
"""


def net(body: str, top: str = "") -> nn.Module:
    """A module named `subject.Net` whose forward has the given body."""
    lines = "\n        ".join(body.splitlines())
    text = f"{HEADER}{top}\nclass Net(nn.Module):\n    def forward(self, x):\n        {lines}\n"
    return load("subject", text).Net()


def record(model: nn.Module, with_fingerprint: bool = True) -> list[Any]:
    x = torch.zeros(2)
    known = fingerprint.describe(model, (x,), {}, {}) if with_fingerprint else None
    with Recorder(known) as recorder:
        model(x)
    return recorder.observations


NONDETERMINISTIC = {
    "random": ("return x * random.random()", "random"),
    "random.gauss": ("return x * random.gauss(0, 1)", "random()"),
    "private generator": ("return x * random.Random(1).random()", "random"),
    "numpy": ("return x * numpy.random.rand()", "random generator"),
    "clock": ("return x * time.time()", "time()"),
    "counter": ("return x * time.perf_counter()", "perf_counter()"),
    "datetime": ("return x * datetime.datetime.now().microsecond", "now()"),
    "urandom": ("return x * os.urandom(1)[0]", "urandom()"),
    "uuid": ("return x * (uuid.uuid4().int % 7)", "differs"),
    "secrets": ("return x * secrets.randbelow(3)", "differs"),
    "file": (f"return x * len(open({os.devnull!r}).read())", "opens or looks for a file"),
    "path": ("from pathlib import Path\nreturn x * len(Path('/dev/null').read_text())", "opens or looks for a file"),
    "name of the host": ("return x * len(socket.gethostname())", "gethostname()"),
    "process id": ("return x * os.getpid()", "getpid()"),
}


@pytest.mark.parametrize("name", NONDETERMINISTIC)
def test_what_differs_from_run_to_run_is_a_bypass(name: str) -> None:
    body, text = NONDETERMINISTIC[name]
    with pytest.raises(Bypass) as caught:
        record(net(body))
    assert caught.value.reason is Reason.NONDETERMINISTIC
    assert text in caught.value.message


def test_a_rank_read_is_a_bypass(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(Bypass, match="rank"):
            record(net("return x * torch.distributed.get_rank()"))
    finally:
        torch.distributed.destroy_process_group()


OPAQUE = {
    "function made by exec": ("exec('y = x + 1')\nreturn x", "", "exec"),
    "opaque global": ("return x if SOURCE else -x", "SOURCE = iter([])", "subject.SOURCE"),
    "opaque closure of a helper": (
        "return helper(x)",
        "def make(s):\n    def helper(x): return x if s else -x\n    return helper\nhelper = make(iter([]))",
        "subject.helper.s",
    ),
    "hidden parameter in a global": ("return LAYER(x)", "LAYER = nn.Linear(2, 2)", "subject.LAYER"),
    "code that lost its name": (
        "return CALLS[0](x)",
        "class Holder:\n    def __getitem__(self, i): return globals_free(x=None)\n"
        "def globals_free(x): return eval('lambda x: x', {})\nCALLS = Holder()",
        "",
    ),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_code_or_globals_that_cannot_be_found_again_are_a_bypass(name: str) -> None:
    body, top, text = OPAQUE[name]
    with pytest.raises(Bypass) as caught:
        record(net(body, top))
    assert caught.value.reason is Reason.OPAQUE_VALUE
    assert text in caught.value.message


SIDE_EFFECTS = {
    "print": ("print(x.shape)\nreturn x", "prints"),
    "print in a helper": ("helper()\nreturn x", "prints"),
    "logger": ("logging.getLogger('x').warning('ran at')\nreturn x", "writes to a logger"),
    "warning": ("warnings.warn('once')\nreturn x", "warns"),
    "written": ("import os\nos.write(1, b'1')\nreturn x", "write"),
    "root logger": ("logging.error('ran')\nreturn x", "writes to a logger"),
}


@pytest.mark.parametrize("name", SIDE_EFFECTS)
def test_output_of_the_forward_is_a_bypass_before_it_is_made(name: str, capsys: Any, caplog: Any) -> None:
    body, text = SIDE_EFFECTS[name]
    with pytest.raises(Bypass, match=text) as caught:
        record(net(body, "def helper(): print(1)"))
    assert caught.value.reason is Reason.SIDE_EFFECT
    assert not capsys.readouterr().out and not caplog.records


MUTATED = {
    "global that is only written": ("global LAST\nLAST = x\nreturn x", "LAST = 0", "subject.LAST"),
    "global number": ("global N\nN += 1\nreturn x", "N = 0", "subject.N"),
    "global list": ("SEEN.append(1)\nreturn x", "SEEN = []", "subject.SEEN"),
    "class attribute": ("C.n += 1\nreturn x", "class C:\n    n = 0", "subject.C"),
}


@pytest.mark.parametrize("name", MUTATED)
def test_a_forward_that_changes_a_global_is_a_bypass(name: str) -> None:
    body, top, text = MUTATED[name]
    with pytest.raises(Bypass) as caught:
        record(net(body, top))
    assert caught.value.reason is Reason.STATE_MUTATED
    assert text in caught.value.message


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


def test_a_forward_that_catches_its_bypass_is_refused_still() -> None:
    model = net("try:\n    x = x * time.time()\nexcept Exception:\n    pass\nreturn x")
    with pytest.raises(Bypass, match=r"time\(\)"):
        record(model)


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
