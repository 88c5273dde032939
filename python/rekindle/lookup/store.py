"""Finds, publishes and counts entries of the C++ export cache for a runtime. Never fails a call.

An example: two entries lie under a prekey. The newer was exported while the environment variable BLOCK was "64", the older while
it was "32", as now. `find` passes the newer over, since that observation does not hold, and yields the older one. No code of the
model runs for that.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from rekindle import _native
from rekindle.errors import first_line
from rekindle.key.fingerprint import Fingerprint
from rekindle.lookup.entry import EntryMeta, InvalidEntry, StoredEntry
from rekindle.lookup.entry_check import check_entry, check_observations
from rekindle.lookup.refusal import SECTION, Refusal
from rekindle.lookup.wanted import Wanted
from rekindle.options import Options
from rekindle.process.place_in_job import place_in_job
from rekindle.reasons import Bypass, Reason
from rekindle.recording.observations import verify
from rekindle.sizes.shapes import Shapes, sizes_of
from rekindle.versions import __version__

if TYPE_CHECKING:
    from rekindle.lookup.explanation import Explanation
    from rekindle.miss.pipeline import NewEntry


class Store:
    """Gives one module the cache of its options. Without a usable directory it warns once and remembers nothing."""

    def __init__(self, cache: Any, mode: str, directory: str | None) -> None:
        self._cache = cache
        self._mode = mode
        self.directory = directory  # None: there is no cache

    @staticmethod
    def open(options: Options, readonly: bool = False) -> Store:
        """Opens the cache of the options; `readonly`: also where these allow writing."""
        mode = options.cache_mode
        if mode == "off":
            return Store(None, mode, None)
        try:
            cache = _native.ExportCache(
                options.cache_dir or "", readonly or mode == "readonly", options.cache_size, options.remote
            )
        except _native.RekindleError as error:
            _native.log_warning(f"the cache is not used: {error}")
            return Store(None, mode, None)
        return Store(cache, mode, cache.dir)

    @property
    def mode(self) -> str:
        """Returns the mode: Options.cache_mode."""
        return self._mode

    @property
    def shared(self) -> Any:
        """Returns the ExportCache if an entry that another process writes would be found in it, else None."""
        return self._cache if self._mode not in ("refresh", "readonly") else None

    def prekey(self, fingerprint: Fingerprint) -> str:
        """Returns the digest of a fingerprint's fields, in hexadecimal."""
        builder = _native.KeyBuilder()
        builder.add_all(fingerprint.fields)
        return builder.digest_hex()

    def find(self, wanted: Wanted) -> Iterator[StoredEntry]:
        """Yields the entries of a call's key that are for the call's sizes and whose observations hold, newest first."""
        if self._cache is None or self._mode == "refresh":
            return
        sizes, places = sizes_of(wanted.call.arguments), wanted.fingerprint.places
        try:
            for entry, observations, source in self._candidates(wanted.prekey):
                recorded = self._observations(entry, observations)
                if recorded is None or Shapes.observed(recorded).bind(sizes) is None or verify(recorded, places) is not None:
                    continue
                found = self._load(entry, recorded, source)
                if found is not None:
                    yield found
        except (_native.RekindleError, ValueError) as error:
            _native.log_warning(f"the cache could not be read: {error}")

    def _candidates(self, prekey: str) -> Iterator[tuple[str, bytes, str]]:
        """Yields (id, observations, source) of the local cache's candidates; asks other tiers only when none of these holds."""
        for source, look_up in (("local", self._cache.lookup), ("remote", self._cache.lookup_remote)):
            yield from ((entry, observations, source) for entry, observations, _ in look_up(prekey))

    def _observations(self, entry: str, text: bytes) -> list[Any] | None:
        """Returns the observations of a candidate; removes the candidate and returns None when they are none."""
        try:
            recorded = json.loads(text)
            check_observations(recorded)
            return recorded
        except (ValueError, RecursionError) as error:
            self.reject(entry, f"its observations cannot be read: {first_line(error)}")
            return None

    def _load(self, entry: str, observations: list[Any], source: str) -> StoredEntry | None:
        loaded = self._cache.load(entry)
        if loaded is None:
            return None
        try:
            found = StoredEntry(entry, observations, loaded["sections"], EntryMeta.parse(loaded["meta"]), source=source)
            check_entry(found)
        except InvalidEntry as error:
            self.reject(entry, str(error))
            return None
        return found

    def new_entry(self, fingerprint: Fingerprint, made: NewEntry) -> StoredEntry:
        """Returns the entry of an export, not published yet."""
        from rekindle.lookup.explanation import leaf_tree  # which no hit needs

        model = model_label(fingerprint)
        texts = [observation for observation in made.observations if observation[0] != "answers"]  # they are no texts to compare
        fields, noted = fingerprint.fields, made.noted  # what else these hold is the module's, and not to be kept alive
        leaves = lambda: leaf_tree(model, fields, texts, noted)  # noqa: E731
        return StoredEntry("", made.observations, made.sections, _meta(made, model), leaves)

    def new_refusal(
        self, fingerprint: Fingerprint, shapes: Shapes, refusal: Refusal, bypass: Bypass, seconds: float
    ) -> StoredEntry:
        """Returns an entry that says why calls of these shapes have no graph, not published yet.

        bypass: with which an export of `seconds` ended
        """
        from rekindle.lookup.explanation import leaf_tree

        model = model_label(fingerprint)
        observations = [*shapes.observations(), *(bypass.observations or ())]
        inputs = ", ".join(shapes.text(i) for i in range(len(shapes.dims)))
        about = EntryMeta(
            model.rpartition(".")[2], model, "eager", f"{inputs}: {refusal.reason}", int(time.time()), seconds, seconds,
            str(torch.__version__), __version__,
        )  # fmt: skip
        fields = fingerprint.fields
        return StoredEntry(
            "", observations, {SECTION: refusal.section()}, about, lambda: leaf_tree(model, fields, observations, {})
        )

    def publish(self, prekey: str, entry: StoredEntry, on_written: Callable[[], None] = lambda: None) -> None:
        """Writes the entry in the background; then, or when that is not possible, calls `on_written`."""
        if self._cache is None or self._mode == "readonly":
            on_written()
            return
        observations, meta = json.dumps(entry.observations).encode(), entry.meta.text()

        def write() -> None:
            try:
                self._cache.store(prekey, observations, meta, entry.sections, entry.leaves())
            except _native.Unsupported as error:
                if "read-only" not in str(error):
                    raise
                _native.log_debug(f"an entry is not stored: {error}")  # opening the directory has said so
            finally:
                on_written()

        _writer.submit(write)

    def pack(self, entry: StoredEntry) -> bytes:
        """Returns the entry as bytes for another process of the same job: a line of JSON, and a record (formats/entry.h)."""
        id, record = _native.encode_entry(entry.meta.text(), entry.sections)
        about = {"id": id, "observations": entry.observations, "rank": place_in_job()[0]}
        return json.dumps(about).encode() + b"\n" + record

    def adopt(self, wanted: Wanted, packed: bytes) -> StoredEntry | None:
        """Returns the packed entry, and publishes it where it is not in the cache; None when it is not right here."""
        try:
            head, _, record = packed.partition(b"\n")
            about = json.loads(head)
            loaded = _native.decode_entry(record, about["id"])
            entry = StoredEntry(about["id"], about["observations"], loaded["sections"], EntryMeta.parse(loaded["meta"]))
            check_entry(entry)
            rank = int(about["rank"])
        except (_native.RekindleError, ValueError, KeyError, TypeError) as error:
            _native.log_warning(f"an entry of another rank cannot be used: {error}")
            return None
        if Shapes.observed(about["observations"]).bind(sizes_of(wanted.call.arguments)) is None:
            return None
        if (changed := verify(about["observations"], wanted.fingerprint.places)) is not None:
            _native.log_info(f"the {entry.meta.model} of rank {rank} is not right here: {changed}")
            return None
        if self.shared is not None and next(self.find(wanted), None) is None:
            self.publish(wanted.prekey, entry)
        return entry

    def reject(self, entry: str, why: str) -> None:
        """Removes the entry of this id, which passed its checksum but cannot be run, and logs it as an error."""
        _native.log_error(f"entry {entry[:12]} cannot be used and is removed: {why}")
        if self._cache is None or not entry or self._mode == "readonly":
            return
        try:
            self._cache.remove(entry)
        except _native.RekindleError as error:
            _native.log_warning(f"entry {entry[:12]} could not be removed: {error}")

    def explain(
        self, prekey: str, fingerprint: Fingerprint, describe: Callable[[], Fingerprint], arguments: list[torch.Tensor]
    ) -> Explanation:
        """Says why a call hits or misses; changes and counts nothing.

        prekey, fingerprint: of the call
        describe: computes the fingerprint anew
        arguments: tensors of the call

        Raises RekindleError if the cache cannot be read, Bypass(disabled) if there is none.
        """
        from rekindle.lookup.explanation import explain_lookup

        if self.directory is None:
            raise Bypass(Reason.DISABLED, "the cache is off, or its directory cannot be used; nothing is looked up")
        cache = _native.ExportCache(self.directory, True)
        return explain_lookup(cache, model_label(fingerprint), prekey, fingerprint, describe, sizes_of(arguments))

    def explain_miss(
        self, prekey: str, fingerprint: Fingerprint, describe: Callable[[], Fingerprint], arguments: list[torch.Tensor]
    ) -> None:
        """Logs in one line why a lookup missed, and keeps it for `rekindle cache explain --last`. Never fails."""
        if self._cache is None or self._mode == "refresh":
            return
        try:
            why = self.explain(prekey, fingerprint, describe, arguments)
            _native.log_info(why.line())
            self._cache.record_miss(why.row(prekey))
        except Exception as error:  # a miss that cannot be explained is still only a miss
            _native.log_warning(f"a miss could not be explained: {type(error).__name__}: {error}")

    def record_hit(self, entry: StoredEntry, saved_seconds: float) -> None:
        """Counts a hit, and the seconds that it saved, in the journal of this process."""
        if self._cache is not None:
            self._cache.record_hit(entry.id, saved_seconds)

    def record_bypass(self, code: str) -> None:
        """Counts a bypass by its reason's code in the journal of this process."""
        if self._cache is not None:
            self._cache.record_bypass(code)


