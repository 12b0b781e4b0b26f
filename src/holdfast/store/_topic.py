"""A topic: append to the shard that this process owns, read from all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.acks import AckLog, BatchId, BatchStatus, Progress
from holdfast.bundle import MAX_ATTRIBUTE_BYTES, RecordBundle, decode_attributes, encode_attributes
from holdfast.clock import Clock, Deadline, Ids
from holdfast.config import BufferSettings, Cap
from holdfast.config.settings import level_of
from holdfast.durability import Durability
from holdfast.errors import (
    Closed,
    InvalidBundle,
    InvalidPosition,
    ReadOnly,
    ShardTaken,
)
from holdfast.files import Files
from holdfast.metrics import DEAD_LETTERS, REPEATED_APPENDS, Reporter
from holdfast.retention import Meter, Neighbours, SegmentFacts, ShardUsage
from holdfast.store._batch import Batch
from holdfast.store._delivery import Delivery, Rows
from holdfast.store._disk_error import disk_error
from holdfast.store._drain import Drain
from holdfast.store._encoder import Encoder
from holdfast.store._finalizers import Finalizers
from holdfast.store._follower import ShardFollower
from holdfast.store._keeper import Keeper
from holdfast.store._listener import Listener
from holdfast.store._ownership import Ownership, list_shards
from holdfast.store._receipt import Receipt
from holdfast.store._report import report_sweeper, report_topic
from holdfast.store._sealer import Sealer
from holdfast.store._shard import Shard, ShardStatistics
from holdfast.store._span import PlacedBundle, Span
from holdfast.store._subscriber import Subscriber
from holdfast.store._subscriptions import Start, Subscriptions, progress_of
from holdfast.store._sweeper import Sweeper
from holdfast.store._upkeep import UPKEEP_SECONDS, Upkeep
from holdfast.store.dead_letters import DEAD_SUFFIX, DeadLetter
from holdfast.store.keys import encode_key
from holdfast.store.layout import ACKS, shard_folder
from holdfast.store.registry import Registration
from holdfast.store.reserved import KEY, TO, refuse_reserved
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.store.topic_state import TopicState
from holdfast.store.views import SubscriberView, views
from holdfast.wal import Progress as RecoveryProgress

Position = int | Mapping[int, int] | None


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
        self._folder, self._state = folder, state
        self._files, self._clock, self._ids = files, clock, ids
        self._sealer = sealer  # None: read-only
        self._ownership = Ownership(
            name, folder, state, settings, self._highest_outcome,
            files=files, clock=clock, ids=ids, sealer=sealer, note=note, wanted=shard, progress=progress,
        )  # fmt: skip
        self._keys = self._ownership.keys
        self._encoder = Encoder(state)
        self._claim_lock = threading.Lock()
        self._own: Shard | None = None
        self._looked = False
        self._followers: dict[int, ShardFollower] = {}
        self._acks: dict[int, AckLog] = {}
        self._dead, self._caps, self._neighbours = dead, caps, neighbours
        self.closing = self._closed = False
        self._subscriptions = Subscriptions(
            self, folder, state, settings.subscriber,
            files=files, clock=clock, ids=ids, keeper=keeper, listener=listener, note=note,
        )  # fmt: skip
        self._keeper, self._listener = keeper, listener
        self._finalizers = Finalizers(name, self, state.current)
        self._answers_heard: list[Path] = []  # the ack logs that are watched for answers
        self.sweeper: Sweeper | None = None  # of the shard that this process owns
        self._sweep_reporter: Reporter | None = None
        self._upkeep = Upkeep(self, settings, keeper, clock, self._finalizers, self._subscriptions)
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
        receipt = self._append(record, durability, timeout, key=idempotency_key)
        for batch in batches:
            batch.include(receipt)
        return receipt

    def _append(
        self,
        record: RecordBundle,
        durability: Durability | str | None,
        timeout: float | None,
        *,
        key: str | bytes | None = None,
        limit: int = MAX_ATTRIBUTE_BYTES,
    ) -> Receipt:
        level = None if durability is None else level_of(durability)
        own = self._own or self._claim()
        try:
            slots = self._encoder.encode(record.slots)
        except OSError as problem:  # a new slot or schema could not be written down
            raise disk_error(problem, self.name) from problem
        if key is None:
            return own.append(slots, encode_attributes(record.attributes, limit), record.event_time, level, timeout)
        encoded = encode_key(key)
        attributes = encode_attributes({**record.attributes, KEY: encoded}, limit + len(encoded) + len(KEY))
        wanted = self.settings.durability if level is None else level
        room = Deadline(self.settings.append_timeout if timeout is None else timeout, self._clock)
        try:
            receipt, repeated = self._keys.append(
                encoded,
                own.number,
                lambda: own.append(slots, attributes, record.event_time, level, 0.0),
                wait_for_room=lambda: own.wait_for_room(slots, room.remaining()),
                level=wanted,
            )
        except OSError as problem:
            raise disk_error(problem, self.name) from problem
        if repeated:
            REPEATED_APPENDS.inc(self.name)
        # A repeat may ask for more than the first append did.
        return receipt.at(wanted) if repeated and receipt.level < wanted else receipt

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

        For a subscriber that has not finished it, it is `dropped`: on record before anything goes.

        Raises `ShardTaken` for a shard that another process owns: only its writer may delete.
        """
        own = self._claim()
        try:
            wanted = self.mapping(before)
            for number in wanted:
                if number != own.number:
                    raise ShardTaken(
                        f"shard {number} of {self.name} is not this process's (that is {own.number}): ask its writer"
                    )
            if self.sweeper is None:
                raise Closed(f"topic {self.name} is closed; open the store again")
            return {number: self.sweeper.truncate(offset) for number, offset in wanted.items()}
        except OSError as problem:
            raise disk_error(problem, own.name) from problem

    # -- batches of sources -------------------------------------------------------------------------------------

    def batch(self, source: str, run: str, batch: str) -> Batch:
        """Open a batch of a source, to be told one status for all its bundles.

        The three texts are its identity: one that is known already is given back as it is. `run` differs for each run
        of the source, `batch` for each batch of a run; a source that comes back after a restart asks for the batches of
        its earlier runs by them: `find_batch`.
        """
        self._claim()
        answered = self.find_batch(source, run, batch)
        return self._finalizers.open(BatchId(source, run, batch)) if answered is None else answered

    def find_batch(self, source: str, run: str, batch: str) -> Batch | None:
        """A batch by its identity; `None` if it is not known as a whole (or answered long ago): then send it again."""
        self._look()
        logs = [self.acks(shard.number) for shard in self.shards()]
        for log in logs:
            log.refresh()
        found = self._finalizers.find(BatchId(source, run, batch), logs)
        if found is not None and found.status is None:
            self._hear_answers()
        self._upkeep.soon()
        return found

    def _hear_answers(self) -> None:
        """Another process may answer for its own shards: hear of it."""
        with self._claim_lock:
            if not self._answers_heard:
                self._answers_heard = [shard.folder / ACKS for shard in self.shards() if shard.number != self.own_shard]
                if self._answers_heard:
                    self._listener.add(self._heard)
                for path in self._answers_heard:
                    self._listener.watch(path)

    def batch_closed(self, batch: Batch) -> None:
        """For `Batch`: it can be answered from now on."""
        self._finalizers.closed(batch)
        self._upkeep.soon()

    # -- read ---------------------------------------------------------------------------------------------------

    def bundles(
        self, start: Position = None, end: Position = None, *, slots: Sequence[str] | None = None
    ) -> Iterator[RecordBundle]:
        """The bundles from `start` up to `end` (not included), shard by shard, as far as they are durable now."""
        self._look()
        numbers = None if slots is None else {self._state.slot_number(name) for name in slots}
        for shard, span in self._spans(start, end):
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
        self._look()
        number = self._state.slot_number(slot)
        wanted = None if columns is None else list(columns)
        for _, span in self._spans(start, end):
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
        self._look()
        return {shard.number: (shard.start, shard.durable) for shard in self.shards()}

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
        self._look()
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
        self._look()
        return self._subscriptions.drain(
            name, start, takeover=takeover, authoritative=authoritative, overrides=settings
        )

    def register(
        self, name: str, start: Start = "earliest", *, authoritative: bool | None = None, **settings: Any
    ) -> Registration:
        """As `subscribe`, without becoming the holder: from now on the subscriber's data is kept."""
        self._look()
        return self._subscriptions.register(name, start, authoritative=authoritative, overrides=settings)

    def acknowledge(self, name: str, ranges: Mapping[int, tuple[int, int]], *, sync: bool = False) -> None:
        """Everything in `ranges` (shard -> first, end) is delivered to a subscriber that nobody holds right now.

        Raises `Fenced` if somebody does.
        """
        self._look()
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
        self._look()
        return views(self, self._subscriptions, self._clock)

    def acks(self, shard: int) -> AckLog:
        """The ack log of a shard."""
        log = self._acks.get(shard)
        if log is None:
            folder = shard_folder(self._folder, shard)
            shard_id = ShardCheckpoint.read(self._files, folder).shard_id
            log = self._acks.setdefault(shard, AckLog(self._files, folder, shard_id, clock=self._clock))
        return log

    def acks_written(self, shard: int) -> None:
        """A subscriber of this process wrote outcomes down: sources may be waiting for them, and data may go."""
        self._upkeep.soon(UPKEEP_SECONDS)
        if shard != self.own_shard:
            self._upkeep.orphan_changed()

    def subscribers_changed(self) -> None:
        """One was registered or removed."""
        self._upkeep.soon()

    def _published(self) -> None:
        """The own shard has more to read. Called under its commit lock."""
        self._subscriptions.nudge()
        if self._finalizers.waiting:
            self._upkeep.soon()
        if self.sweeper is not None and self.sweeper.spent():
            self._upkeep.wants_grant()

    def _heard(self) -> None:
        """Another process may have written outcomes, or asks for room."""
        self._upkeep.soon(UPKEEP_SECONDS)

    @property
    def own(self) -> Shard | None:
        """The shard that this process owns, if it does."""
        return self._own

    def answered(self) -> Mapping[BatchStatus, int]:
        """How many batches of sources were answered so far, by the answer."""
        return self._finalizers.answered

    def usages(self) -> dict[int, ShardUsage]:
        """The bytes in each shard's folder."""
        return {shard.number: self._meter.shard(shard.folder) for shard in self.shards()}

    @property
    def own_shard(self) -> int | None:
        """The shard that this process owns, if it does."""
        return None if self._own is None else self._own.number

    def ack_logs(self) -> dict[int, AckLog]:
        return {shard.number: self.acks(shard.number) for shard in self.shards()}

    def is_orphan(self, shard: int) -> bool:
        """Does nobody hold this shard right now? False also while somebody else is finding out."""
        return self._ownership.is_free(shard)

    def adopt(self, shard: int, wanted_bytes: int) -> int:
        """Hold a shard that nobody holds while deleting there what may go; how many bytes it were."""
        if shard == self.own_shard or (not wanted_bytes and not self._finished_segments(shard)):
            return 0
        with self._ownership.adopting(shard) as adopted:
            return 0 if adopted is None else self._sweep_adopted(adopted, wanted_bytes)

    def _sweep_adopted(self, shard: Shard, wanted_bytes: int) -> int:
        sweeper = self._sweeper_of(shard)
        reporter = Reporter(lambda: report_sweeper(self.name, sweeper))
        try:
            while sweeper.sweep(asked_bytes=wanted_bytes):
                pass
        finally:
            sweeper.close()
            reporter.close()
        return sweeper.counts.bytes_reclaimed

    def _finished_segments(self, shard: int) -> list[SegmentFacts]:
        """Of any shard: the segments that everyone has finished, oldest first."""
        registrations = list(self._state.current().subscribers.values())
        log = self.acks(shard)
        log.refresh()
        found: list[SegmentFacts] = []
        for each in self.shards():
            if each.number == shard and registrations:
                progresses = [progress_of(log, registration, shard) for registration in registrations]
                found += [
                    facts._replace(finished=True)
                    for facts in each.facts()
                    if all(progress.next_unfinished(facts.first) >= facts.end for progress in progresses)
                ]
        return found

    def _sweeper_of(self, shard: Shard) -> Sweeper:
        number = shard.number
        return Sweeper(
            shard, self.acks(number), self.settings, self._caps,
            store=self._folder.parent.parent, files=self._files, clock=self._clock, registry=self._state.current,
            secure=self._state.secure, is_secure=lambda: self._state.is_secure,
            delivering=lambda: self._subscriptions.delivering(number),
            neighbours=self._neighbours,
        )  # fmt: skip

    def redeliver(self, bundle: RecordBundle, *, to: int, key: str) -> Receipt:
        """Append a bundle that is meant for the subscriber with this number alone; once for each `key`."""
        attributes = {**bundle.attributes, TO: to}
        addressed = RecordBundle(bundle.slots, attributes, event_time=bundle.event_time)
        return self._append(addressed, None, None, key=key, limit=2 * MAX_ATTRIBUTE_BYTES)

    def keep(self, letter: DeadLetter) -> None:
        """Of a dead-letter topic: store a letter, once; durable on return."""
        limit = 2 * MAX_ATTRIBUTE_BYTES  # its own, and what we add
        self._append(letter.to_bundle(), Durability.FSYNC, None, key=letter.key, limit=limit).wait()

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

    def _claim(self) -> Shard:
        """The shard that this process owns; takes a free one, or makes one."""
        with self._claim_lock:
            if self._closed:
                raise Closed(f"topic {self.name} is closed; open the store again")
            if self._sealer is None:
                raise ReadOnly(f"{self.name} was opened read-only; open the store without read_only=True to write")
            if self._own is None:
                try:
                    self._own = self._begin(self._ownership.take_free() or self._ownership.make())
                except OSError as problem:
                    raise disk_error(problem, self.name) from problem
                self._looked = True
            return self._own

    def _begin(self, own: Shard) -> Shard:
        """This process is the writer of this shard from now on."""
        try:
            self.sweeper = sweeper = self._sweeper_of(own)
            self._sweep_reporter = Reporter(lambda: report_sweeper(self.name, sweeper))
        except BaseException:
            self._ownership.let_go(own)
            raise
        own.listen(self._published)
        own.sealed_one = self._upkeep.soon
        self._listener.add(self._heard)
        for path in self._watched(own):
            self._listener.watch(path)
        self._subscriptions.shards_changed()
        self._upkeep.begin()
        return own

    def _watched(self, own: Shard) -> tuple[Path, ...]:
        """Where other processes leave outcomes, requests for room, and changes of subscribers."""
        return own.folder / ACKS, own.folder, self._folder

    def _look(self) -> None:
        """Before the first read: what a crashed writer left is made whole, so that all of it can be read."""
        if self._closed:
            raise Closed(f"topic {self.name} is closed; open the store again")
        if self._looked or self._sealer is None:
            return
        with self._claim_lock:
            if self._own is None and not self._closed:
                free = self._ownership.take_free()
                self._own = None if free is None else self._begin(free)
            self._looked = True

    def _highest_outcome(self, shard: int) -> int:
        """One above every offset that a subscriber has finished: below it no number may be given out again."""
        log = self.acks(shard)
        log.refresh()
        with log.lock:
            return max((progress.end for progress in log.state.progress.values()), default=0)

    def shards(self) -> list[Shard | ShardFollower]:
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
        firsts, ends = self.mapping(start), self.mapping(end)
        for shard in self.shards():
            position, stop = firsts.get(shard.number, 0), ends.get(shard.number, shard.durable)
            while (span := shard.span(position, stop)) is not None:
                yield shard, span
                position = span.end

    def mapping(self, position: Position) -> dict[int, int]:
        """A position as shard -> offset; a plain number only where there is one shard."""
        if position is None:
            return {}
        numbers = [shard.number for shard in self.shards()]
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
        with self._claim_lock:
            self._closed = True
            own, self._own = self._own, None
            for follower in self._followers.values():
                follower.close()
            self._followers.clear()
        for log in self._acks.values():
            log.close()
        self._listener.remove(self._heard)
        for path in (*self._answers_heard, *(() if own is None else self._watched(own))):
            self._listener.unwatch(path)
        if self._sweep_reporter is not None:
            self._sweep_reporter.close()
        if self.sweeper is not None:
            self.sweeper.close()
        if own is not None:
            self._ownership.let_go(own)
