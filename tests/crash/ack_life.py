"""A scripted life of a topic with subscribers on a simulated disk: registering, outcomes, answers, deletion, removal.

What follows from outcomes is done by hand (`Life.upkeep`), so that each run leaves the same journal. The life writes
down what a caller was told, at the moment it was told, as notes in the disk's journal:

    Appended     an append was begun, and got this offset: from here on the bundle may be found
    Promised     it is durable: from here on it must be found, unless everyone has finished it
    Registering  a subscriber may be known from here on; Registered: it must be, with this number and start
    Removing     it may be gone from here on; Removed: it must be
    Pausing      it may be (or no longer be) paused from here on; Paused: it must be (or no longer be)
    Asked        a final outcome is about to be given: from here on it may be found
    Written      it was written down: everyone on the machine finds it
    Synced       it is durable: from here on it must be found after any crash
    Dropping     from here on whatever is below this offset may be given up, for whoever has not finished it
    Trimming     a truncation was begun: offsets below may be gone
    Deleted      these offsets are gone: from here on they must not be found
    Sealed       a segment with this number was made: no other may ever have it
    Answered     a source was told this status of its batch: from here on it can ask for it, and hears the same
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import holdfast as hf
from crash.still import STORE, open_still, without_committers, work
from holdfast.acks import BatchStatus, Outcome
from holdfast.errors import Fenced, HoldfastError
from holdfast.store.segments import list_segments
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles

TOPIC = "prod/logs"
DEAD = "prod/logs.dead"
SHARD = STORE / "prod" / "logs" / "shard-0000"
ROTATE_BYTES = 700  # of the ack log: a few records


class Appended(NamedTuple):
    number: int
    offset: int


class Promised(NamedTuple):
    number: int
    offset: int


class Registering(NamedTuple):
    name: str


class Registered(NamedTuple):
    name: str
    number: int
    start: int


class Removing(NamedTuple):
    name: str


class Removed(NamedTuple):
    name: str


class Pausing(NamedTuple):
    name: str
    paused: bool


class Paused(NamedTuple):
    name: str
    paused: bool


class Asked(NamedTuple):
    subscriber: int
    offsets: tuple[int, ...]
    outcome: Outcome


class Written(NamedTuple):
    subscriber: int
    offsets: tuple[int, ...]
    outcome: Outcome


class Synced(NamedTuple):
    subscriber: int
    offsets: tuple[int, ...]
    outcome: Outcome


class Dropping(NamedTuple):
    below: int


class Trimming(NamedTuple):
    before: int


class Deleted(NamedTuple):
    offsets: tuple[int, ...]


class Sealed(NamedTuple):
    segment_seq: int


class Answered(NamedTuple):
    batch: str
    status: BatchStatus


def settings(**retention: Any) -> dict[str, Any]:
    return {
        "buffer": {
            # Nothing is sealed or synced before the script says so: the clock stands still.
            "segment": {"target_size": 1_000_000, "max_open_duration": "1d"},
            "wal": {"file_size": 4096, "max_size": 100_000, "flush_interval": "1h"},
            "append_timeout": 5,
            "retention": retention,
        },
        "topics": {DEAD: {"wal": {"flush_interval": 0}, "retention": {}}},
    }


def open_store(files: SimulatedFiles, clock: FakeClock, ids: SequenceIds, **retention: Any) -> hf.Store:
    return open_still(files, settings(**retention), clock, ids)


def upkeep(store: hf.Store, topic: hf.Topic) -> None:
    """Answer sources, delete what may go, rotate a long ack log."""
    if topic.positions():
        topic.acks(0)._rotate_bytes = ROTATE_BYTES
    topic._upkeep._later = _raise  # type: ignore[method-assign]
    work(store)
    topic._upkeep.check()
    work(store)


def _raise(what: str, task: object, problem: Exception) -> None:
    """What would be logged and tried again later is a failure here."""
    raise problem


def batch_of(number: int) -> dict[str, pa.RecordBatch]:
    """The content of bundle `number`."""
    return {"logs": pa.record_batch({"id": pa.array([number] * (1 + number % 3), pa.int64())})}


class Life:
    """Appends bundles 0, 1, 2, ..., answers deliveries, and notes what it is told."""

    def __init__(self, files: SimulatedFiles | None = None) -> None:
        self.files = SimulatedFiles() if files is None else files
        self.clock, self.ids = FakeClock(), SequenceIds(1)
        self.number = 0
        self._unwritten: list[Asked] = []
        self._dropped: dict[int, set[int]] = {}  # by subscriber, as far as it was noted

    def open(self, **retention: Any) -> hf.Store:
        self.store = open_store(self.files, self.clock, self.ids, **retention)
        self.topic = self.store.topic(TOPIC)
        return self.store

    # -- appending ----------------------------------------------------------------------------------------------

    def append(self, count: int, *, batch: str | None = None, seal: bool = False) -> list[int]:
        """Durable; perhaps as a batch of a source, and sealed."""
        opened = [] if batch is None else [self.topic.batch("source", "run", batch)]
        receipts = []
        for _ in range(count):
            number, self.number = self.number, self.number + 1
            receipt = self.topic.append(batch_of(number), attributes={"id": number}, batches=opened)
            self.files.note(Appended(number, receipt.offset))
            receipts.append((number, receipt))
        self.topic.flush()
        for number, receipt in receipts:
            receipt.wait(timeout=30)
            self.files.note(Promised(number, receipt.offset))
        for each in opened:
            self._wait_for(each)
            each.close()
        if seal:
            self.seal()
        return [receipt.offset for _, receipt in receipts]

    def seal(self) -> None:
        self.topic.seal()
        self.files.note(Sealed(last_segment(self.files)))

    def ask_for(self, batch: str) -> None:
        """A source that was restarted asks for its batch."""
        found = self.topic.find_batch("source", "run", batch)
        assert found is not None
        self._wait_for(found)

    def _wait_for(self, batch: hf.Batch) -> None:
        """Note the answer at the moment the source is told."""

        def told() -> None:
            if batch.status is not None:  # else the store closes
                self.files.note(Answered(batch.id.batch, batch.status))

        batch._callbacks.append(told)

    def append_in_vain(self, count: int) -> None:
        self.files.fail("append", path="*.wal*", error=errno.ENOSPC, times=None, short=30)
        receipts = [self.topic.append(batch_of(0), attributes={"id": -1}) for _ in range(count)]
        self.topic.flush()
        for receipt in receipts:
            with pytest.raises(HoldfastError):
                receipt.wait(timeout=30)
        self.files.heal()

    # -- subscribers --------------------------------------------------------------------------------------------

    def subscribe(self, name: str, start: Any = "earliest", **options: Any) -> Any:
        known = name in self.topic._subscriptions.registry().subscribers
        if not known:
            self.files.note(Registering(name))
        subscriber = self.topic.subscribe(name, start, **options)
        if not known:
            registration = self.topic._subscriptions.registration(name)
            self.files.note(Registered(name, registration.number, registration.start(0)))
        return subscriber

    def remove(self, name: str) -> None:
        self.files.note(Removing(name))
        self.topic.remove(name)
        self.files.note(Removed(name))

    def pause(self, name: str, paused: bool) -> None:
        self.files.note(Pausing(name, paused))
        (self.topic.pause if paused else self.topic.resume)(name)
        self.files.note(Paused(name, paused))

    def take(self, subscriber: Any) -> dict[int, Any]:
        """All that it can be given now, by offset."""
        return {delivery.offset: delivery for delivery in subscriber.take(1000, timeout=0)}

    def ack(self, subscriber: Any, deliveries: dict[int, Any], offsets: Iterable[int], *, flush: bool = True) -> None:
        given = tuple(offsets)
        self._ask(subscriber, given, Outcome.ACK)
        for offset in given:
            deliveries.pop(offset).ack()
        if flush:
            self.flush(subscriber)

    def nack(self, subscriber: Any, deliveries: dict[int, Any], offset: int) -> None:
        deliveries.pop(offset).nack("not now", retry_in=0, transient=True)
        self.flush(subscriber)

    def reject(self, subscriber: Any, deliveries: dict[int, Any], offset: int) -> None:
        self._ask(subscriber, (offset,), Outcome.REJECTED)
        deliveries.pop(offset).reject(f"bundle {offset} is bad")
        for each in self._unwritten:
            self.files.note(Synced(*each))
        self._unwritten = []

    def fenced(self, subscriber: Any, deliveries: dict[int, Any], offset: int) -> None:
        """An answer of a holder that was fenced is worth nothing: it is not noted as asked for."""
        deliveries.pop(offset).ack()
        with pytest.raises(Fenced):
            subscriber.flush()

    def flush(self, subscriber: Any) -> None:
        subscriber.flush()
        number = number_of(subscriber)
        for each in [each for each in self._unwritten if each.subscriber == number]:
            self.files.note(Written(*each))
            self._unwritten.remove(each)

    def _ask(self, subscriber: Any, offsets: Sequence[int], outcome: Outcome) -> None:
        asked = Asked(number_of(subscriber), tuple(offsets), outcome)
        self.files.note(asked)
        self._unwritten.append(asked)

    # -- what follows -------------------------------------------------------------------------------------------

    def upkeep(self, *, dropping: bool = False) -> set[int]:
        """Which offsets went."""
        before = set(offsets_of(self.topic))
        if dropping:
            self.files.note(Dropping(self.topic.positions()[0][1]))
        upkeep(self.store, self.topic)
        self._tell_dropped()
        gone = before - set(offsets_of(self.topic))
        if gone:
            self.files.note(Deleted(tuple(sorted(gone))))
        return gone

    def truncate(self, before: int) -> None:
        existing = self.topic.positions()[0][1]
        there = {offset for offset in offsets_of(self.topic) if offset < before}
        self.files.note(Dropping(min(before, existing)))
        self.files.note(Trimming(min(before, existing)))
        self.topic.truncate(before)
        self._tell_dropped()
        self.files.note(Deleted(tuple(sorted(there))))

    def _tell_dropped(self) -> None:
        end = self.topic.positions()[0][1]
        for registration in self.topic._subscriptions.registry().subscribers.values():
            progress = self.topic.acks(0).progress(registration.number)
            dropped = {offset for offset in range(end) if progress.worst(offset, offset + 1) is Outcome.DROPPED}
            new = dropped - self._dropped.setdefault(registration.number, set())
            if new:
                self.files.note(Synced(registration.number, tuple(sorted(new)), Outcome.DROPPED))
                self._dropped[registration.number] |= new


def last_segment(files: SimulatedFiles) -> int:
    """The highest number of a segment that is there; -1 if there is none."""
    return max((name.segment_seq for name in list_segments(files, SHARD / "segments")), default=-1)


def number_of(subscriber: Any) -> int:
    return int(subscriber._registration.number)


def offsets_of(topic: hf.Topic) -> list[int]:
    return [bundle.offset for bundle in topic.bundles() if bundle.offset is not None]


@without_committers()
def live() -> Life:
    """The whole script; comments tell which segment holds what."""
    life = Life()
    with life.open():
        _outcomes_and_deletion_in_the_middle(life)
    with life.open():
        _takeover_and_everything_deleted(life)
    with life.open(size_cap_policy="drop_oldest", max_segments=2):
        _given_up_by_policy(life)
    with life.open():
        _truncated(life)
    return life


def _outcomes_and_deletion_in_the_middle(life: Life) -> None:
    life.append(3)
    lake = life.subscribe("lake", authoritative=True)
    life.append(2, batch="one")
    life.seal()  # segment A: 0 to 4
    hand = life.take(lake)
    life.ack(lake, hand, [0])
    life.nack(lake, hand, 2)
    life.ack(lake, hand, [4, 1], flush=False)
    assert life.upkeep() == set()
    audit = life.subscribe("audit", "latest")  # from 5 on
    life.append(3, seal=True)  # B: 5 to 7
    life.append_in_vain(2)  # 8 and 9 hold nothing
    life.append(2, seal=True)  # C: 10 and 11
    hand |= life.take(lake)
    life.ack(lake, hand, [3])
    life.ack(lake, hand, [11, 5, 6, 7, 10])
    other = life.take(audit)
    life.ack(audit, other, [7])
    life.reject(audit, other, 6)
    life.nack(audit, other, 5)
    life.ack(audit, other, [10, 11])
    assert life.upkeep() == {10, 11}  # before A, which holds 2 for lake, and B, which holds 5 for audit
    early = life.subscribe("early")  # from 0 on, and what is gone is none of its business
    life.append(1, batch="two")  # 12
    life.ack(early, life.take(early), [12, *range(8)])
    other |= life.take(audit)
    life.ack(audit, other, [12, 5])
    assert life.upkeep() == {5, 6, 7}
    life.remove("early")
    life.ack(lake, hand, [2])  # a retry that was delivered
    assert life.upkeep() == {0, 1, 2, 3, 4}
    life.append(1)  # 13; with 12 it is sealed when the store closes
    life.pause("audit", True)


def _takeover_and_everything_deleted(life: Life) -> None:
    life.ask_for("two")
    first = life.subscribe("lake")
    hand = life.take(first)
    lake = life.subscribe("lake", takeover=True)
    life.fenced(first, hand, 12)
    life.pause("audit", False)
    audit = life.subscribe("audit")
    hand, other = life.take(lake), life.take(audit)
    life.reject(lake, hand, 12)
    life.ack(lake, hand, [13])
    life.ack(audit, other, [13])
    life.upkeep()
    assert offsets_of(life.topic) == []
    life.append(2, batch="plain", seal=True)  # 14 and 15
    life.ack(lake, life.take(lake), [15, 14])
    assert life.upkeep() == set()  # nothing but the answer needs these outcomes to be durable
    life.remove("audit")  # which held them
    assert life.upkeep() == {14, 15}
    life.append(2, seal=True)  # 16 and 17
    life.subscribe("late", "latest", on_full="drop")  # from 18 on
    life.append(1)  # 18


def _given_up_by_policy(life: Life) -> None:
    """At most two segments may stay."""
    lake, late = life.subscribe("lake"), life.subscribe("late")
    hand, other = life.take(lake), life.take(late)
    life.ack(lake, hand, [17])
    life.append(2, batch="three", seal=True)  # 19 and 20
    life.append(1, seal=True)  # 21
    assert life.upkeep(dropping=True) == {19, 20, 21}  # for what is in hand goes last
    life.ack(late, other, [18])
    life.nack(lake, hand, 16)
    life.nack(lake, hand, 18)
    life.append(2, seal=True)  # 22 and 23
    assert life.upkeep(dropping=True) == {16, 17}
    life.ack(lake, life.take(lake), [18, 23])


def _truncated(life: Life) -> None:
    lake, late = life.subscribe("lake"), life.subscribe("late")
    life.append(2, batch="four", seal=True)  # 24 and 25
    life.ack(late, life.take(late), [25])
    life.truncate(25)
    assert life.upkeep() == set()  # 25 is unfinished for lake
    life.truncate(10**6)  # everything: what is appended afterwards is delivered all the same
    life.upkeep()
    new = life.append(2)
    hand = life.take(lake)
    assert sorted(hand) == new
    life.ack(lake, hand, new[:1])
    life.remove("late")
    life.upkeep()
    life.ack(lake, hand, new[1:])
    life.truncate(max(new) + 1)  # all of it is finished, and nothing has looked at that yet
    life.append(1)
