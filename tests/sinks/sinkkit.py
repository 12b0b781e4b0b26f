"""What the tests of sinks share: batches, identities, and files that tell what was synced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.clock import Deadline, SystemClock
from holdfast.files import SystemFiles, WritableFile
from holdfast.sinks import DeltaSettings, DeltaSink, ParquetSettings, ParquetSink, Ranges, SinkIdentity
from holdfast.testing import FakeClock, SequenceIds

STORE_ID = "ab" * 16
KEY = "prod/logs/0"


def identity(state: Path | None = None, subscriber: str = "lake", **rest: Any) -> SinkIdentity:
    return SinkIdentity(STORE_ID, subscriber, state or Path("/nowhere"), **rest)


def ranges(first: int, end: int, key: str = KEY, *, subscriber: str = "lake", size: int | None = 1000) -> Ranges:
    """A batch of one shard, by default so small that it makes one file."""
    return Ranges(STORE_ID, subscriber, {key: (first, end)}, None, size)


def soon(seconds: float | None = 120.0) -> Deadline:
    return Deadline(seconds, SystemClock())


def numbers(first: int, end: int, **columns: Any) -> pa.Table:
    """Rows whose `id` tells which ones they are."""
    return pa.table({"id": pa.array(range(first, end), pa.int64()), **columns})


class RecordingFiles(SystemFiles):
    """The real files, and in `synced` everything whose content or names were synced, in order."""

    def __init__(self) -> None:
        self.synced: list[Path] = []

    def open(self, path: Path) -> WritableFile:
        file: Any = super().open(path)
        sync = file.sync

        def recorded() -> None:
            sync()
            self.synced.append(path)

        file.sync = recorded
        return file

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self.synced.append(path)


def delta(
    path: Path, kind: type[DeltaSink] = DeltaSink, files: Any = None, seed: int = 0, **settings: Any
) -> DeltaSink:
    checked = DeltaSettings(type="delta", inputs=("x",), path=path, **settings)
    return kind(checked, files or SystemFiles(), SystemClock(), SequenceIds(seed))


def parquet(path: Path, files: Any = None, seed: int = 0, **settings: Any) -> ParquetSink:
    checked = ParquetSettings(type="parquet", inputs=("x",), path=path, **settings)
    return ParquetSink(checked, files or SystemFiles(), FakeClock(), SequenceIds(seed))
