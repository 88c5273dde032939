"""The one place where bytes become digests: XXH3-128 in 32 hexadecimal digits, from the native library."""

from __future__ import annotations

from rekindle._native import digest128, digest_leaves, digest_parts

__all__ = ["Leaf", "digest128", "digest_leaves", "digest_parts"]

Leaf = tuple[str, "str | int | float | bool | bytes | None"]
