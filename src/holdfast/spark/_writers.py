"""Writing into a topic: tasks stage files, the driver adopts them.

A shard has one writer, so tasks never append. Each writes its rows to files under `<store>/.staging/`, synced, and the
driver's side appends what all tasks staged when Spark commits. A job that Spark gives up leaves no bundle behind; one
whose driver dies while it adopts may leave some of its bundles.

A streaming query may commit a batch again after a crash. Its bundles carry idempotency keys, made of the query's own
name (option `source`), the batch's number, the bundle's place in it, and its content. So a repeat is not stored twice
(within `idempotency.window`), and when Spark has lost its checkpoint and counts batches from 0 again, other rows under
an old number are stored. A pipeline's own `holdfast` sink counts in offsets instead.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.clock import SystemClock, SystemIds
from holdfast.errors import InvalidSettings, UnknownSlot
from holdfast.files import SystemFiles, replace_file
from holdfast.spark._options import Options
from holdfast.store import Receipt, Store, Topic

STAGING: Final = ".staging"
STALE_NS: Final = 7 * 86_400 * 10**9
BUNDLE_ROWS: Final = 65_536
BUNDLE_BYTES: Final = 16_000_000


@dataclass
class Staged(WriterCommitMessage):
    """What one task wrote: the paths of its files, each a bundle, in order."""

    paths: tuple[str, ...]


class _Writer:
    def __init__(self, options: Options, schema: StructType) -> None:
        self._target = to_arrow_schema(schema, timezone="UTC")  # whatever the session's time zone is
        self._options = options
        self._folder = str(Path(options.path).absolute() / STAGING)
        self._job = SystemIds().random_bytes(16).hex()
        with Store.open(options.path) as store:
            self._slot = _slot(store.topic(options.topic), options)
        self._tidy_old()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task."""
        files, ids = SystemFiles(), SystemIds()
        folder = Path(self._folder)
        files.make_folder(folder)
        task = ids.random_bytes(8).hex()  # an attempt of its own: only what Spark accepts is adopted
        paths = []
        for number, table in enumerate(_bundles(iterator)):
            path = folder / f"{self._job}-{task}-{number}.arrow"
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self._target) as stream:
                stream.write_table(table.cast(self._target))
            replace_file(files, path, [sink.getvalue()])
            paths.append(str(path))
        return Staged(tuple(paths))

    def _adopt(self, messages: list[WriterCommitMessage | None], key: str | None) -> None:
        """Append what was staged, in the order of the tasks; durable on return. Then the files may go."""
        options, files = self._options, SystemFiles()
        paths = _paths(messages)
        attributes = {} if options.source is None else {"source": options.source}
        with Store.open(options.path) as store:
            topic = store.topic(options.topic)
            receipts: list[Receipt] = []
            for number, path in enumerate(paths):
                data = files.read(Path(path))
                bundle = {self._slot: pa.ipc.open_stream(data).read_all()}
                its_key = None if key is None else _key(key, number, data)
                receipts.append(
                    topic.append(bundle, durability=options.durability, attributes=attributes, idempotency_key=its_key)
                )
            for receipt in receipts:
                receipt.wait()
        self._tidy(paths)

    def _tidy_old(self) -> None:
        """What a job left behind whose driver was killed; no job takes so long."""
        files, folder = SystemFiles(), Path(self._folder)
        oldest_ns = SystemClock().now_ns() - STALE_NS
        for name in files.list(folder) if files.exists(folder) else ():
            with contextlib.suppress(FileNotFoundError):  # another job is tidying too
                if files.modified_ns(folder / name) < oldest_ns:
                    files.unlink(folder / name)

    def _tidy(self, paths: Sequence[str]) -> None:
        """Whatever this job, and the job that staged `paths`, left here: a stream commits with another writer."""
        files, folder = SystemFiles(), Path(self._folder)
        jobs = {self._job, *(_job_of(Path(path).name) for path in paths)}
        for name in files.list(folder) if files.exists(folder) else ():
            if _job_of(name) in jobs:
                files.unlink(folder / name)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """One job's rows, appended when all tasks are done."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._adopt(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._tidy(_paths(messages))  # there may be files of other attempts too


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming query's rows, batch by batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.source is None:
            raise InvalidSettings(
                'a streaming query that writes to a topic needs a name of its own: .option("source", ...): '
                "by it a batch that is committed again is known"
            )
        super().__init__(options, schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        self._adopt(messages, f"{self._options.source}/{batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        del batchId
        self._tidy(_paths(messages))


def _paths(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [path for message in messages if isinstance(message, Staged) for path in message.paths]


def _job_of(name: str) -> str:
    return name.partition("-")[0]


def _bundles(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in bundles of a good size."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BUNDLE_ROWS or size >= BUNDLE_BYTES:
            yield pa.Table.from_batches(group).combine_chunks()
            group, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(group).combine_chunks()


def _key(batch: str, number: int, data: bytes) -> str:
    return hashlib.sha256(f"{batch}/{number}/".encode() + data).hexdigest()


def _slot(topic: Topic, options: Options) -> str:
    if options.slot is not None:
        return options.slot
    slots = list(topic.slots())
    if len(slots) != 1:
        what = f"the slots {', '.join(slots)}" if slots else "no slot yet"
        raise UnknownSlot(f'{topic.name} has {what}: choose one to write to with .option("slot", ...)')
    return slots[0]
