"""What a read hands to Spark: rows, columns, metadata, conditions. Without a session."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

import holdfast as hf
from holdfast.errors import Fenced, InvalidSettings, UnsupportedType
from holdfast.spark import DefaultSource
from holdfast.spark._options import Options
from holdfast.spark._readers import PushingReader, StreamReader
from spark.topickit import TOPIC, batch_reader, fill, given, ids, put, ranges, read, read_all, source, stream_reader


def numbers(table: pa.Table) -> list[int]:
    return table["id"].to_pylist()  # type: ignore[no-any-return]


def test_the_format_is_found_by_its_name() -> None:
    """Spark looks for a package `pyspark_holdfast` with a `DefaultSource`."""
    import pyspark_holdfast

    assert pyspark_holdfast.DefaultSource is DefaultSource
    assert DefaultSource.name() == "holdfast"


def test_every_tier_is_read(tmp_path: Path) -> None:
    """Segments, the open segment and the log of a writer at work, in order."""
    fill(tmp_path, [ids(1), ids(2)], [ids(3)])
    with hf.Store.open(tmp_path) as store:
        put(store.topic(TOPIC), ids(4), ids(5, 6))

        assert numbers(read_all(tmp_path)) == [1, 2, 3, 4, 5, 6]


def test_positions(tmp_path: Path) -> None:
    """A batch read may have a beginning and an end, for each shard."""
    fill(tmp_path, [ids(number) for number in range(10)])
    fill(tmp_path, [ids(number) for number in range(10, 20)], shard=1)

    found = read_all(tmp_path, startingOffset='{"0": 2}', endingOffset='{"0": 4, "1": 1}')
    assert numbers(found) == [2, 3, 10]
    assert numbers(read_all(tmp_path, startingOffset="latest")) == []
    assert len(read_all(tmp_path, endingOffset='{"0": 100}')) == 20


def test_columns(tmp_path: Path) -> None:
    """The columns asked for come in that order; what a bundle lacks is null."""
    fill(tmp_path, [ids(1), ids(2, a=["x"]), pa.record_batch({"b": [1.5]})])

    assert read_all(tmp_path).to_pydict() == {"id": [1, 2, None], "a": [None, "x", None], "b": [None, None, 1.5]}
    assert read_all(tmp_path, columns="b,id").to_pydict() == {"b": [None, None, 1.5], "id": [1, 2, None]}
    with pytest.raises(InvalidSettings) as caught:
        source(tmp_path, columns="id,nope").schema()
    assert str(caught.value) == "prod/logs (logs) has no column 'nope'; it has id, a, b"


def test_columns_left_out(tmp_path: Path) -> None:
    """Columns can be left out by name, known or not, whatever their types are; the others go on as ever."""
    fill(tmp_path, [ids(1, odd=["x"]), ids(2, odd=[5], more=[0.5])])
    with pytest.raises(UnsupportedType, match="column 'odd' of prod/logs"):
        source(tmp_path).schema()

    assert read_all(tmp_path, leaveOut="odd,nope").to_pydict() == {"id": [1, 2], "more": [None, 0.5]}
    assert read_all(tmp_path, leaveOut="odd", columns="more").to_pydict() == {"more": [None, 0.5]}


def test_a_column_left_out_is_no_reason_to_stop(tmp_path: Path) -> None:
    """A stream goes on when a column that it leaves out is new, or changes its type."""
    fill(tmp_path, [ids(1)])
    reader = stream_reader(tmp_path, leaveOut="odd")
    fill(tmp_path, [ids(2, odd=["x"]), ids(3, odd=[5])])
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert numbers(read(reader, reader.partitions(reader.initialOffset(), end))) == [1, 2, 3]


def test_no_columns(tmp_path: Path) -> None:
    """With no column at all the rows are still counted."""
    fill(tmp_path, [ids(1, 2)], [ids(3)])
    reader = batch_reader(tmp_path, columns="")

    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in found) == 3


def test_metadata(tmp_path: Path) -> None:
    """Shard, offset, time and source of each row, in their own order, after the columns."""
    before = datetime.now(UTC)
    fill(tmp_path, [ids(1, 2)], attributes={"source": "web"})
    fill(tmp_path, [ids(3)], shard=1)

    found = read_all(tmp_path, metadata="true")
    assert found.schema.names == ["id", "_shard", "_offset", "_ingestion_time", "_source"]
    assert found["_shard"].to_pylist() == [0, 0, 1]
    assert found["_offset"].to_pylist() == [0, 0, 0]
    assert found["_source"].to_pylist() == ["web", "web", None]
    times = found["_ingestion_time"].to_pylist()
    assert before.replace(microsecond=0) <= times[0] == times[1] <= times[2] <= datetime.now(UTC)
    assert found.schema.field("_shard").type == pa.int32()


def test_metadata_beside_columns(tmp_path: Path) -> None:
    """Metadata may be asked for among the columns, and alone."""
    fill(tmp_path, [ids(1), ids(2, a=["x"])])

    assert read_all(tmp_path, columns="_offset,id").to_pydict() == {"id": [1, 2], "_offset": [0, 1]}
    assert read_all(tmp_path, columns="_offset").to_pydict() == {"_offset": [0, 1]}
    assert read_all(tmp_path, columns="a", metadata="_offset").to_pydict() == {"a": [None, "x"], "_offset": [0, 1]}


def test_metadata_that_is_a_column_too(tmp_path: Path) -> None:
    """A topic's own column goes before; both cannot be had."""
    fill(tmp_path, [ids(1, _offset=[9])])

    assert read_all(tmp_path).to_pydict() == {"id": [1], "_offset": [9]}
    with pytest.raises(UnsupportedType, match="prod/logs has a column '_offset' of its own"):
        source(tmp_path, metadata="true").schema()


