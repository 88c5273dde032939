"""Limits how many parameters a function of python/rekindle may have, and checks every function against that.

More belong into a record whose fields say what they are.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

PACKAGE = "python/rekindle"
MOST = 6  # without self and cls

# Functions whose parameters are not ours to choose.
EXEMPT: dict[str, set[str]] = {
    # Options of users, each given by its name.
    "cache.py": {"prune"},
    # Those of PyTorch's operators.
    "export/torchscript/symbolics.py": {"cross_entropy_loss", "scaled_dot_product_attention"},
    "export/trace/replaced_norms.py": {"_batch_norm", "_native_batch_norm", "_batch_norm_with_update", "_instance_norm"},
}


def violations(root: pathlib.Path) -> Iterator[str]:
    """Yields every function below the repository's root that has too many, as `path:line: what`."""
    package = root / PACKAGE
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            name, count = getattr(node, "name", "a lambda"), len(_parameters(node.args))
            if count > MOST and name not in EXEMPT.get(file, ()):
                yield f"{PACKAGE}/{file}:{node.lineno}: {name} has {count} parameters, more than {MOST}; make a record of some"


def _parameters(given: ast.arguments) -> list[str]:
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return [parameter.arg for i, parameter in enumerate(every) if i > 0 or parameter.arg not in ("self", "cls")]
