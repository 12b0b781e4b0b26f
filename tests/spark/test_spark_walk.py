"""How far a micro-batch goes: admission, sharing, waiting, barriers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import holdfast as hf
from holdfast.errors import SchemaChanged
from holdfast.spark._plan import Planner
from holdfast.spark._walk import Amount, Walk
from holdfast.testing import FakeClock
from spark.topickit import TOPIC, fill, ids, planner, put

PLENTY = Amount(10**12)
PLAIN = pa.schema([("id", pa.int64())])
WIDE = pa.schema([("id", pa.int64()), ("new", pa.string())])


# -- one shard, against a model ----------------------------------------------------------------------------------------


class FakeSpan:
    """Bundles as (size, rows, is wide)."""

    def __init__(self, start: int, bundles: list[tuple[int, int, bool]]) -> None:
        self.start, self.end, self._bundles = start, start + len(bundles), bundles

    def sizes(self, slot: int) -> NDArray[np.int64]:
        del slot
        return np.array([size for size, _, _ in self._bundles], np.int64)

    def rows(self, slot: int) -> NDArray[np.int64]:
        del slot
        return np.array([rows for _, rows, _ in self._bundles], np.int64)

    def schemas(self, slot: int) -> Iterator[tuple[int, pa.Schema]]:
        del slot
        for wide in (True, False):  # a segment tells of its streams in no order
            found = [number for number, bundle in enumerate(self._bundles) if bundle[2] is wide]
            if found:
                yield self.start + found[0], WIDE if wide else PLAIN

    def cut(self, first: int, end: int) -> FakeSpan:
        first, end = max(first, self.start), min(end, self.end)
        return FakeSpan(first, self._bundles[first - self.start : end - self.start])


class FakeTopic:
    def __init__(self, spans: list[FakeSpan]) -> None:
        self._spans = spans

    def spans(self, shard: int, first: int, end: int) -> Iterator[FakeSpan]:
        del shard
        for span in self._spans:
            if span.end > first and span.start < end:
                yield span.cut(first, end)


def barrier(schema: pa.Schema) -> None:
    if "new" in schema.names:
        raise SchemaChanged("new")


sizes = st.just((0, 0)) | st.tuples(st.integers(1, 9), st.integers(1, 4))  # a bundle may lack the slot
bundles = st.builds(lambda size, wide: (*size, wide), sizes, st.sampled_from([False, False, False, True]))
layouts = st.lists(st.tuples(st.integers(0, 2), st.lists(bundles, min_size=1, max_size=5)), max_size=4)


@settings(max_examples=300)
@given(
    layouts,
    st.lists(st.tuples(st.integers(1, 20), st.none() | st.integers(1, 8)), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_walk_against_a_model(layout: list[Any], limits: list[tuple[int, int | None]], guarded: bool) -> None:
    """Step by step a walk goes exactly as far as a reader would who counts bundle by bundle; nothing is passed over.

    Before each span there may be a gap; a guarded walk stops before the first wide bundle.
    """
    spans, position = [], 0
    for gap, found in layout:
        spans.append(FakeSpan(position + gap, found))
        position += gap + len(found)
    durable = position
    offsets = {span.start + number: bundle for span in spans for number, bundle in enumerate(span._bundles)}
    walk = Walk(FakeTopic(spans), 0, 0)  # type: ignore[arg-type]
    stand = 0
    for size, rows in limits:
        limit = Amount(size, rows)
        walk.begin(stand)
        walk.look(durable, limit, barrier if guarded else None)
        end, taken = walk.admit(limit)

        stop = next((each for each in sorted(offsets) if each >= stand and guarded and offsets[each][2]), durable)
        ahead = [each for each in sorted(offsets) if stand <= each < stop]
        count, bytes_, rows_ = 0, 0, 0
        for each in ahead:
            more = bytes_ + offsets[each][0], rows_ + offsets[each][1]
            if count and (more[0] > size or (rows is not None and more[1] > rows)):
                break
            bytes_, rows_ = more
            count += 1
        full = [each for each in ahead[:count] if offsets[each][0]]
        assert end <= (ahead[count] if count < len(ahead) else stop), "nothing beyond what is admitted"
        assert end > max(full, default=stand - 1), "everything that is admitted"
        assert (taken.bytes, taken.rows) == (bytes_, rows_)
        if guarded and stop == stand and stop in offsets:
            assert isinstance(walk.stopped_by, SchemaChanged)
            return
        assert end > stand or stand == durable, "there is always a way on"
        stand = end


def test_what_was_seen_is_not_looked_at_again() -> None:
    """A query that asks every few milliseconds costs nothing while nothing is new."""
    topic = FakeTopic([FakeSpan(0, [(1, 1, False)] * 10)])
    asked: list[tuple[int, int]] = []
    spans = topic.spans

    def counted(shard: int, first: int, end: int) -> Iterator[FakeSpan]:
        asked.append((first, end))
        return spans(shard, first, end)

    topic.spans = counted  # type: ignore[method-assign]
    walk = Walk(topic, 0, 0)  # type: ignore[arg-type]
    walk.begin(0)
    for _ in range(3):
        walk.look(10, PLENTY, None)
    walk.begin(4)
    walk.look(10, PLENTY, None)

    assert asked == [(0, 10)]
    assert walk.pending == Amount(6, 6)
    assert walk.admit(PLENTY) == (10, Amount(6, 6))


def test_a_query_that_goes_back() -> None:
    """When Spark goes back, or jumps ahead, everything is found anew."""
    walk = Walk(FakeTopic([FakeSpan(0, [(1, 1, False)] * 10)]), 0, 0)  # type: ignore[arg-type]
    for start in (5, 2, 9, 0):
        walk.begin(start)
        walk.look(10, PLENTY, None)
        assert walk.pending == Amount(10 - start, 10 - start)


def test_a_barrier_that_fell() -> None:
    """What a wider query covers is no barrier any more."""
    walk = Walk(FakeTopic([FakeSpan(0, [(1, 1, False), (1, 1, True)])]), 0, 0)  # type: ignore[arg-type]
    walk.begin(1)
    walk.look(2, PLENTY, barrier)
    assert walk.stopped_by is not None
    walk.look(2, PLENTY, None)

    assert walk.stopped_by is None
    assert walk.admit(PLENTY)[0] == 2


# -- several shards, through the planner -------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two shards, ten bundles of two rows in each."""
    for shard in (0, 1):
        fill(tmp_path, [ids(number, number) for number in range(10)], shard=shard)
    return tmp_path