def model_label(fingerprint: Fingerprint) -> str:
    """Returns the qualified class of the module: what entries of one model have in common."""
    return str(dict(fingerprint.fields)["model.class"]).rpartition(" ")[0]


def _meta(made: NewEntry, class_name: str) -> EntryMeta:
    took = made.seconds
    return EntryMeta(
        made.model, class_name, made.mode, made.inputs, int(time.time()), took.export, took.total,
        str(torch.__version__), __version__,
    )  # fmt: skip


class _Writer:
    """Writes entries off the training thread; at most a few wait, and leaving the process waits for them."""

    _MAX_WAITING = 8

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()  # several threads change it, by one operation each
        atexit.register(self.flush)

    def submit(self, write: Any) -> None:
        for ended in [thread for thread in tuple(self._threads) if not thread.is_alive()]:
            self._threads.discard(ended)
        if len(self._threads) >= self._MAX_WAITING:
            self.flush()
        thread = threading.Thread(target=self._run, args=(write,), name="rekindle-store")
        thread.start()
        self._threads.add(thread)

    @staticmethod
    def _run(write: Any) -> None:
        try:
            write()
        except Exception as error:  # there is nobody to raise it to
            _native.log_warning(f"an entry could not be stored: {type(error).__name__}: {error}")

    def flush(self) -> None:
        for thread in tuple(self._threads):
            thread.join()
            self._threads.discard(thread)


_writer = _Writer()


def flush() -> None:
    """Waits until everything that was exported is in the cache."""
    _writer.flush()
