"""Remembers whether this thread is making an export, or repeats a forward: wrapped modules within then run in eager."""

from __future__ import annotations

import threading


class _Exporting(threading.local):
    """Holds a flag per thread.

    active: whether this thread is making an export
    repeating: whether it runs a forward again in eager, whose buffers are then put back; see graphs/double_backward.py
    """

    active: bool = False
    repeating: bool = False


exporting = _Exporting()