def test_the_types_that_are_promised(tmp_path: Path) -> None:
    """The schema says nullable for everything, and batches have exactly its types."""
    fill(tmp_path, [pa.record_batch({"a": pa.array([1], pa.uint8()), "t": pa.array([1], pa.timestamp("ns", "UTC"))})])
    made = source(tmp_path, metadata="true")

    struct = made.schema()
    assert all(field.nullable for field in struct)
    assert read_all(tmp_path, metadata="true").schema.equals(to_arrow_schema(struct, timezone="UTC"))


def test_sources(tmp_path: Path) -> None:
    """Only the bundles of the sources that are named, from any tier."""
    fill(tmp_path, [ids(1)], attributes={"source": "web"})
    fill(tmp_path, [ids(2)], attributes={"source": "db"})
    fill(tmp_path, [ids(3)])
    with hf.Store.open(tmp_path) as store:
        put(store.topic(TOPIC), ids(4), attributes={"source": "web"})

        assert numbers(read_all(tmp_path, sources="web")) == [1, 4]
        assert numbers(read_all(tmp_path, sources="web, db")) == [1, 2, 4]
        assert numbers(read_all(tmp_path, sources="nobody")) == []
        assert numbers(read_all(tmp_path)) == [1, 2, 3, 4]


def test_bundles_with_one_addressee(tmp_path: Path) -> None:
    """A bundle that was put back for one subscriber is read by its query alone."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        for name in ("lake", "other"):
            topic.register(name)
        put(topic, ids(1))
        bundle = next(topic.bundles())
        topic.redeliver(bundle, to=topic.registration("lake").number, key="k").wait()
        topic.seal()

        assert numbers(read_all(tmp_path)) == [1]
        assert numbers(read_all(tmp_path, subscriber="other")) == [1]
        assert numbers(read_all(tmp_path, subscriber="lake")) == [1, 1]


@pytest.mark.parametrize("sealed", [True, False])
def test_filters(tmp_path: Path, sealed: bool) -> None:
    """A filter leaves out rows, and streams by their statistics; both in segments and in the log."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        put(topic, ids(1, 2), ids(3, a=["x"]), ids(4, 5, a=["y", None]))
        if sealed:
            topic.seal()

        assert numbers(read_all(tmp_path, filter="id >= 2 and id < 5")) == [2, 3, 4]
        assert numbers(read_all(tmp_path, filter="a is null")) == [1, 2, 5]
        assert numbers(read_all(tmp_path, filter="a = 'y'")) == [4]
        assert numbers(read_all(tmp_path, filter="id > 100")) == []
        with pytest.raises(InvalidSettings, match="option filter names column 'b'; there are id, a"):
            batch_reader(tmp_path, filter="b = 1")


