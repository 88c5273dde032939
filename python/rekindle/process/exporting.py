"""Remembers whether this thread is making an export."""

from __future__ import annotations

import threading


class _Exporting(threading.local):
    """Holds a flag per thread.

    active: whether this thread is making an export; a wrapped module that the forward calls then runs in eager
    """

    active: bool = False


exporting = _Exporting()
