"""One stream of an open segment: its chunks as record batches, checked the first time they are handed out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import crc32c
import pyarrow as pa
from pyarrow import ipc

from holdfast.errors import Corruption
from holdfast.segment._ipc import SCHEMA_POSITION
from holdfast.segment._manifest import Chunks
from holdfast.segment._meta import StreamEntry
from holdfast.segment.format import require_checksum

ARROW_ERRORS: Final = (pa.ArrowException, OSError)  # pyarrow reports damaged input as either

ReadChunk = Callable[[int], pa.RecordBatch]


class StreamReader:
    """Reads chunks by number; threads may share it, for reading changes nothing but marks.

    Schema and footer are checked when the stream is opened, the dictionaries and each chunk when a batch is
    first handed out whole. A projected read leaves other columns' bytes alone, so it checks them only when
    told to.
    """

    def __init__(self, entry: StreamEntry, first: int, chunks: Chunks, buffer: Any, path: Path) -> None:
        self.entry = entry
        self._path = path
        self._file = memoryview(buffer)
        self._stream = buffer.slice(entry.position, entry.length)
        end = first + entry.chunks
        self._positions = chunks.positions[first:end]
        self._lengths = chunks.lengths[first:end]
        self._rows = chunks.rows[first:end]
        self._checksums = chunks.checksums[first:end]
        self._checked = bytearray(entry.chunks)
        self._lock = threading.Lock()
        self._whole: ReadChunk | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The stream's own schema, read without touching anything else."""
        self.check_frame()
        try:
            return ipc.read_schema(self._stream.slice(SCHEMA_POSITION, self.entry.schema_length - SCHEMA_POSITION))
        except ARROW_ERRORS as error:
            what = f"schema of {self._name} cannot be decoded: {error}"
            raise Corruption(self._path, self.entry.position, what) from error

    @property
    def _name(self) -> str:
        return f"stream {self.entry.id}"

    def reader(self, columns: Sequence[str] | None = None, *, verify: bool = False) -> ReadChunk:
        """A function from chunk number to batch; `columns` come in the order asked for, if present."""
        if columns is None:
            if self._whole is None:
                with self._lock:
                    self.check_dictionaries()
                    self._whole = self._reading(self._open(None), None, True)
            return self._whole
        if verify:
            self.check_dictionaries()
        chosen = [index for name in dict.fromkeys(columns) for index in self.schema.get_all_field_indices(name)]
        if not chosen:
            return self._counting(verify)
        ascending = sorted(chosen)
        order = None if chosen == ascending else [ascending.index(index) for index in chosen]
        return self._reading(self._open(chosen), order, verify)

    def check_frame(self) -> None:
        """Raise `Corruption` unless schema and footer are as they were written."""
        entry, start = self.entry, self.entry.position
        schema = self._file[start : start + entry.schema_length]
        require_checksum(self._path, start, f"schema of {self._name}", schema, entry.schema_checksum)
        tail = self._positions[-1] + self._lengths[-1]
        footer = self._file[tail : start + entry.length]
        require_checksum(self._path, tail, f"footer of {self._name}", footer, entry.footer_checksum)

    def check_dictionaries(self) -> None:
        """Raise `Corruption` unless the dictionaries, if any, are as they were written."""
        start = self.entry.position + self.entry.schema_length
        data = self._file[start : self._positions[0]]
        require_checksum(self._path, start, f"dictionaries of {self._name}", data, self.entry.dictionaries_checksum)

    def check_chunk(self, chunk: int) -> None:
        """Raise `Corruption` unless the chunk's bytes have the checksum that they were appended with."""
        start, expected = self._positions[chunk], self._checksums[chunk]
        data = self._file[start : start + self._lengths[chunk]]
        if crc32c.crc32c(data) != expected:  # asked first, for this runs once per chunk
            require_checksum(self._path, start, f"chunk {chunk} of {self._name}", data, expected)
        self._checked[chunk] = 1

    def _open(self, fields: list[int] | None) -> Any:
        self.check_frame()
        start = self.entry.position
        try:
            opened = ipc.open_file(self._stream, options=ipc.IpcReadOptions(included_fields=fields))
            if self._positions[0] > start + self.entry.schema_length:
                opened.get_batch(0)  # loads the dictionaries, which must not happen in two threads at once
        except ARROW_ERRORS as error:
            raise Corruption(self._path, start, f"{self._name} is not a readable Arrow IPC file: {error}") from error
        if opened.num_record_batches != self.entry.chunks:
            found, expected = opened.num_record_batches, self.entry.chunks
            raise Corruption(self._path, start, f"{self._name} has {found} chunks, the directory says {expected}")
        return opened

    def _reading(self, opened: Any, order: list[int] | None, verify: bool) -> ReadChunk:
        get_batch, rows, checked = opened.get_batch, self._rows, self._checked

        def read(chunk: int) -> pa.RecordBatch:
            if verify and not checked[chunk]:
                self.check_chunk(chunk)
            try:
                batch = get_batch(chunk)
            except ARROW_ERRORS as error:
                raise Corruption(
                    self._path,
                    self._positions[chunk],
                    f"chunk {chunk} of {self._name} cannot be decoded: {error}",
                ) from error
            if batch.num_rows != rows[chunk]:
                what = f"chunk {chunk} of {self._name} has {batch.num_rows} rows, expected {rows[chunk]}"
                raise Corruption(self._path, self._positions[chunk], what)
            return batch if order is None else batch.select(order)

        return read

    def _counting(self, verify: bool) -> ReadChunk:
        """For a projection onto nothing: batches without columns that still have their rows."""

        def read(chunk: int) -> pa.RecordBatch:
            if verify and not self._checked[chunk]:
                self.check_chunk(chunk)
            rows = pa.RecordBatch.from_arrays([pa.nulls(self._rows[chunk])], [""])
            return rows.select([]).replace_schema_metadata(self.schema.metadata)

        return read
