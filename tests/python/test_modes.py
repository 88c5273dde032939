"""Every cache mode in pairs of processes: with a filled, an empty, a wrong, a corrupt and a missing cache."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import python_process
import rekindle
import torch
from module_support import Twins, mlp, rows
from rekindle import _native
from rekindle.errors import FallbackError, OptionError
from torch import nn

# One process, many modes: each module is made anew, and so is its store.
_CHILD = """
import json, os, sys
import module_support, rekindle, torch
from module_support import mlp, rows

results = []
for mode in sys.argv[1:]:
    os.environ["REKINDLE_CACHE"] = mode
    model = mlp()
    wrapped = rekindle.Module(model)
    before = torch.get_rng_state()
    out = wrapped(rows())
    assert torch.equal(before, torch.get_rng_state())
    torch.testing.assert_close(out, model(rows()))
    status = rekindle.status(wrapped)
    rekindle.lookup.store.flush()
    results.append([status.source, status.hits, status.exports, status.verify_failures])
print(json.dumps(results))
"""


def run(*modes: str) -> tuple[list[list[Any]], str]:
    """[source, hits, exports, verify failures] of a call in each mode, in a process of their own; and the log."""
    done = python_process.run("-c", _CHILD, *modes, cwd=pathlib.Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def entries() -> list[str]:
    return [row["id"] for row in rekindle.cache.ls()]


EXPORT, HIT = ["export", 0, 1, 0], ["local", 1, 0, 0]


def test_modes_with_an_empty_and_a_filled_cache(cache_dir: pathlib.Path) -> None:
    results, log = run("off", "readonly")
    assert results == [EXPORT, EXPORT]
    assert not cache_dir.exists(), "neither mode may write"
    assert "miss module_support.Mlp: cold" in log, "a read-only miss is told, though not kept"

    assert run("verify", "strict", "readonly", "verify", "off")[0] == [
        EXPORT, HIT, HIT, ["local", 1, 1, 0], EXPORT
    ]  # fmt: skip
    [first] = entries()
    stats = rekindle.cache.stats()
    assert (stats["stores"], stats["hits"]) == (1, 2), "a read-only hit is not written down"

    created = rekindle.cache.ls()[0]["created"]
    assert run("refresh", "on")[0] == [EXPORT, HIT]
    assert entries() == [first], "an export of the same bytes takes the place of the old one"
    assert rekindle.cache.stats()["stores"] == 2
    assert rekindle.cache.ls()[0]["created"] >= created


def poison(section: str, change: Any, prekey: str | None = None) -> str:
    """Put an entry that is sound but wrong in the place of the one there is; returns its id. prekey: of a new process."""
    cache = _native.ExportCache("")
    [row] = cache.list()
    loaded, prekey = cache.load(row["id"]), prekey or _prekey()
    [(_, observations, _)] = cache.lookup(prekey)
    sections = {**loaded["sections"], section: change(loaded["sections"][section])}
    cache.remove(row["id"])
    return cache.store(prekey, observations, loaded["meta"], sections)


_PREKEY = """
import module_support, rekindle
from module_support import mlp, rows

