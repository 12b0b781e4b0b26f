"""Records: what goes in comes out, split where it must be, and refused where it cannot be right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acks.ackkit import ACK, DROPPED, FAILED, NACK, REJECTED, SHARD_ID, answer, batch, batch_id, offsets, path, ranges
from holdfast.acks import AckState, BatchId, BatchRecord, BatchStatus, Outcome, OutcomeRecord, Record
from holdfast.acks._encode import encode_record
from holdfast.acks._found import Found
from holdfast.acks._scan import AckScan
from holdfast.acks.format import BODY, HEAD, MAX_BODY_BYTES, FileHeader
from holdfast.errors import InputError, InvalidPosition


def encoded(*records: Record) -> list[bytes]:
    return [part for record in records for part in encode_record(record, epoch=3, now_ns=5)]


def decoded(parts: list[bytes]) -> tuple[AckState, Found]:
    scan, found, state = AckScan(path(0), 0, SHARD_ID), Found(), AckState()
    scan.advance(FileHeader(0, SHARD_ID).encode() + b"".join(parts), found, settled=True)
    state.apply(found)
    return state, found


NUMBERS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5)
OUTCOMES = st.builds(
    lambda subscriber, outcome, numbers, reason: offsets(subscriber, *numbers, outcome=outcome, reason=reason),
    st.integers(0, 2**32 - 1),
    st.sampled_from(Outcome),
    NUMBERS,
    st.text(max_size=20),
)


@given(records=st.lists(OUTCOMES, max_size=20))
@settings(max_examples=100, deadline=None)
def test_outcomes_come_back_in_order(records: list[OutcomeRecord]) -> None:
    """Whatever subscribers, outcomes and offsets are written: the first final outcome of each offset stands."""
    state, found = decoded(encoded(*records))
    expected: dict[tuple[int, int], Outcome] = {}
    for record in records:
        for offset in record.entries.tolist():
            if record.outcome.is_final:
                expected.setdefault((record.subscriber, offset), record.outcome)
    assert (found.damage, found.records) == ([], len(records))
    for (subscriber, offset), outcome in expected.items():
        assert state.of(subscriber).worst(offset, offset + 1) is outcome
    final = sum(progress.watermark + progress.final_above for progress in state.progress.values())
    assert final == len(expected)


def test_long_lists_are_several_records() -> None:
    """No record passes its bound; together they say it all."""
    many = np.arange(0, 600_000, 2)
    parts = encoded(OutcomeRecord.of_offsets(1, ACK, many), OutcomeRecord.of_ranges(2, REJECTED, np.c_[many, many + 1]))
    assert [len(part) <= HEAD.size + MAX_BODY_BYTES for part in parts] == [True] * 8
    state, found = decoded(parts)
    assert found.damage == []
    assert state.of(1).gap_count + 1 == state.of(2).gap_count + 1 == 300_000
    assert state.of(2).rejected == 300_000


def test_ten_thousand_offsets_or_ranges_are_one_record() -> None:
    """A whole batch is acked by one short record."""
    many = np.arange(10_000) * 3
    (one,) = encoded(OutcomeRecord.of_offsets(1, ACK, many))
    (two,) = encoded(OutcomeRecord.of_ranges(1, ACK, [(0, 10_000)]))
    assert (len(one), len(two)) == (HEAD.size + BODY.size + 80_000, HEAD.size + BODY.size + 16)


def test_nothing_is_no_record() -> None:
    """An empty list of offsets or ranges writes nothing."""
    assert encoded(offsets(1), ranges(1)) == []


@pytest.mark.parametrize(
    ("reason", "kept"), [("x" * 2000, "x" * 1024), ("ö" * 1000, "ö" * 512), ("a" + "ö" * 1000, "a" + "ö" * 511)]
)
def test_a_long_reason_is_cut_on_a_character(reason: str, kept: str) -> None:
    """At most 1 KiB of it is written, and never half a character."""
    (part,) = encoded(offsets(1, 7, reason=reason))
    assert part[HEAD.size + BODY.size : -8].decode() == kept
    assert decoded([part])[0].of(1).is_final(7)


def test_a_reason_that_is_no_unicode_is_written_all_the_same() -> None:
    """A lone surrogate becomes a question mark: a reason is never a cause to fail."""
    assert decoded(encoded(offsets(1, 7, reason="\ud800")))[0].of(1).is_final(7)


def test_nacked_ranges_count_for_each_offset() -> None:
    """A range can be nacked too; its offsets are written one by one, for each has tries of its own."""
    state, _ = decoded(encoded(ranges(1, (3, 5), (4, 6), outcome=NACK), ranges(1, (5, 6), outcome=FAILED)))
    assert [state.of(1).attempts(offset) for offset in range(2, 7)] == [(0, 0), (1, 0), (1, 0), (2, 1), (0, 0)]
    with pytest.raises(InputError, match="offsets to be retried in one record"):
        encoded(ranges(1, (0, 10**9), outcome=NACK))


def test_a_final_outcome_may_cover_any_range() -> None:
    """All that is and will be can be given up in sixteen bytes."""
    state, _ = decoded(encoded(ranges(1, (0, 2**63), outcome=DROPPED)))
    assert state.of(1).watermark == 2**63


def test_batches_and_answers() -> None:
    """A closed batch waits until it is answered; the first status stands; offsets of two closings add up."""
    state, _ = decoded(encoded(batch(1, (5, 7), (7, 9)), batch(2, (0, 1)), batch(1, (20, 21)), batch(3)))
    assert state.batches == {batch_id(1): [(5, 9), (20, 21)], batch_id(2): [(0, 1)], batch_id(3): []}
    later = [answer(1, BatchStatus.DROPPED), answer(1), batch(1, (5, 7)), answer(9)]
    state, found = decoded(encoded(batch(1, (5, 7)), batch(2, (0, 1)), *later))
    assert state.batches == {batch_id(2): [(0, 1)]}
    assert state.answers == {batch_id(1): BatchStatus.DROPPED, batch_id(9): BatchStatus.DELIVERED}
    assert found.damage == []


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest answers go first."""
    monkeypatch.setattr("holdfast.acks._state.MAX_ANSWERS", 3)
    state, _ = decoded(encoded(*[answer(number) for number in range(5)]))
    assert list(state.answers) == [batch_id(2), batch_id(3), batch_id(4)]


