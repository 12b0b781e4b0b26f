"""Parquet files written by the tasks of a Spark job, and the facts about them brought to the driver.

A task writes files under names of its own, syncs them and their folders, and only then says that they are there: so
whatever the driver hears of is durable. What failed and repeated attempts leave behind is heard of by nobody.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from holdfast.clock import Deadline
from holdfast.files import SystemFiles
from holdfast.sinks._folder_writer import FileFacts, FolderWriter
from holdfast.sinks._job import run_job
from holdfast.sinks._map_arrow import map_in_arrow
from holdfast.sinks._sink import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FACTS: Final = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("values", pa.string()), ("stats", pa.string())]
)
_FACTS_DDL: Final = "path string, size bigint, rows bigint, `values` string, stats string"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tasks of one batch do; plain values, since it is pickled.

    folder     where files go; with `layout` "plain", into folders below it for each partition
    prefix     what the names of its files begin with; differs for each batch and each attempt at it
    schema     an Arrow schema, serialized: all files have its columns, save those in `partition_by`
    """

    folder: str
    prefix: str
    schema: bytes
    partition_by: tuple[str, ...]
    target_file_size: int
    layout: Literal["flat", "plain"]


def write_files(frame: DataFrame, plan: Plan, ranges: Ranges, deadline: Deadline) -> list[FileFacts]:
    """Have the rows of `frame` written; few rows give one file, however many partitions they come in."""
    if ranges.bytes is not None:
        frame = frame.coalesce(max(1, math.ceil(ranges.bytes / plan.target_file_size)))
    facts = map_in_arrow(frame, partial(write_task, plan), _FACTS_DDL)
    rows = run_job(frame.sparkSession, deadline, plan.prefix, facts.collect)
    return [FileFacts(path, size, count, tuple(json.loads(values)), stats) for path, size, count, values, stats in rows]


def write_task(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task, in a worker process of Spark's."""
    from pyspark import TaskContext

    task = TaskContext.get()
    attempt = "0-0" if task is None else f"{task.partitionId()}-{task.taskAttemptId()}"
    writer = FolderWriter(
        SystemFiles(),
        plan.folder,
        f"{plan.prefix}-{attempt}",
        pa.ipc.read_schema(pa.py_buffer(plan.schema)),
        plan.partition_by,
        target_file_size=plan.target_file_size,
        plain_folders=plan.layout == "plain",
    )
    try:
        for batch in batches:
            writer.write(batch)
        files = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    if files:
        rows = [{**file._asdict(), "values": json.dumps(file.values)} for file in files]
        yield pa.RecordBatch.from_pylist(rows, schema=_FACTS)
