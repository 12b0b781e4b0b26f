"""A scripted life of an ack log that two processes write, and the oracle that every disk it may leave is held against.

The life writes down what a caller was told, at the moment it was told, as notes in the disk's journal:

    Asked       a record is about to be written: from here on what it says may be found
    Returned    its append returned without a sync: from here on every reader on the same machine finds it
    Promised    it is durable: from here on it must be found after any crash
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from acks.ackkit import DROPPED, FAILED, REJECTED, answer, batch, disk, offsets, open_log, ranges, read, rotate
from holdfast.acks import AckLog, AckState, AnswerRecord, BatchId, BatchRecord, Outcome, OutcomeRecord, Record
from holdfast.testing import SimulatedFiles


class Final(NamedTuple):
    """What a record says of one offset."""

    subscriber: int
    offset: int
    outcome: Outcome


class Asked(NamedTuple):
    facts: frozenset[Final | BatchId]


class Returned(NamedTuple):
    facts: frozenset[Final | BatchId]


class Promised(NamedTuple):
    facts: frozenset[Final | BatchId]


def facts_of(records: Iterable[Record]) -> frozenset[Final | BatchId]:
    facts: set[Final | BatchId] = set()
    for record in records:
        if isinstance(record, BatchRecord | AnswerRecord):
            facts.add(record.id)
        elif isinstance(record, OutcomeRecord) and record.outcome.is_final:
            given = record.entries.tolist()
            pairs = given if record.is_ranges else [(offset, offset + 1) for offset in given]
            facts |= {Final(record.subscriber, x, record.outcome) for pair in pairs for x in range(*pair)}
    return frozenset(facts)


class Life:
    """Two logs over one disk, as two processes have them. Errors of the disk are kept, and the life goes on."""

    def __init__(self, files: SimulatedFiles | None = None) -> None:
        self.files = disk() if files is None else files
        self.one, self.two = open_log(self.files), open_log(self.files)
        self.errors: list[OSError] = []

    def attempt(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except OSError as error:
            self.errors.append(error)
            return False
        return True

    def append(self, log: AckLog, records: Sequence[Record], *, sync: bool = False) -> None:
        facts = facts_of(records)
        self.files.note(Asked(facts))
        if self.attempt(lambda: log.append(records, sync=sync)):
            self.files.note(Promised(facts) if sync else Returned(facts))

    def sync(self, log: AckLog) -> None:
        """Everything that a refresh has read is durable after a sync."""
        if self.attempt(log.refresh):
            seen = facts_in(log.state)
            if self.attempt(log.sync):
                self.files.note(Promised(frozenset(seen)))

    def rotate(self, log: AckLog) -> None:
        self.attempt(lambda: rotate(log))

    def run(self) -> None:
        one, two = self.one, self.two
        self.append(one, [offsets(1, 0, 1, 5)])
        self.append(two, [offsets(2, 3, outcome=REJECTED, reason="torn page")], sync=True)
        self.append(one, [batch(1, (0, 4)), offsets(1, 2)])
        self.sync(two)
        self.append(two, [ranges(2, (10, 20)), offsets(1, 9, outcome=FAILED)])
        self.rotate(one)
        self.append(two, [offsets(1, 3)], sync=True)  # follows the rotation
        self.append(one, [answer(1), ranges(1, (30, 33), outcome=DROPPED)])
        self.append(one, [offsets(2, 0, 1)])
        self.rotate(two)
        self.rotate(two)
        self.append(one, [ranges(2, (0, 3), (4, 6), outcome=DROPPED)], sync=True)
        self.append(two, [offsets(3, *range(40, 0, -2))])
        self.sync(one)
        self.append(two, [offsets(3, 1)])
        self.append(one, [offsets(1, 4)], sync=True)


def run_with_faults(life: Life) -> None:
    """Failed syncs, a failed rotation, a full disk: what is written afterwards is as safe as ever."""
    files, one, two = life.files, life.one, life.two
    life.append(one, [offsets(1, 0, 1)])
    files.fail("sync", path="*.acks", error=errno.EIO)
    life.append(one, [offsets(1, 2)], sync=True)  # fails
    life.append(two, [offsets(1, 3)], sync=True)  # so the other one rotates
    life.append(one, [offsets(1, 4)])
    files.fail("sync", path="*.acks", error=errno.EIO)
    life.sync(two)
    life.append(two, [offsets(2, 7)])
    files.fail("rename", path="*acks.checkpoint.tmp", error=errno.ENOSPC)
    life.rotate(one)
    life.append(two, [offsets(2, 8)], sync=True)
    files.fail("append", path="*.acks", error=errno.ENOSPC, short=50)
    life.append(one, [offsets(1, 20), offsets(1, 21)], sync=True)  # the first of them stands
    life.append(two, [offsets(1, 22)], sync=True)
    files.fail("sync_folder", path="*acks", error=errno.EIO)
    life.rotate(two)
    life.append(one, [offsets(1, 5)], sync=True)
    files.fail("sync", path="*.acks", error=errno.EIO, times=2)
    life.rotate(two)
    life.append(one, [offsets(1, 6)])
    life.sync(two)
    life.append(one, [offsets(1, 7)], sync=True)


def facts_in(state: AckState) -> set[Final | BatchId]:
    """What a state holds of the offsets that a life uses."""
    facts: set[Final | BatchId] = {*state.batches, *state.answers}
    for subscriber, progress in state.progress.items():
        for offset in range(64):
            outcome = progress.worst(offset, offset + 1)
            if outcome is not None:
                facts.add(Final(subscriber, offset, outcome))
    return facts


def places(facts: Iterable[Final | BatchId]) -> set[tuple[int, int] | BatchId]:
    """Without the outcomes: which of two that were asked for stands depends on which came first."""
    return {fact[:2] if isinstance(fact, Final) else fact for fact in facts}


def check(files: SimulatedFiles, notes: Iterable[object], *, returned: bool = False) -> AckLog:
    """What was promised is there (and with `returned`, what was merely written), and nothing that was not asked for."""
    log, _ = read(files)
    notes = list(notes)
    found = facts_in(log.state)
    asked = {fact for note in notes if isinstance(note, Asked) for fact in note.facts}
    kinds = (Promised, Returned) if returned else (Promised,)
    promised = {fact for note in notes if isinstance(note, kinds) for fact in note.facts}
    assert found <= asked, f"invented: {found - asked}"
    assert places(promised) <= places(found), f"forgotten: {places(promised) - places(found)}"
    for progress in log.state.progress.values():
        assert progress.unfinished(0, progress.watermark) == []
    return log
