"""`spark.read.format("holdfast")`, on a session."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  its usual name

import holdfast as hf
from spark.sessionkit import PUSHDOWN, frame, numbers, refused, setting
from spark.topickit import TOPIC, fill, ids, put


def test_everything_that_was_appended(spark: SparkSession, tmp_path: Path) -> None:
    """Two writers at work, each with its shard: segments, open segments and logs are all read, each row once."""
    with hf.Store.open(tmp_path) as one, hf.Store.open(tmp_path) as two:
        for number, store in enumerate((one, two)):
            topic = store.topic(TOPIC)
            put(topic, *(ids(100 * number + each) for each in range(5)), attributes={"source": f"s{number}"})
            topic.seal()
            put(topic, ids(100 * number + 50, new=["late"]))

        found = frame(spark, tmp_path, metadata="true", partitionBytes=1)
        rows = {row["id"]: row for row in found.collect()}

    assert sorted(rows) == [0, 1, 2, 3, 4, 50, 100, 101, 102, 103, 104, 150]
    assert found.columns == ["id", "new", "_shard", "_offset", "_ingestion_time", "_source"]
    assert {row["_shard"] for row in rows.values()} == {0, 1}
    assert (rows[150]["new"], rows[150]["_offset"], rows[150]["_source"]) == ("late", 5, None)
    assert (rows[3]["new"], rows[3]["_offset"], rows[3]["_source"]) == (None, 3, "s0")
    assert rows[3]["_shard"] != rows[103]["_shard"]


def test_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Shards are partitions; a large one is several."""
    fill(tmp_path, [ids(1)], [ids(2)])
    fill(tmp_path, [ids(3)], shard=1)

    assert frame(spark, tmp_path).rdd.getNumPartitions() == 2
    assert frame(spark, tmp_path, partitionBytes=1).rdd.getNumPartitions() == 3


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_conditions(spark: SparkSession, tmp_path: Path, pushdown: str) -> None:
    """With or without pushdown, on columns and metadata, a query has the rows that satisfy its conditions."""
    fill(tmp_path, *([ids(*range(first, first + 10), a=[str(first)] * 10)] for first in (0, 100, 200)))
    fill(tmp_path, [ids(300, 301)])
    with setting(spark, PUSHDOWN, pushdown):

        def asked(condition: str) -> list[int]:
            return numbers(frame(spark, tmp_path, metadata="_offset", pushdown=pushdown).where(condition))

        assert asked("id >= 205 and id < 301") == [205, 206, 207, 208, 209, 300]
        assert asked("a is null") == [300, 301]
        assert asked("a like '1%' and id in (3, 103, 203)") == [103]
        assert asked("_offset = 3 or id = 5") == [5, 300, 301]
        assert asked("_offset >= 3") == [300, 301]
        assert asked("id > 1000") == []
        assert numbers(frame(spark, tmp_path, filter="id >= 209").where("id <> 300")) == [209, 301]


def test_one_frame_asked_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Unless pushdown is asked for, one question has no effect on another about the same frame.

    Spark keeps a reader with the conditions that were pushed into it, and uses it for later questions too.
    """
    fill(tmp_path, [ids(1, 2, 3)])
    with setting(spark, PUSHDOWN, "true"):
        found = frame(spark, tmp_path)

        assert found.where("id > 2").count() == 1
        assert found.count() == 3
        assert found.where("id > 2").union(found.where("id = 1 or id = 2")).count() == 3


def test_conditions_on_odd_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """Pushdown keeps what Spark's own order of numbers keeps: NaN above all, both zeros one."""
    nan = float("nan")
    fill(tmp_path, [ids(*range(5), x=[0.0, -0.0, nan, 1.5, None])])
    with setting(spark, PUSHDOWN, "true"):
        for pushdown in ("true", "false"):

            def asked(condition: str, pushdown: str = pushdown) -> list[int]:
                return numbers(frame(spark, tmp_path, pushdown=pushdown).where(condition))

            assert asked("x in (0.0D, 7.0D, 8.0D)") == [0, 1]
            assert asked("x > 1.0D") == [2, 3]
            assert asked("x <= 0.0D") == [0, 1]


