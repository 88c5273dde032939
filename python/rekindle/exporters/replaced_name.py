"""A name that stands for something else while any thread is inside; what it stands for then asks whether its own thread is."""

from __future__ import annotations

import threading
from typing import Any

_ABSENT = object()


class ReplacedName:
    """`with ReplacedName(owner, name, replacement):` sets an attribute of a module or class when the first thread enters and
    takes it back when the last one leaves, unless someone else has set it meanwhile.

    original: what the name stood for when the first thread entered.
    """

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self._owner, self._name, self._replacement = owner, name, replacement
        self.original = self._present()
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            present = self._present()
            if self._users == 1 and present is not self._replacement:
                self.original = present
                setattr(self._owner, self._name, self._replacement)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._present() is not self._replacement:
                return
            if self.original is _ABSENT:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self.original)

    def _present(self) -> Any:
        return vars(self._owner).get(self._name, _ABSENT)
