"""Queries for tests: reads, streams whose rows are kept batch by batch, and what a user sees of an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark.topickit import given

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
WAIT = 120.0  # seconds, for what must happen


def frame(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("holdfast").options(**given(path, **options)).load()


def stream(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("holdfast").options(**given(path, **options)).load()


def numbers(found: DataFrame) -> list[int]:
    """Ids, in the order of ids."""
    return sorted(row["id"] for row in found.collect())


class Sink:
    """Keeps each batch it is given: its number and its ids. `fail_at` is a batch that it does not take."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.rows: list[Any] = []
        self.fail_at: int | None = None

    def __call__(self, found: DataFrame, number: int) -> None:
        rows = found.collect()
        if number == self.fail_at:
            raise RuntimeError("the sink is out of order")
        self.batches.append((number, sorted(row["id"] for row in rows)))
        self.rows += rows

    @property
    def ids(self) -> list[int]:
        return sorted(number for _, found in self.batches for number in found)


def start(found: DataFrame, sink: Sink, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = found.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger or {"availableNow": True}).start()


def run(found: DataFrame, sink: Sink, checkpoint: Path) -> None:
    """What is there now, batch by batch."""
    query = start(found, sink, checkpoint)
    try:
        assert query.awaitTermination(int(WAIT)), "the query did not end"
    finally:
        query.stop()


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before or "")


@contextmanager
def refused(kind: str, text: str) -> Iterator[None]:
    """What is inside fails, and the user sees our line and none of Java's frames."""
    with pytest.raises(PySparkException) as caught:
        yield
    seen = str(caught.value)
    assert f"holdfast.errors.{kind}: " in seen, seen
    assert text in seen, seen
    assert "at org.apache" not in seen, seen
