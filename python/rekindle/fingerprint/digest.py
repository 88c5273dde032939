"""The one place where bytes become digests: XXH3-128 from the native library, over length-prefixed parts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

Leaf = tuple[str, "str | int | float | bool | bytes | None"]

_digest: Callable[[bytes], str] | None = None


def use_digest(function: Callable[[bytes], str] | None) -> None:
    """Replace the digest function (bytes to 32 hexadecimal digits); None restores the native one."""
    global _digest
    _digest = function


def digest128(data: bytes) -> str:
    """Digest of one buffer as 32 hexadecimal digits."""
    global _digest
    if _digest is None:
        from rekindle import _native

        _digest = _native.digest128
    return _digest(data)


def digest_parts(parts: Iterable[bytes]) -> str:
    """Digest of a sequence of byte strings; each is length-prefixed, so no two sequences read alike."""
    pieces = []
    for part in parts:
        pieces += (len(part).to_bytes(8, "little"), part)
    return digest128(b"".join(pieces))


def _pack_value(value: object) -> bytes:
    """A type tag and the value's bytes: 1, True, 1.0 and "1" differ, so do 0.0 and -0.0."""
    kind = type(value)
    if kind is str:
        return b"s" + value.encode()  # type: ignore[attr-defined]
    if value is None:
        return b"n"
    if kind is bool:
        return b"b1" if value else b"b0"
    if kind is int:
        return b"i%d" % value  # type: ignore[str-bytes-safe]
    if kind is float:
        return b"f" + struct.pack(">d", value)
    if kind is bytes:
        return b"y" + value  # type: ignore[operator]
    raise TypeError(f"a leaf value must be str, int, float, bool, bytes or None, not {kind.__name__}")


def digest_leaves(leaves: Iterable[Leaf]) -> str:
    """Digest of ordered (name, value) leaves."""
    parts = []
    for name, value in leaves:
        parts.append(name.encode())
        parts.append(_pack_value(value))
    return digest_parts(parts)