def test_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Columns by option, by select, and none at all."""
    fill(tmp_path, [ids(1, 2, a=["x", "y"], b=[0.5, 1.5])])

    assert frame(spark, tmp_path, columns="b,id").columns == ["b", "id"]
    assert [tuple(row) for row in frame(spark, tmp_path, columns="b").collect()] == [(0.5,), (1.5,)]
    assert frame(spark, tmp_path).select("a").distinct().count() == 2
    assert frame(spark, tmp_path).count() == 2
    assert frame(spark, tmp_path, columns="").count() == 2


def test_types(spark: SparkSession, tmp_path: Path) -> None:
    """Values of types that Spark lacks arrive as the table of types promises."""
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "id": pa.array([1], pa.uint8()),
            "large": pa.array([2**64 - 1], pa.uint64()),
            "word": pa.array(["x"], pa.dictionary(pa.int8(), pa.string())),
            "words": pa.array([["a", None]], pa.list_view(pa.string())),
            "day": pa.array([86_400_000], pa.date64()),
            "noon": pa.array([43_200], pa.time32("s")),
            "at": pa.array([moment], pa.timestamp("ns", "Europe/Berlin")),
            "facts": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint16())),
            "deep": pa.array([{"f": 0.5}], pa.struct([("f", pa.float16())])),
            "nothing": pa.nulls(1),
            "took": pa.array([1_500_000], pa.duration("us")),
        }
    )
    fill(tmp_path, [batch])

    (row,) = frame(spark, tmp_path).select("*", F.unix_timestamp("at").alias("seconds")).collect()
    assert (row["id"], row["large"], row["word"], row["words"]) == (1, Decimal(2**64 - 1), "x", ["a", None])
    assert (row["day"].isoformat(), row["noon"], row["seconds"]) == ("1970-01-02", 43_200 * 10**9, moment.timestamp())
    assert (row["facts"], row["deep"]["f"], row["nothing"]) == ({"k": 1}, 0.5, None)
    assert row["took"].total_seconds() == 1.5


def test_slots(spark: SparkSession, tmp_path: Path) -> None:
    """Each slot has rows and columns of its own."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        topic.append({"logs": ids(1, 2), "traces": pa.record_batch({"span": ["s"]})}).wait()
        put(topic, ids(3))

    assert numbers(frame(spark, tmp_path, slot="logs")) == [1, 2, 3]
    assert [row["span"] for row in frame(spark, tmp_path, slot="traces").collect()] == ["s"]


def test_positions(spark: SparkSession, tmp_path: Path) -> None:
    """A batch read between two positions."""
    fill(tmp_path, [ids(number) for number in range(6)])

    assert numbers(frame(spark, tmp_path, startingOffset="2", endingOffset='{"0": 4}')) == [2, 3]


# -- errors as the user sees them --------------------------------------------------------------------------------------


def test_a_path_without_a_store(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is there, and nothing is made there."""
    with refused("NotAStore", str(tmp_path / "nowhere")):
        frame(spark, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_mistakes(spark: SparkSession, tmp_path: Path) -> None:
    """Each mistake is told in a line, before any job runs."""
    fill(tmp_path, [ids(1)])

    with refused("UnknownTopic", "prod/nope"):
        frame(spark, tmp_path, topic="prod/nope")
    with refused("UnknownSlot", "nope"):
        frame(spark, tmp_path, slot="nope")
    with refused("InvalidSettings", "holdfast has no option 'collumns'; did you mean columns?"):
        frame(spark, tmp_path, collumns="id")
    with refused("InvalidSettings", "prod/logs (logs) has no column 'nope'; it has id"):
        frame(spark, tmp_path, columns="nope")
    with refused("InvalidSettings", "option filter names column 'nope'; there are id"):
        frame(spark, tmp_path, filter="nope = 1").collect()
    with refused("InvalidPosition", "offset 9 of shard 0 of prod/logs: it ends at 1"):
        frame(spark, tmp_path, startingOffset="9").collect()


def test_a_type_that_spark_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """Column and type are named, and a way out that works."""
    kind = pa.dense_union([pa.field("a", pa.int8())])
    union = pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1], pa.int8())], ["a"]
    )
    fill(tmp_path, [ids(1, odd=union.cast(kind) if union.type != kind else union)])

    with refused("UnsupportedType", "column 'odd' of prod/logs (logs) is of the Arrow type dense_union<a: int8=0>"):
        frame(spark, tmp_path)
    assert numbers(frame(spark, tmp_path, leaveOut="odd")) == [1]


def test_data_that_was_deleted_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """A plan that is older than a deletion fails when it is run; it does not come out short."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        put(topic, ids(1))
        topic.seal()
        put(topic, ids(2))
        found = frame(spark, tmp_path, startingOffset="0")
        topic.truncate(1)

        with refused("DataLost", "offsets 0 to 0 are missing"):
            found.collect()
