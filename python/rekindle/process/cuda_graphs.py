"""Records launches on a GPU as CUDA graphs, for sessions whose option cuda_graphs is set (device/launch_recorder.h)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import torch

from rekindle import _native
from rekindle.process.torch_internals import end_failed_capture

# One at a time, each on its device's stream for recording. It is of the pool of urgent streams: on one that a program computes
# on, its launches would become part of the graph.
_LOCK = threading.Lock()
_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def is_capturing() -> bool:
    """Tells whether the current stream records a CUDA graph. Asks no driver that is not in use."""
    return torch.cuda._initialized and torch.cuda.is_current_stream_capturing()


class CudaGraphs:
    """Records graphs that share a pool of memory, and are replayed in the order in which they were recorded."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._is_used = False  # by a graph

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Returns the graph of what `work` launches. Raises what it raises, or RuntimeError for what no graph can repeat."""
        graph = torch.cuda.CUDAGraph()
        try:
            with _LOCK, torch.cuda.device(self._device):
                if self._device not in _STREAMS:
                    _STREAMS[self._device] = torch.cuda.Stream(self._device, priority=-1)
                with torch.cuda.stream(_STREAMS[self._device]):
                    self._capture(graph, work)
        except BaseException:
            if not self._is_used:  # a pool that its last graph has left is not to be used again
                self._pool = torch.cuda.graph_pool_handle()
            raise
        self._is_used = True
        return graph

    def _capture(self, graph: torch.cuda.CUDAGraph, work: Callable[[], None]) -> None:
        # Other threads may do to the device what they like: a loader of batches pins memory.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        failed = True
        try:
            work()
            failed = False
        finally:
            try:
                graph.capture_end()
            except RuntimeError:
                end_failed_capture(self._device, self._pool)
                if not failed:
                    raise


@functools.cache
def install() -> None:
    """Lets sessions record launches on GPUs, in this process, from the first call on."""
    _native.set_launch_recorders("cuda", CudaGraphs)
