"""A topic: append to the shard that this process owns, read from all of them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.bundle import RecordBundle, decode_attributes, encode_attributes
from holdfast.clock import Clock, Ids
from holdfast.config import BufferSettings
from holdfast.config.settings import level_of
from holdfast.durability import Durability
from holdfast.errors import Closed, DiskFault, DiskFull, HoldfastError, InvalidPosition, ReadOnly, ShardTaken
from holdfast.files import Files
from holdfast.store._encoder import Encoder
from holdfast.store._follower import ShardFollower
from holdfast.store._receipt import Receipt
from holdfast.store._sealer import Sealer
from holdfast.store._shard import Shard, ShardStatistics
from holdfast.store._span import Span
from holdfast.store.layout import MAX_SHARDS, shard_folder, shard_number
from holdfast.store.recovery import create_shard, is_shard, lock_shard, recover
from holdfast.store.topic_state import TopicState
from holdfast.wal import Progress

Position = int | Mapping[int, int] | None


def list_shards(files: Files, topic: Path) -> list[int]:
    """The numbers of the shards in a topic's folder; one that was never finished being made does not count."""
    numbers = [number for name in files.list(topic) if (number := shard_number(name)) is not None]
    return sorted(number for number in numbers if is_shard(files, shard_folder(topic, number)))


def holds_shards(files: Files, topic: Path) -> bool:
    """Is there anything in this folder that only a topic has?"""
    return files.is_folder(topic) and any(shard_number(name) is not None for name in files.list(topic))


