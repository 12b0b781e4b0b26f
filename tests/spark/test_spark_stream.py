"""`spark.readStream.format("holdfast")` as a plain query: acks, restarts, lost checkpoints, new columns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import SchemaChanged
from holdfast.spark import acknowledge, cause_of
from spark.sessionkit import WAIT, Sink, refused, run, start, stream
from spark.topickit import TOPIC, fill, ids, put
from store.storekit import until


def watermark(path: Path, subscriber: str = "lake", shard: int = 0) -> int:
    with hf.Store.open(path, read_only=True) as store:
        return store.topic(TOPIC).progress(subscriber, shard).watermark


def newest(folder: Path) -> Path:
    """The file of the last batch in a log of a checkpoint."""
    return max((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))


def forget(checkpoint: Path, log: str, batch: int) -> None:
    """Take a batch out of a log of a checkpoint."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / log / name).unlink(missing_ok=True)


def test_batches_acks_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """A query reads in batches of the size asked for, acks each when it begins the next, and goes on after a restart.

    The last batch of a query is acked by the next one.
    """
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    fill(path, [ids(number) for number in range(5)])
    found = stream(spark, path, subscriber="lake", maxRowsPerTrigger=2)

    run(found, sink, checkpoint)
    assert sink.batches == [(0, [0, 1]), (1, [2, 3]), (2, [4])]
    assert watermark(path) == 4
    fill(path, [ids(5)])
    run(found, sink, checkpoint)

    assert sink.batches[3:] == [(3, [5])]
    assert watermark(path) == 5


def test_acks_by_a_listener(spark: SparkSession, tmp_path: Path) -> None:
    """With `acknowledge` every batch is acked once it is done, the last one too; other sources are left alone."""
    path, sink = tmp_path / "store", Sink()
    fill(path, [ids(1), ids(2)])
    fill(path, [ids(3)], shard=1)
    listener = acknowledge(spark)
    try:
        run(stream(spark, path, subscriber="lake", maxBytesPerTrigger=1), sink, tmp_path / "checkpoint")
        until(lambda: (watermark(path), watermark(path, shard=1)) == (2, 1), WAIT)
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        run(rate.withColumnRenamed("value", "id"), Sink(), tmp_path / "other")
    finally:
        spark.streams.removeListener(listener)

    assert sink.ids == [1, 2, 3]
    assert len(sink.batches) == 3


def test_a_lost_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """A query whose checkpoint is gone resumes at its subscriber's watermark: nothing is skipped.

    The batch that was not acked comes again.
    """
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    fill(path, [ids(number) for number in range(4)])
    found = stream(spark, path, subscriber="lake", maxRowsPerTrigger=2)
    run(found, sink, checkpoint)
    shutil.rmtree(checkpoint)
    fill(path, [ids(4)])
    again = Sink()
    run(found, again, checkpoint)

    assert sink.ids == [0, 1, 2, 3]
    assert again.batches == [(0, [2, 3]), (1, [4])]


