"""Idempotent append: a bundle that comes with a key is stored once, however often and wherever it is sent.

What is promised, for all processes and shards of a topic: within the window, an append whose key was used before
stores nothing and gets the receipt of the first one. The window of a key begins with its first append, and ends after
`idempotency.window` or when `idempotency.max_keys` younger keys have come, whichever is first; after that the same key
is a new one. A damaged key log can only forget: then a repeat is stored a second time, but nothing is ever taken for
stored that is not.

The truth is in the bundles, which carry their keys; the key log (`key_format` draws it) keeps them beyond the life of
WAL and segment files. A keyed append, under the lock of the log:

1. Read what other processes wrote; look the key up.
2. Write the key without an offset.    A crash from here on: whoever opens the shard next finds the bundle in the WAL,
                                       or not, and writes down which. Until then others neither append nor acknowledge.
3. Give the bundle its offset.         It is written and synced with its group, as any other.
4. Write the key with the offset.      Not synced: as long as the WAL holds the bundle, its key can be had from there.

Appends that wait for the lock in one process are served together. Before a WAL file goes, the log is synced
(`before_seal`). A shard that is opened after a crash reports what it holds (`recovered`), and before this process uses
a key for the first time every other shard has to have done so: else a key could be in a WAL that nobody has read.

When an append fails for good its offsets are void, and that is synced before the shard's tail moves past them
(`settled`): so an offset below another process's tail, not voided, is a bundle that is there.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast.clock import Clock
from holdfast.config import IdempotencySettings
from holdfast.durability import Durability
from holdfast.errors import Backpressure, InvalidBundle, TryAgain
from holdfast.files import Files
from holdfast.store._key_log import SWITCH_BYTES, KeyLog
from holdfast.store._key_receipt import FollowingReceipt, durable_receipt
from holdfast.store._key_table import KeyTable, Range
from holdfast.store._receipt import Receipt
from holdfast.store.key_format import MAX_ENTRIES, MAX_KEY_BYTES, UNPLACED, WITHDRAWN, KeyEntry, Kind, Void

FOLDER: Final = "keys"  # in the topic's
OPENING: Final = "OPENING"  # a lock: shared by those who open a shard, exclusive while somebody makes sure of all
MAX_SERVED: Final = 256  # appends in one turn: so long others wait for the lock
_PRUNE_ABOVE: Final = 1024  # receipts kept for repeats, before a look which of them nobody needs


class Shards(Protocol):
    """What the index has to know of the topic's shards. Called without any lock of the index, except `durable`."""

    def numbers(self) -> Iterable[int]:
        """All shards of the topic."""
        ...

    def durable(self, shard: int) -> int:
        """One above the highest offset that another process's tail shows; 0 if there is no tail."""
        ...

    def attend(self, shard: int) -> bool:
        """Open and let go of a shard that nobody holds, so that it is recovered; False if somebody holds it."""
        ...


class NoShards:
    """For those who only open a shard, to repair it, and append nothing: nobody is asked."""

    def numbers(self) -> Iterable[int]:
        return ()

    def durable(self, shard: int) -> int:  # noqa: ARG002 (none is known)
        return 0

    def attend(self, shard: int) -> bool:  # noqa: ARG002
        return False


class ReplayedKey(NamedTuple):
    """The key of a bundle that recovery found in the WAL."""

    key: bytes
    offset: int
    ingestion_time_ns: int


@dataclass(frozen=True, slots=True)
class KeyStatistics:
    """What the index holds and did, as far as this process knows."""

    keys: int
    file_bytes: int
    generation: int
    appended: int
    repeated: int
    switches: int  # of generations, by this process
    owed_records: int  # refused by the disk so far, and tried again
    damaged_bytes: int