class Topic:
    """Made by `Store.topic`. Threads share it."""

    def __init__(
        self,
        name: str,
        folder: Path,
        state: TopicState,
        settings: BufferSettings,
        *,
        files: Files,
        clock: Clock,
        ids: Ids,
        sealer: Sealer | None,
        note: str,
        shard: int | None = None,
        progress: Callable[[str], Progress] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self._folder, self._state = folder, state
        self._files, self._clock, self._ids = files, clock, ids
        self._sealer = sealer  # None: read-only
        self._note, self._wanted, self._progress = note, shard, progress
        self._encoder = Encoder(state)
        self._claim_lock = threading.Lock()
        self._own: Shard | None = None
        self._looked = False
        self._followers: dict[int, ShardFollower] = {}
        self._closed = False

    # -- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        bundle: RecordBundle | Mapping[str, pa.RecordBatch | pa.Table],
        *,
        durability: Durability | str | None = None,
        timeout: float | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """Store a bundle. The receipt resolves when it is as durable as asked for (default: the topic's setting).

        `timeout` bounds how long this call waits for room; then it raises `Backpressure`.
        """
        record = RecordBundle.of(bundle, attributes)
        level = None if durability is None else level_of(durability)
        own = self._own or self._claim()
        try:
            slots = self._encoder.encode(record.slots)
        except OSError as problem:  # a new slot or schema could not be written down
            raise disk_error(problem, self.name) from problem
        return own.append(slots, encode_attributes(record.attributes), record.event_time, level, timeout)

    def flush(self) -> None:
        """Make everything durable that this process appended, whatever its level; failures go to the receipts."""
        if self._own is not None:
            self._own.flush()

    def seal(self) -> None:
        """Seal the open segment of this process's shard now, and wait for it."""
        own = self._claim()
        try:
            own.roll()
            while own.seal_next():
                pass
        except OSError as problem:
            raise disk_error(problem, own.name) from problem

    def truncate(self, before: Position) -> dict[int, int]:
        """Delete everything below `before` in the shard that this process owns; where it starts now.

        Raises `ShardTaken` for a shard that another process owns: only its writer may delete.
        """
        own = self._claim()
        try:
            wanted = self._mapping(before)
            for number in wanted:
                if number != own.number:
                    raise ShardTaken(
                        f"shard {number} of {self.name} is not this process's (that is {own.number}): ask its writer"
                    )
            return {number: own.truncate(offset) for number, offset in wanted.items()}
        except OSError as problem:
            raise disk_error(problem, own.name) from problem

    # -- read ---------------------------------------------------------------------------------------------------

    def bundles(
        self, start: Position = None, end: Position = None, *, slots: Sequence[str] | None = None
    ) -> Iterator[RecordBundle]:
        """The bundles from `start` up to `end` (not included), shard by shard, as far as they are durable now."""
        self._look()
        numbers = None if slots is None else {self._state.slot_number(name) for name in slots}
        for shard, span in self._spans(start, end):
            for placed in span.bundles(numbers):
                named = {self._state.slot_name(number): batch for number, batch in placed.batches.items()}
                yield RecordBundle.stored(
                    named,
                    decode_attributes(placed.attributes),
                    placed.event_time,
                    placed.ingestion_time_ns,
                    placed.offset,
                    shard.number,
                )

    def read(
        self,
        start: Position = None,
        end: Position = None,
        *,
        slot: str,
        columns: Sequence[str] | None = None,
        verify: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The batches of one slot, and of `columns` only if given; a batch leaves out the columns that it lacks.

        Whole batches are checked against their checksums the first time that this process reads them. With `columns`
        only the bytes of those columns are touched, so their checksums, which cover whole batches, are not: set
        `verify` to have them checked all the same, at the price of reading everything.
        """
        self._look()
        number = self._state.slot_number(slot)
        wanted = None if columns is None else list(columns)
        for _, span in self._spans(start, end):
            yield from span.batches(number, wanted, verify=verify)

    def positions(self) -> dict[int, tuple[int, int]]:
        """For each shard, the lowest offset that may still be there and one above the highest durable one."""
        self._look()
        return {shard.number: (shard.start, shard.durable) for shard in self._shards()}

    def schema(self, slot: str) -> pa.Schema:
        """The union of all columns that a slot ever held, each with the widest type."""
        self._look()
        return self._state.schema(slot)

    def slots(self) -> dict[str, int]:
        """The slots by name, with their numbers."""
        self._look()
        self._state.reload()
        return dict(self._state.slots.names)

    def statistics(self) -> ShardStatistics | None:
        """Of the shard that this process owns, if it does."""
        return None if self._own is None else self._own.statistics()

    # -- shards -------------------------------------------------------------------------------------------------

    def _claim(self) -> Shard:
        """The shard that this process owns; takes a free one, or makes one."""
        with self._claim_lock:
            if self._closed:
                raise Closed(f"topic {self.name} is closed; open the store again")
            if self._sealer is None:
                raise ReadOnly(f"{self.name} was opened read-only; open the store without read_only=True to write")
            if self._own is None:
                try:
                    self._own = self._take_free() or self._make()
                except OSError as problem:
                    raise disk_error(problem, self.name) from problem
                self._looked = True
            return self._own

    def _look(self) -> None:
        """Before the first read: what a crashed writer left is made whole, so that all of it can be read."""
        if self._closed:
            raise Closed(f"topic {self.name} is closed; open the store again")
        if self._looked or self._sealer is None:
            return
        with self._claim_lock:
            if self._own is None and not self._closed:
                self._own = self._take_free()
            self._looked = True

    def _take_free(self) -> Shard | None:
        """Open the lowest shard that nobody holds; further ones are recovered too, and let go."""
        own: Shard | None = None
        for number in list_shards(self._files, self._folder):
            if self._wanted is not None and number != self._wanted:
                continue
            try:
                shard = self._open(number)
            except ShardTaken:
                if self._wanted is not None:
                    raise
                continue
            if own is None:
                own = shard
            else:
                self._let_go(shard)
        return own

    def _make(self) -> Shard:
        lock = self._state.lock()
        try:
            existing = list_shards(self._files, self._folder)
            number = max(existing, default=-1) + 1 if self._wanted is None else self._wanted
            if number >= MAX_SHARDS:
                raise ShardTaken(f"all {MAX_SHARDS} shards of {self.name} are taken; close some of their writers")
            if number not in existing:
                create_shard(self._files, shard_folder(self._folder, number), self._ids)
            return self._open(number)
        finally:
            lock.release()

    def _open(self, number: int) -> Shard:
        if self._sealer is None:
            raise ReadOnly(f"{self.name} was opened read-only")
        folder = shard_folder(self._folder, number)
        name = f"{self.name}/{number}"
        lock = lock_shard(self._files, folder, note=self._note)
        try:
            progress = None if self._progress is None else self._progress(name)
            state = recover(self._files, folder, self.settings, self._clock, self._ids, progress)
            shard = Shard(
                number, folder, lock, state, self.settings, self._files, self._clock, self._state,
                name=name, sealer=self._sealer,
            )  # fmt: skip
            shard.begin()
        except BaseException as problem:
            lock.release()
            if isinstance(problem, OSError):
                raise disk_error(problem, name) from problem
            raise
        self._sealer.add(shard)
        return shard

    def _shards(self) -> list[Shard | ShardFollower]:
        shards: list[Shard | ShardFollower] = []
        for number in list_shards(self._files, self._folder):
            if self._own is not None and number == self._own.number:
                shards.append(self._own)
                continue
            follower = self._followers.get(number)
            if follower is None:
                follower = self._followers[number] = ShardFollower(
                    number, shard_folder(self._folder, number), self._files, name=f"{self.name}/{number}"
                )
            shards.append(follower)
        return shards

    def _spans(self, start: Position, end: Position) -> Iterator[tuple[Shard | ShardFollower, Span]]:
        firsts, ends = self._mapping(start), self._mapping(end)
        for shard in self._shards():
            position, stop = firsts.get(shard.number, 0), ends.get(shard.number, shard.durable)
            while (span := shard.span(position, stop)) is not None:
                yield shard, span
                position = span.end

    def _mapping(self, position: Position) -> dict[int, int]:
        """A position as shard -> offset; a plain number only where there is one shard."""
        if position is None:
            return {}
        numbers = [shard.number for shard in self._shards()]
        if isinstance(position, Mapping):
            mapping = dict(position)
        elif len(numbers) <= 1:
            mapping = dict.fromkeys(numbers, position)
        elif position == 0:
            return {}
        else:
            raise InvalidPosition(
                f"{self.name} has shards {numbers}: give a position for each, as {{shard: offset}}, not {position}"
            )
        for number, offset in mapping.items():
            if number not in numbers:
                raise InvalidPosition(f"{self.name} has no shard {number!r}; it has {numbers}")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise InvalidPosition(f"offset {offset!r} of shard {number}: an offset is a whole number, 0 or more")
        return mapping

    def close(self) -> None:
        with self._claim_lock:
            self._closed = True
            own, self._own = self._own, None
            for follower in self._followers.values():
                follower.close()
            self._followers.clear()
        if own is not None:
            self._let_go(own)

    def _let_go(self, shard: Shard) -> None:
        if self._sealer is not None:
            self._sealer.remove(shard)
        shard.close()


def disk_error(problem: OSError, where: str) -> HoldfastError:
    """What a caller is told when the system refuses: no room, or something else."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{where}: {problem}; free some space")
    return DiskFault(f"{where}: {problem}; what was asked for may be half done: repeat it when the disk is well")
