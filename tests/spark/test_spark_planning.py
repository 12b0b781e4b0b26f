"""Which tasks read a batch, and what is said when a part of it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import DataLost, InvalidPosition, InvalidSettings, NotAStore, SchemaChanged, UnknownSubscriber
from holdfast.spark._plan import Planner, RangePartition
from spark.topickit import TOPIC, batch_reader, fill, ids, planner, put, ranges, read, read_all, stream_reader
from store.storekit import until


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[hf.Topic]:
    """Three segments of two bundles, and a bundle in the log; somebody holds it."""
    with hf.Store.open(tmp_path) as store:
        opened = store.topic(TOPIC)
        for first in (0, 2, 4):
            put(opened, ids(first, first), ids(first + 1))
            opened.seal()
        put(opened, ids(6))
        yield opened


@pytest.fixture
def path(topic: hf.Topic, tmp_path: Path) -> Path:
    assert topic.positions() == {0: (0, 7)}
    return tmp_path


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_small_ranges_are_one_task(path: Path) -> None:
    """What fits one task is one, across segments and the log."""
    assert ranges(planner(path).partitions({0: 0}, {0: 7})) == [(0, 0, 7, 10)]


def test_large_ranges_are_cut_where_segments_meet(path: Path) -> None:
    """A range that is too large for a task is split at segment borders; each part knows its rows."""
    found = ranges(planner(path, partitionBytes=1).partitions({0: 1}, {0: 7}))

    assert found == [(0, 1, 2, 1), (0, 2, 4, 3), (0, 4, 6, 3), (0, 6, 7, 1)]


def test_every_shard_is_a_task_of_its_own(path: Path) -> None:
    """Shards are never read by one task together."""
    fill(path, [ids(7, 8)], shard=1)

    assert ranges(planner(path).partitions({0: 5, 1: 0}, {0: 7, 1: 1})) == [(0, 5, 7, 2), (1, 0, 1, 2)]


@pytest.mark.parametrize(("start", "end"), [({0: 7}, {0: 7}), ({0: 9}, {0: 7}), ({0: 0}, {})])
def test_empty_ranges_have_no_task(path: Path, start: dict[int, int], end: dict[int, int]) -> None:
    """Nothing to read means nothing to do."""
    assert planner(path).partitions(start, end) == []


def test_bundles_without_the_slot_have_no_task(path: Path, topic: hf.Topic) -> None:
    """A range in which no bundle has the slot is read by nobody."""
    put(topic, ids(1), slot="traces")

    assert ranges(planner(path, slot="logs").partitions({0: 7}, {0: 8})) == []
    assert ranges(planner(path, slot="traces").partitions({0: 0}, {0: 8})) == [(0, 0, 8, 1)]


def test_a_floor_cuts_what_a_sink_holds(path: Path) -> None:
    """Below the floor nothing is planned, whatever Spark thinks."""
    assert ranges(planner(path, floor='{"0": 5}').partitions({0: 1}, {0: 7})) == [(0, 5, 7, 2)]


def test_a_shard_that_is_new_to_the_batch(path: Path, topic: hf.Topic) -> None:
    """A shard that only the end knows of is read from its beginning, or from what its subscriber has not finished."""
    assert ranges(planner(path).partitions({}, {0: 7})) == [(0, 0, 7, 10)]
    topic.register("lake")
    topic.acknowledge("lake", {0: (0, 3)})
    assert ranges(planner(path, subscriber="lake").partitions({}, {0: 7})) == [(0, 3, 7, 5)]


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_gone_and_acked_is_empty(path: Path, topic: hf.Topic) -> None:
    """A range that the subscriber finished, and that is gone, is planned as empty; the rest is read."""
    topic.register("lake")
    topic.acknowledge("lake", {0: (0, 4)})
    topic.truncate(4)

    plan = planner(path, subscriber="lake")
    assert plan.partitions({0: 0}, {0: 4}) == []
    assert ranges(plan.partitions({0: 1}, {0: 7})) == [(0, 1, 7, 4)]


def test_gone_and_dropped_is_empty(path: Path, topic: hf.Topic) -> None:
    """What retention took from the subscriber is on record as dropped, and finished by that."""
    topic.register("lake")
    topic.truncate(2)

    assert ranges(planner(path, subscriber="lake").partitions({0: 0}, {0: 7})) == [(0, 0, 7, 7)]


def test_gone_without_a_subscriber_is_loss(path: Path, topic: hf.Topic) -> None:
    """Nobody kept it for this query: it fails, and says what would have helped."""
    plan = planner(path)
    topic.truncate(4)

    with pytest.raises(DataLost) as caught:
        plan.partitions({0: 1}, {0: 7})
    assert str(caught.value) == (
        "prod/logs/0: offsets 1 to 3 are missing: they are gone, and this query has not finished them; "
        "a subscriber would keep them (option subscriber); failOnDataLoss=false goes on"
    )


def test_a_batch_read_takes_what_is_there(path: Path, topic: hf.Topic) -> None:
    """What everyone finished and retention took, from the middle too, is not missed; by its offset it is."""
    topic.register("lake")
    topic.acknowledge("lake", {0: (2, 4)})
    until(lambda: not list(topic.spans(0, 2, 4)))

    assert read_all(path)["id"].to_pylist() == [0, 0, 1, 4, 4, 5, 6]
    with pytest.raises(DataLost, match="offsets 2 to 3 are missing"):
        batch_reader(path, startingOffset=1).partitions()


def test_all_of_it_gone(path: Path, topic: hf.Topic) -> None:
    """A range of which nothing is left is loss as well."""
    plan = planner(path)
    topic.truncate(4)

    with pytest.raises(DataLost, match="offsets 0 to 2 are missing"):
        plan.partitions({0: 0}, {0: 3})


def test_a_stateful_query_never_goes_without(path: Path, topic: hf.Topic) -> None:
    """A stateful query needs what it replays, acked or not."""
    topic.register("lake")
    topic.acknowledge("lake", {0: (0, 4)})
    topic.truncate(4)

    with pytest.raises(DataLost, match="offsets 0 to 3 are missing"):
        planner(path, subscriber="lake", stateful="true").partitions({0: 0}, {0: 7})


def test_loss_that_is_accepted(path: Path, topic: hf.Topic) -> None:
    """With failOnDataLoss=false what is left is read."""
    topic.truncate(4)
    plan = planner(path, failOnDataLoss="false")

    assert ranges(plan.partitions({0: 0}, {0: 7})) == [(0, 0, 7, 4)]


def gaps(plan: Planner, lost: list[tuple[int, int]], unfinished: list[tuple[int, int]] | None) -> None:
    """Judge the gap from 0 to 10: these offsets never held anything, and these the subscriber has not finished."""

    class Told:
        name = TOPIC

        def lost(self, shard: int) -> list[tuple[int, int]]:
            del shard
            return lost

        def progress(self, name: str, shard: int) -> Any:
            del name, shard

            class Progress:
                def unfinished(self, first: int, end: int) -> list[tuple[int, int]]:
                    return [(max(first, a), min(end, b)) for a, b in unfinished or [] if a < end and b > first]

            return Progress()

    plan.topic = Told()  # type: ignore[assignment]
    plan._expect_finished(0, 0, 10)


@pytest.mark.parametrize(
    ("lost", "unfinished"),
    [
        ([(0, 10)], None),
        ([(5, 10), (0, 5)], None),
        ([(0, 12)], None),
        ([], []),
        ([(2, 4)], [(2, 4)]),
        ([(2, 3), (7, 10)], [(2, 3), (8, 10)]),
    ],
)
def test_gaps_that_are_no_loss(path: Path, lost: list[Any], unfinished: list[Any] | None) -> None:
    """Offsets that never held anything, or that are finished, are missed by nobody."""
    options = {} if unfinished is None else {"subscriber": "lake"}

    gaps(planner(path, **options), lost, unfinished)


@pytest.mark.parametrize(
    ("lost", "unfinished", "first", "last"),
    [
        ([], None, 0, 9),
        ([(0, 5)], None, 5, 9),
        ([(0, 5), (6, 10)], None, 5, 9),
        ([(3, 5)], None, 0, 9),
        ([], [(4, 6)], 4, 5),
        ([(0, 5)], [(4, 6)], 5, 5),
    ],
)
def test_gaps_that_are_loss(path: Path, lost: list[Any], unfinished: list[Any] | None, first: int, last: int) -> None:
    """Anything else that is missing is loss; the first offset of it is named."""
    options = {} if unfinished is None else {"subscriber": "lake"}

    with pytest.raises(DataLost, match=f"offsets {first} to {last} are missing"):
        gaps(planner(path, **options), lost, unfinished)


# -- where a query begins ----------------------------------------------------------------------------------------------


def test_a_subscriber_is_registered_by_its_first_query(path: Path, topic: hf.Topic) -> None:
    """From its first look on, the data of a query's subscriber is kept; it begins where it was told."""
    assert planner(path, subscriber="lake", startingOffset="3").initial() == {0: 3}
    assert topic.subscribers()["lake"].shards[0].watermark == 3
    assert planner(path, subscriber="lake", startingOffset="earliest").initial() == {0: 3}


