"""What a soundness case is: a small model as text, and one change between two processes that share a cache."""

from __future__ import annotations

import pathlib
import textwrap
from dataclasses import dataclass, field

_HEADER = "import math, os, sys\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


@dataclass(frozen=True)
class Case:
    """A model `subject.Net`, made of the parts below, and how its second process differs from its first.

    hazard, name: class of the hazard, and what is changed. body, init, members, top: the forward after `self, x`, the
    end of `__init__` (there is a `self.linear`), the class body, and what stands above the class. files: further
    modules by path. edit: (old, new), each found exactly once in all the text. added, removed: files of the second
    process alone, of the first alone. both: code that runs before the import in either process; start: in the second
    alone. mutate: code that runs in the second once `model` is built. call: the expression that is compared.
    env: variables of the second process, None for unset. fresh: needs interpreters of its own; flags: their options.
    """

    hazard: str
    name: str
    body: str = "return self.linear(x)"
    init: str = ""
    members: str = ""
    top: str = ""
    parameters: str = "x"
    files: dict[str, str] = field(default_factory=dict)
    edit: tuple[str, str] | None = None
    added: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    both: str = ""
    start: str = ""
    mutate: str = ""
    call: str = "model(x)"
    env: dict[str, str | None] = field(default_factory=dict)
    fresh: bool = False
    flags: tuple[str, ...] = ()
    # What is expected. harmless: the second process must hit. populates: the first process exports, so that there is
    # something to hit. matters: eager's results differ between the two; false where they agree by chance of the model.
    # explained: text that names what changed.
    harmless: bool = False
    populates: bool = True
    matters: bool = True
    explained: str = ""
    modes: tuple[str, ...] = ("train", "eval")
    directory: str = "code"
    second_directory: str = "code"

    @property
    def id(self) -> str:
        return f"{'harmless' if self.harmless else self.hazard}: {self.name}"

    def first_files(self) -> dict[str, str]:
        return {"subject.py": self._subject(), **self.files}

    def second_files(self) -> dict[str, str]:
        texts = {name: text for name, text in self.first_files().items() if name not in self.removed}
        if self.edit is not None:
            old, new = self.edit
            count = sum(text.count(old) for text in texts.values())
            if count != 1:
                raise ValueError(f"{self.id}: {old!r} occurs {count} times, not once")
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        return {**texts, **self.added}

    def _subject(self) -> str:
        def indented(text: str, depth: int) -> str:
            return textwrap.indent(text, " " * depth)

        return "\n".join(
            [
                _HEADER + self.top,
                "class Net(nn.Module):",
                indented(self.members or "pass", 4),
                "    def __init__(self):",
                "        super().__init__()",
                "        self.linear = nn.Linear(4, 4)",
                indented(self.init, 8),
                f"    def forward(self, {self.parameters}):",
                indented(self.body, 8),
                "",
            ]
        )


def write(files: dict[str, str], directory: pathlib.Path) -> None:
    """Make the directory hold exactly these files."""
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
