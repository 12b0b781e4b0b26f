"""Watermark, gaps, outcomes and attempts of one subscriber."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from acks.ackkit import ACK, DROPPED, FAILED, NACK, REJECTED
from holdfast.acks import Outcome, Progress, _progress
from holdfast.errors import InvalidPosition

LIMIT = 48
OFFSETS = st.integers(0, LIMIT - 1)
RANGES = st.tuples(OFFSETS, st.integers(1, 12)).map(lambda pair: (pair[0], min(LIMIT, pair[0] + pair[1])))
FINAL = st.sampled_from([ACK, REJECTED, DROPPED])


class ProgressMachine(RuleBasedStateMachine):
    """Against a plain mapping of offsets to outcomes."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.outcomes: dict[int, Outcome] = {}
        self.tries: dict[int, list[Outcome]] = {}
        self.start = 0
        self.pruned = 0

    def finished(self, offsets: list[int], outcome: Outcome) -> None:
        for offset in offsets:
            if offset >= self.start:
                self.outcomes.setdefault(offset, outcome)
            self.tries.pop(offset, None)

    @rule(offset=OFFSETS, outcome=FINAL)
    def finish_one(self, offset: int, outcome: Outcome) -> None:
        self.progress.finish_one(offset, outcome)
        self.finished([offset], outcome)

    @rule(ranges=st.lists(RANGES, max_size=40), outcome=FINAL)
    def finish(self, ranges: list[tuple[int, int]], outcome: Outcome) -> None:
        self.progress.finish(ranges, outcome)
        self.finished([offset for each in ranges for offset in range(*each)], outcome)

    @rule(offsets=st.lists(OFFSETS, max_size=60), outcome=FINAL, as_array=st.booleans())
    def finish_offsets(self, offsets: list[int], outcome: Outcome, as_array: bool) -> None:
        self.progress.finish_offsets(np.array(offsets, np.int64) if as_array else offsets, outcome)
        self.finished(offsets, outcome)

    @rule(offset=OFFSETS, outcome=st.sampled_from([NACK, FAILED]))
    def note(self, offset: int, outcome: Outcome) -> None:
        self.progress.note(offset, outcome)
        if offset >= self.start and offset not in self.outcomes:
            self.tries.setdefault(offset, []).append(outcome)

    @rule(start=OFFSETS)
    def begin(self, start: int) -> None:
        self.progress.begin(start)
        for offset in range(self.start, start):
            self.outcomes.setdefault(offset, ACK)  # not an outcome, but nothing worse either
            self.tries.pop(offset, None)
        self.start = max(self.start, start)

    @rule(before=OFFSETS)
    def prune(self, before: int) -> None:
        self.progress.prune(before)
        self.pruned = max(self.pruned, before)
        for offset in range(before):
            if offset in self.outcomes:
                self.outcomes[offset] = ACK
            self.tries.pop(offset, None)

    @precondition(lambda self: self.outcomes)
    @rule()
    def through_a_document(self) -> None:
        self.progress = Progress.from_document(json.loads(json.dumps(self.progress.to_document())))

    @invariant()
    def same_answers(self) -> None:
        progress, final = self.progress, {*range(self.start), *self.outcomes}
        assert progress.watermark == next(x for x in range(LIMIT + 1) if x not in final)
        above = sorted(x for x in final if x > progress.watermark)
        assert progress.final_above == len(above)
        assert progress.gap_count == len([x for x in above if x - 1 not in final])
        assert progress.rejected == len([x for x, outcome in self.outcomes.items() if outcome is REJECTED])
        assert progress.dropped == len([x for x, outcome in self.outcomes.items() if outcome is DROPPED])
        for offset in range(LIMIT + 2):
            assert progress.is_final(offset) == (offset in final)
            assert progress.next_unfinished(offset) == next(x for x in range(offset, 2 * LIMIT) if x not in final)
            tries = self.tries.get(offset, [])
            assert progress.attempts(offset) == (len(tries), tries.count(FAILED))
        for first, end in ((0, LIMIT), (5, 9), (0, self.start), (progress.watermark, LIMIT)):
            parts = progress.unfinished(first, end)
            assert {x for part in parts for x in range(*part)} == set(range(first, end)) - final
            here = [self.outcomes.get(x, ACK) for x in range(first, end)]
            expected = None if parts else max(here, default=ACK)
            assert progress.worst(first, end) == expected


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_in_order_acks_leave_no_gaps() -> None:
    """A subscriber that acks in order is a watermark and nothing else."""
    progress = Progress()
    for offset in range(1000):
        progress.finish_one(offset, ACK)
    assert (progress.watermark, progress.gap_count) == (1000, 0)


