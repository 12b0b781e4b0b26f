"""Rows into Parquet files of about a size, one open for each partition; all of them durable at the end."""

from __future__ import annotations

import contextlib
import io
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kind

from holdfast.files import Files, WritableFile
from holdfast.sinks._partitions import Values, plain_folder, split
from holdfast.sinks._schema import conformed
from holdfast.sinks._statistics import statistics

ROW_GROUP_BYTES: Final = 64 << 20  # of rows in memory: large enough to read well, small enough to hold
MAX_HELD_BYTES: Final = 256 << 20  # over all open files
MAX_OPEN_FILES: Final = 128  # more partitions than that at once give more and smaller files
_WRITE_BYTES: Final = 1 << 20  # the Parquet writer hands over small pieces


class FileFacts(NamedTuple):
    """A file that is durable; the path is relative to the writer's folder."""

    path: str
    size: int
    rows: int
    values: Values
    stats: str


class FolderWriter:
    """Writes rows below one folder. Used by one thread; ends with `finish`, or with `abandon`."""

    def __init__(
        self,
        files: Files,
        folder: str,
        name: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        *,
        target_file_size: int,
        plain_folders: bool,
    ) -> None:
        self._files, self._folder, self._name = files, Path(folder), name
        self._schema, self._partition_by = schema, tuple(partition_by)
        self._file_schema = pa.schema([field for field in schema if field.name not in self._partition_by])
        self._target, self._plain_folders = target_file_size, plain_folders
        self._group_bytes = min(ROW_GROUP_BYTES, target_file_size)
        self._open: OrderedDict[Values, _OpenFile] = OrderedDict()  # the one written to last is last
        self._finished: list[FileFacts] = []
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for values, rows in split(conformed(batch, self._schema), self._partition_by):
            file = self._file(values)
            file.hold(rows)
            if file.held_bytes >= self._group_bytes:
                self._flush(values, file)
        while sum(file.held_bytes for file in self._open.values()) > MAX_HELD_BYTES:
            self._flush(*max(self._open.items(), key=lambda each: each[1].held_bytes))

    def finish(self) -> list[FileFacts]:
        """Make all files durable, with their names."""
        while self._open:
            self._finish_oldest()
        for folder in {(self._folder / file.path).parent for file in self._finished}:
            self._files.sync_folder(folder)
        return self._finished

    def abandon(self) -> None:
        """Remove what was written, as far as it can be: nobody was told of it."""
        with contextlib.suppress(OSError):  # the first error is the one to tell
            for file in self._open.values():
                file.abandon()
            for path in [file.path for file in self._finished] + [file.path for file in self._open.values()]:
                self._files.unlink(self._folder / path)

    def _file(self, values: Values) -> _OpenFile:
        file = self._open.get(values)
        if file is None:
            if len(self._open) == MAX_OPEN_FILES:
                self._finish_oldest()
            file = self._open[values] = self._create(values)
        self._open.move_to_end(values)
        return file

    def _create(self, values: Values) -> _OpenFile:
        name = f"{self._name}-{self._count}.parquet"
        self._count += 1
        if self._plain_folders and values:
            below = plain_folder(self._partition_by, values)
            self._files.make_folder(self._folder / below)
            name = f"{below}/{name}"
        return _OpenFile(self._files.create(self._folder / name), name, self._file_schema)

    def _flush(self, values: Values, file: _OpenFile) -> None:
        file.flush()
        if file.size >= self._target:
            self._finish(values, file)

    def _finish_oldest(self) -> None:
        self._finish(*next(iter(self._open.items())))

    def _finish(self, values: Values, file: _OpenFile) -> None:
        metadata = file.finish()
        del self._open[values]
        stats = statistics(self._file_schema, metadata, file.with_nan)
        self._finished.append(FileFacts(file.path, file.size, metadata.num_rows, values, stats))


class _OpenFile:
    """One Parquet file on its way; rows are held until they make a row group."""

    def __init__(self, file: WritableFile, path: str, schema: pa.Schema) -> None:
        self.path, self.held_bytes = path, 0
        self.with_nan: set[str] = set()
        self._floats = [field.name for field in schema if kind.is_floating(field.type)]
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._file, self._stream = file, FileStream(file)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="snappy", version="2.6")

    @property
    def size(self) -> int:
        return self._stream.tell()

    def hold(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.held_bytes += rows.nbytes

    def flush(self) -> None:
        """Write the rows that are held as one row group."""
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, schema=self._schema)
        for name in self._floats:
            if name not in self.with_nan and pc.any(pc.is_nan(table.column(name))).as_py():
                self.with_nan.add(name)
        self._writer.write_table(table)
        self._held, self.held_bytes = [], 0

    def finish(self) -> pq.FileMetaData:
        self.flush()
        self._writer.close()
        self._stream.flush()
        self._file.sync()
        self._file.close()
        return self._writer.writer.metadata

    def abandon(self) -> None:
        self._stream.abandon()
        self._file.close()


class FileStream(io.RawIOBase):
    """A file as the Parquet writer wants one: it collects small pieces, and knows how far it is."""

    def __init__(self, file: WritableFile) -> None:
        super().__init__()
        self._file: WritableFile | None = file
        self._pieces: list[bytes] = []
        self._waiting = self._end = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._waiting += len(piece)
        self._end += len(piece)
        if self._waiting >= _WRITE_BYTES:
            self._hand_over()
        return len(piece)

    def abandon(self) -> None:
        """Take no more: the Parquet writer still writes a footer when it is let go of."""
        self._file = None
        self._pieces = []

    def tell(self) -> int:
        return self._end

    def flush(self) -> None:
        if not self.closed:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._pieces and self._file is not None:
            self._file.append(self._pieces)
            self._pieces, self._waiting = [], 0
