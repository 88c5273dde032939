"""Knows the wrapped module: its proxy, its tables of submodules, hooks and tensors, the status that it shows."""