def test_the_first_final_outcome_stands() -> None:
    """A later outcome, single or in bulk, changes only what was unfinished."""
    progress = Progress()
    progress.finish([(0, 10)], REJECTED)
    progress.finish_offsets(range(100), DROPPED)
    progress.finish([(0, 200)], ACK)
    assert (progress.rejected, progress.dropped) == (10, 90)
    assert [progress.worst(0, 10), progress.worst(5, 11), progress.worst(100, 200)] == [REJECTED, DROPPED, ACK]


def test_tries_are_forgotten_when_final() -> None:
    """Attempts are kept for unfinished offsets only, whichever way they are finished."""
    progress = Progress()
    for offset in range(100):
        progress.note(offset, FAILED)
    progress.finish_one(3, ACK)
    progress.finish([(10, 40)], ACK)
    progress.finish_offsets(list(range(50, 90)), REJECTED)
    left = [offset for offset in range(100) if progress.attempts(offset) != (0, 0)]
    assert left == [0, 1, 2, *range(4, 10), *range(40, 50), *range(90, 100)]


def test_tries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound, the offset that was noted first is forgotten: it gets more attempts, never fewer."""
    monkeypatch.setattr(_progress, "MAX_NOTED", 3)
    progress = Progress()
    for offset in (7, 5, 6, 9):
        progress.note(offset, NACK)
    assert [progress.attempts(offset) for offset in (5, 6, 7, 9)] == [(1, 0), (1, 0), (0, 0), (1, 0)]


def test_wrong_outcomes_are_refused() -> None:
    """An offset is finished with a final outcome, and noted with one that is not."""
    progress = Progress()
    with pytest.raises(ValueError, match="NACK is not final"):
        progress.finish([(0, 1)], NACK)
    with pytest.raises(ValueError, match="FAILED is not final"):
        progress.finish_one(0, FAILED)
    with pytest.raises(ValueError, match="ACK is final"):
        progress.note(0, ACK)
    with pytest.raises(InvalidPosition):
        progress.finish_one(-1, ACK)
    assert progress.watermark == 0


def test_a_million_intervals_are_a_short_document() -> None:
    """A checkpoint with a million scattered outcomes takes a few bytes for each, at most."""
    progress = Progress()
    steps = np.random.default_rng(1).integers(2, 50, 1_000_000)
    progress.finish_offsets(np.cumsum(steps), ACK)
    text = json.dumps(progress.to_document())
    assert progress.gap_count == 1_000_000
    assert len(text) < 3_000_000
    assert Progress.from_document(json.loads(text)).to_document() == progress.to_document()


GOOD = Progress().to_document()


@pytest.mark.parametrize(
    "wrong",
    [
        {"watermark": -1},
        {"watermark": "1"},
        {"watermark": 2**63 + 1},
        {"watermark": True},
        {"final": "?"},
        {"final": 7},
        {"final": "eAFjYmVgZFBjZGQAAADmADE=", "watermark": 5},
        {"rejected": "AAAA"},
        {"noted": [[1, 2]]},
        {"noted": [[1, 2, -3]]},
    ],
)
def test_documents_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    """What a checkpoint says is checked before it counts."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        Progress.from_document({**GOOD, **wrong})
