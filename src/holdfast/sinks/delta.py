"""A Delta table: executors write its files, the driver commits them in one transaction.

The table's own log holds the position: a transaction version for each shard, with the end offset as its number, under
the name `<store id>/<subscriber>/<shard key>`. One batch:

1. If the rows have columns that the table lacks, add those.       A crash leaves a wider table, with nulls in old rows.
2. Take the table's snapshot, and from it the position of each shard. All there already: nothing more is done. A part
   of it there: `SinkMoved`.
3. Executors write files into the table's folder and sync them.    A crash leaves files (`part-<subscriber>-...`) that
                                       no log entry names; readers do not see them, and Delta's vacuum removes them.
4. Commit files and positions, on the snapshot of step 2.          A crash from here on: the next start finds the batch
                                       in the table, unless the power failed too, which may undo it as a whole.
5. Sync the log entry and its folder.  From here on it is durable.

What makes it exact: the log lets only one commit be the next version, and a commit on an older snapshot goes through
only if none of the commits since then carries one of its transaction names. So of two writers in a subscriber's name
one fails with `SinkMoved`, whatever their clocks say, while writers of other names go on beside it. `position` syncs
what it finds before it tells of it.

A batch without rows is not committed (except for the first, which makes the table), so that a sink with a filter does
not fill the log with empty entries: its position then lags, and what is read again has no rows again.

The log gets a checkpoint after every 100 entries, written aside, synced, and then put in place; older entries are
removed after the table's retention (`delta.logRetentionDuration`, 30 days), as Delta does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import structlog

from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import Closed, HoldfastError, Missing, SinkFailed, SinkMoved, SinkRefused
from holdfast.files import Files
from holdfast.sinks._delta_log import LOG, DeltaLog
from holdfast.sinks._folder_writer import FileFacts
from holdfast.sinks._schema import arrow_schema, check_partitions, merged_schema
from holdfast.sinks._settings import DeltaSettings
from holdfast.sinks._sink import Ranges, SinkIdentity, WriteResult, held
from holdfast.sinks._write_files import Plan, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OURS: Final = re.compile(r"[0-9a-f]+/[^/]+/[^/]+/[^/]+/\d+")  # a transaction name of any sink of any store
_log = structlog.get_logger("holdfast.sinks.delta")
# What a table may ask of its writers and gets from this one. Constraints, generated columns and the like it does not.
_FEATURES: Final = frozenset({"appendOnly", "timestampNtz", "invariants", "v2Checkpoint", "vacuumProtocolCheck"})


class DeltaSink:
    """Made by the runner, for one sink of a pipeline."""

    exactly_once = True

    def __init__(self, settings: DeltaSettings, files: Files, clock: Clock, ids: Ids) -> None:
        self._settings, self._files, self._clock, self._ids = settings, files, clock, ids
        self._path = Path(settings.path).absolute()
        self._name = f"the Delta table {self._path}"
        self._log = DeltaLog(files, self._path)
        self._identity: SinkIdentity | None = None
        self._table: Any = None  # a deltalake.DeltaTable, or None as long as there is none

    # -- Sink -----------------------------------------------------------------------------------------------------

    def open(self, spark: SparkSession, identity: SinkIdentity) -> None:  # noqa: ARG002 (a frame knows its session)
        _require()
        self._identity = identity
        with self._explained():
            if self._files.exists(self._path) and not self._files.is_folder(self._path):
                raise SinkRefused(f"{self._path} is a file; a Delta table is a folder")
            if not self._log.exists():
                self._files.make_folder(self._path)
                present = self._files.list(self._path)
                if present:
                    raise SinkRefused(
                        f"{self._path} holds other things ({', '.join(present[:3])}) and no {LOG}: not a Delta table; "
                        "choose an empty or a new folder"
                    )
            self._log.create()
        self._recover()

    def position(self) -> dict[str, int]:
        identity = self._opened()
        self._recover()
        if self._table is None:
            return {}
        prefix = f"{identity.store_id}/{identity.subscriber}/"
        with self._explained():
            applications = sorted(self._log.applications())
            return self._ends({name.removeprefix(prefix): name for name in applications if name.startswith(prefix)})

    def write(self, frame: DataFrame, ranges: Ranges, deadline: Deadline) -> WriteResult:
        """Deliver a batch, by the steps of the module's docstring."""
        self._opened()
        with self._explained():
            self._load()
            batch = arrow_schema(frame.schema, self._name)
            schema = batch if self._table is None else self._widened(batch)
            check_partitions(schema, self._settings.partition_by, self._name)
            names = {key: f"{ranges.store_id}/{ranges.subscriber}/{key}" for key in ranges.ranges}
            if held(self._ends(names), ranges, self._name):
                self._log.sync(self._table.version())
                return WriteResult(0, 0, repeated=True)
        plan = Plan(
            folder=str(self._path),
            prefix=f"part-{ranges.subscriber}-{self._ids.random_bytes(8).hex()}",
            schema=schema.serialize().to_pybytes(),
            partition_by=self._settings.partition_by,
            target_file_size=self._settings.target_file_size,
            layout="plain",
        )
        files = write_files(frame, plan, ranges, deadline)
        rows = sum(file.rows for file in files)
        if rows or self._table is None:
            with self._explained():
                self._commit(files, schema, [(names[key], end) for key, end in ranges.ends.items()])
                self._log.sync(self._table.version())
            self._upkeep()
        return WriteResult(rows, len(files))

    def close(self) -> None:
        self._identity = self._table = None

    # -- the table ------------------------------------------------------------------------------------------------

    def _opened(self) -> SinkIdentity:
        if self._identity is None:
            raise Closed(f"the sink of {self._name} is not open; open it")
        return self._identity

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the library and of the disk as those that a sink raises; the snapshot is taken anew afterwards."""
        from deltalake.exceptions import CommitFailedError, DeltaProtocolError, SchemaMismatchError

        try:
            yield
        except HoldfastError:
            raise
        except Exception as problem:  # some of the library's are of no class of their own
            self._table = None
            text = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
            if isinstance(problem, CommitFailedError):
                raise SinkMoved(f"{self._name} was written to by somebody else meanwhile: {text}") from problem
            if isinstance(problem, SchemaMismatchError | DeltaProtocolError):
                raise SinkRefused(f"{self._name} does not take this: {text}") from problem
            raise SinkFailed(f"{self._name}: {text}") from problem

    def _recover(self) -> None:
        """Be sure of what is there: whoever wrote it may have been killed before it was durable."""
        with self._explained():
            for path in self._log.set_torn_aside():
                _log.warning("a torn log entry was set aside", table=str(self._path), file=str(path))
            self._load()
            if self._table is not None:
                self._log.sync(self._table.version())

    def _load(self) -> None:
        """Take the newest snapshot; raises `SinkRefused` for a table that is not fit."""
        from deltalake import DeltaTable

        if self._table is not None:
            self._table.update_incremental()
        elif self._log.versions():
            self._table = DeltaTable(str(self._path))
        if self._table is not None:
            self._check(self._table)

    def _ends(self, names: Mapping[str, str]) -> dict[str, int]:
        """The end offsets that the snapshot has, by shard key; `names` are the transaction names by shard key."""
        if self._table is None:
            return {}
        found = {key: self._table.transaction_version(name) for key, name in names.items()}
        return {key: int(end) for key, end in found.items() if end is not None}

    def _check(self, table: Any) -> None:
        asked = table.protocol()
        features = {*(asked.writer_features or ()), *(asked.reader_features or ())}
        configuration = table.metadata().configuration
        unknown = sorted(features - _FEATURES) + [key for key in configuration if key.startswith("delta.constraints.")]
        if asked.min_writer_version > 2 and not features:
            unknown.append(f"writer version {asked.min_writer_version}")
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            unknown.append("column mapping")
        for field in table.schema().fields:
            unknown += [f"{key} of {field.name}" for key in field.metadata if key.startswith("delta.")]
        if unknown:
            raise SinkRefused(
                f"{self._name} asks its writers for {_listed(unknown)}, which this sink does not do; choose a new path"
            )
        partitions = tuple(table.metadata().partition_columns)
        if partitions != self._settings.partition_by:
            raise SinkRefused(
                f"{self._name} is partitioned by {_listed(partitions)}, and this sink by "
                f"{_listed(self._settings.partition_by)}; set partition_by to what the table has, or choose a new path"
            )

    def _widened(self, batch: pa.Schema) -> pa.Schema:
        """The columns of the table, which can hold the batch from now on; only a table of ours is ever widened."""
        from deltalake import Schema

        table = pa.schema(self._table.schema().to_arrow())
        missing = [field.name for field in table if not field.nullable and field.name not in batch.names]
        if missing:
            raise SinkRefused(f"{self._name} has columns that must not be null, and the data lacks {_listed(missing)}")
        schema = merged_schema(table, batch, self._name)
        wider = [
            field for field in schema if field.name not in table.names or field.type != table.field(field.name).type
        ]
        if wider:
            if not any(map(_OURS.fullmatch, self._log.applications())):
                raise SinkRefused(
                    f"{self._name} was not made by this sink and lacks {_listed([field.name for field in wider])}; it "
                    f"has {_listed(table.names)}. Choose a new path, or select its columns in a sql transform"
                )
            self._table.alter.add_columns(
                Schema.from_arrow(pa.schema(wider)).fields, post_commithook_properties=_hooks()
            )
            self._load()
        return schema

    def _commit(self, files: list[FileFacts], schema: pa.Schema, ends: list[tuple[str, int]]) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        now_ms = self._clock.now_ns() // 10**6
        partition_by = list(self._settings.partition_by)
        actions = [
            AddAction(file.path, file.size, dict(zip(partition_by, file.values, strict=True)), now_ms, True, file.stats)
            for file in files
        ]
        properties = CommitProperties(app_transactions=[Transaction(name, end) for name, end in ends])
        columns = Schema.from_arrow(schema)
        if self._table is None:
            try:
                create_table_with_add_actions(
                    str(self._path), columns, actions, "error", partition_by,
                    commit_properties=properties, post_commithook_properties=_hooks(),
                )  # fmt: skip
            except DeltaError as problem:
                if self._log.versions():
                    raise SinkMoved(
                        f"{self._name} was made by somebody else meanwhile; nothing was written"
                    ) from problem
                raise
        else:
            self._table.create_write_transaction(
                actions, "append", columns, partition_by,
                commit_properties=properties, post_commithook_properties=_hooks(),
            )  # fmt: skip
        self._load()

    def _upkeep(self) -> None:
        """Keep the log short to read. The batch is delivered by now: what fails here is tried again with the next."""
        from deltalake import DeltaTable

        if not self._log.checkpoint_due(self._table.version()):
            return
        try:
            with self._explained():
                self._log.checkpoint(
                    lambda copy: DeltaTable(str(copy)).create_checkpoint(), self._path / "_holdfast" / "checkpoint"
                )
                self._table.cleanup_metadata()
        except SinkFailed as problem:
            _log.warning("the log was not checkpointed", table=str(self._path), problem=str(problem))


def _hooks() -> Any:
    """Nothing after a commit: a checkpoint, or old entries removed, before the new things are durable."""
    from deltalake.transaction import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"


def _require() -> None:
    try:
        import deltalake  # noqa: F401 (only looked for)
    except ImportError as problem:
        raise Missing("the delta sink needs the package deltalake: pip install 'holdfast[delta]'") from problem
