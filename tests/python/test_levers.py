"""What users can do to the key: digests of their own types, exclusions, a salt. None of them may make a hit wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import rows
from rekindle.errors import OptionError
from torch import nn


class Handle:
    """Holds a number where no digest can look: in a lock's neighbourhood."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.state = threading.local()  # opaque


class Scaled(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.handle = Handle(factor)
        self.note = "first run"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.handle.factor


def _by_factor(handle: Handle) -> dict[str, float]:
    return {"factor": handle.factor}


@pytest.fixture
def registered() -> Iterator[None]:
    rekindle.register_digest(Handle, _by_factor)
    yield
    rekindle.register_digest(Handle, None)


def wrap(module: nn.Module, **options: Any) -> rekindle.Module:
    return rekindle.Module(module, rekindle.Options(**options))


def first_source(module: nn.Module, **options: Any) -> str:
    """Where a module, wrapped anew, finds its graph."""
    model = wrap(module, **options)
    model(rows())
    rekindle.lookup.store.flush()
    return rekindle.status(model).source


def test_without_a_registration_the_value_is_opaque() -> None:
    model = wrap(Scaled())
    model(rows())
    [(code, message)] = rekindle.status(model).bypass
    assert code == "opaque_value"
    assert "model.handle" in message and "register_digest" in message


@pytest.mark.usefixtures("registered")
def test_a_registered_digest_stands_for_the_value() -> None:
    assert [first_source(Scaled(2.0)), first_source(Scaled(2.0)), first_source(Scaled(3.0))] == [
        "export",
        "local",
        "export",
    ]


@pytest.mark.usefixtures("registered")
def test_a_registered_value_that_changes_in_place_is_noticed() -> None:
    module = Scaled(2.0)
    model = wrap(module)
    for factor in (2.0, 3.0, 2.0):
        module.handle.factor = factor
        torch.testing.assert_close(model(rows()), module(rows()))
    assert rekindle.status(model).exports == 2


@pytest.mark.usefixtures("registered")
def test_the_code_of_a_digest_function_is_part_of_the_key() -> None:
    assert first_source(Scaled()) == "export"
    rekindle.register_digest(Handle, lambda handle: {"factor": handle.factor, "more": 0})
    assert first_source(Scaled()) == "export"
    rekindle.register_digest(Handle, _by_factor)
    assert first_source(Scaled()) == "local"


@pytest.mark.parametrize("function", [lambda handle: handle, lambda handle: 1 / 0])
def test_a_digest_function_that_says_nothing_is_a_bypass(function: Any) -> None:
    rekindle.register_digest(Handle, function)
    try:
        model = wrap(Scaled())
        model(rows())
        [(code, message)] = rekindle.status(model).bypass
        assert code == "opaque_value"
        assert "registered digest function" in message
    finally:
        rekindle.register_digest(Handle, None)


def test_only_a_type_can_be_registered() -> None:
    with pytest.raises(TypeError, match="takes a type"):
        rekindle.register_digest("Handle", str)  # type: ignore[arg-type]


class Noted(nn.Module):
    def __init__(self, note: str = "first", gain: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.note = note
        self.gain = gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.gain


class Pair(nn.Module):
    def __init__(self, note: str) -> None:
        super().__init__()
        self.left, self.right = Noted(note), Noted("fixed")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) + self.right(x)


BY_CLASS = f"{Noted.__module__}.Noted.note"


def test_an_excluded_attribute_is_no_part_of_the_key() -> None:
    assert [first_source(Noted("a")), first_source(Noted("b"))] == ["export", "export"]
    for names in ([BY_CLASS], ["model.note"]):
        sources = [first_source(Noted(note), exclude_attributes=names) for note in ("a", "b")]
        assert sources == ["export", "local"]


def test_an_exclusion_by_path_leaves_other_modules_alone() -> None:
    only_left = {"exclude_attributes": ["model.left.note"]}
    assert [first_source(Pair(note), **only_left) for note in ("a", "b")] == ["export", "local"]
    module = Pair("a")
    module.right.note = "other"
    assert first_source(module, **only_left) == "export"


def test_what_is_excluded_is_itself_in_the_key() -> None:
    assert first_source(Noted(), exclude_attributes=[BY_CLASS]) == "export"
    assert first_source(Noted()) == "export", "an entry made sloppily serves nobody else"
    assert first_source(Noted(), exclude_attributes=["model.note"]) == "export"
    assert first_source(Noted(), exclude_attributes=["model.note", BY_CLASS]) == "export"
    assert first_source(Noted(), exclude_attributes=[BY_CLASS, "model.note"]) == "local", "order does not matter"


def test_other_attributes_still_count() -> None:
    names = [BY_CLASS]
    sources = [first_source(Noted("a", gain), exclude_attributes=names) for gain in (1.0, 2.0)]
    assert sources == ["export", "export"]


def test_every_line_about_a_sloppy_graph_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        first_source(Noted(), exclude_attributes=[BY_CLASS])
    lines = [line for line in capfd.readouterr().err.splitlines() if "exported" in line or "hit" in line]
    assert len(lines) == 2
    assert all(line.endswith(f" sloppy={BY_CLASS}") for line in lines)


def test_exclusions_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_EXCLUDE_ATTRIBUTES", f"{BY_CLASS}, model.x")
    assert rekindle.Options().exclude_attributes == ("model.x", BY_CLASS)
    for wrong in ("note", "model.", 3, ["model.layers[0]"]):
        with pytest.raises(OptionError, match="must be names such as"):
            rekindle.Options(exclude_attributes=wrong)


def test_a_salt_separates_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_KEY_SALT", "build 7")
    assert [first_source(Noted()), first_source(Noted())] == ["export", "local"]
    assert first_source(Noted(), key_salt="build 8") == "export", "an explicit argument wins"
    assert first_source(Noted(), key_salt="build 7") == "local"
    with pytest.raises(OptionError, match="must be text"):
        rekindle.Options(key_salt=7)
