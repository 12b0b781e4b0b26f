"""A folder of Parquet files that any reader can read, each row in it once.

    <path>/
      lake-1f0c33a9-prod.logs.0-1200-1500-0.parquet   subscriber, store, shard, first offset, end, number
      day=2024-05-01/lake-...parquet                  with `partition_by`
      _holdfast/lake.commit                           the record: position, and the files of the newest batch
      _staging/lake/...                               files on their way

One batch, where 3 to 5 happen under the lock `_holdfast/lake.lock`:

1. Read the record. The batch is there already: nothing more is done. A part of it is: `SinkMoved`.
2. Executors write files into the staging folder and sync them.    A crash leaves files that nobody reads; the next
                                       start removes them.
3. Make sure that the record is still the one of step 1, and that the files are still there.
4. Write the record, with the new position and what each staged file is to be called. It is synced and replaced whole:
                                       a crash before that leaves the old position and files as after step 2; after it
                                       the batch is delivered, and the next start goes on with step 5.
5. Rename the files, and sync their folders.    A crash leaves some of them renamed; the next start renames the others.

Readers see the files of a batch one by one, in step 5; readers that need all or nothing are better served by a Delta
table. A batch without rows changes nothing, so the position may lag: what is read again has no rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import Closed, SinkMoved, SinkRefused
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.sinks._folder_writer import FileFacts
from holdfast.sinks._local import explained, locked
from holdfast.sinks._partitions import hive_folder
from holdfast.sinks._schema import arrow_schema, check_partitions, merged_schema
from holdfast.sinks._settings import ParquetSettings
from holdfast.sinks._sink import Ranges, SinkIdentity, WriteResult, held
from holdfast.sinks._write_files import Plan, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS: Final = "_holdfast"
STAGING: Final = "_staging"
_NAME_LENGTH: Final = 200  # of a file, before its number; a batch of many shards is named by a hash


@dataclass(frozen=True)
class Record:
    """What the sink has, in `_holdfast/<subscriber>.commit`.

    positions       store id -> shard key -> end offset
    moves           staged name -> name below the sink's folder, of the newest batch
    schema          Arrow schema of all files so far, serialized, in hex; empty before the first
    """

    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    partition_by: tuple[str, ...] = ()

    @classmethod
    def read(cls, files: Files, path: Path) -> Record:
        """The record at `path`; an empty one if there is none."""
        try:
            document = read_checkpoint(files, path)
        except FileNotFoundError:
            return cls()
        partition_by = tuple(document["partition_by"])
        return cls(document["positions"], document["moves"], document["schema"], partition_by)

    def write(self, files: Files, path: Path) -> None:
        write_checkpoint(files, path, asdict(self))

    def position(self, store_id: str) -> dict[str, int]:
        return dict(sorted(self.positions.get(store_id, {}).items()))


class ParquetSink:
    """Made by the runner, for one sink of a pipeline."""

    exactly_once = True

    def __init__(self, settings: ParquetSettings, files: Files, clock: Clock, ids: Ids) -> None:
        del clock  # names and positions are all that it keeps
        self._settings, self._files, self._ids = settings, files, ids
        self._path = Path(settings.path).absolute()
        self._name = f"the Parquet folder {self._path}"
        self._identity: SinkIdentity | None = None

    # -- Sink -----------------------------------------------------------------------------------------------------

    def open(self, spark: SparkSession, identity: SinkIdentity) -> None:  # noqa: ARG002 (a frame knows its session)
        self._identity = identity
        with explained(self._name):
            if self._files.exists(self._path) and not self._files.is_folder(self._path):
                raise SinkRefused(f"{self._path} is a file; this sink needs a folder")
            self._files.make_folder(self._path)
            present = self._files.list(self._path)
            if present and RECORDS not in present:
                raise SinkRefused(
                    f"{self._path} holds other things ({', '.join(present[:3])}) and no {RECORDS}: "
                    "choose an empty or a new folder"
                )
            self._files.make_folder(self._path / RECORDS)
            self._files.make_folder(self._staging)
            self._check(Record.read(self._files, self._record_path))

    def position(self) -> dict[str, int]:
        identity = self._opened()
        with self._commits():
            record = Record.read(self._files, self._record_path)
            # Whoever wrote it may have been killed, or refused by the disk, before its name was durable; what is told
            # from it must be.
            if record != Record():
                record.write(self._files, self._record_path)
            self._settle(record)
            return record.position(identity.store_id)

    def write(self, frame: DataFrame, ranges: Ranges, deadline: Deadline) -> WriteResult:
        """Deliver a batch, by the steps of the module's docstring."""
        self._opened()
        with explained(self._name):
            record = Record.read(self._files, self._record_path)
        self._check(record)
        if held(record.position(ranges.store_id), ranges, self._name):
            self.position()  # somebody else may have written it, and may have been killed half way
            return WriteResult(0, 0, repeated=True)
        schema = arrow_schema(frame.schema, self._name)
        if record.schema:
            known = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(record.schema)))
            schema = merged_schema(known, schema, self._name)
        check_partitions(schema, self._settings.partition_by, self._name)
        plan = Plan(
            folder=str(self._staging),
            prefix=self._ids.random_bytes(8).hex(),
            schema=schema.serialize().to_pybytes(),
            partition_by=self._settings.partition_by,
            target_file_size=self._settings.target_file_size,
            layout="flat",
        )
        staged = write_files(frame, plan, ranges, deadline)
        if staged:
            self._commit(record, staged, schema, ranges)
        return WriteResult(sum(file.rows for file in staged), len(staged))

    def close(self) -> None:
        self._identity = None

    # -- the folder -----------------------------------------------------------------------------------------------

    def _commit(self, before: Record, staged: list[FileFacts], schema: pa.Schema, ranges: Ranges) -> None:
        """Steps 3 to 5."""
        after = replace(
            before,
            positions={**before.positions, ranges.store_id: {**before.position(ranges.store_id), **ranges.ends}},
            moves=dict(zip([file.path for file in staged], self._final_names(staged, ranges), strict=True)),
            schema=schema.serialize().to_pybytes().hex(),
            partition_by=self._settings.partition_by,
        )
        with self._commits():
            moved = Record.read(self._files, self._record_path) != before
            if moved or not all(self._files.exists(self._staging / file.path) for file in staged):
                raise SinkMoved(f"{self._name} was written to by somebody else meanwhile; nothing was written")
            after.write(self._files, self._record_path)
            self._settle(after)

    def _settle(self, record: Record) -> None:
        """Step 5, as far as it is not done; then nothing in the staging folder is of use."""
        folders = set()
        for staged, final in record.moves.items():
            target = self._path / final
            if self._files.exists(self._staging / staged):
                self._files.make_folder(target.parent)
                self._files.rename(self._staging / staged, target)
            # One that was renamed before may not be durable under its new name.
            if self._files.is_folder(target.parent):
                folders.add(target.parent)
        try:
            for folder in sorted(folders):
                self._files.sync_folder(folder)
        except OSError:  # a name whose sync failed may never be durable: the next attempt makes it anew
            for staged, final in record.moves.items():
                with suppress(OSError):
                    self._files.rename(self._path / final, self._staging / staged)
            raise
        self._files.sync_folder(self._staging)
        for name in self._files.list(self._staging):
            with suppress(FileNotFoundError):
                self._files.unlink(self._staging / name)

    def _final_names(self, staged: list[FileFacts], ranges: Ranges) -> Iterator[str]:
        parts = [f"{key.replace('/', '.')}-{first}-{end}" for key, (first, end) in sorted(ranges.ranges.items())]
        stem = "-".join([ranges.subscriber, ranges.store_id[:8], *parts])
        if len(stem) > _NAME_LENGTH:
            stem = f"{ranges.subscriber}-{ranges.store_id[:8]}-{blake2b(stem.encode(), digest_size=16).hexdigest()}"
        for number, file in enumerate(staged):
            below = self._folder_of(file)
            yield f"{below}/{stem}-{number}.parquet" if below else f"{stem}-{number}.parquet"

    def _folder_of(self, file: FileFacts) -> str:
        try:
            return hive_folder(self._settings.partition_by, file.values)
        except ValueError as problem:
            raise SinkRefused(f"{self._name}: {problem}") from problem

    def _check(self, record: Record) -> None:
        if record.schema and record.partition_by != self._settings.partition_by:
            raise SinkRefused(
                f"{self._name} is partitioned by {', '.join(record.partition_by) or 'nothing'}, and this sink by "
                f"{', '.join(self._settings.partition_by) or 'nothing'}; set partition_by to what is there, or choose "
                "a new path"
            )

    def _opened(self) -> SinkIdentity:
        if self._identity is None:
            raise Closed(f"the sink of {self._name} is not open; open it")
        return self._identity

    @property
    def _record_path(self) -> Path:
        return self._path / RECORDS / f"{self._opened().subscriber}.commit"

    @property
    def _staging(self) -> Path:
        return self._path / STAGING / self._opened().subscriber

    @contextmanager
    def _commits(self) -> Iterator[None]:
        lock = self._path / RECORDS / f"{self._opened().subscriber}.lock"
        with explained(self._name), locked(self._files, lock, self._name):
            yield
