"""An opaque value is a bypass that names its path, unless its type has a registered digest."""

from __future__ import annotations

import functools
import types

import pytest
import torch
from fingerprint_values_support import Point, Slotted, closure, text
from rekindle.key.fingerprint import register_digest
from rekindle.key.values.registered import registered
from rekindle.key.values.walker import resolved
from rekindle.reasons import Bypass, Reason

OPAQUE = {
    "value": iter([]),
    "value[1]": [1, (item for item in ())],
    "value['k'][0].x": {"k": [Point(torch.Generator(), 1)]},  # type: ignore[arg-type]
    "value.left": Slotted(memoryview(b"")),
    "value.args[0]": functools.partial(len, iter([])),
    "value.value": closure(iter([])),
    "value.__self__": iter([]).__next__,
}


@pytest.mark.parametrize("path", OPAQUE)
def test_an_opaque_value_is_a_bypass_that_names_its_path(path: str) -> None:
    with pytest.raises(Bypass) as caught:
        text(OPAQUE[path])
    assert caught.value.reason is Reason.OPAQUE_VALUE
    assert caught.value.message.startswith(f"{path} is a ")


def test_an_object_with_state_in_c_is_opaque_though_it_has_a_dict() -> None:
    class Hidden(types.SimpleNamespace):
        pass

    class Numbers(__import__("random").Random):
        pass

    for value in (Numbers(0), types.MethodType, Hidden(a=1)):
        if isinstance(value, type):
            continue
        with pytest.raises(Bypass):
            text(value)


def test_a_registered_digest_makes_an_opaque_type_plain() -> None:
    register_digest(memoryview, lambda view: bytes(view))
    try:
        assert text(memoryview(b"ab")) != text(memoryview(b"ac"))
        assert text(memoryview(b"ab")) == text(memoryview(b"ab"))
    finally:
        registered.pop(memoryview)
        resolved.clear()


def test_every_reason_is_its_own_text() -> None:
    assert [str(reason) for reason in Reason] == [reason.name.lower() for reason in Reason]
    bypass = Bypass(Reason.HOOKS, "model has a hook")
    assert (bypass.reason, bypass.message, str(bypass)) == (
        Reason.HOOKS,
        "model has a hook",
        "hooks: model has a hook",
    )