def test_a_checkpoint_rolled_back(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint that lost its last batches has them read again, though they were acked; what is deleted is not."""
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    with hf.Store.open(path) as store:
        topic = store.topic(TOPIC)
        topic.register("slow")  # for it everything is kept until it is cut
        for number in range(4):
            put(topic, ids(number))
            topic.seal()
        found = stream(spark, path, subscriber="lake", maxRowsPerTrigger=1)
        run(found, sink, checkpoint)
        for batch in (1, 2, 3):
            forget(checkpoint, "commits", batch)
            forget(checkpoint, "offsets", batch)
        assert topic.progress("lake", 0).watermark == 3
        topic.truncate(2)
        run(found, sink, checkpoint)

    assert sink.batches[:4] == [(0, [0]), (1, [1]), (2, [2]), (3, [3])]
    assert sink.ids == [0, 1, 2, 2, 3, 3]


def test_a_batch_that_failed_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that the sink refused is not acked, and is the next query's first, with the same rows."""
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    fill(path, [ids(1), ids(2)])
    found = stream(spark, path, subscriber="lake", maxRowsPerTrigger=1)
    sink.fail_at = 1
    with pytest.raises(Exception, match="the sink is out of order"):
        run(found, sink, checkpoint)
    assert watermark(path) == 1
    fill(path, [ids(3)])
    sink.fail_at = None
    run(found, sink, checkpoint)

    assert sink.batches == [(0, [1]), (1, [2]), (2, [3])]


def test_a_checkpoint_with_an_empty_file(spark: SparkSession, tmp_path: Path) -> None:
    """Spark cannot go on with a file that a power cut emptied; without the checkpoint nothing is skipped."""
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    fill(path, [ids(1), ids(2)])
    found = stream(spark, path, subscriber="lake", maxRowsPerTrigger=1)
    run(found, sink, checkpoint)
    newest(checkpoint / "offsets").write_bytes(b"")
    for leftover in (checkpoint / "offsets").glob(".*.crc"):
        leftover.unlink()
    fill(path, [ids(3)])
    with pytest.raises(Exception, match=r"(?s).+"):
        run(found, Sink(), checkpoint)
    checkpoint.rename(tmp_path / "aside")
    again = Sink()
    run(found, again, checkpoint)

    assert again.ids == [2, 3]


def test_a_new_column(spark: SparkSession, tmp_path: Path) -> None:
    """What stands before the new column is read; then the query ends and names it; the next one has it."""
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    fill(path, [ids(1)])
    found = stream(spark, path, subscriber="lake")
    fill(path, [ids(2), ids(3, colour=["red"])])

    with refused("SchemaChanged", "does not: colour string; start the query again"):
        run(found, sink, checkpoint)
    assert sink.ids == [1, 2]
    run(stream(spark, path, subscriber="lake"), sink, checkpoint)

    assert sink.ids == [1, 2, 3]
    assert sink.rows[-1]["colour"] == "red"


def test_a_new_column_under_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    """A query at work meets a new column as soon as it is there, and a wider type; the cause can be told."""
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    fill(path, [ids(1)])
    query = start(stream(spark, path, subscriber="lake"), sink, checkpoint, processingTime="0 seconds")
    try:
        until(lambda: sink.ids == [1], WAIT)
        fill(path, [ids(2)])
        until(lambda: sink.ids == [1, 2], WAIT)
        fill(path, [ids(3, colour=["red"])], shard=1)
        until(lambda: not query.isActive, WAIT)
        problem = query.exception()
    finally:
        query.stop()

    assert problem is not None
    kind, text = cause_of(problem)
    assert kind is SchemaChanged
    assert "colour string" in text


def test_waiting_for_a_batch_worth_it(spark: SparkSession, tmp_path: Path) -> None:
    """A query that waits for bytes takes them in one batch when they are there."""
    path, sink = tmp_path / "store", Sink()
    fill(path, [ids(1)])
    found = stream(spark, path, subscriber="lake", minBytesPerTrigger="8KB", maxTriggerDelay="10m")
    query = start(found, sink, tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        fill(path, [ids(2)])
        fill(path, [ids(*range(3, 2000))])
        until(lambda: sink.ids, WAIT)
        until(lambda: len(sink.ids) == 1999, WAIT)
    finally:
        query.stop()

    assert [found for _, found in sink.batches if found] == [list(range(1, 2000))]


def test_two_slots(spark: SparkSession, tmp_path: Path) -> None:
    """Each slot is a stream of its own; bundles that lack it are passed over, and acked."""
    path = tmp_path / "store"
    with hf.Store.open(path) as store:
        topic = store.topic(TOPIC)
        topic.append({"logs": ids(1), "traces": ids(10)}).wait()
        put(topic, ids(11), slot="traces")
        put(topic, ids(2))
    logs, traces = Sink(), Sink()
    listener = acknowledge(spark)
    try:
        run(stream(spark, path, slot="logs", subscriber="a"), logs, tmp_path / "one")
        run(stream(spark, path, slot="traces", subscriber="b", metadata="_offset"), traces, tmp_path / "two")
        until(lambda: (watermark(path, "a"), watermark(path, "b")) == (3, 3), WAIT)
    finally:
        spark.streams.removeListener(listener)

    assert (logs.ids, traces.ids) == ([1, 2], [10, 11])
    assert [row["_offset"] for row in traces.rows] == [0, 1]


def test_a_store_that_is_another_one_now(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint of one store is not used on another that lies at its path."""
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, [ids(1), ids(2)])
    run(stream(spark, path), Sink(), checkpoint)
    path.rename(tmp_path / "away")
    fill(path, [ids(7), ids(8), ids(9)])

    with refused("NotAStore", str(path)):
        run(stream(spark, path), Sink(), checkpoint)


def test_data_that_nobody_kept(spark: SparkSession, tmp_path: Path) -> None:
    """A query without a subscriber that comes back too late says what it lost; told to go on, it does."""
    path, checkpoint, sink = tmp_path / "store", tmp_path / "checkpoint", Sink()
    with hf.Store.open(path) as store:
        topic = store.topic(TOPIC)
        put(topic, ids(1))
        run(stream(spark, path), sink, checkpoint)
        put(topic, ids(2))
        topic.seal()
        put(topic, ids(3))
        topic.truncate(2)

        with refused("DataLost", "prod/logs/0: offsets 1 to 1 are missing: they are gone"):
            run(stream(spark, path), sink, checkpoint)
        run(stream(spark, path, failOnDataLoss="false"), sink, checkpoint)

    assert sink.ids == [1, 3]