def goes(plan: Planner, start: dict[int, int], limit: Amount, **options: Any) -> dict[int, int]:
    return plan.latest(start, limit, options.pop("cap", None), patient=options.pop("patient", False))


def test_no_limit(two: Path) -> None:
    """A batch without bounds goes to the end of every shard."""
    assert goes(planner(two), {0: 0, 1: 3}, PLENTY) == {0: 10, 1: 10}


def test_shards_share_a_batch(two: Path) -> None:
    """Each shard has its share of the rows."""
    assert goes(planner(two), {0: 0, 1: 0}, Amount(10**9, 8)) == {0: 2, 1: 2}


def test_an_empty_shard_leaves_its_share(two: Path) -> None:
    """What a shard does not need, others may use."""
    assert goes(planner(two), {0: 10, 1: 0}, Amount(10**9, 8)) == {0: 10, 1: 4}


@pytest.mark.parametrize("limit", [Amount(1), Amount(10**9, 1), Amount(10**9, 2), Amount(10**9, 5)])
def test_every_shard_gets_its_turn(two: Path, limit: Amount) -> None:
    """However small the batches, no shard waits until another is drained."""
    plan, position = planner(two), {0: 0, 1: 0}
    for _ in range(4):
        position = goes(plan, position, limit)

    assert min(position.values()) >= 1


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 100])
def test_a_batch_is_over_by_less_than_a_bundle(two: Path, rows: int) -> None:
    """A limit is kept but for the last bundle, and one bundle always goes."""
    plan, position, steps = planner(two), {0: 0, 1: 0}, 0
    while position != {0: 10, 1: 10}:
        further = goes(plan, position, Amount(10**9, rows))
        taken = sum(2 * (further[shard] - position[shard]) for shard in (0, 1))
        assert 0 < taken < rows + 2
        position = further
        steps += 1
        assert steps <= 20