class _Request:
    """A keyed append on its way through the lock, and what came of it: a receipt or a problem, or what was there."""

    __slots__ = ("done", "durable", "enqueue", "found", "key", "problem", "receipt")

    def __init__(self, key: bytes, enqueue: Callable[[], Receipt]) -> None:
        self.key, self.enqueue = key, enqueue
        self.done = False
        self.receipt: Receipt | None = None  # of this append, or of the one that was found
        self.problem: Exception | None = None
        self.found: KeyEntry | None = None
        self.durable = False  # what was found


def encode_key(key: str | bytes) -> bytes:
    """A key as it is stored; raises `InvalidBundle` for one that is empty or too long."""
    encoded = key.encode() if isinstance(key, str) else bytes(key)
    if not 1 <= len(encoded) <= MAX_KEY_BYTES:
        raise InvalidBundle(
            f"an idempotency key has 1 to {MAX_KEY_BYTES} bytes, this one {len(encoded)}; shorten or hash it"
        )
    return encoded


class KeyIndex:
    """The keys of a topic, shared with its other processes. Threads share it; one for each open topic."""

    def __init__(
        self,
        files: Files,
        topic: Path,
        clock: Clock,
        settings: IdempotencySettings,
        shards: Shards,
        *,
        switch_bytes: int = SWITCH_BYTES,
    ) -> None:
        self._files, self._folder, self._clock, self._shards = files, topic / FOLDER, clock, shards
        self._turn = threading.Lock()  # held while the log is; guards all below
        self._table = KeyTable(settings)
        self._log = KeyLog(files, self._folder, clock, self._table, switch_bytes)
        self._waiting: deque[_Request] = deque()
        self._pending: dict[int, tuple[bytes, Receipt]] = {}  # by offset in our shard: not durable when last seen
        self._prune_above = _PRUNE_ABOVE
        self._appended = self._repeated = 0
        self._begin_lock = threading.Lock()
        self._begun = False
        self._beginning: int | None = None  # the thread that does

    # -- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        key: bytes,
        shard: int,
        enqueue: Callable[[], Receipt],
        *,
        wait_for_room: Callable[[], None],
        level: Durability,
    ) -> tuple[Receipt, bool]:
        """Store a bundle unless its key (`encode_key`) was used before; the receipt, and whether it is the first one's.

        `enqueue` gives the bundle its offset in `shard`, which is ours, and must not wait: without room it raises
        `Backpressure`, and is tried again after `wait_for_room` (outside of the lock, up to its own timeout).

        Raises `Backpressure` also while the fate of an earlier append with this key is not known: the process that
        did it cannot write to the log.
        """
        if not self._begun:
            self._begin(shard)
        while True:
            request = _Request(key, enqueue)
            self._serve(request, shard)
            if isinstance(request.problem, Backpressure):
                wait_for_room()
            elif request.problem is not None:
                raise request.problem
            elif request.found is not None:
                receipt = self._repeat(request, request.found, shard, level)
                if receipt is not None:
                    return receipt, True
            elif request.receipt is not None:
                return request.receipt, False

    def _repeat(self, request: _Request, entry: KeyEntry, own: int, level: Durability) -> Receipt | None:
        """The receipt of an earlier append; `None` when it is to be looked for again."""
        key, shard, offset, _ = entry
        if offset == UNPLACED:
            if shard != own and self._shards.attend(shard):
                return None
            raise Backpressure(
                f"an append with the idempotency key {key!r} to shard {shard} is not settled yet; try again",
                retry_after=0.5,
            )
        if request.receipt is not None:
            return request.receipt
        if request.durable:
            return durable_receipt(shard, offset, level)
        return FollowingReceipt(shard, offset, level, lambda attend: self._look(entry, attend), self._clock)

    def _look(self, entry: KeyEntry, attend: bool) -> bool:
        """Is the bundle of another process durable? Raises `TryAgain` if it never will be."""
        if attend:
            self._shards.attend(entry.shard)
        elif self._shards.durable(entry.shard) <= entry.offset:
            return False
        with self._turn, self._log.held():
            if self._table.get(entry.key) != entry:
                raise TryAgain(
                    f"the first append with the idempotency key {entry.key!r}, to shard {entry.shard} at offset "
                    f"{entry.offset}, failed there: nothing is stored under it; append again"
                )
            return self._is_durable(entry)

    def _is_durable(self, entry: KeyEntry) -> bool:
        """Asked with the log held: nobody can add a void now, and the tail moves only after the void is written."""
        return self._shards.durable(entry.shard) > entry.offset

    def _serve(self, request: _Request, shard: int) -> None:
        """Have the request served: by this thread, along with others that wait, or by one that was faster."""
        self._waiting.append(request)
        with self._turn:
            if request.done:
                return
            self._waiting.remove(request)
            with self._log.held():
                batch = [request]
                while self._waiting and len(batch) < MAX_SERVED:  # more have come while this one waited for the lock
                    batch.append(self._waiting.popleft())
                try:
                    self._serve_batch(batch, shard)
                finally:  # after an error the others find out for themselves
                    self._waiting.extendleft(each for each in reversed(batch[1:]) if not each.done)
            self._prune()

    def _serve_batch(self, batch: list[_Request], shard: int) -> None:
        now_ns = self._clock.now_ns()
        fresh: dict[bytes, _Request] = {}
        twice: list[_Request] = []
        self._table.forget(now_ns)
        for request in batch:
            if request.key in fresh:
                twice.append(request)
            elif (found := self._table.find(request.key, now_ns)) is not None:
                self._answer(request, found, shard)
            else:
                fresh[request.key] = request
        if fresh:
            self._append_fresh(fresh, shard, now_ns)
        for request in twice:  # one whose first was refused is tried on its own
            if (found := self._table.find(request.key, now_ns)) is not None:
                self._answer(request, found, shard)

    def _answer(self, request: _Request, found: KeyEntry, own: int) -> None:
        if found.shard == own:
            _, request.receipt = self._pending.get(found.offset, (b"", None))
            request.durable = request.receipt is None
        elif found.offset != UNPLACED:
            request.durable = self._is_durable(found)
        request.found, request.done = found, True
        self._repeated += 1

    def _append_fresh(self, fresh: dict[bytes, _Request], shard: int, now_ns: int) -> None:
        """Steps 2 to 4 of the module's docstring, for many."""
        self._log.write([KeyEntry(key, shard, UNPLACED, now_ns) for key in fresh])
        outcomes = dict.fromkeys(fresh, WITHDRAWN)
        try:
            for key, request in fresh.items():
                del outcomes[key]  # an interrupt leaves it unsettled
                outcomes[key] = self._enqueue(request)
        finally:
            if outcomes:
                self._log.write_or_owe([KeyEntry(key, shard, offset, now_ns) for key, offset in outcomes.items()])

    def _enqueue(self, request: _Request) -> int:
        try:
            request.receipt = request.enqueue()
        except Exception as problem:  # it is the caller's, whose thread raises it
            request.problem, request.done = problem, True
            return WITHDRAWN
        offset = request.receipt.offset
        self._pending[offset] = (request.key, request.receipt)
        self._appended += 1
        request.done = True
        return offset

    def _prune(self) -> None:
        """Forget the receipts that have nothing more to tell than that the bundle is durable."""
        if len(self._pending) > self._prune_above:
            self._pending = {
                offset: each for offset, each in self._pending.items() if each[1].durability < Durability.FSYNC
            }
            self._prune_above = max(_PRUNE_ABOVE, 2 * len(self._pending))

    # -- shards are opened --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Around the opening of a shard: from before its lock is taken until `recovered` has returned."""
        if self._beginning == threading.get_ident() or not self._log.exists():
            yield
            return
        lock = self._files.lock(self._folder / OPENING, note="", shared=True, wait=True)
        try:
            yield
        finally:
            lock.release()

    def _begin(self, own: int) -> None:
        """Make sure that every key in any WAL is in the log: no shard is being opened, and none waits to be.

        Once is enough. What a process leaves that dies later is in the page cache, and a machine that dies takes this
        process with it.
        """
        with self._begin_lock:
            if self._begun:
                return
            self._files.make_folder(self._folder)
            lock = self._files.lock(self._folder / OPENING, note="", wait=True)
            self._beginning = threading.get_ident()
            try:
                for shard in self._shards.numbers():
                    if shard != own:
                        self._shards.attend(shard)
                self._begun = True
            finally:
                self._beginning = None
                lock.release()

    def lost(self, shard: int) -> list[Range]:
        """Offsets whose append failed: recovery must not bring their bundles back, for they may be elsewhere by now."""
        if not self._log.exists():
            return []
        with self._turn, self._log.held():
            return self._table.lost(shard)

    def recovered(self, shard: int, end: int, lost: Iterable[Range], replayed: Iterable[ReplayedKey]) -> None:
        """What a shard was found to hold when it was opened: called before its tail is written and its first append.

        The next offset will be `end`; nothing is at the offsets in `lost`; both are durable on return. `replayed` are
        the keys in the WAL. They are written again even if the log shows them, for `before_seal` to sync: it may show
        what the medium never got.
        """
        keys = list(replayed)
        if not keys and not self._log.exists():
            return
        self._files.make_folder(self._folder)
        with self._turn, self._log.held():
            for first, stop in lost:
                self._void(Void(Kind.LOST, shard, first, stop))
            self._void(Void(Kind.RECOVERED, shard, end))
            entries = [entry for each in keys if (entry := self._restored(each, shard)) is not None]
            for start in range(0, len(entries), MAX_ENTRIES):
                self._log.write(entries[start : start + MAX_ENTRIES])

    def _void(self, void: Void) -> None:
        if self._table.lost(void.shard) or any(self._table.voided(void)):
            self._log.write(void)

    def _restored(self, replayed: ReplayedKey, shard: int) -> KeyEntry | None:
        """The entry to write for a bundle in the WAL; `None` if its key has a younger one."""
        known = self._table.get(replayed.key)
        if known is not None and (known.shard, known.offset) == (shard, replayed.offset):
            return known
        if known is None or known.offset == UNPLACED or known.time_ns < replayed.ingestion_time_ns:
            return KeyEntry(replayed.key, shard, replayed.offset, replayed.ingestion_time_ns)
        return None

    # -- what the shard of this process tells -------------------------------------------------------------------

    def lose(self, shard: int, first: int, end: int) -> None:
        """The append of these offsets failed. Called before their receipts fail; what the disk refuses is owed."""
        with self._turn:
            failed = [
                offset
                for offset, (_, receipt) in self._pending.items()
                if first <= offset < end and receipt.shard == shard
            ]
            if failed:
                for offset in failed:
                    del self._pending[offset]
                self._log.owe(Void(Kind.LOST, shard, first, end))
                self._settle()

    def settled(self) -> bool:
        """May the tail of our shard move? Not while a void is owed: others would take what is below for stored."""
        if not self._log.owes:
            return True
        with self._turn:
            return self._settle()

    def _settle(self) -> bool:
        try:
            with self._log.held():
                return True
        except OSError:  # said where it was first refused
            return False

    def before_seal(self) -> None:
        """Make durable what the log has of our shard, before WAL files or the record of lost offsets go."""
        if self._log.unsynced or self._log.owes:
            with self._turn:
                self._log.sync()

    def close(self) -> None:
        with self._turn:
            self._log.close()

    def statistics(self) -> KeyStatistics:
        log = self._log
        return KeyStatistics(
            len(self._table), log.size, log.generation, self._appended, self._repeated,
            log.switches, log.owes, log.damaged_bytes,
        )  # fmt: skip
