"""Saves the memory of gradients: an optimizer's step for a parameter runs inside of the backward.

See docs/howto/fuse-the-optimizer.md.
"""

from rekindle.optim.fused import FusedOptimizer, fuse

__all__ = ["FusedOptimizer", "fuse"]
