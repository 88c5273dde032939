"""The bindings of the export cache: types in, types out, one exception class per error code."""

from __future__ import annotations

import json
import os
import threading

import pytest
from rekindle import _native


def key(*fields):
    builder = _native.KeyBuilder()
    builder.add_all(fields)
    return builder.digest_hex()


def test_digest128_is_32_hexadecimal_digits():
    assert _native.digest128(b"") == "99aa06d3014798d86001c324468d497f"
    assert _native.digest128(b"a") != _native.digest128(b"b")


def test_key_fields_keep_their_type():
    values = [None, True, 1, 1.0, "1", b"1", 2**70, -(2**70), False, 0, 0.0, "", b""]
    assert len({key(("x", value)) for value in values}) == len(values)
    builder = _native.KeyBuilder()
    for value in values[:8]:
        builder.add("x", value)
    assert [field[1] for field in builder.fields()] == [
        "none", "bool", "int", "double", "string", "bytes", "bigint", "bigint",
    ]  # fmt: skip
    assert builder.fields()[6][2] == str(2**70)
    assert json.loads(builder.fields_json())["fields"][2] == dict(zip(("name", "type", "value", "digest"), builder.fields()[2]))


def test_key_takes_any_string_and_refuses_other_types():
    assert key(("\udcff", "\ud800")) != key(("\udcff", "\ud801"))
    assert len(_native.KeyBuilder().fields()) == 0
    with pytest.raises(_native.InvalidArgument, match="'config' is a list"):
        key(("config", [1]))
    long = _native.KeyBuilder()
    long.add("x", "é" * 1000)
    assert len(long.fields()[0][2].encode()) <= 80


def test_store_and_load(tmp_path):
    cache = _native.ExportCache(str(tmp_path / "cache"))
    assert cache.dir == str(tmp_path / "cache")
    prekey = key(("model", "tiny"))
    assert cache.lookup(prekey) == []
    sections = {"joint": bytes(range(256)), "contract": b"{}"}
    entry = cache.store(prekey, b"\0observed", '{"model": "Tiny"}', sections)
    [(found, observations, created)] = cache.lookup(prekey)
    assert (found, observations) == (entry, b"\0observed")
    assert created > 1_500_000_000
    assert cache.load(entry) == {"meta": '{"model": "Tiny"}', "sections": sections}
    assert cache.load(key()) is None
    cache.record_hit(entry, 2.5)
    cache.record_bypass("opaque_attr")
    [row] = cache.list()
    assert (row["id"], row["hits"], row["sections"]) == (entry, 1, {"contract": 2, "joint": 256})
    assert cache.find(entry[:10]) == entry
    stats = cache.stats()
    assert stats.pop("bytes") > 0
    assert stats.pop("disk_bytes") > 0
    assert stats.pop("limit_bytes") > 0
    assert stats == {
        "lookups": 2, "hits": 1, "misses": 1, "corrupt": 0, "stores": 1, "store_failures": 0, "bypasses": 1,
        "bypass_codes": {"opaque_attr": 1}, "seconds_saved": 2.5, "entries": 1, "pinned": 0, "evictions": 0, "removals": 0,
    }  # fmt: skip
    cache.remove(entry)
    assert cache.list() == []
    cache.clear()
    assert cache.stats()["lookups"] == 0


def test_errors_are_python_exceptions(tmp_path):
    cache = _native.ExportCache.open(str(tmp_path), False)
    for name in ("NotFound", "Corruption", "InvalidArgument", "Unsupported", "Io", "Internal"):
        assert issubclass(getattr(_native, name), _native.RekindleError)
    with pytest.raises(_native.InvalidArgument, match="32 hexadecimal digits"):
        cache.lookup("xyz")
    with pytest.raises(_native.NotFound):
        cache.remove(key())
    with pytest.raises(_native.InvalidArgument, match="not a JSON object"):
        cache.store(key(), b"", "[]", {})
    with pytest.raises(_native.Unsupported, match="read-only"):
        _native.ExportCache(str(tmp_path), readonly=True).store(key(), b"", "{}", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(_native.RekindleError, match="not a directory"):
        _native.ExportCache(str(tmp_path / "file"))
    assert cache.stats()["store_failures"] == 1


def test_stores_from_several_threads(tmp_path):
    cache = _native.ExportCache(str(tmp_path))
    size = 1 << 20
    threads = [
        threading.Thread(target=cache.store, args=(key(("n", n)), b"", "{}", {"joint": os.urandom(size)})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cache.stats()
    assert (stats["stores"], stats["entries"], stats["store_failures"]) == (4, 4, 0)
