"""An explanation names each edit of a source; the notes that it is made of belong to their thread and context."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import rekindle
from fingerprint_support import HELPER, HELPER_EDITS, SUBJECT, SUBJECT_EDITS, World
from fingerprint_support import edited as replaced
from rekindle.key.values.ingredients import note, noting
from rekindle.lookup.explanation import leaf_tree
from rekindle.recording.observations import present

# What has to be told of an edit where no word of it can be: signs, contents, words that stand elsewhere too.
TOLD = {
    "comprehension edited": "unary -",
    "function called": "unary -",
    "global tensor": "subject:TABLE",
    "plain tensor attribute": "mask",
}
EDITS = [(name, "subject", SUBJECT, edit) for name, edit in SUBJECT_EDITS.items()]
EDITS += [(name, "helper", HELPER, edit) for name, edit in HELPER_EDITS.items()]


def tree_of(world: World, recorded: list[Any] | None) -> tuple[Any, list[Any]]:
    """Returns the leaf tree of a world's call, and its observations: new ones, or what became of `recorded`."""
    with noting() as noted:
        fields = world.describe().fields
        observations = world.record() if recorded is None else []
        for kind, module, name, _, now in present(recorded or []):
            observations.append([kind, module, name, now])
    return leaf_tree("subject.Net", fields, observations, noted), observations


@pytest.mark.parametrize(("name", "which", "source", "edit"), EDITS, ids=[edit[0] for edit in EDITS])
def test_an_edit_of_the_source_is_named(name: str, which: str, source: str, edit: tuple[str, str]) -> None:
    before, recorded = tree_of(World(), None)
    after, _ = tree_of(World(**{which: replaced(source, *edit)}), recorded)
    rows_told = rekindle._native.differences(before, after)[:4]
    told = " ".join(str(part) for row in rows_told for part in row[:3])
    old, new = (re.findall(r"[\d.]+|\w+|[^\w\s]", text) for text in edit)
    words = [word for word in old if word not in new] + [word for word in new if word not in old]
    assert TOLD.get(name) in told if name in TOLD else any(word in told for word in words), told


def test_notes_belong_to_their_thread_and_to_the_innermost_context() -> None:
    found: list[dict[str, Any]] = []

    def other() -> None:
        with noting() as theirs:
            note("theirs", "", [("a", 1)])
        found.append(theirs)

    with noting() as outer:
        with noting() as inner:
            note("inner", "x", [("x.a", 1)])
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        note("outer", "", [("a", "text")])
    note("nobody", "", [("a", 1)])
    assert inner == {"inner": [(".a", "1")]}
    assert outer == {"outer": [("a", "text")]}
    assert found == [{"theirs": [("a", "1")]}]
