"""A topic: append to the shard that this process owns, read from all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.acks import AckLog, BatchId, BatchStatus, Progress
from holdfast.bundle import MAX_ATTRIBUTE_BYTES, RecordBundle, decode_attributes
from holdfast.clock import Clock, Ids
from holdfast.config import BufferSettings, Cap
from holdfast.durability import Durability
from holdfast.errors import InvalidBundle
from holdfast.files import Files
from holdfast.metrics import DEAD_LETTERS, Reporter
from holdfast.retention import Meter, Neighbours, SegmentFacts, ShardUsage
from holdfast.store._ack_logs import AckLogs
from holdfast.store._appender import Appender
from holdfast.store._batch import Batch
from holdfast.store._delivery import Delivery, Rows
from holdfast.store._disk_error import disk_error
from holdfast.store._drain import Drain
from holdfast.store._finalizers import Finalizers
from holdfast.store._follower import ShardFollower
from holdfast.store._keeper import Keeper
from holdfast.store._listener import Listener
from holdfast.store._ownership import Ownership
from holdfast.store._receipt import Receipt
from holdfast.store._report import report_topic
from holdfast.store._sealer import Sealer
from holdfast.store._shard import Shard, ShardStatistics
from holdfast.store._shard_table import Position, ShardTable
from holdfast.store._sources import Sources
from holdfast.store._span import PlacedBundle, Span
from holdfast.store._subscriber import Subscriber
from holdfast.store._subscriptions import Start, Subscriptions, progress_of
from holdfast.store._sweeper import Sweeper
from holdfast.store._sweeping import Sweeping
from holdfast.store._upkeep import UPKEEP_SECONDS, Upkeep
from holdfast.store.dead_letters import DEAD_SUFFIX, DeadLetter
from holdfast.store.layout import ACKS
from holdfast.store.registry import Registration
from holdfast.store.reserved import TO, refuse_reserved
from holdfast.store.topic_state import TopicState
from holdfast.store.views import SubscriberView, views
from holdfast.wal import Progress as RecoveryProgress


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
        keeper: Keeper,
        listener: Listener,
        caps: Sequence[Cap],
        neighbours: Neighbours,
        dead: Callable[[], Topic],
        note: str,
        shard: int | None = None,
        progress: Callable[[str], RecoveryProgress] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self._folder, self._state, self._clock, self._dead = folder, state, clock, dead
        self._acks = AckLogs(folder, files, clock)
        self._ownership = Ownership(
            name, folder, state, settings, self._acks.highest_outcome,
            files=files, clock=clock, ids=ids, sealer=sealer, note=note, wanted=shard, progress=progress,
        )  # fmt: skip
        self._shards = ShardTable(name, folder, files, self._ownership, self._begin, read_only=sealer is None)
        self._appender = Appender(name, self._shards, state, self._ownership.keys, settings, clock)
        self.closing = False
        self._subscriptions = Subscriptions(
            self, folder, state, settings.subscriber,
            files=files, clock=clock, ids=ids, keeper=keeper, listener=listener, note=note,
        )  # fmt: skip
        self._listener = listener
        self._finalizers = Finalizers(name, self, state.current)
        self._sweeping = Sweeping(
            name, folder.parent.parent, state, settings, caps,
            shards=self._shards, ownership=self._ownership, acks=self._acks, files=files, clock=clock,
            neighbours=neighbours, delivering=self._subscriptions.delivering,
        )  # fmt: skip
        self._upkeep = Upkeep(self, settings, keeper, clock, self._finalizers, self._subscriptions)
        self._sources = Sources(self._finalizers, self._upkeep, self._shards, self._acks, listener, self._heard)
        self._meter = Meter(files, folder.parent.parent, clock)
        self._reporter = Reporter(lambda: report_topic(self))

    # -- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        bundle: RecordBundle | Mapping[str, pa.RecordBatch | pa.Table],
        *,
        durability: Durability | str | None = None,
        timeout: float | None = None,
        attributes: Mapping[str, Any] | None = None,
        batches: Sequence[Batch] = (),
        idempotency_key: str | bytes | None = None,
    ) -> Receipt:
        """Store a bundle. The receipt resolves when it is as durable as asked for (default: the topic's setting).

        `timeout` bounds how long this call waits for room; then it raises `Backpressure`. `batches` are those of a
        source, or of several, that this bundle belongs to. With an `idempotency_key` that was used before on this
        topic, within `idempotency.window`, nothing is stored, and the receipt is that of the first append.
        """
        record = RecordBundle.of(bundle, attributes)
        if record.attributes:
            refuse_reserved(record.attributes)
        for batch in batches:
            batch.expect_open(self)
        receipt = self._appender.append(record, durability, timeout, key=idempotency_key)
        for batch in batches:
            batch.include(receipt)
        return receipt

    def flush(self) -> None:
        """Make everything durable that this process appended, whatever its level; failures go to the receipts."""
        if self._shards.own is not None:
            self._shards.own.flush()

    def seal(self) -> None:
        """Seal the open segment of this process's shard now, and wait for it."""
        own = self._shards.claim()
        try:
            own.roll()
            while own.seal_next():
                pass
        except OSError as problem:
            raise disk_error(problem, own.name) from problem

    def truncate(self, before: Position) -> dict[int, int]:
        """Delete everything below `before` in the shard that this process owns; where it starts now.

        For a subscriber that has not finished it, it is `dropped`: on record before anything goes.

        Raises `ShardTaken` for a shard that another process owns: only its writer may delete.
        """
        own = self._shards.claim()
        try:
            return self._sweeping.truncate(own, self._shards.mapping(before))
        except OSError as problem:
            raise disk_error(problem, own.name) from problem

    # -- batches of sources -------------------------------------------------------------------------------------

    def batch(self, source: str, run: str, batch: str) -> Batch:
        """Open a batch of a source, to be told one status for all its bundles.

        The three texts are its identity: one that is known already is given back as it is. `run` differs for each run
        of the source, `batch` for each batch of a run; a source that comes back after a restart asks for the batches of
        its earlier runs by them: `find_batch`.
        """
        return self._sources.open(BatchId(source, run, batch))

    def find_batch(self, source: str, run: str, batch: str) -> Batch | None:
        """A batch by its identity; `None` if it is not known as a whole (or answered long ago): then send it again."""
        return self._sources.find(BatchId(source, run, batch))

    def batch_closed(self, batch: Batch) -> None:
        """For `Batch`: it can be answered from now on."""
        self._sources.closed(batch)

    # -- read ---------------------------------------------------------------------------------------------------

    def bundles(
        self, start: Position = None, end: Position = None, *, slots: Sequence[str] | None = None
    ) -> Iterator[RecordBundle]:
        """The bundles from `start` up to `end` (not included), shard by shard, as far as they are durable now."""
        self._shards.look()
        numbers = None if slots is None else {self._state.slot_number(name) for name in slots}
        for shard, span in self._shards.spans(start, end):
            for placed in span.bundles(numbers):
                yield self.bundle_of(placed, shard.number)

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
        self._shards.look()
        number = self._state.slot_number(slot)
        wanted = None if columns is None else list(columns)
        for _, span in self._shards.spans(start, end):
            yield from span.batches(number, wanted, verify=verify)

    def spans(self, shard: int, first: int, end: int) -> Iterator[Span]:
        """What one shard holds from `first` to before `end`, run by run; a gap between runs is gone, or never was."""
        for each in self.shards():
            if each.number == shard:
                while first < end and (span := each.span(first, end)) is not None:
                    yield span
                    first = span.end
                return

    def lost(self, shard: int) -> list[tuple[int, int]]:
        """Offsets of a shard that never held anything."""
        return [gap for each in self.shards() if each.number == shard for gap in each.lost()]

    def slot_number(self, slot: str) -> int:
        """Raises `UnknownSlot`."""
        self._state.reload()
        return self._state.slot_number(slot)

    def registration(self, name: str) -> Registration:
        """A subscriber as it is registered now; raises `UnknownSubscriber`."""
        return self._state.current().get(name)

    def bundle_of(self, placed: PlacedBundle, shard: int) -> RecordBundle:
        """A bundle as users see it."""
        slot_name = self._state.slot_name
        return RecordBundle.stored(
            {slot_name(number): batch for number, batch in placed.batches.items()},
            decode_attributes(placed.attributes),
            placed.event_time,
            placed.ingestion_time_ns,
            placed.offset,
            shard,
        )

    def positions(self) -> dict[int, tuple[int, int]]:
        """For each shard, the lowest offset that may still be there and one above the highest durable one."""
        self._shards.look()
        return {shard.number: (shard.start, shard.durable) for shard in self.shards()}

    def schema(self, slot: str) -> pa.Schema:
        """The union of all columns that a slot ever held, each with the widest type."""
        self._shards.look()
        return self._state.schema(slot)

    def slots(self) -> dict[str, int]:
        """The slots by name, with their numbers."""
        self._shards.look()
        self._state.reload()
        return dict(self._state.slots.names)

    def statistics(self) -> ShardStatistics | None:
        """Of the shard that this process owns, if it does."""
        return None if self._shards.own is None else self._shards.own.statistics()

    # -- subscribers --------------------------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        start: Start = "earliest",
        *,
        takeover: bool = False,
        authoritative: bool | None = None,
        **settings: Any,
    ) -> Subscriber:
        """Be the holder of subscriber `name`, registered now if it is new.

        `start` counts only the first time: "earliest", "latest", an offset, or shard -> offset (shards that are not
        named, and shards made later, from their beginning). Afterwards delivery goes on with what is unfinished.
        While somebody else holds the subscriber this raises `SubscriberTaken`, or with `takeover` fences that holder.
        `settings` are those of `SubscriberSettings`; by default the topic's. `on_full`, `expire_after` and
        `authoritative` belong to the registration: they stay until they are given anew.
        """
        self._shards.look()
        return self._subscriptions.subscribe(
            name, start, takeover=takeover, authoritative=authoritative, overrides=settings
        )

    def drain(
        self,
        name: str,
        start: Start = "earliest",
        *,
        takeover: bool = False,
        authoritative: bool | None = None,
        **settings: Any,
    ) -> Drain:
        """As `subscribe`, for a holder that reads by offset, and acks whole ranges."""
        self._shards.look()
        return self._subscriptions.drain(
            name, start, takeover=takeover, authoritative=authoritative, overrides=settings
        )

    def register(
        self, name: str, start: Start = "earliest", *, authoritative: bool | None = None, **settings: Any
    ) -> Registration:
        """As `subscribe`, without becoming the holder: from now on the subscriber's data is kept."""
        self._shards.look()
        return self._subscriptions.register(name, start, authoritative=authoritative, overrides=settings)

    def acknowledge(self, name: str, ranges: Mapping[int, tuple[int, int]], *, sync: bool = False) -> None:
        """Everything in `ranges` (shard -> first, end) is delivered to a subscriber that nobody holds right now.

        Raises `Fenced` if somebody does.
        """
        self._shards.look()
        self._subscriptions.acknowledge(name, ranges, sync=sync)

    def progress(self, name: str, shard: int) -> Progress:
        """How far subscriber `name` is in a shard, by the ack log as it is now."""
        log = self.acks(shard)
        log.refresh()
        return progress_of(log, self.registration(name), shard)

    def pause(self, subscriber: str) -> None:
        """Deliver nothing more to it, whoever holds it, until `resume`. What it has not finished is kept."""
        self._subscriptions.change(subscriber, paused=True)

    def resume(self, subscriber: str) -> None:
        """Deliver again."""
        self._subscriptions.change(subscriber, paused=False)

    def remove(self, subscriber: str, why: str = "on request") -> None:
        """Forget the subscriber: nothing is kept for it any more, and whoever holds it is fenced."""
        self._subscriptions.remove(subscriber, why)

    def subscribers(self) -> dict[str, SubscriberView]:
        """Every subscriber by name, and how far it is."""
        self._shards.look()
        return views(self, self._subscriptions, self._clock)

    def acks(self, shard: int) -> AckLog:
        """The ack log of a shard."""
        return self._acks.of(shard)

    def acks_written(self, shard: int) -> None:
        """A subscriber of this process wrote outcomes down: sources may be waiting for them, and data may go."""
        self._upkeep.soon(UPKEEP_SECONDS)
        if shard != self.own_shard:
            self._upkeep.orphan_changed()

    def subscribers_changed(self) -> None:
        """One was registered or removed."""
        self._upkeep.soon()

    def _settled(self) -> None:
        """Receipts have their answer: batches may be waiting for that. Called under the own shard's commit lock."""
        if self._finalizers.waiting:
            self._upkeep.soon()

    def _published(self) -> None:
        """The own shard has more to read. Called under its commit lock."""
        self._subscriptions.nudge()
        sweeper = self._sweeping.sweeper
        if sweeper is not None and sweeper.spent():
            self._upkeep.wants_grant()

    def _heard(self) -> None:
        """Another process may have written outcomes, or asks for room."""
        self._upkeep.soon(UPKEEP_SECONDS)

    @property
    def own(self) -> Shard | None:
        """The shard that this process owns, if it does."""
        return self._shards.own

    @property
    def sweeper(self) -> Sweeper | None:
        """Of the shard that this process owns."""
        return self._sweeping.sweeper

    def answered(self) -> Mapping[BatchStatus, int]:
        """How many batches of sources were answered so far, by the answer."""
        return self._finalizers.answered

    def usages(self) -> dict[int, ShardUsage]:
        """The bytes in each shard's folder."""
        return {shard.number: self._meter.shard(shard.folder) for shard in self.shards()}

    @property
    def own_shard(self) -> int | None:
        """The shard that this process owns, if it does."""
        own = self._shards.own
        return None if own is None else own.number

    def ack_logs(self) -> dict[int, AckLog]:
        return {shard.number: self.acks(shard.number) for shard in self.shards()}

    def is_orphan(self, shard: int) -> bool:
        """Does nobody hold this shard right now? False also while somebody else is finding out."""
        return self._ownership.is_free(shard)

    def adopt(self, shard: int, wanted_bytes: int) -> int:
        """Hold a shard that nobody holds while deleting there what may go; how many bytes it were."""
        return self._sweeping.adopt(shard, wanted_bytes)

    def _finished_segments(self, shard: int) -> list[SegmentFacts]:
        """Of any shard: the segments that everyone has finished, oldest first."""
        return self._sweeping.finished(shard)

    def redeliver(self, bundle: RecordBundle, *, to: int, key: str) -> Receipt:
        """Append a bundle that is meant for the subscriber with this number alone; once for each `key`."""
        attributes = {**bundle.attributes, TO: to}
        addressed = RecordBundle(bundle.slots, attributes, event_time=bundle.event_time)
        return self._appender.append(addressed, None, None, key=key, limit=2 * MAX_ATTRIBUTE_BYTES)

    def keep(self, letter: DeadLetter) -> None:
        """Of a dead-letter topic: store a letter, once; durable on return."""
        limit = 2 * MAX_ATTRIBUTE_BYTES  # its own, and what we add
        self._appender.append(letter.to_bundle(), Durability.FSYNC, None, key=letter.key, limit=limit).wait()

    def dead_letter(
        self, registration: Registration, delivery: Delivery, attempts: int, reason: str, rows: Rows | None
    ) -> None:
        """Keep what a subscriber rejected in the dead-letter topic, once; durable on return."""
        if self.name.endswith(DEAD_SUFFIX):
            raise InvalidBundle(f"{self.name} holds dead letters; there is no topic for what is rejected here: nack it")
        letter = DeadLetter.of(self.name, registration, delivery, attempts, reason, rows, self._clock.now_ns())
        self._dead().keep(letter)
        DEAD_LETTERS.inc(self.name, registration.name)

    # -- shards -------------------------------------------------------------------------------------------------

    def _begin(self, own: Shard) -> None:
        """This process is the writer of this shard from now on."""
        try:
            self._sweeping.begin(own)
        except BaseException:
            self._ownership.let_go(own)
            raise
        own.listen(self._published)
        own.receipts_settled = self._settled
        own.sealed_one = self._upkeep.soon
        self._listener.add(self._heard)
        for path in self._watched(own):
            self._listener.watch(path)
        self._subscriptions.shards_changed()
        self._upkeep.begin()

    def _watched(self, own: Shard) -> tuple[Path, ...]:
        """Where other processes leave outcomes, requests for room, and changes of subscribers."""
        return own.folder / ACKS, own.folder, self._folder

    def shards(self) -> list[Shard | ShardFollower]:
        return self._shards.all()

    def mapping(self, position: Position) -> dict[int, int]:
        """A position as shard -> offset; a plain number only where there is one shard."""
        return self._shards.mapping(position)

    def close(self) -> None:
        """Let go of everything: each step is gone whatever became of the others, and the first problem is raised."""
        self.closing = True
        problems: list[Exception] = []
        steps = (
            self._subscriptions.close,
            self._upkeep.close,
            self._reporter.close,
            self._finalizers.close,
            self._close_own,
            self._ownership.close,
        )
        for step in steps:
            try:
                step()
            except Exception as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    def _close_own(self) -> None:
        own = self._shards.close()
        self._acks.close()
        self._listener.remove(self._heard)
        self._sources.close()
        for path in () if own is None else self._watched(own):
            self._listener.unwatch(path)
        self._sweeping.close()
        if own is not None:
            self._ownership.let_go(own)
