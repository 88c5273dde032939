"""A recorder refuses a forward whose reads differ from run to run or cannot be found again, or that has effects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from recording_support import net, record
from rekindle.reasons import Bypass, Reason

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


def test_a_forward_that_catches_its_bypass_is_refused_still() -> None:
    model = net("try:\n    x = x * time.time()\nexcept Exception:\n    pass\nreturn x")
    with pytest.raises(Bypass, match=r"time\(\)"):
        record(model)
