"""Into a Delta table: from a store, and from Parquet files of the same rows, through the same sink."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from _filling import fill_store
from _harness import Run, Target, end_progress, progress
from _report import Row, Section
from _spark_data import pool_of
from _spark_reading import Read, compare, fill_parquet, store_frame
from holdfast.clock import Deadline, SystemClock, SystemIds
from holdfast.files import SystemFiles
from holdfast.sinks import DeltaSettings, DeltaSink, Ranges, SinkIdentity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BYTES = 84  # of a row


class Write(Read):
    """A contender: a frame that is written to a new table."""

    def __init__(self, name: str, rows: int, frame: Callable[[], DataFrame], spark: SparkSession, folder: Path) -> None:
        super().__init__(name, rows, frame)
        self._spark, self._folder, self._number = spark, folder, 0

    def run(self, count: int) -> Run:
        del count
        self._number += 1
        path = self._folder / f"{self.name.split()[0]}-{self._number}"
        settings = DeltaSettings(type="delta", inputs=("bench",), path=path)
        sink = DeltaSink(settings, SystemFiles(), SystemClock(), SystemIds())
        sink.open(self._spark, SinkIdentity("bench", "bench", self._folder / "state"))
        what = Ranges("bench", "bench", {"bench/rows/0": (0, 1)}, self._rows, self._rows * _BYTES)
        start = time.perf_counter()
        result = sink.write(self._frame(), what, Deadline(600, SystemClock()))
        seconds = time.perf_counter() - start
        sink.close()
        if result.rows != self._rows:
            raise RuntimeError(f"{self.name}: {result.rows} rows were written, {self._rows} were there")
        return Run(self._rows / seconds)


def delta_section(spark: SparkSession, rows: int, rounds: int, folder: Path) -> Section:
    pool = pool_of(1_000, rows)
    count = rows // pool.rows
    progress("to Delta: filling a store and Parquet files")
    fill_store(folder / "store", pool, count)
    fill_parquet(folder / "parquet", pool, count)
    tables = folder / "tables"
    tables.mkdir()
    ours = Write("store to Delta", rows, lambda: store_frame(spark, folder / "store"), spark, tables)
    theirs = Write("Parquet to Delta", rows, lambda: spark.read.parquet(str(folder / "parquet")), spark, tables)
    lines: list[Row] = compare(ours, theirs, rounds, Target(0.9), warm=1)[1]
    end_progress()
    return Section(f"to Delta: {rows:,} rows, medians of {rounds} interleaved rounds", lines, "store / Parquet")
