"""`df.write` and `df.writeStream` into a topic, on a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.spark._writers import STAGING
from spark.sessionkit import WAIT, frame, numbers, refused, stream
from spark.topickit import TOPIC, fill, given, ids, read_all


def staged(path: Path) -> list[Path]:
    return list((path / STAGING).iterdir()) if (path / STAGING).exists() else []


def test_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Each row is appended once, by several tasks; nothing stays behind; it can be read back."""
    path = tmp_path / "store"
    rows = spark.range(1000, numPartitions=3).selectExpr(
        "id", "cast(id as string) as word", "timestamp_millis(id) as at"
    )
    rows.write.format("holdfast").options(**given(path, slot="logs", source="job")).mode("append").save()

    assert numbers(frame(spark, path)) == list(range(1000))
    assert staged(path) == []
    found = read_all(path, metadata="_source", filter="id = 7")
    assert found["word"].to_pylist() == ["7"]
    assert found["at"].to_pylist()[0].timestamp() == 0.007
    assert found["_source"].to_pylist() == ["job"]


def test_a_job_that_fails(spark: SparkSession, tmp_path: Path) -> None:
    """A job of which one task fails leaves no bundle; a file may stay of a task that was still at it."""
    fill(tmp_path, [ids(0)])
    bad = spark.range(4, numPartitions=4).selectExpr("if(id < 3, id, raise_error('no such number')) as id")

    with pytest.raises(Exception, match="no such number"):
        bad.write.format("holdfast").options(**given(tmp_path)).mode("append").save()

    assert read_all(tmp_path)["id"].to_pylist() == [0]


def test_overwriting(spark: SparkSession, tmp_path: Path) -> None:
    """Refused, in a line."""
    fill(tmp_path, [ids(0)])

    with refused("InvalidSettings", 'a topic is appended to, never overwritten: .mode("append")'):
        spark.range(1).write.format("holdfast").options(**given(tmp_path)).mode("overwrite").save()


def test_a_stream_from_topic_to_topic(spark: SparkSession, tmp_path: Path) -> None:
    """What one topic has the other gets once, also when Spark commits a batch again."""
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, [ids(1), ids(2)], [ids(3)])
    target = {**given(path), "topic": "prod/copy", "slot": "logs", "source": "copy"}

    def copy() -> None:
        found = stream(spark, path, subscriber="copy", maxRowsPerTrigger=2)
        writer = found.writeStream.format("holdfast").options(**target)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(int(WAIT))
        finally:
            query.stop()

    copy()
    for name in ("1", ".1.crc"):  # as if Spark had died after the writer's commit, before its own
        (checkpoint / "commits" / name).unlink()
    fill(path, [ids(4)])
    copy()

    assert sorted(read_all(path, topic="prod/copy")["id"].to_pylist()) == [1, 2, 3, 4]
    assert staged(path) == []
    with hf.Store.open(path, read_only=True) as store:
        assert store.topics() == ["prod/copy", TOPIC]
