"""Holds what a picture of an arena shows."""

from __future__ import annotations

from dataclasses import dataclass

from rekindle.account.values import Value


@dataclass(frozen=True)
class Drawing:
    """Describes one arena over one step."""

    title: str
    arena: int  # bytes
    forward: int  # instructions of the forward
    instructions: int  # of the whole step
    peak_at: int  # the instruction with the largest sum of live bytes
    values: tuple[Value, ...]

    @property
    def placed(self) -> list[tuple[int, Value]]:
        """Lists the values in the arena with their offsets."""
        return [(value.offset, value) for value in self.values if value.offset is not None]

    @property
    def at_peak(self) -> list[Value]:
        """Lists the values in the arena that are alive at the peak, the largest first."""
        alive = [value for _, value in self.placed if value.first <= self.peak_at <= value.last]
        return sorted(alive, key=lambda value: (-value.bytes, value.first))
