"""Writes sizes for people: 1536 bytes are "1.5 KiB"."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(size: int) -> str:
    """Writes a number of bytes in the largest unit that leaves a digit before the point."""
    if size < 1024:
        return f"{size} B"
    scaled = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        scaled /= 1024
        if scaled < 1024 or unit == "GiB":
            break
    return f"{scaled:.1f} {unit}"


def table(rows: Sequence[tuple[str, int | None, str]]) -> list[str]:
    """Lays out rows of (what, bytes, remark) in columns; bytes that are not known are a dash."""
    width = max((len(what) for what, _, _ in rows), default=0)
    lines = []
    for what, size, remark in rows:
        text = f"{'-':>10} {'':>16}" if size is None else f"{size_text(size):>10} {size:>16,}"
        lines.append(f"  {what:<{width}} {text}  {remark}".rstrip())
    return lines
