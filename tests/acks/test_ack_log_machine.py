"""Several processes at one ack log, in any order, against a plain record of what was written."""

from __future__ import annotations

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from acks.ackkit import ACK, DROPPED, FAILED, NACK, REJECTED, answer, batch, batch_id, disk, open_log, rotate
from holdfast.acks import AckLog, BatchId, BatchStatus, Outcome, OutcomeRecord, Record
from holdfast.testing import CrashMode, SimulatedFiles, crash

PROCESSES = 3
LIMIT = 40
REMOVED = 9  # a subscriber that every rotation leaves out
SUBSCRIBERS = st.integers(1, 3)
OFFSETS = st.lists(st.integers(0, LIMIT - 1), min_size=1, max_size=6)
PAIRS = st.tuples(st.integers(0, LIMIT - 2), st.integers(1, 8)).map(lambda pair: (pair[0], min(LIMIT, sum(pair))))
FINAL = st.sampled_from([ACK, ACK, REJECTED, DROPPED])
WHO = st.integers(0, PROCESSES - 1)


class Model:
    """What a state must say after some records."""

    def __init__(self) -> None:
        self.finals: dict[tuple[int, int], Outcome] = {}
        self.tries: dict[tuple[int, int], list[Outcome]] = {}
        self.batches: dict[BatchId, set[int]] = {}
        self.answers: dict[BatchId, BatchStatus] = {}

    def finish(self, subscriber: int, offsets: list[int], outcome: Outcome) -> None:
        for offset in offsets:
            self.finals.setdefault((subscriber, offset), outcome)
            self.tries.pop((subscriber, offset), None)

    def note(self, subscriber: int, offsets: list[int], outcome: Outcome) -> None:
        for offset in offsets:
            if (subscriber, offset) not in self.finals:
                self.tries.setdefault((subscriber, offset), []).append(outcome)

    def check(self, log: AckLog) -> None:
        state = log.state
        for subscriber in (1, 2, 3):
            progress = state.of(subscriber)
            final = {offset for number, offset in self.finals if number == subscriber}
            assert progress.watermark == next(x for x in range(LIMIT + 1) if x not in final)
            for offset in range(LIMIT):
                assert progress.worst(offset, offset + 1) == self.finals.get((subscriber, offset))
                tries = self.tries.get((subscriber, offset), [])
                assert progress.attempts(offset) == (len(tries), tries.count(FAILED))
        batches = {each: {x for pair in pairs for x in range(*pair)} for each, pairs in state.batches.items()}
        assert batches == self.batches
        assert state.answers == self.answers


class AckLogMachine(RuleBasedStateMachine):
    """Each process is an `AckLog` over the same disk; every append that returned is in what anybody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.files = SimulatedFiles()
        self.logs: list[AckLog] = []
        self.model = Model()

    @initialize()
    def start(self) -> None:
        self.files = disk()
        self.logs = [open_log(self.files) for _ in range(PROCESSES)]

    def append(self, who: int, record: Record, sync: bool) -> None:
        self.logs[who].append([record], sync=sync)

    @rule(who=WHO, subscriber=SUBSCRIBERS, offsets=OFFSETS, outcome=FINAL, sync=st.booleans())
    def finish_offsets(self, who: int, subscriber: int, offsets: list[int], outcome: Outcome, sync: bool) -> None:
        self.append(who, OutcomeRecord.of_offsets(subscriber, outcome, offsets), sync)
        self.model.finish(subscriber, offsets, outcome)

    @rule(who=WHO, subscriber=SUBSCRIBERS, pairs=st.lists(PAIRS, min_size=1, max_size=4), outcome=FINAL)
    def finish_ranges(self, who: int, subscriber: int, pairs: list[tuple[int, int]], outcome: Outcome) -> None:
        self.append(who, OutcomeRecord.of_ranges(subscriber, outcome, pairs), False)
        self.model.finish(subscriber, [x for pair in pairs for x in range(*pair)], outcome)

    @rule(who=WHO, subscriber=SUBSCRIBERS, offsets=OFFSETS, outcome=st.sampled_from([NACK, FAILED]))
    def note(self, who: int, subscriber: int, offsets: list[int], outcome: Outcome) -> None:
        self.append(who, OutcomeRecord.of_offsets(subscriber, outcome, offsets, reason="later"), False)
        self.model.note(subscriber, offsets, outcome)

    @rule(who=WHO, number=st.integers(0, 3), pair=PAIRS)
    def close_batch(self, who: int, number: int, pair: tuple[int, int]) -> None:
        self.append(who, batch(number, pair), True)
        if batch_id(number) not in self.model.answers:
            known = self.model.batches.get(batch_id(number), set())
            self.model.batches[batch_id(number)] = known | set(range(*pair))

    @rule(who=WHO, number=st.integers(0, 3), status=st.sampled_from(BatchStatus))
    def answer_batch(self, who: int, number: int, status: BatchStatus) -> None:
        self.append(who, answer(number, status), False)
        self.model.batches.pop(batch_id(number), None)
        self.model.answers.setdefault(batch_id(number), status)

    @rule(who=WHO)
    def refresh(self, who: int) -> None:
        log = self.logs[who]
        assert log.refresh().damage == ()
        self.model.check(log)

    @rule(who=WHO)
    def sync(self, who: int) -> None:
        self.logs[who].refresh()
        self.logs[who].sync()
        after = open_log(crash(self.files, CrashMode.LOST))
        after.refresh()
        self.model.check(after)

    @rule(who=WHO)
    def rotate(self, who: int) -> None:
        log = self.logs[who]
        log.append([OutcomeRecord.of_offsets(REMOVED, ACK, [0])])
        rotate(log, {1, 2, 3})
        self.model.check(log)
        after = open_log(crash(self.files, CrashMode.LOST))
        after.refresh()
        self.model.check(after)
        assert REMOVED not in log.state.progress.keys() | after.state.progress.keys()

    @rule(who=WHO, operation=st.sampled_from(["sync", "rename", "create", "sync_folder"]), nth=st.integers(1, 2))
    def rotate_on_a_failing_disk(self, who: int, operation: str, nth: int) -> None:
        """It may be done or not; either way nothing is lost."""
        self.files.fail(operation, nth=nth)
        with contextlib.suppress(OSError):
            rotate(self.logs[who])
        self.files.heal()
        self.logs[who].refresh()
        self.model.check(self.logs[who])

    @rule(who=WHO)
    def reopen(self, who: int) -> None:
        self.logs[who].close()
        self.logs[who] = open_log(self.files)
        self.refresh(who)

    @rule()
    def kill_all(self) -> None:
        self.files = self.files.kill()
        self.logs = [open_log(self.files) for _ in range(PROCESSES)]

    def teardown(self) -> None:
        for who in range(len(self.logs)):
            self.refresh(who)


TestAckLog = AckLogMachine.TestCase
TestAckLog.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