@pytest.mark.parametrize("sealed", [True, False])
def test_filters_on_metadata(tmp_path: Path, sealed: bool) -> None:
    """A condition on a metadata column is judged by rows: no statistics know of it."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        put(topic, ids(1), ids(2), ids(3), attributes={"source": "web"})
        if sealed:
            topic.seal()

        assert numbers(read_all(tmp_path, metadata="true", filter="_offset >= 1")) == [2, 3]
        assert numbers(read_all(tmp_path, metadata="true", filter="_shard = 0 and _source = 'web'")) == [1, 2, 3]
        assert numbers(read_all(tmp_path, metadata="true", filter="_source is null")) == []


def test_a_filter_skips_segments_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments whose statistics rule a condition out are not read."""
    fill(tmp_path, *([ids(*range(first, first + 10))] for first in (0, 100, 200)))
    decoded: list[int] = []
    from holdfast.spark import _read

    conform = _read.conform

    def counted(pieces: object, *rest: object) -> object:
        seen = list(pieces)  # type: ignore[call-overload]
        decoded.append(len(seen))
        return conform(seen, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(_read, "conform", counted)

    assert numbers(read_all(tmp_path, filter="id = 105")) == [105]
    assert decoded == [0, 1, 0]


def test_pushed_conditions_save_work_only(tmp_path: Path) -> None:
    """Asked for, Spark's own conditions are taken where they can be judged; Spark judges all of them again."""
    fill(tmp_path, [ids(1, 2, 3, a=["x", "xy", None])])
    made = source(tmp_path, metadata="_offset")
    reader = PushingReader(Options.of(given(tmp_path, metadata="_offset")), made.schema())
    pushed: list[spark.Filter] = [
        spark.GreaterThan(("id",), 1),
        spark.StringStartsWith(("a",), "x"),
        spark.IsNotNull(("a",)),
        spark.GreaterThanOrEqual(("_offset",), 0),
        spark.Not(spark.EqualTo(("id",), 2)),
        spark.EqualTo(("a", "deep"), 2),
        spark.StringContains(("a",), "z"),
        spark.EqualTo(("id",), "no number"),
        spark.EqualNullSafe(("id",), 2),
    ]

    assert list(reader.pushFilters(list(pushed))) == pushed
    assert numbers(read(reader, reader.partitions())) == [2]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_step_by_step(tmp_path: Path) -> None:
    """Offsets, ranges and acks as Spark asks for them."""
    fill(tmp_path, [ids(1), ids(2), ids(3)])
    reader = stream_reader(tmp_path, subscriber="lake", maxRowsPerTrigger=2)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())

    assert [offset["prod/logs/0"] for offset in (start, middle, end)] == [0, 2, 3]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert reader.reportLatestOffset() == end
    assert numbers(read(reader, reader.partitions(start, middle))) == [1, 2]
    reader.commit(middle)
    assert stream_reader(tmp_path, subscriber="lake").initialOffset() == middle
    reader.commit(start)
    reader.commit(middle)
    assert stream_reader(tmp_path, subscriber="lake").initialOffset() == middle


