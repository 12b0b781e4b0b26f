"""A Spark source without a store: it yields batches that each worker process made once and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from _data import SCHEMA, make_pool

_ROWS = 1_000  # of a bundle
_JOINED = 64  # bundles in a batch: what the store's own source makes of them


@cache
def _batches() -> list[pa.RecordBatch]:
    pool = make_pool(_ROWS)
    return pa.Table.from_batches(pool.batches[:_JOINED]).combine_chunks().to_batches()


class MemoryReader(DataSourceReader):
    def __init__(self, rows: int, partitions: int) -> None:
        self._rows, self._partitions = rows, partitions

    def partitions(self) -> Sequence[InputPartition]:
        share, rest = divmod(self._rows, self._partitions)
        return [InputPartition(share + (number < rest)) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = partition.value
        while left:
            for batch in _batches():
                part = batch.slice(0, left)
                left -= part.num_rows
                yield part
                if not left:
                    return


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench_memory"

    def schema(self) -> StructType:
        from holdfast.spark.types import struct_of

        return struct_of(SCHEMA, "memory")

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return MemoryReader(int(self.options["rows"]), int(self.options["partitions"]))
