"""scripts/check_layers.py finds what it is there to find, and nothing in this tree."""

import pathlib
import re
import runpy
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"
PAGE = SCRIPT.parents[1] / "docs" / "contributing.md"
# What the page calls the headers of each prefix of OUTSIDE.
WORDS = {
    "ATen/": "ATen", "c10/": "c10", "torch/": "torch", "cuda": "CUDA", "pybind11/": "pybind11", "Python.h": "Python",
    "rocksdb/": "RocksDB", "curl/": "libcurl", "hiredis/": "hiredis", "onnx": "ONNX", "google/protobuf": "protobuf",
    "CLI/": "CLI11",
}  # fmt: skip


def check(root: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs the script over `root`."""
    return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)


def write(root: pathlib.Path, path: str, text: str = "") -> None:
    """Makes a file with its directories."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(
    ("path", "include", "complaint"),
    [
        ("src/base/log.cc", '"src/graph/graph.h"', "src/base must not include src/graph"),
        ("src/graph/print.cc", '"session/plan/plan.h"', "src/graph must not include session"),
        ("src/passes/fold.cc", '"src/autodiff/rule.h"', "src/passes must not include src/autodiff"),
        ("export_cache/key.cc", '"src/graph/graph.h"', "export_cache must not include src/graph"),
        ("kernels/cuda/gelu.cu", '"src/graph/graph.h"', "kernels must not include src/graph"),
        ("session/plan/plan.cc", '"export_cache/key.h"', "session must not include export_cache"),
        ("session/plan/plan.cc", '"src/passes/pass.h"', "session must not include src/passes"),
        ("python/bindings/module.cc", '"cli/command.h"', "python/bindings must not include cli"),
        ("python/process/fork.cc", '"src/graph/graph.h"', "python/process must not include src/graph"),
        (
            "python/process/fork.cc",
            "<pybind11/stl.h>",
            "<pybind11/stl.h> belongs to python/calls, python/recording, python/bindings only",
        ),
        ("kernels/cpu/gelu.cc", "<torch/library.h>", "<torch/library.h> belongs to device, session, python only"),
        ("src/graph/print.cc", "<ATen/Tensor.h>", "<ATen/Tensor.h> belongs to"),
        ("cli/main.cc", "<torch/library.h>", "<torch/library.h> belongs to"),
        ("session/plan/plan.cc", "<rocksdb/db.h>", "<rocksdb/db.h> belongs to export_cache/tiers only"),
        ("session/plan/plan.h", "<torch/torch.h>", "does not belong into a header"),
        ("src/graph/print.cc", '"graph.h"', "must be named from the repository root"),
    ],
)
def test_a_forbidden_include_is_reported(tmp_path: pathlib.Path, path: str, include: str, complaint: str) -> None:
    for known in (
        "src/graph/graph.h",
        "session/plan/plan.h",
        "src/autodiff/rule.h",
        "export_cache/key.h",
        "src/passes/pass.h",
        "cli/command.h",
    ):
        write(tmp_path, known)
    write(tmp_path, path, f"#pragma once\n#include {include}\n")
    result = check(tmp_path)
    assert result.returncode == 1
    assert f"{path}:2: " in result.stdout
    assert complaint in result.stdout
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("results/views.py", "from rekindle.graphs.ready_graph import ReadyGraph", "results must not import graphs"),
        ("results/views.py", "def f():\n    from rekindle.graphs import ready_graph", "results must not import graphs"),
        ("results/views.py", "if TYPE_CHECKING:\n    import rekindle.module", "results must not import the door"),
        ("reasons.py", "from rekindle.results.views import Views", "the foundation must not import results"),
        (
            "results/views.py",
            "from rekindle.results import layouts",
            "in a circle: results/layouts.py -> results/views.py -> results/l",
        ),
        ("elsewhere/views.py", "import torch", "elsewhere is no room"),
    ],
)
def test_an_import_upwards_or_in_a_circle_is_reported(tmp_path: pathlib.Path, file: str, line: str, complaint: str) -> None:
    package = "python/rekindle/"
    for known in ("__init__.py", "module.py", "graphs/ready_graph.py", "results/views.py"):
        write(tmp_path, package + known)
    write(tmp_path, package + "results/layouts.py", "from rekindle.results.views import Views\n")
    write(tmp_path, package + file, f"from rekindle import _native\n{line}\n")
    result = check(tmp_path)
    assert result.returncode == 1
    assert complaint in result.stdout
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "line",
    [
        "state = torch._C._get_tracing_state()",
        "from torch._C._autograd import CreationMeta",
        "from torch import _C",
        "def f():\n    from torch.onnx._internal.torchscript_exporter import utils",
        "from torch.onnx import _internal",
        'NAMES = ("torch._C._nn",)',
        "Node = Any  # torch._C.Node",
    ],
)
def test_torchs_own_is_named_in_one_file(tmp_path: pathlib.Path, line: str) -> None:
    package = "python/rekindle/"
    write(tmp_path, package + "process/torch_internals.py", f"import torch\n{line}\n")
    write(tmp_path, package + "results/views.py", "from rekindle.process.torch_internals import CreationMeta\ntorch.__config__\n")
    result = check(tmp_path)
    assert result.stdout == ""
    assert result.returncode == 0
    write(tmp_path, package + "results/views.py", f"import torch\n{line}\n")
    result = check(tmp_path)
    assert result.returncode == 1
    number = 2 + line.count("\n")
    assert f"{package}results/views.py:{number}: what torch keeps to itself is named in" in result.stdout
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def f(a, b, c, d, e, f, g):\n    pass", "1: f has 7 parameters, more than 6"),
        ("class C:\n    def f(self, a, b, c, /, d, *, e, f, g=1):\n        pass", "2: f has 7 parameters, more than 6"),
        ("def f(a, b, c, d, e, *f, **g):\n    pass", "1: f has 7 parameters, more than 6"),
        ("f = lambda a, b, c, d, e, f, g: a", "1: a lambda has 7 parameters, more than 6"),
        ("class C:\n    def f(self, a, b, c, d, *, e, f):\n        pass", None),
        ("def prune(a, b, c, d, e, f, g):\n    pass", None),  # an option each
    ],
)
def test_a_function_of_too_many_parameters_is_reported(tmp_path: pathlib.Path, text: str, complaint: str | None) -> None:
    write(tmp_path, "python/rekindle/__init__.py")
    write(tmp_path, "python/rekindle/cache.py", text)
    result = check(tmp_path)
    assert result.returncode == (0 if complaint is None else 1)
    assert len(result.stdout.splitlines()) == (0 if complaint is None else 1)
    assert complaint is None or f"python/rekindle/cache.py:{complaint}" in result.stdout