def test_limits_of_spark(tmp_path: Path) -> None:
    """Spark's own limit and the option's hold together."""
    fill(tmp_path, [ids(number) for number in range(10)])
    plain, bounded = stream_reader(tmp_path), stream_reader(tmp_path, maxRowsPerTrigger=3)
    start = plain.initialOffset()

    assert plain.latestOffset(start, ReadMaxRows(4))["prod/logs/0"] == 4
    assert bounded.latestOffset(start, ReadMaxRows(4))["prod/logs/0"] == 3
    assert bounded.latestOffset(start, ReadMaxRows(2))["prod/logs/0"] == 2
    assert plain.latestOffset(start, ReadMaxBytes(1))["prod/logs/0"] == 1
    assert plain.latestOffset(start, ReadAllAvailable())["prod/logs/0"] == 10


def test_available_now_ends(tmp_path: Path) -> None:
    """What is appended after `availableNow` began is for the next time."""
    fill(tmp_path, [ids(1)])
    reader = stream_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    fill(tmp_path, [ids(2)])

    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())["prod/logs/0"] == 1


def test_available_now_does_not_wait(tmp_path: Path) -> None:
    """A smallest batch is no reason to leave the rest unread."""
    fill(tmp_path, [ids(1)])
    reader = stream_reader(tmp_path, minBytesPerTrigger="1GB", maxTriggerDelay="1h")
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())["prod/logs/0"] == 0
    reader.prepareForTriggerAvailableNow()

    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())["prod/logs/0"] == 1


def test_a_reader_travels(tmp_path: Path) -> None:
    """A reader that planned already can be sent to tasks, and carries nothing that is open."""
    fill(tmp_path, [ids(1)])
    reader = stream_reader(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    parts = reader.partitions(reader.initialOffset(), end)

    sent = pickle.loads(pickle.dumps(reader))
    assert isinstance(sent, StreamReader)
    assert numbers(read(sent, pickle.loads(pickle.dumps(parts)))) == [1]
    assert ranges(sent.partitions(reader.initialOffset(), end)) == ranges(parts)


def test_a_runner_acks_itself(tmp_path: Path) -> None:
    """With an epoch a commit of Spark's acks nothing."""
    fill(tmp_path, [ids(1)])
    with hf.Store.open(tmp_path) as store:
        store.topic(TOPIC).register("lake")
    reader = stream_reader(tmp_path, subscriber="lake", epoch=1)
    reader.commit(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))

    assert reader._plan.topic.progress("lake", 0).watermark == 0


def test_without_a_subscriber_nothing_is_acked(tmp_path: Path) -> None:
    """A query without a subscriber leaves no trace."""
    fill(tmp_path, [ids(1)])
    reader = stream_reader(tmp_path)
    reader.commit(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))

    with hf.Store.open(tmp_path) as store:
        assert store.topic(TOPIC).subscribers() == {}


def test_a_subscriber_that_somebody_holds(tmp_path: Path) -> None:
    """A query does not ack for a subscriber whose deliveries are somebody else's."""
    fill(tmp_path, [ids(1)])
    reader = stream_reader(tmp_path, subscriber="lake")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    with (
        hf.Store.open(tmp_path) as store,
        store.topic(TOPIC).subscribe("lake"),
        pytest.raises(Fenced, match="is held by"),
    ):
        reader.commit(end)

    reader.commit(end)
    assert reader._plan.topic.progress("lake", 0).watermark == 1


def test_a_schema_of_the_user(tmp_path: Path) -> None:
    """With a schema of the user's own, columns come in its order; what no bundle has is null."""
    fill(tmp_path, [ids(1, a=["x"])])
    struct = StructType().add("a", "string").add("more", "double").add("id", "long")
    reader = source(tmp_path).reader(struct)

    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert pa.Table.from_batches(batches).to_pydict() == {"a": ["x"], "more": [None], "id": [1]}  # type: ignore[arg-type]
