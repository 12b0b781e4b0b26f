"""From append to acknowledged, through a Delta sink with `low_latency`, beside a micro-batch that does nothing."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import holdfast as hf
from _harness import Spread, Target, end_progress, progress
from _report import Row, Section
from _spark_memory import EmptySource
from holdfast.clock import Deadline, SystemClock
from holdfast.pipeline.runner import Runner
from holdfast.pipeline.topology import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOPIC, _SLOT = "bench/latency", "rows"
_PIPELINE = """
store: {{path: {folder}/store}}
sources:
  bench: {{type: topic, topic: bench/latency, slot: rows}}
sinks:
  lake: {{type: delta, inputs: [bench], path: {folder}/lake, low_latency: true}}
"""
_EMPTY = 60  # micro-batches; the first half of them warms up
_WAIT_SECONDS = 300


def latency_section(spark: SparkSession, count: int, warm_seconds: float, folder: Path) -> Section:
    """One row every 10 ms, `count` appends timed; the time of an empty micro-batch is the unit."""
    empty = _empty_batches(spark, folder)
    progress("latency: a pipeline at 100 rows/s")
    found = _append_to_acked(spark, count, warm_seconds, folder)
    end_progress()
    unit = statistics.median(empty)
    return Section(
        f"from append to acknowledged: 100 rows/s, one Delta sink with low_latency, {count} appends",
        [
            Row(
                "append to acknowledged",
                {"median ms": statistics.median(found) * 1e3},
                Spread.of([value / unit for value in (statistics.median(found), *_quartiles(found))]),
                Target(4, at_most=True),
            ),
            Row("an empty micro-batch", {"median ms": unit * 1e3}),
        ],
        "acked / empty",
        ["The range of the ratio is from the first to the third quartile of the appends."],
    )


def _quartiles(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=4)
    return cuts[0], cuts[2]


def _empty_batches(spark: SparkSession, folder: Path) -> list[float]:
    """How long Spark takes for a batch of a Python source that has no rows, into a sink that does nothing."""
    progress("latency: empty micro-batches")
    spark.dataSource.register(EmptySource)
    done = threading.Event()
    seen: list[int] = []

    def nothing(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        seen.append(number)
        if len(seen) >= _EMPTY:
            done.set()

    frame = spark.readStream.format("bench_empty").load()
    query = frame.writeStream.foreachBatch(nothing).option("checkpointLocation", str(folder / "empty")).start()
    done.wait(_WAIT_SECONDS)
    durations = [each["durationMs"]["triggerExecution"] / 1e3 for each in query.recentProgress]
    query.stop()
    return durations[len(durations) // 2 :]


def _append_to_acked(spark: SparkSession, count: int, warm_seconds: float, folder: Path) -> list[float]:
    runner = Runner(load(_PIPELINE.format(folder=folder)), spark)
    runner.start()
    found: list[float] = []
    with hf.Store.open(folder / "store") as store:
        topic = store.topic(_TOPIC)
        sent: dict[int, float] = {}
        acked = 0
        start = time.perf_counter()
        number = 0
        while len(found) < count:
            now = time.perf_counter()
            if now >= start + number / 100:
                batch = pa.record_batch({"id": pa.array([number], pa.int64())})
                sent[topic.append({_SLOT: batch}).offset] = time.perf_counter()
                number += 1
            mark = topic.progress("lake", 0).watermark
            moment = time.perf_counter()
            found += [moment - sent[offset] for offset in range(acked, mark) if sent[offset] > start + warm_seconds]
            acked = max(acked, mark)
            time.sleep(0.002)
            if now - start > _WAIT_SECONDS:
                raise RuntimeError(f"{len(found)} of {count} appends were acknowledged in {_WAIT_SECONDS} s")
    runner.stop(Deadline(60, SystemClock()))
    return found