def test_latest_for_a_subscriber_is_when_it_was_registered(path: Path, topic: hf.Topic) -> None:
    """Asked again, also after a restart, it says the same."""
    assert planner(path, subscriber="lake", startingOffset="latest").initial() == {0: 7}
    put(topic, ids(7))

    assert planner(path, subscriber="lake", startingOffset="latest").initial() == {0: 7}


def test_latest_needs_a_subscriber_in_a_stream(path: Path) -> None:
    """Without one nobody remembers when a query began: replaying its first batch would skip what came since."""
    with pytest.raises(InvalidSettings, match=r"startingOffset.*subscriber"):
        stream_reader(path, startingOffset="latest").initialOffset()


def test_a_query_of_a_runner_registers_nobody(path: Path) -> None:
    """The runner holds the subscriber; where it is none that is a mistake."""
    with pytest.raises(UnknownSubscriber):
        planner(path, subscriber="lake", epoch=1).initial()


def test_a_query_of_a_runner_begins_at_the_furthest(path: Path, topic: hf.Topic) -> None:
    """It begins at the watermark or at the sink's position, whichever is further."""
    topic.register("lake")
    topic.acknowledge("lake", {0: (0, 3)})

    assert planner(path, subscriber="lake", epoch=1, floor='{"0": 5}').initial() == {0: 5}
    assert planner(path, subscriber="lake", epoch=1, floor='{"0": 2}').initial() == {0: 3}