def test_a_batch_too_large_for_a_record_is_refused() -> None:
    """It would be torn in two, and answered for the half that is left."""
    pairs = [(2**40 + 2 * number, 2**40 + 2 * number + 1) for number in range(60_000)]
    with pytest.raises(InputError, match="a batch with 60000 ranges takes"):
        encoded(BatchRecord(batch_id(1), pairs))


@pytest.mark.parametrize("parts", [("", "b", "c"), ("a", "b" * 129, "c"), ("a", "b", 3)])
def test_identities_are_bounded(parts: tuple[str, str, str]) -> None:
    """Each part of a batch's identity is a text of 1 to 128 characters."""
    with pytest.raises(InputError, match="1 to 128 characters"):
        BatchId(*parts)


def test_what_cannot_be_recorded_is_refused() -> None:
    """Numbers that are no offsets, subscribers or outcomes are refused before anything is written."""
    with pytest.raises(InvalidPosition):
        OutcomeRecord.of_offsets(1, ACK, [-1])
    with pytest.raises(InvalidPosition):
        OutcomeRecord.of_ranges(1, ACK, [(3, 3)])
    with pytest.raises(InputError, match="not the number of a subscriber"):
        OutcomeRecord.of_offsets(-1, ACK, [1])
    with pytest.raises(ValueError, match="not a valid Outcome"):
        OutcomeRecord.of_offsets(1, 9, [1])  # type: ignore[arg-type]
    with pytest.raises(InvalidPosition):
        encoded(BatchRecord(batch_id(1), [(2, 1)]))
