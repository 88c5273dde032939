"""Walks Python values as parts of a key: live objects, with one kind for each family of types."""

from rekindle.key.values import kinds  # noqa: F401  (every kind registers itself, and the walk gets its steps)
