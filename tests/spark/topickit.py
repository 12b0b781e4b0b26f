"""Topics for the data source to read, and the source itself without a Spark session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

import holdfast as hf
from holdfast.spark import DefaultSource
from holdfast.spark._conform import Piece
from holdfast.spark._options import Options
from holdfast.spark._plan import Planner, RangePartition
from holdfast.spark._readers import BatchReader, StreamReader
from holdfast.spark.types import struct_of

TOPIC = "prod/logs"
SLOT = "logs"


def ids(*numbers: int, **columns: Any) -> pa.RecordBatch:
    """Rows with these ids."""
    return pa.record_batch({"id": pa.array(numbers, pa.int64()), **columns})


def put(topic: hf.Topic, *batches: pa.RecordBatch, slot: str = SLOT, **options: Any) -> list[int]:
    """One bundle for each batch, durable; their offsets."""
    receipts = [topic.append({slot: batch}, **options) for batch in batches]
    for receipt in receipts:
        receipt.wait(timeout=60)
    return [receipt.offset for receipt in receipts]


def fill(path: Path, *segments: Iterable[pa.RecordBatch], shard: int | None = None, **options: Any) -> None:
    """A shard with these segments; nobody holds it afterwards."""
    with hf.Store.open(path) as store:
        topic = store.topic(TOPIC, shard=shard)
        for segment in segments:
            put(topic, *segment, **options)
            topic.seal()


def given(path: Path, **options: Any) -> dict[str, str]:
    return {"path": str(path), "topic": TOPIC, **{name: str(value) for name, value in options.items()}}


def source(path: Path, **options: Any) -> DefaultSource:
    return DefaultSource(given(path, **options))


def planner(path: Path, **options: Any) -> Planner:
    made = source(path, **options)
    return Planner(Options.of(given(path, **options)), made.schema())


def stream_reader(path: Path, **options: Any) -> StreamReader:
    made = source(path, **options)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, StreamReader)
    return reader


def batch_reader(path: Path, **options: Any) -> BatchReader:
    made = source(path, **options)
    reader = made.reader(made.schema())
    assert isinstance(reader, BatchReader)
    return reader


def piece(number: int, batch: pa.RecordBatch) -> Piece:
    return Piece(number, batch, batch.schema, batch.nbytes)


def target_of(schema: pa.Schema) -> pa.Schema:
    """The schema in the Arrow types that Spark asks for."""
    return to_arrow_schema(struct_of(schema, TOPIC), timezone="UTC")


def read(reader: BatchReader | StreamReader, partitions: Iterable[Any]) -> pa.Table:
    """What the tasks of these partitions hand to Spark; each batch has the schema that was promised."""
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema=reader._target)


def read_all(path: Path, **options: Any) -> pa.Table:
    reader = batch_reader(path, **options)
    return read(reader, reader.partitions())


def ranges(partitions: Iterable[Any]) -> list[tuple[int, int, int, int]]:
    """Shard, first, end and rows of each."""
    found = []
    for each in partitions:
        assert isinstance(each, RangePartition)
        found.append((each.shard, each.first, each.end, each.rows))
    return found
