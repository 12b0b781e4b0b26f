"""Batch reads: a store, Parquet files and batches in memory, all of the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from _data import Pool
from _filling import SLOT, fill_store
from _harness import Run, Spread, Target, end_progress, interleaved, per_round_ratios, progress
from _ours import TOPIC
from _report import Row, Section
from _spark_data import pool_of
from _spark_memory import MemorySource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMN = "value"
_PARQUET_ROWS = 400_000  # of a file: about what a segment holds
ROWS_PER_S = "rows/s"


class Read:
    """A contender: a frame that is read to its end, and thrown away."""

    footprint = 0.0

    def __init__(self, name: str, rows: int, frame: Callable[[], DataFrame]) -> None:
        self.name, self._rows, self._frame = name, rows, frame

    def open(self, folder: Path) -> None: ...

    def run(self, count: int) -> Run:
        start = time.perf_counter()
        for _ in range(count):
            self._frame().write.format("noop").mode("overwrite").save()
        return Run(count * self._rows / (time.perf_counter() - start))

    def close(self) -> None: ...


def store_frame(spark: SparkSession, folder: Path, columns: str | None = None) -> DataFrame:
    reader = spark.read.format("holdfast").option("path", str(folder)).option("topic", TOPIC).option("slot", SLOT)
    return (reader if columns is None else reader.option("columns", columns)).load()


def fill_parquet(folder: Path, pool: Pool, count: int) -> None:
    """The same rows in the same order, in files of the size of segments; Snappy, as Spark writes them."""
    folder.mkdir()
    per_file = max(1, _PARQUET_ROWS // pool.rows)
    for first in range(0, count, per_file):
        batches = [pool.batch(number) for number in range(first, min(count, first + per_file))]
        pq.write_table(pa.Table.from_batches(batches), folder / f"{first:012}.parquet", compression="snappy")


def compare(ours: Read, theirs: Read, rounds: int, target: Target, *, warm: int = 2) -> tuple[Spread, list[Row]]:
    """Both warm, then round by round; the ratio of ours to theirs, and the lines of a report."""

    def measure(contender: Read) -> Run:
        return contender.run(1)

    for _ in range(warm):
        for contender in (ours, theirs):
            progress(f"warming up: {contender.name}")
            measure(contender)
    runs = interleaved([ours, theirs], rounds, measure)
    rates = {name: [run.per_s for run in each] for name, each in runs.items()}
    ratio = Spread.of(per_round_ratios(rates[ours.name], rates[theirs.name]))

    def figures(name: str) -> dict[str, float]:
        return {ROWS_PER_S: Spread.of(rates[name]).median}

    return ratio, [Row(ours.name, figures(ours.name), ratio, target), Row(theirs.name, figures(theirs.name))]


def reading_section(spark: SparkSession, rows: int, rounds: int, folder: Path) -> Section:
    pool = pool_of(1_000, rows)
    count = rows // pool.rows
    progress("reading: filling a store and Parquet files")
    fill_store(folder / "store", pool, count)
    fill_parquet(folder / "parquet", pool, count)
    parquet = str(folder / "parquet")
    lines: list[Row] = []
    for title, columns, target in (("five columns", None, Target(1.0)), ("one column", COLUMN, Target(1.1))):
        ours = Read(f"store: {title}", rows, lambda columns=columns: store_frame(spark, folder / "store", columns))
        theirs = Read(
            f"Parquet: {title}",
            rows,
            lambda columns=columns: spark.read.parquet(parquet).select(columns or "*"),
        )
        lines += compare(ours, theirs, rounds, target)[1]
    end_progress()
    return Section(_title("read", rows, pool.rows, rounds), lines, "store / Parquet")


def small_section(spark: SparkSession, rows: int, rounds: int, folder: Path) -> Section:
    pool = pool_of(100, rows)
    count = rows // pool.rows
    progress("small bundles: filling a store and Parquet files")
    fill_store(folder / "store", pool, count)
    fill_parquet(folder / "parquet", pool, count)
    ours = Read("store: five columns", rows, lambda: store_frame(spark, folder / "store"))
    theirs = Read("Parquet: five columns", rows, lambda: spark.read.parquet(str(folder / "parquet")))
    _, lines = compare(ours, theirs, rounds, Target(0.7))
    end_progress()
    return Section(_title("read", rows, pool.rows, rounds), lines, "store / Parquet")


def durability_section(spark: SparkSession, rows: int, rounds: int, folder: Path) -> Section:
    """The same query over the store and over a source that yields the same batches from memory."""
    pool = pool_of(1_000, rows)
    count = rows // pool.rows
    progress("price of durability: filling a store")
    fill_store(folder / "store", pool, count)
    spark.dataSource.register(MemorySource)
    partitions = store_frame(spark, folder / "store").rdd.getNumPartitions()

    def queried(frame: DataFrame) -> DataFrame:
        return frame.where("severity <> 'DEBUG'").selectExpr("ts", "upper(body) as body", "value * 2 as value", "trace")

    memory = spark.read.format("bench_memory").option("rows", rows).option("partitions", partitions)
    ours = Read("store", rows, lambda: queried(store_frame(spark, folder / "store")))
    theirs = Read("memory", rows, lambda: queried(memory.load()))
    _, lines = compare(ours, theirs, rounds, Target(0.95))
    end_progress()
    return Section(
        _title("price of durability: one query", rows, pool.rows, rounds),
        lines,
        "store / memory",
        [f"Both in {partitions} tasks; memory yields batches as large as the store's source makes them."],
    )


def _title(what: str, rows: int, bundle_rows: int, rounds: int) -> str:
    return f"{what}: {rows:,} rows in bundles of {bundle_rows:,}, medians of {rounds} interleaved rounds"