def test_a_limit_by_bytes(two: Path) -> None:
    """Bytes count as they are stored."""
    plan = planner(two)
    size = sum(int(span.sizes(0).sum()) for shard in (0, 1) for span in plan.topic.spans(shard, 0, 10))

    assert goes(plan, {0: 0, 1: 0}, Amount(size)) == {0: 10, 1: 10}
    assert goes(plan, {0: 0, 1: 0}, Amount(size // 2)) == {0: 5, 1: 5}


def test_a_cap(two: Path) -> None:
    """`availableNow` ends where it was at the beginning, and knows no shard that came later."""
    assert goes(planner(two), {0: 0, 1: 0}, PLENTY, cap={0: 4, 1: 10}) == {0: 4, 1: 10}
    assert goes(planner(two), {0: 0}, PLENTY, cap={0: 4}) == {0: 4}


def test_a_new_shard_begins_at_its_beginning(two: Path) -> None:
    """A shard that Spark has not heard of is read from its first bundle."""
    plan = planner(two)
    assert goes(plan, {0: 10, 1: 10}, PLENTY) == {0: 10, 1: 10}
    with hf.Store.open(two) as first, hf.Store.open(two) as second, hf.Store.open(two) as third:
        holders = [store.topic(TOPIC) for store in (first, second, third)]
        for number, topic in enumerate(holders):
            put(topic, ids(number))
    assert goes(plan, {0: 10, 1: 10}, PLENTY) == {0: 11, 1: 11, 2: 1}


def test_floors(two: Path) -> None:
    """What a sink holds already is passed over."""
    plan = planner(two, floor='{"0": 7}')

    assert goes(plan, {0: 0, 1: 0}, Amount(10**9, 4)) == {0: 8, 1: 1}


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_not_worth_it_yet(tmp_path: Path) -> None:
    """Less than the smallest batch waits, at most for the longest delay."""
    fill(tmp_path, [ids(1)])
    plan, clock = planner(tmp_path, minBytesPerTrigger="1MB", maxTriggerDelay="10s"), FakeClock()
    plan._clock = clock  # type: ignore[assignment]

    assert goes(plan, {0: 0}, PLENTY, patient=True) == {0: 0}
    clock.advance(9.0)
    assert goes(plan, {0: 0}, PLENTY, patient=True) == {0: 0}
    clock.advance(1.5)
    assert goes(plan, {0: 0}, PLENTY, patient=True) == {0: 1}


def test_waiting_begins_anew_after_each_batch(tmp_path: Path) -> None:
    """The delay counts from when the first bundle of a batch was seen."""
    fill(tmp_path, [ids(1), ids(2)])
    plan, clock = planner(tmp_path, minBytesPerTrigger="1MB", maxTriggerDelay="10s"), FakeClock()
    plan._clock = clock  # type: ignore[assignment]
    goes(plan, {0: 0}, PLENTY, patient=True)
    clock.advance(11.0)
    assert goes(plan, {0: 0}, PLENTY, patient=True) == {0: 2}
    assert goes(plan, {0: 2}, PLENTY, patient=True) == {0: 2}
    clock.advance(100.0)
    fill(tmp_path, [ids(3)])

    assert goes(plan, {0: 2}, PLENTY, patient=True) == {0: 2}


def test_enough_bytes_go_at_once(tmp_path: Path) -> None:
    """A batch that is large enough does not wait."""
    fill(tmp_path, [ids(*range(1000))])

    assert goes(planner(tmp_path, minBytesPerTrigger="4KB", maxTriggerDelay="10s"), {0: 0}, PLENTY, patient=True) == {
        0: 1
    }


def test_enough_rows_go_at_once(tmp_path: Path) -> None:
    """A batch that may not grow any further, by its rows, does not wait for bytes."""
    fill(tmp_path, [ids(number, number) for number in range(10)])
    plan = planner(tmp_path, minBytesPerTrigger="1GB", maxTriggerDelay="10s")

    assert goes(plan, {0: 0}, Amount(10**9, 4), patient=True) == {0: 2}


# -- barriers ----------------------------------------------------------------------------------------------------------


def narrow(path: Path) -> Planner:
    """A query that began before there was a second column."""
    fill(path, [ids(1), ids(2)])
    return planner(path)


def test_a_barrier_in_the_middle(tmp_path: Path) -> None:
    """What stands before the first bundle with a new column is read first; then the query ends, and says why."""
    plan = narrow(tmp_path)
    fill(tmp_path, [ids(3), ids(4, new=["x"]), ids(5)])

    assert goes(plan, {0: 0}, PLENTY) == {0: 3}
    with pytest.raises(SchemaChanged) as caught:
        goes(plan, {0: 3}, PLENTY)
    assert "prod/logs has what the query's schema does not: new string; start the query again" in str(caught.value)
    assert goes(planner(tmp_path), {0: 3}, PLENTY) == {0: 5}


def test_a_barrier_in_the_open_segment(tmp_path: Path) -> None:
    """A bundle that is in the log only is judged as well."""
    plan = narrow(tmp_path)
    with hf.Store.open(tmp_path) as store:
        put(store.topic(TOPIC), ids(3), ids(4, new=["x"]))

        assert goes(plan, {0: 1}, PLENTY) == {0: 3}
        with pytest.raises(SchemaChanged):
            goes(plan, {0: 3}, PLENTY)


def test_a_barrier_beyond_the_limit(tmp_path: Path) -> None:
    """A new column far ahead does not stop the query before its time."""
    plan = narrow(tmp_path)
    fill(tmp_path, [ids(number) for number in range(8)], [ids(9, new=["x"])])

    assert goes(plan, {0: 0}, Amount(10**9, 3)) == {0: 3}
    assert goes(plan, {0: 3}, Amount(10**9, 100)) == {0: 10}
    with pytest.raises(SchemaChanged):
        goes(plan, {0: 10}, PLENTY)


def test_a_column_that_is_not_asked_for(tmp_path: Path) -> None:
    """A query with columns of its own goes on when others appear."""
    fill(tmp_path, [ids(1)])
    plan = planner(tmp_path, columns="id")
    fill(tmp_path, [ids(2, new=["x"])])

    assert goes(plan, {0: 0}, PLENTY) == {0: 2}


def test_a_wider_type_is_a_barrier(tmp_path: Path) -> None:
    """A type that grows stops the query as a new column does."""
    fill(tmp_path, [pa.record_batch({"id": pa.array([1], pa.int32())})])
    plan = planner(tmp_path)
    fill(tmp_path, [ids(2**40)])

    assert goes(plan, {0: 0}, PLENTY) == {0: 1}
    with pytest.raises(SchemaChanged, match="does not: id int64;"):
        goes(plan, {0: 1}, PLENTY)


@pytest.mark.parametrize("wide", [0, 1])
def test_a_barrier_in_one_shard_while_another_is_busy(tmp_path: Path, wide: int) -> None:
    """A shard that stands at a barrier is not forgotten while another one always has more."""
    for shard in (0, 1):
        fill(tmp_path, [ids(1)], shard=shard)
    plan = planner(tmp_path)
    fill(tmp_path, [ids(2, new=["x"])], shard=wide)
    fill(tmp_path, [ids(3), ids(4)], shard=1 - wide)

    position = goes(plan, {0: 0, 1: 0}, PLENTY)
    assert position[wide] == 1
    fill(tmp_path, [ids(5)], shard=1 - wide)
    with pytest.raises(SchemaChanged):
        goes(plan, position, PLENTY)