def test_positions_that_do_not_fit(path: Path) -> None:
    """A shard that is not there, or an offset beyond the end, is refused."""
    with pytest.raises(InvalidPosition) as shard:
        batch_reader(path, startingOffset='{"3": 1}').partitions()
    with pytest.raises(InvalidPosition) as offset:
        batch_reader(path, startingOffset="8").partitions()

    assert str(shard.value) == "prod/logs has no shard 3; it has [0]"
    assert str(offset.value) == "offset 8 of shard 0 of prod/logs: it ends at 7"


def test_a_plain_offset_where_there_are_several_shards(path: Path) -> None:
    """A number alone cannot say where to begin in each shard, and is not guessed at."""
    fill(path, [ids(7)], shard=1)

    with pytest.raises(InvalidPosition):
        batch_reader(path, startingOffset="1").partitions()


def test_offsets_of_another_store(tmp_path: Path) -> None:
    """A checkpoint that was written for another store is not taken for this one's: data would be skipped."""
    old, new = tmp_path / "old", tmp_path / "new"
    fill(old, [ids(number) for number in range(5)])
    fill(new, [ids(number) for number in range(8)])
    reader = stream_reader(old)
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    old.rename(tmp_path / "away")
    new.rename(old)

    again = stream_reader(old)
    with pytest.raises(NotAStore):
        again.latestOffset(offset, again.getDefaultReadLimit())


def test_offsets_beyond_the_end(path: Path) -> None:
    """A query that stands beyond what there is has lost something, and says so instead of waiting."""
    reader = stream_reader(path)
    offset = {**reader.initialOffset(), "prod/logs/0": 20}

    with pytest.raises(DataLost):
        reader.latestOffset(offset, reader.getDefaultReadLimit())


# -- tasks read what was planned ---------------------------------------------------------------------------------------


def test_a_task_that_finds_less_than_planned(path: Path) -> None:
    """If a part of the range is not there when it is read the task fails."""
    reader = batch_reader(path)
    (part,) = reader.partitions()
    assert isinstance(part, RangePartition)
    part.rows += 1

    with pytest.raises(
        DataLost, match=r"prod/logs/0 at .*: offsets 0 to 6 are missing: 11 rows were planned, 10 are there"
    ):
        read(reader, [part])


def test_a_task_that_finds_another_store(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An executor that sees another folder under the path must not read it."""
    other = tmp_path_factory.mktemp("other")
    fill(other, [ids(1)])
    (part,) = batch_reader(path).partitions()

    with pytest.raises(NotAStore, match=r"but the query began with .*: every process of a query must see the same"):
        read(batch_reader(other), [part])


def test_a_task_that_finds_nothing(path: Path, tmp_path: Path) -> None:
    """An executor without the folder fails: nothing there is not the same as nothing left."""
    reader = batch_reader(path)
    (part,) = reader.partitions()
    reader._options = type(reader._options)(path=str(tmp_path / "nowhere"), topic=TOPIC)

    with pytest.raises(NotAStore):
        read(reader, [part])


def test_a_task_that_finds_more_columns(path: Path, topic: hf.Topic) -> None:
    """A batch read that began before a column was new does not cut it silently."""
    reader = batch_reader(path)
    put(topic, ids(7, new=["x"]))

    with pytest.raises(SchemaChanged, match="does not: new string;"):
        read(reader, reader.partitions())


def test_an_integer_beside_decimals(tmp_path: Path) -> None:
    """Integers that share a column with decimals are read, though Spark's own integers would need more digits."""
    columns = [pa.array([1], pa.uint16()), pa.array([Decimal(1)], pa.decimal32(9, 2))]
    fill(tmp_path, [pa.record_batch({"c": column}) for column in columns])

    assert [str(value) for value in read_all(tmp_path)["c"].to_pylist()] == ["1.00", "1.00"]
