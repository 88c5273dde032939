"""The enumeration of bypasses, its documentation and the code agree."""

from __future__ import annotations

import ast
import pathlib
import re
import runpy

import pytest
import rekindle
import torch
from module_support import mlp, rows
from rekindle.errors import FallbackError
from rekindle.reasons import Bypass, Reason

PACKAGE = pathlib.Path(rekindle.__file__).parent
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "bypasses.md"


def sections() -> dict[str, str]:
    """Heading to text."""
    parts = re.split(r"^## (\S+)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_reason_has_its_section_and_no_section_is_left_over() -> None:
    assert list(sections()) == [reason.value for reason in Reason]


@pytest.mark.parametrize("reason", Reason)
def test_a_section_says_cause_substitute_and_remedy(reason: Reason) -> None:
    text = sections()[reason.value]
    for part in ("Cause", "Instead", "Remedy"):
        assert re.search(rf"^{part}: \S", text, re.MULTILINE), f"{reason} does not say: {part}"


def test_every_reason_is_raised_somewhere() -> None:
    used = set()
    for file in PACKAGE.rglob("*.py"):
        if file.name == "reasons.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
                used.add(node.attr)
    assert used == {reason.name for reason in Reason}


def test_a_bypass_is_counted_logged_once_and_says_where_to_read_more(
    capfd: pytest.CaptureFixture[str],
) -> None:
    module = mlp()
    module.first.register_full_backward_hook(lambda *_: None)
    model = rekindle.Module(module)
    model(rows())
    model(rows())
    lines = [line for line in capfd.readouterr().err.splitlines() if "docs/bypasses.md" in line]
    assert len(lines) == 1
    assert "hooks: model.first has a backward hook" in lines[0]
    assert lines[0].endswith("(see docs/bypasses.md#hooks)")
    assert rekindle.cache.stats()["bypass_codes"] == {"hooks": 1}


def test_an_error_for_a_bypass_says_what_to_do_and_where_to_read_more() -> None:
    with torch.inference_mode():
        made = rows()
    with pytest.raises(FallbackError, match=r"pass a clone \(see docs/bypasses.md#inference_mode\)"):
        rekindle.Module(mlp(), rekindle.Options(fallback="error"))(made)


def test_the_text_of_a_bypass() -> None:
    bypass = Bypass(Reason.HOOKS, "x has a hook; remove it")
    assert str(bypass) == "hooks: x has a hook; remove it"
    assert bypass.text() == "hooks: x has a hook; remove it (see docs/bypasses.md#hooks)"


@pytest.mark.parametrize("directory", ["torch", "rekindle"])
def test_the_place_is_in_the_user_s_code_wherever_that_lies(directory: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / directory / "own_model.py"
    file.parent.mkdir()
    file.write_text(
        "import torch\n\nclass Asks(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x if x.sum().item() > 0 else -x\n"
    )
    model = rekindle.Module(runpy.run_path(str(file))["Asks"]())
    model(torch.ones(3))
    [(code, message)] = rekindle.status(model).bypass
    assert code == "value_specialized"
    assert message.startswith("own_model.py:5 in forward turns a tensor into a Python value (item)")
