"""Spark sources without a store: rows that each worker process keeps in memory, and a stream without any rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from _data import SCHEMA
from _spark_data import all_rows
from holdfast.spark.types import struct_of

_BATCH_ROWS = 32_768  # what the store's own source makes of bundles


class MemoryReader(DataSourceReader):
    """The rows of `_spark_data`, from the memory of whichever worker gets the task."""

    def __init__(self, rows: int, partitions: int) -> None:
        self._rows, self._partitions = rows, partitions

    def partitions(self) -> Sequence[InputPartition]:
        share = -(-self._rows // self._partitions)
        return [InputPartition((first, min(share, self._rows - first))) for first in range(0, self._rows, share)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, count = partition.value
        part = all_rows(self._rows).slice(first, count)
        for start in range(0, count, _BATCH_ROWS):
            yield part.slice(start, _BATCH_ROWS)


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench_memory"

    def schema(self) -> StructType:
        return struct_of(SCHEMA, "memory")

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return MemoryReader(int(self.options["rows"]), int(self.options["partitions"]))


class EmptyReader(DataSourceStreamReader):
    """There is always one more batch, and never a row in it."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        return {"n": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        del limit
        return {"n": start["n"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        del start, end
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return iter(())


class EmptySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench_empty"

    def schema(self) -> StructType:
        return struct_of(SCHEMA, "nothing")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        del schema
        return EmptyReader()
