"""A store against a plain model: appends, seals, truncations, reopening, kills, power cuts, faults, full disks.

The model knows what callers were told. A bundle is `promised` when a receipt resolved at fsync, or when a reopened
store has shown it; what is promised must be there after anything. Whatever else was appended may be there, or not.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import arrow_strategies as arrows
import holdfast as hf
from crash.life import content
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, InvalidBundle
from holdfast.testing import CrashMode, FakeClock, SimulatedFiles, crash
from store.storekit import STORE, TOPIC, open_store

FSYNC = hf.Durability.FSYNC
CALLS = ("append", "sync", "sync_folder", "create", "rename", "unlink", "write_at", "truncate", "open")


@dataclass
class Known:
    """A bundle that was appended, and the most that anybody was told of it."""

    number: int
    slots: dict[str, pa.RecordBatch]
    receipt: hf.Receipt | None  # none once the process is gone that was given it
    level: hf.Durability
    promised: hf.Durability | None = None
    failed: bool = False


class StoreMachine(RuleBasedStateMachine):
    """Everything is committed by hand: the clock stands still, `flush` is the only way to the disk."""

    buffer: ClassVar[dict[str, Any]] = {
        "segment": {"target_size": 6000, "max_streams": 6},
        "wal": {"file_size": 4096, "max_size": 60_000, "flush_interval": "1h"},
        "append_timeout": 0,
    }

    def __init__(self) -> None:
        super().__init__()
        self.files = SimulatedFiles()
        self.store: hf.Store | None = None
        self.known: dict[int, Known] = {}
        self.highest = -1  # no offset up to here may be given again
        self.number = 0
        self.lives = 0
        self.trimming = 0  # a truncation below this was begun
        self.trimmed = 0  # one below this returned
        self.faulty = False
        self.was_faulty = False  # in this life: the shard may be read-only since

    def clock(self) -> Clock | None:
        return FakeClock()

    # -- opening and dying ------------------------------------------------------------------------------------------

    @initialize()
    def open(self) -> None:
        self.lives += 1
        self.store = open_store(self.files, buffer=self.buffer, clock=self.clock(), seed=self.lives)
        self.was_faulty = False  # in this life: the shard may be read-only since
        self.settle_what_was_found()

    @property
    def topic(self) -> hf.Topic:
        assert self.store is not None
        return self.store.topic(TOPIC)

    def settle_what_was_found(self) -> None:
        """What a new process shows is durable from now on, and the rest is gone for good."""
        found = self.read()
        for offset, known in list(self.known.items()):
            if offset in found:
                known.promised, known.failed = FSYNC, False
            else:
                del self.known[offset]
        self.highest = max([self.highest, *found])

    def read(self) -> dict[int, hf.RecordBundle]:
        """All bundles, each held against what was appended."""
        found: dict[int, hf.RecordBundle] = {}
        for bundle in self.topic.bundles():
            assert bundle.offset is not None
            assert not found or bundle.offset > max(found), "bundles come out of order"
            found[bundle.offset] = bundle
            self.compare(bundle)
        for offset, known in self.known.items():
            if known.promised is not None and known.promised >= FSYNC and offset not in found:
                assert offset < self.trimming, f"offset {offset} was acknowledged and is gone"
        assert not [offset for offset in found if offset < self.trimmed], "deleted bundles are back"
        return found

    def compare(self, bundle: hf.RecordBundle) -> None:
        assert bundle.offset in self.known, f"offset {bundle.offset} was never appended"
        known = self.known[bundle.offset]
        assert bundle.attributes == {"id": known.number}
        assert not known.failed, f"offset {bundle.offset} was reported as failed and is there"
        assert set(bundle) == set(known.slots)
        for slot, expected in known.slots.items():
            arrows.assert_same(expected, bundle[slot])

    def end_of_life(self, after: SimulatedFiles, *, clean: bool, least: hf.Durability = FSYNC) -> None:
        """The process is gone; what it was told below `least` is worth nothing now."""
        self.files.heal()
        self.files.capacity = None
        if self.store is not None:
            try:
                self.store.close()
            except (HoldfastError, OSError):
                assert not clean or self.faulty
        self.files, self.store, self.faulty = after, None, False
        after.capacity = None
        if clean:
            self.look_at_all()
        for known in self.known.values():
            known.receipt = None
            if not clean:
                known.failed = False  # a record that nobody vouches for may come back after a crash
            if known.promised is not None and known.promised >= least:
                known.promised = FSYNC
            elif known.promised is not None:
                known.promised = None
        self.open()

    @rule()
    def reopen(self) -> None:
        self.flush()
        self.highest = max([self.highest, *self.known])
        self.end_of_life(self.files, clean=True)

    @rule()
    def kill(self) -> None:
        self.look_at_all()
        after = self.files.kill()
        self.take_back()
        self.end_of_life(after, clean=False, least=hf.Durability.OS)

    @rule(mode=st.sampled_from(CrashMode), seed=st.integers(0, 10**6))
    def power_cut(self, mode: CrashMode, seed: int) -> None:
        self.look_at_all()
        least = hf.Durability.OS if mode in (CrashMode.KEPT, CrashMode.KILLED) else FSYNC
        after = crash(self.files, mode, seed=seed)
        self.take_back()
        self.end_of_life(after, clean=False, least=least)

    # -- work -------------------------------------------------------------------------------------------------------

    def append(self, level: str, slots: dict[str, pa.RecordBatch]) -> None:
        number = self.number
        self.number += 1
        try:
            receipt = self.topic.append(slots, durability=level, attributes={"id": number})
        except InvalidBundle:
            return
        except HoldfastError as error:
            self.excuse(error, isinstance(error, hf.errors.Backpressure))
            return
        assert receipt.offset > self.highest, "an offset was given twice"
        assert receipt.offset not in self.known, "an offset was given twice"
        self.known[receipt.offset] = Known(number, slots, receipt, hf.Durability[level.upper()])
        self.look_at(receipt.offset)

    def look_at_all(self) -> None:
        for offset in self.known:
            self.look_at(offset)

    def take_back(self) -> None:
        """A failure while the disk was copied may already show in the copy: level `os` is worth nothing then."""
        for known in self.known.values():
            if known.receipt is not None and known.receipt._group.failure is not None and known.promised != FSYNC:
                known.promised = None

    def look_at(self, offset: int) -> None:
        """Take over what the receipt says by now."""
        known = self.known[offset]
        if known.receipt is None:
            return
        reached = known.receipt.durability
        if known.promised is None or reached > known.promised:
            known.promised = reached
        if reached < FSYNC and known.receipt._group.failure is not None:  # then not even the page cache counts
            known.promised, known.failed = None, True

    @rule(level=st.sampled_from(["memory", "os", "fsync", "fsync"]), count=st.integers(1, 4))
    def append_plain(self, level: str, count: int) -> None:
        for _ in range(count):
            self.append(level, content(self.number))

    @rule(
        slot=st.sampled_from(["logs", "attrs", "odd.slot-1"]),
        batch=arrows.batches(),
        level=st.sampled_from(["os", "fsync"]),
    )
    def append_anything(self, slot: str, batch: pa.RecordBatch, level: str) -> None:
        self.append(level, {slot: batch})

    @rule()
    def flush(self) -> None:
        """Every receipt has its answer afterwards, and keeps it."""
        self.topic.flush()
        for offset, known in self.known.items():
            self.look_at(offset)
            if known.receipt is None or known.failed or (known.promised or hf.Durability.MEMORY) >= known.level:
                continue
            try:
                known.promised = known.receipt.wait(timeout=30)
            except hf.errors.WaitTimeout:
                raise AssertionError(f"offset {offset} neither resolved nor failed") from None
            except HoldfastError as error:
                self.excuse(error)
                known.promised, known.failed = None, True

    @rule()
    def seal(self) -> None:
        self.may_fail(self.topic.seal)

    @rule(share=st.floats(0, 1.2))
    def truncate(self, share: float) -> None:
        self.flush()
        before = int(share * (max(self.known, default=0) + 1))
        self.trimming = max(self.trimming, before)
        start = self.may_fail(partial(self.topic.truncate, before))
        if start is not None:
            self.trimmed = max(self.trimmed, *start.values()) if start else self.trimmed
            for offset in [each for each in self.known if each < self.trimmed]:
                del self.known[offset]

    def excuse(self, error: HoldfastError, allowed: bool = False) -> None:
        """An error is right only while the disk is not, or after it was not."""
        if not (self.faulty or allowed or (self.was_faulty and isinstance(error, hf.errors.ShardFailed))):
            raise error

    def may_fail(self, action: Any) -> Any:
        try:
            return action()
        except HoldfastError as error:
            self.excuse(error)
            return None

    # -- trouble ----------------------------------------------------------------------------------------------------

    @rule(
        operation=st.sampled_from(CALLS),
        error=st.sampled_from([errno.EIO, errno.ENOSPC]),
        nth=st.integers(1, 5),
        times=st.sampled_from([1, 1, 2, 3, None]),
        short=st.none() | st.integers(0, 200),
    )
    def break_something(self, operation: str, error: int, nth: int, times: int | None, short: int | None) -> None:
        writes = operation in ("append", "write_at")
        self.files.fail(operation, error, nth=nth, times=times, short=short if writes else None)
        self.faulty = self.was_faulty = True

    @rule(more=st.integers(0, 6000))
    def fill_up(self, more: int) -> None:
        free, total = self.files.free_bytes(STORE)
        self.files.capacity = total - free + more
        self.faulty = self.was_faulty = True

    @precondition(lambda self: self.faulty)
    @rule()
    def heal(self) -> None:
        """The disk is well again; what failed stays failed."""
        self.flush()
        self.files.heal()
        self.files.capacity = None
        self.faulty = False

    # -- reading ----------------------------------------------------------------------------------------------------

    @invariant()
    def what_failed_stays_failed(self) -> None:
        for offset, known in self.known.items():
            if known.failed and known.receipt is not None:
                assert known.receipt.durability < FSYNC, f"offset {offset} failed, and was acknowledged later"

    @invariant()
    def all_that_was_promised_is_there(self) -> None:
        if self.store is not None and not self.faulty:
            self.look_at_all()
            self.read()

    @rule(first=st.integers(0, 60), length=st.integers(0, 30), slot=st.sampled_from(["logs", "attrs"]))
    def read_a_range(self, first: int, length: int, slot: str) -> None:
        if self.faulty or slot not in self.topic.slots():
            return
        whole = [
            each for each in self.topic.bundles() if each.offset is not None and first <= each.offset < first + length
        ]
        part = list(self.topic.bundles(first, first + length))
        assert [each.offset for each in part] == [each.offset for each in whole]
        for columns in (None, ["id"], ["kind", "id", "nowhere"]):
            batches = list(self.topic.read(first, first + length, slot=slot, columns=columns))
            expected = [each[slot] for each in whole if slot in each]
            assert len(batches) == len(expected)
            for one, other in zip(batches, expected, strict=True):
                if columns is not None:  # of a name that is there twice, nobody can say which is meant
                    names = other.schema.names
                    other = other.select([each for each in columns if names.count(each) == 1])  # noqa: PLW2901
                arrows.assert_same(other, one)
        only = list(self.topic.bundles(first, first + length, slots=[slot]))
        assert [set(each) for each in only] == [set(each) & {slot} for each in whole]

    @rule()
    def another_process_reads(self) -> None:
        """It sees the same as the owner, no more and no less."""
        if self.faulty:
            return
        with hf.Store.open(STORE, read_only=True, files=self.files) as store:
            if TOPIC not in store.topics():
                return
            seen = self.numbers(store.topic(TOPIC))
        assert seen == self.numbers(self.topic)

    def numbers(self, topic: hf.Topic) -> dict[int, int]:
        """By offset; what a failed truncation may have deleted is left out: who sees it gone may differ."""
        first = self.trimming if self.trimming > self.trimmed else 0
        return {each.offset: each.attributes["id"] for each in topic.bundles() if (each.offset or 0) >= first}  # type: ignore[misc]

    def teardown(self) -> None:
        self.files.heal()
        self.files.capacity = None
        if self.store is not None:
            try:
                self.store.close()
            except (HoldfastError, OSError):
                assert self.faulty


class LeadingMachine(StoreMachine):
    """Nothing waits for company: who waits for a receipt commits it."""

    buffer: ClassVar[dict[str, Any]] = {**StoreMachine.buffer, "wal": {"file_size": 4096, "max_size": 60_000}}

    def append(self, level: str, slots: dict[str, pa.RecordBatch]) -> None:
        before = set(self.known)
        super().append(level, slots)
        for offset in set(self.known) - before:
            known = self.known[offset]
            assert known.receipt is not None
            try:
                reached = known.receipt.wait()
            except HoldfastError as error:
                self.excuse(error)
                known.failed = True
            else:
                assert reached >= known.level
                known.promised = reached


EXAMPLES = 25
_quick = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestStoreByHand = StoreMachine.TestCase
TestStoreByHand.settings = _quick
TestStoreLeading = LeadingMachine.TestCase
TestStoreLeading.settings = _quick
