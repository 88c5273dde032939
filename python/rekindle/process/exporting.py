"""Whether this thread is making an export."""

from __future__ import annotations

import threading


class _Exporting(threading.local):
    """Whether this thread is making an export: a wrapped module that the forward calls runs in eager then."""

    active: bool = False


exporting = _Exporting()
