"""A scripted life of a store on a simulated disk, and the oracle that every disk it may leave is held against.

The life writes down what a caller was told, at the moment it was told, as notes in the disk's journal:

    Appended   an append was begun, and got this offset: from here on the bundle may be found
    Promised   its receipt resolved at this level: from here on the bundle must be found
    Trimming   a truncation was begun: offsets below may be gone
    Trimmed    it returned: offsets below must be gone
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.testing import CrashMode, CrashState, FakeClock, SequenceIds, SimulatedFiles, crash

STORE = Path("/store")
TOPIC = "prod/logs"
SETTINGS = {
    "buffer": {
        "segment": {"target_size": 4000, "max_streams": 5},
        # Nothing is synced before the script says so (the clock stands still): each run writes the same groups.
        "wal": {"file_size": 4096, "max_size": 100_000, "flush_interval": "1h"},
        "append_timeout": 5,
    }
}


class Appended(NamedTuple):
    number: int
    offset: int


class Promised(NamedTuple):
    number: int
    offset: int
    level: hf.Durability


class Trimming(NamedTuple):
    before: int


class Trimmed(NamedTuple):
    before: int


@cache  # it is compared with after each of thousands of crashes
def content(number: int) -> Mapping[str, pa.RecordBatch]:
    """The slots of bundle `number`: several schemas, sizes and slots, one with a dictionary."""
    ids = pa.array([number] * (1 + number % 3), pa.int64())
    match number % 5:
        case 0:
            return {"logs": pa.record_batch({"id": ids})}
        case 1:
            text = pa.array([f"line {number} " + "x" * (number * 37 % 400)] * len(ids))
            return {"logs": pa.record_batch({"id": ids, "text": text})}
        case 2:
            kind = pa.array([f"kind-{number % 7}"] * len(ids)).dictionary_encode()
            return {"logs": pa.record_batch({"id": ids, "kind": kind}), "attrs": pa.record_batch({"n": ids})}
        case 3:
            return {"attrs": pa.record_batch({"n": ids.slice(0, 0)})}
        case _:
            schema = pa.schema([pa.field("id", pa.int64(), metadata={"unit": "none"})], metadata={"v": "2"})
            return {"logs": pa.record_batch([ids], schema=schema)}


class Life:
    """Appends bundles 0, 1, 2, ... and notes what it is told."""

    def __init__(self, files: SimulatedFiles | None = None) -> None:
        self.files = SimulatedFiles() if files is None else files
        self.clock = FakeClock()
        self.ids = SequenceIds(1)
        self.number = 0

    def open(self) -> hf.Store:
        return hf.Store.open(STORE, settings=SETTINGS, files=self.files, clock=self.clock, ids=self.ids)

    def append(self, topic: hf.Topic, level: str = "fsync") -> tuple[int, hf.Receipt]:
        number, self.number = self.number, self.number + 1
        receipt = topic.append(content(number), durability=level, attributes={"id": number})
        self.files.note(Appended(number, receipt.offset))
        return number, receipt

    def group(self, topic: hf.Topic, count: int, level: str = "fsync") -> None:
        appended = [self.append(topic, level) for _ in range(count)]
        if level == "fsync":
            topic.flush()
        for number, receipt in appended:
            reached = receipt.wait(timeout=30)
            self.files.note(Promised(number, receipt.offset, reached))

    def group_that_fails(self, topic: hf.Topic, count: int) -> None:
        receipts = [self.append(topic)[1] for _ in range(count)]
        topic.flush()
        for receipt in receipts:
            try:
                receipt.wait(timeout=30)
            except HoldfastError:
                continue
            raise AssertionError("a bundle was acknowledged although no write could succeed")

    def truncate(self, topic: hf.Topic, before: int) -> None:
        self.files.note(Trimming(before))
        topic.truncate(before)
        self.files.note(Trimmed(before))


def live() -> Life:
    """The whole script: levels, schemas, seals, rotation, failed syncs, a full disk, truncation, reopening."""
    life = Life()
    with life.open() as store:
        topic = store.topic(TOPIC)
        for _ in range(4):
            life.group(topic, 1)
        life.group(topic, 6)
        life.group(topic, 3, "os")
        life.group(topic, 2, "memory")
        topic.flush()
        topic.seal()
        life.group(topic, 5)
        life.files.fail("sync", path="*.wal*", error=errno.EIO)  # poisons a WAL file: written again elsewhere
        life.group(topic, 3)
        life.group(topic, 1, "os")
    with life.open() as store:
        topic = store.topic(TOPIC)
        life.group(topic, 4)
        life.truncate(topic, 12)
        life.group(topic, 1)
        life.files.fail("append", path="*.wal*", error=errno.ENOSPC, times=None, short=50)  # every try fails
        life.group_that_fails(topic, 2)
        life.files.heal()
        life.group(topic, 3)
        topic.seal()
        life.files.fail("rename", path="*.seg*", error=errno.EIO)  # a seal that has to be tried again
        life.group(topic, 12)
        life.group(topic, 1, "memory")
    with life.open() as store:
        topic = store.topic(TOPIC)
        life.truncate(topic, 10**6)  # everything: numbering must go on all the same
        life.group(topic, 1)
        life.group(topic, 3)
        life.group(topic, 1, "os")
    return life


class Found(NamedTuple):
    number: int
    bundle: hf.RecordBundle


def contents(topic: hf.Topic) -> dict[int, Found]:
    """All bundles by offset; that they come in order is checked here."""
    found: dict[int, Found] = {}
    last = -1
    for bundle in topic.bundles():
        assert bundle.offset is not None
        assert bundle.offset > last, "bundles come out of order"
        last = bundle.offset
        found[bundle.offset] = Found(bundle.attributes["id"], bundle)
    return found


def check(state: CrashState, settings: Mapping[str, object] = SETTINGS) -> None:
    """Open what the crash left, and hold it against what callers had been told."""
    notes = state.notes
    appended = {note.offset: note.number for note in notes if isinstance(note, Appended)}
    least = hf.Durability.OS if state.mode in (CrashMode.KEPT, CrashMode.KILLED) else hf.Durability.FSYNC
    promised = {note.offset: note.number for note in notes if isinstance(note, Promised) and note.level >= least}
    may_be_gone = max((note.before for note in notes if isinstance(note, Trimming)), default=0)
    must_be_gone = max((note.before for note in notes if isinstance(note, Trimmed)), default=0)
    must_be_gone = min(must_be_gone, max((offset + 1 for offset in appended if offset < may_be_gone), default=0))

    with hf.Store.open(STORE, settings=settings, files=state.files, clock=FakeClock(), ids=SequenceIds(2)) as store:
        topic = store.topic(TOPIC)
        found = contents(topic)
        ends_of_trims = [offset for offset in promised if offset < may_be_gone]
        for offset, number in promised.items():
            if offset in ends_of_trims and offset not in found:
                continue  # deleted on request
            assert offset in found, f"offset {offset} was acknowledged and is lost; {state.description}"
            assert found[offset].number == number, f"offset {offset} holds another bundle; {state.description}"
        for offset, (number, bundle) in found.items():
            assert number <= max(appended.values(), default=-1) + 1, f"bundle {number} was never appended"
            if offset in appended:
                assert appended[offset] == number, f"offset {offset} was given to two bundles; {state.description}"
            assert dict(bundle.slots) == content(number), f"bundle {number} came back different; {state.description}"
        gone = [offset for offset in found if offset < must_be_gone and _trim_was_above(notes, offset)]
        assert not gone, f"offsets {gone} were deleted and are back; {state.description}"

        if state.mode is CrashMode.KILLED:
            _check_power_cut(state, {offset: each.number for offset, each in found.items()})

        fresh = topic.append({"logs": pa.record_batch({"id": [1]})}, attributes={"id": -1})
        topic.flush()
        fresh.wait(timeout=30)
        above = max([*found, *promised], default=-1)
        assert fresh.offset > above, f"offset {fresh.offset} was given again, {above} is in use; {state.description}"
        after = contents(topic)
        assert {offset: each.number for offset, each in after.items()} == {
            **{offset: each.number for offset, each in found.items()},
            fresh.offset: -1,
        }
    with hf.Store.open(STORE, read_only=True, files=state.files) as store:
        again = contents(store.topic(TOPIC))
        assert {offset: each.number for offset, each in again.items()} == {
            offset: each.number for offset, each in after.items()
        }, f"another process reads something else; {state.description}"


def _check_power_cut(state: CrashState, shown: dict[int, int]) -> None:
    """What a reopened store has shown to a reader must survive a power cut: it may be acted on."""
    with hf.Store.open(STORE, settings=SETTINGS, files=crash(state.files), ids=SequenceIds(3)) as store:
        found = contents(store.topic(TOPIC))
        assert {offset: each.number for offset, each in found.items()} == shown, (
            f"what was shown after a kill is gone after a power cut; {state.description}"
        )


def _trim_was_above(notes: tuple[object, ...], offset: int) -> bool:
    """Was `offset` given out before a truncation that covers it had returned?"""
    given = False
    for note in notes:
        if isinstance(note, Appended) and note.offset == offset:
            given = True
        if isinstance(note, Trimmed) and given and offset < note.before:
            return True
    return False
