"""Turns bytes into digests: XXH3-128 as 32 hexadecimal digits, computed by the native library. No other file does."""

from __future__ import annotations

from rekindle._native import digest128, digest_leaves, digest_parts

__all__ = ["Leaf", "digest128", "digest_leaves", "digest_parts"]

Leaf = tuple[str, "str | int | float | bool | bytes | None"]
