"""A process finds a graph only if the modules that the forward imports are the same, and so is what replaces a library's code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import python_process

_PROGRAM = """
import sys
{before}
import rekindle, torch

{classes}
x = torch.ones(2)
for Net in NETS:
    model = rekindle.Module(Net())
    print(model(x).tolist() == Net()(x).tolist(), float(model(x)[0]), rekindle.status(model).source)
"""
_CLASS = """
class Net{number}(torch.nn.Module):
    def forward(self, x):
{body}
"""
_EXPORTER = "torch.onnx._internal.torchscript_exporter.utils"
Seen = tuple[str, str]  # the first number of a result, and where its graph came from


def run_all(directory: Path, forwards: list[str], before: str = "", files: dict[str, str] | None = None) -> list[Seen]:
    """Runs modules with these bodies of `forward` in a new process."""
    for name, text in (files or {}).items():
        (directory / name).write_text(text)
    bodies = ["\n".join(8 * " " + line for line in forward.splitlines()) for forward in forwards]
    classes = "".join(_CLASS.format(number=i, body=body) for i, body in enumerate(bodies))
    nets = f"NETS = [{', '.join(f'Net{i}' for i in range(len(forwards)))}]"
    (directory / "program.py").write_text(_PROGRAM.format(before=before, classes=classes + nets))
    environment = {**os.environ, "REKINDLE_CACHE_DIR": str(directory / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = python_process.run("program.py", cwd=directory, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [same for same, *_ in lines] == ["True"] * len(forwards), f"{done.stdout}{done.stderr}"
    return [(number, source) for _, number, source in lines]


def run(directory: Path, forward: str, before: str = "", files: dict[str, str] | None = None) -> Seen:
    return run_all(directory, [forward], before, files)[0]


OPS = {
    "a function of a function's module": ("from numbers_ import k\ndef op(x): return k(x)\n", "def k(x): return x * {}\n"),
    "a default": ("import numbers_\ndef op(x, k=numbers_.K): return x * k\n", "K = {}\n"),
    "all of a module": ("from numbers_ import *\ndef op(x): return x * K\n", "K = {}\n"),
    "an instance": (
        "from numbers_ import Scale\nscale = Scale()\ndef op(x): return scale(x)\n",
        "class Scale:\n    def __call__(self, x): return x * {}\n",
    ),
    "a table": ("import numbers_\nTABLE = [n * 2 for n in numbers_.N]\ndef op(x): return x * TABLE[0]\n", "N = [{}]\n"),
    "a file": ("K = len(open('numbers_.py').read().split())\ndef op(x): return x * K\n", "'{}'" + " " * 3 + "#\n"),
}


def test_what_an_imported_module_imports_is_compared(tmp_path: Path) -> None:
    forwards = [f"from ops{i} import op\nreturn op(x)" for i in range(len(OPS))]

    def files(change: int) -> dict[str, str]:
        texts = {f"ops{i}.py": ops.replace("numbers_", f"numbers{i}") for i, (ops, _) in enumerate(OPS.values())}
        values = [("2.", "3. + 0.")[change] if name == "a file" else ("2.", "3.")[change] for name in OPS]
        numbers = [text.format(value) for (_, text), value in zip(OPS.values(), values, strict=True)]
        return texts | {f"numbers{i}.py": text for i, text in enumerate(numbers)}

    seen = [run_all(tmp_path, forwards, files=files(change)) for change in (0, 1, 0, 1)]
    for name, *of_one in zip(OPS, *seen, strict=True):
        assert [source for _, source in of_one] == ["export", "export", "local", "local"], name
        numbers = [number for number, _ in of_one]
        assert numbers[:2] == numbers[2:], name
        assert numbers[0] != numbers[1], name


def test_a_missing_module_that_an_imported_one_does_without(tmp_path: Path) -> None:
    ops = "try:\n    from extra_ import K\nexcept ImportError:\n    K = 2\ndef op(x): return x * K\n"
    forward = "from ops_ import op\nreturn op(x)"
    assert run(tmp_path, forward, files={"ops_.py": ops}) == ("2.0", "export")
    assert run(tmp_path, forward, files={"extra_.py": "K = 5\n"}) == ("5.0", "export")
    assert run(tmp_path, forward) == ("5.0", "local")


def test_an_imported_module_that_raises_now_raises(tmp_path: Path) -> None:
    ops = "import numbers_\ndef op(x): return x * 2\n"
    forward = "try:\n    from ops_ import op\nexcept ZeroDivisionError:\n    return x * 7\nreturn op(x)"
    assert run(tmp_path, forward, files={"ops_.py": ops, "numbers_.py": ""})[0] == "2.0"
    assert run(tmp_path, forward, files={"numbers_.py": "1 / 0\n"})[0] == "7.0"


def test_whether_a_module_can_be_found_is_asked_again_though_it_is_loaded(tmp_path: Path) -> None:
    search = "importlib.util.find_spec('fast_')"
    before = f"import importlib.util\ndef is_there(): return {search} is not None\nif is_there(): import fast_\n"
    forward = "return x * 3 if is_there() else x * 2"
    assert run(tmp_path, forward, before, {"fast_.py": ""}) == ("3.0", "export")
    (tmp_path / "fast_.py").unlink()
    assert run(tmp_path, forward, before) == ("2.0", "export")
    assert run(tmp_path, forward, before) == ("2.0", "local")


def test_a_file_that_the_forward_runs_as_a_module_is_read_at_each_call(tmp_path: Path) -> None:
    forward = (
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        "spec = spec_from_file_location('settings', 'settings.txt.py')\n"
        "settings = module_from_spec(spec)\nspec.loader.exec_module(settings)\nreturn x * settings.K"
    )
    for k in ("2.0", "3.0"):
        assert run(tmp_path, forward, files={"settings.txt.py": f"K = {k}\n"})[0] == k


REPLACED = {
    "a method": (
        "import torch.distributions as D\ndef mine(self): return self.logits + 5\nif patched: D.Categorical.entropy = mine\n",
        "return D.Categorical(logits=x).entropy() * torch.ones(2)",
    ),
    "a property": (
        "import torch.distributions as D\nif patched: D.Normal.variance = property(lambda self: self.scale + 5)\n",
        "return D.Normal(x, x).variance",
    ),
    "a method by another of torch's": (
        "import torch.distributions as D\nif patched: D.Normal.log_prob = D.Laplace.log_prob\n",
        "return D.Normal(x, x).log_prob(x * 3)",
    ),
    "a function of a module of Python's": (
        "import statistics\ndef mine(data): return (float, 50.0, len(data))\nif patched: statistics._sum = mine\n",
        "return x * statistics.mean([1.0, 3.0])",
    ),
}


@pytest.mark.parametrize("first", [True, False])
def test_what_was_put_in_the_place_of_a_librarys_is_told_apart(tmp_path: Path, first: bool) -> None:
    before, forwards = "".join(before for before, _ in REPLACED.values()), [forward for _, forward in REPLACED.values()]
    seen = [run_all(tmp_path, forwards, f"patched = {patched}\n{before}") for patched in (first, not first, first)]
    for name, *of_one in zip(REPLACED, *seen, strict=True):
        assert [source for _, source in of_one] == ["export", "export", "local"], name
        assert of_one[0][0] == of_one[2][0] != of_one[1][0], name


@pytest.mark.parametrize(
    "loads", ["process.torch_internals import import_exporter", "export.torchscript.adapter import load_exporter"]
)
def test_the_exporter_is_imported_before_an_export(loads: str) -> None:
    program = f"import sys\nfrom rekindle.{loads} as load\nload()\nprint({_EXPORTER!r} in sys.modules)"
    assert python_process.run("-c", program, check=True).stdout == "True\n"


def test_what_torch_imports_for_a_checkpoint_is_no_reason_to_export_again(tmp_path: Path) -> None:
    forwards = [
        "from torch.utils.checkpoint import checkpoint\nreturn checkpoint(lambda y: y * 2, x, use_reentrant=False)",
        "from torch.utils.checkpoint import checkpoint\nreturn checkpoint(lambda y: y * 3, x, use_reentrant=False)",
    ]
    assert run_all(tmp_path, forwards) == [("2.0", "export"), ("3.0", "export")]  # the first loads torch._dynamo
    assert run_all(tmp_path, forwards) == [("2.0", "local"), ("3.0", "local")]
    assert run_all(tmp_path, forwards, before="import torch._dynamo") == [("2.0", "local"), ("3.0", "local")]
    assert run_all(tmp_path, forwards, before="import torch.distributed.tensor") == [("2.0", "local"), ("3.0", "local")]


def test_a_module_that_an_export_imports_finds_pythons_own_functions(tmp_path: Path) -> None:
    files = {"keeps.py": "import builtins, keeps_too\nLENGTH = builtins.len\n", "keeps_too.py": "LENGTH = len\n"}
    forward = "import keeps, keeps_too\nassert keeps.LENGTH([1]) == 1\nreturn x * len(x)"
    later = ["import builtins, keeps, keeps_too", "assert keeps.LENGTH is keeps_too.LENGTH is builtins.len", "return x * 3"]
    assert run_all(tmp_path, [forward, "\n".join(later)], files=files)[0] == ("2.0", "export")
