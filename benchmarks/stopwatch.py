"""Measures seconds, those of a device included."""

import time

import torch


class Stopwatch:
    """Measures the seconds since the last lap, until a device has done what it was given."""

    def __init__(self, device: str = "cpu") -> None:
        self._waits = device != "cpu"
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Returns the seconds since the last call, or since construction."""
        if self._waits:
            torch.accelerator.synchronize()
        last, self._last = self._last, time.perf_counter()
        return self._last - last