runtime = rekindle.Module(mlp())._runtime
print(rekindle.lookup.store.Store.open(rekindle.Options()).prekey(runtime._subject.fingerprint((rows(),), {})))
"""


def _own_prekey() -> str:
    runtime = rekindle.Module(mlp())._runtime
    return rekindle.lookup.store.Store.open(rekindle.Options()).prekey(runtime._subject.fingerprint((rows(),), {}))


def _prekey() -> str:
    """Of a process of its own: settings that other tests have left behind are part of a key."""
    done = python_process.run("-c", _PREKEY, cwd=pathlib.Path(__file__).parent, check=True)
    return done.stdout.split()[-1]


def sigmoid(joint: bytes) -> bytes:
    assert joint.count(b'"\x04Relu') == 1
    return joint.replace(b'"\x04Relu', b'"\x04Tanh')


@pytest.mark.parametrize(
    ("section", "change", "complaint"),
    [
        ("joint", sigmoid, "the graph has"),
        (
            "contract",
            lambda text: text.replace(b'"expected_cotangents":[true]', b'"expected_cotangents":[false]'),
            "the contract says expected_cotangents=[False]",
        ),
    ],
)
def test_verify_finds_a_wrong_entry_and_uses_the_fresh_export(
    section: str, change: Any, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("on")
    wrong = poison(section, change)
    assert entries() == [wrong]
    monkeypatch.setenv("REKINDLE_LOG", "error")
    [result], log = run("verify")
    assert result == ["export", 0, 1, 1]
    assert "error: VERIFICATION FAILED" in log and complaint in log
    assert rekindle.cache.stats()["bypass_codes"] == {"verification_failed": 1}
    [right] = entries()
    assert right != wrong
    assert run("verify")[0] == [["local", 1, 1, 0]]


def test_a_sampled_verification_looks_at_its_share_of_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    rekindle.Module(mlp())(rows())
    rekindle.lookup.store.flush()
    poison("joint", sigmoid, _own_prekey())
    # Without the comparison the wrong graph is used: what the mode is for.
    monkeypatch.setattr("rekindle.lookup.local_source._dice.random", lambda: 0.5)
    skipped = rekindle.Module(mlp(), rekindle.Options(cache="verify:1/50"))
    assert not torch.allclose(skipped(rows()), mlp()(rows()))
    monkeypatch.setattr("rekindle.lookup.local_source._dice.random", lambda: 0.01)
    checked = rekindle.Module(mlp(), rekindle.Options(cache="verify:1/50"))
    torch.testing.assert_close(checked(rows()), mlp()(rows()))
    assert rekindle.status(checked).verify_failures == 1


def test_readonly_uses_a_fresh_export_in_the_place_of_a_corrupt_entry_and_changes_nothing(
    cache_dir: pathlib.Path,
) -> None:
    run("on")
    [entry] = [path for path in (cache_dir / "objects").rglob("*") if path.is_file()]
    damaged = bytearray(entry.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    entry.write_bytes(damaged)
    files = {path: path.read_bytes() for path in cache_dir.rglob("*") if path.is_file()}
    assert run("readonly")[0] == [EXPORT]
    assert {path: path.read_bytes() for path in cache_dir.rglob("*") if path.is_file()} == files
    assert run("verify", "on")[0] == [EXPORT, HIT], "a writer repairs it"


def test_strict_raises_for_a_bypass_and_runs_what_can_run() -> None:
    module = mlp()
    model = rekindle.Module(module, rekindle.Options(cache="strict"))
    model(rows())
    handle = module.first.register_full_backward_hook(lambda *_: None)
    with pytest.raises(FallbackError, match=r"hooks: model.first has a backward hook .* remove the hook"):
        model(rows())
    handle.remove()
    model(rows())
    assert rekindle.status(model).eager_calls == 0


def test_a_share_has_to_be_one_in_so_many() -> None:
    assert rekindle.Options(cache="verify:1/50").verified_share == pytest.approx(0.02)
    assert rekindle.Options(cache="verify").verified_share == 1.0
    assert rekindle.Options(cache="on").verified_share == 0.0
    for wrong in ("verify:", "verify:1/0", "verify:2/3", "verify:1/N", "on:1/2"):
        with pytest.raises(OptionError, match="it must be one of"):
            rekindle.Options(cache=wrong)


def test_modes_agree_with_eager_in_training() -> None:
    for mode in ("on", "verify", "refresh", "readonly", "off", "strict"):
        Twins(mlp(), cache=mode).call(rows())
        rekindle.lookup.store.flush()


def test_a_switch_to_and_fro_describes_the_module_once_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.calls.subject import Subject

    described = []
    fingerprint = Subject.fingerprint
    monkeypatch.setattr(Subject, "fingerprint", lambda self, *call: described.append(self) or fingerprint(self, *call))
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    wrapped = rekindle.Module(model, rekindle.Options(cache="off"))
    for training in (True, False):
        wrapped.train(training)(torch.ones(2, 4))
    before = len(described)
    for training in (True, False, True, False):
        wrapped.train(training)(torch.ones(2, 4))
    assert len(described) == before
