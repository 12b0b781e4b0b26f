"""Arrow files written by the tasks of a Spark job, for the driver to take over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from holdfast.clock import Deadline
from holdfast.files import Files, SystemFiles
from holdfast.sinks._folder_writer import FileStream
from holdfast.sinks._job import run_job
from holdfast.sinks._map_arrow import map_in_arrow
from holdfast.sinks._schema import conformed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FACTS: Final = pa.schema([("number", pa.int32()), ("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
_FACTS_DDL: Final = "number int, path string, rows bigint, bytes bigint"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What the tasks do; plain values, since it is pickled. `schema` is an Arrow schema, serialized."""

    folder: str
    prefix: str
    schema: bytes


class Staged(NamedTuple):
    """A durable Arrow IPC file with the rows of one partition; `bytes` is what they take in memory."""

    number: int
    path: str
    rows: int
    bytes: int


def stage(frame: DataFrame, plan: StagePlan, deadline: Deadline) -> list[Staged]:
    """Have the rows of `frame` staged: a file for each partition that has any, in the order of the partitions."""
    facts = map_in_arrow(frame, partial(stage_task, plan), _FACTS_DDL)
    rows = run_job(frame.sparkSession, deadline, plan.prefix, facts.collect)
    return sorted(Staged(*row) for row in rows)


def stage_task(plan: StagePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task, in a worker process of Spark's."""
    from pyspark import TaskContext

    task = TaskContext.get()
    number, attempt = (0, 0) if task is None else (task.partitionId(), task.taskAttemptId())
    files, name = SystemFiles(), f"{plan.prefix}-{number}-{attempt}.arrow"
    schema = pa.ipc.read_schema(pa.py_buffer(plan.schema))
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    file = files.create(Path(plan.folder, name))
    try:
        stream = FileStream(file)
        rows = size = 0
        with pa.ipc.new_file(stream, schema) as writer:
            for batch in _with(first, filled):
                whole = conformed(batch, schema)
                writer.write_batch(whole)
                rows, size = rows + whole.num_rows, size + whole.nbytes
        stream.flush()
        file.sync()
    finally:
        file.close()
    files.sync_folder(Path(plan.folder))
    yield pa.RecordBatch.from_pylist([Staged(number, name, rows, size)._asdict()], schema=_FACTS)


def _with(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def read_staged(files: Files, paths: list[Path]) -> pa.Table:
    """All rows of staged files, in their order."""
    return pa.concat_tables([pa.ipc.open_file(pa.BufferReader(files.map(path))).read_all() for path in paths])