def test_allowed_includes_pass(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "src/base/result.h")
    write(tmp_path, "src/graph/graph.h", '#include <string>\n#include "src/base/result.h"\n')
    write(tmp_path, "session/plan/plan.cc", '#include <ATen/core/Tensor.h>\n#include "src/graph/graph.h"\n')
    write(tmp_path, "export_cache/tiers/rocksdb_tier.cc", "#include <rocksdb/db.h>\n")
    write(tmp_path, "tests/session/plan_test.cc", '#include <catch2/catch.hpp>\n#include "src/graph/graph.h"\n')
    result = check(tmp_path)
    assert result.stdout == ""
    assert result.returncode == 0


def test_the_tree_keeps_its_directions() -> None:
    result = check(SCRIPT.parents[1])
    assert result.stdout == ""
    assert result.returncode == 0


def table(title: str) -> list[list[str]]:
    """Reads the first table under a title of the page, without its head."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names(cell: str) -> list[str]:
    """Lists what is between backticks."""
    return re.findall("`([^`]+)`", cell)


def test_the_page_says_who_may_include_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = runpy.run_path(str(SCRIPT))
    may_include: dict[str, set[str]] = {}
    outside: dict[str, set[str]] = {}
    for rooms, others, headers in table("Who may include whom"):
        named = names(others)
        lower = list(may_include)[: list(may_include).index(named[0]) + 1] if others.startswith("all down to ") else []
        for room in names(rooms):
            may_include[room] = {*lower, *named}
            outside[room] = set(WORDS.values()) if headers == "any" else {*re.findall(r"[\w]+", headers)} & {*WORDS.values()}
    assert may_include == script["ROOMS"]
    for room, found in outside.items():
        users = {WORDS[prefix]: paths for prefix, paths in script["OUTSIDE"].items()}
        may = {word for word, paths in users.items() if any(room.startswith(path) or path.startswith(room) for path in paths)}
        assert found == (set(users) if room.startswith(script["FREE"].rstrip("/")) else may), room


def test_the_page_says_who_may_import_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = runpy.run_path(str(SCRIPT.parent / "python_layers.py"))
    first, *rooms, last = [names(cell) for cell, _ in table("Who may import whom")]
    assert (script["FOUNDATION"], *(room for row in rooms for room in row), script["DOOR"]) == script["ROOMS"]
    assert {f"{name}.py" for name in first} == script["FOUNDATION_FILES"]
    files = {path.stem for path in (SCRIPT.parents[1] / script["PACKAGE"]).glob("*.py")} - {"__init__"}
    assert {*first, *last} == files
