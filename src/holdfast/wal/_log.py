"""The WAL of a shard that is being written. One thread at a time uses it: whoever holds the shard's commit lock."""

from __future__ import annotations

import contextlib
import errno
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast.clock import Clock, Ids
from holdfast.encoded import ALIGNMENT, EncodedBundle
from holdfast.files import Files, WritableFile, replace_file
from holdfast.wal._encode import bundle_bytes, encode_bundle, encode_schema
from holdfast.wal._format import FILE_HEADER_BYTES, SCHEMA_HEADER_BYTES, FileHeader, WalName

SMALL_WRITE_BYTES: Final = 1 << 18
_ZEROS: Final = memoryview(bytes(1 << 20))
MAX_SPARES: Final = 2  # one in use soon, one behind it; each as large as a WAL file
SPARE_PREFIX: Final = "spare-"


def list_spares(files: Files, folder: Path) -> list[str]:
    """The files in a shard's WAL folder that may be written over."""
    return [name for name in files.list(folder) if name.startswith(SPARE_PREFIX)]


@dataclass(slots=True, eq=False)
class LogFile:
    """A WAL file and the offsets that count in it: `name.first_offset` up to `end`, which is not included."""

    name: WalName
    end: int
    size: int
    may_be_reused: bool = False  # one found at opening may not: bundles that came from it point into its map


class WriteAheadLog:
    """Appends bundles to the current file, begins the next one, and unlinks those that are no longer needed."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        shard_id: bytes,
        *,
        file_size: int,
        clock: Clock,
        ids: Ids,
        next_generation: int,
        earlier: Iterable[LogFile] = (),
        spares: Iterable[str] = (),
    ) -> None:
        self._files, self._folder, self._shard_id = files, folder, shard_id
        self._file_size, self._clock, self._ids = file_size, clock, ids
        self._next_generation = next_generation
        self._log_files = list(earlier)  # oldest first; the last one is the current one while `_current` is set
        self._spares = deque(spares)  # names of files that may be written over
        self._current: WritableFile | None = None
        self._prepared = 0  # up to here the current file's blocks are ready to be written
        self._salt = 0
        self._position = 0
        self._fingerprints: set[bytes] = set()
        self._poisoned = False  # did a sync of the current file fail?
        self._entry_synced = True  # is the current file's name durable in its folder?
        self._supersedes: int | None = None  # set when the next file must void what older ones hold from here on

    @property
    def size(self) -> int:
        """Bytes in all files, room reserved but not used left out."""
        return sum(file.size for file in self._log_files)

    def write(self, bundles: Sequence[EncodedBundle], synced: int) -> None:
        """Append records, beginning new files as needed; every offset below `synced` is durable already.

        Raises `OSError`; then the current file may hold any part of the records, and `supersede` is the way on.
        """
        buffers: list[Any] = []
        for bundle in bundles:
            if self._current is None or self._full(bundle) or bundle.offset != self._log_files[-1].end:
                self._flush(buffers)
                buffers = []
                self._begin(bundle.offset, bundle.segment_seq, synced)
            self._add_bundle(buffers, bundle, synced)
        self._flush(buffers)

    def write_again(self, bundles: Sequence[EncodedBundle], synced: int) -> None:
        """Write bundles, consecutive and not known to be durable, into a file of their own that supersedes older ones.

        It gets its name only when it is whole and synced: until then the older files count, in which the same
        bundles may well be. On return they are durable. Raises `OSError`; then nothing has changed.
        """
        self._close_current()
        file = LogFile(WalName(self._next_generation, bundles[0].offset), bundles[0].offset, FILE_HEADER_BYTES)
        self._next_generation += 1
        supersedes = bundles[0].offset if self._supersedes is None else min(bundles[0].offset, self._supersedes)
        buffers = [self._start_file(file, bundles[0].segment_seq, supersedes)]
        for bundle in bundles:
            self._add_bundle(buffers, bundle, synced, file)
        replace_file(self._files, self._folder / str(file.name), buffers)
        file.size = self._position
        self._void(bundles[0].offset)
        self._log_files.append(file)
        self._supersedes = None

    def _add_bundle(self, buffers: list[Any], bundle: EncodedBundle, synced: int, file: LogFile | None = None) -> None:
        slots = bundle.slots
        for slot in slots:
            if slot.fingerprint not in self._fingerprints:
                self._add_schema(buffers, slot.fingerprint, slot.schema, bundle.offset, synced)
        header = encode_bundle(bundle, salt=self._salt, position=self._position, synced=synced)
        buffers.append(header)
        buffers += [slot.data for slot in slots]
        self._position += len(header) + bundle.size
        (file or self._log_files[-1]).end = bundle.offset + 1

    def _full(self, bundle: EncodedBundle) -> bool:
        holds_none = self._log_files[-1].end == self._log_files[-1].name.first_offset
        return not holds_none and self._position + bundle_bytes(bundle) > self._file_size

    def _add_schema(self, buffers: list[Any], fingerprint: bytes, schema: pa.Schema, offset: int, synced: int) -> None:
        message = schema.serialize()
        padding = -message.size % ALIGNMENT
        if padding:
            raise ValueError(f"Arrow gave a schema message of {message.size} bytes, not a multiple of {ALIGNMENT}")
        buffers.append(
            encode_schema(fingerprint, message, salt=self._salt, position=self._position, offset=offset, synced=synced)
        )
        buffers.append(message)
        self._position += SCHEMA_HEADER_BYTES + message.size
        self._fingerprints.add(fingerprint)

    def _flush(self, buffers: list[Any]) -> None:
        if buffers and self._current is not None:
            file = self._log_files[-1]
            self._make_room(self._current, file.size, self._position)
            self._current.append(buffers)
            file.size = self._position

    def _begin(self, first_offset: int, segment_seq: int, synced: int) -> None:
        """Sync the current file, then make the next one: so its header's mark is true."""
        if self._current is not None:
            self.sync()
            self._current.close()
            self._current = None
            synced = max(synced, self._log_files[-1].end)
        file = LogFile(
            WalName(self._next_generation, first_offset), first_offset, FILE_HEADER_BYTES, may_be_reused=True
        )
        self._next_generation += 1
        supersedes = min(first_offset, synced) if self._supersedes is None else self._supersedes
        self._log_files.append(file)
        self._current = self._open_next(file.name)
        self._current.append([self._start_file(file, segment_seq, supersedes)])

    def _start_file(self, file: LogFile, segment_seq: int, supersedes: int) -> bytes:
        """The header of a file; what is encoded next belongs to it."""
        (self._salt,) = struct.unpack("<I", self._ids.random_bytes(4))
        self._position = FILE_HEADER_BYTES
        self._fingerprints.clear()
        generation, first_offset = file.name
        now_ns = self._clock.now_ns()
        return FileHeader(
            self._salt, self._shard_id, generation, first_offset, segment_seq, supersedes, now_ns
        ).encode()

    def _open_next(self, name: WalName) -> WritableFile:
        """A new file, or a spare one. A spare gets its new name durably before it is written over: so after a crash
        no name of old stands over new content."""
        path = self._folder / str(name)
        try:
            spare = self._spares.popleft()
        except IndexError:
            self._entry_synced, self._prepared = False, 0
            return self._files.create(path)
        self._files.rename(self._folder / spare, path)
        self._files.sync_folder(self._folder)
        self._entry_synced = True
        file = self._files.open(path)
        file.seek(0)
        self._prepared = self._file_size
        return file

    def _make_room(self, file: WritableFile, start: int, end: int) -> None:
        """Prepare the blocks that the next writes go to, so that syncing them changes as little else as possible.

        For small writes by filling them with zeros, some way ahead: overwriting takes half the time of growing, and
        the one sync that carries the zeros is soon made up for. For large ones by reserving them, in growing steps,
        so that a small topic does not take a whole file's room. Only speed depends on it.
        """
        if end <= self._prepared:
            return
        with contextlib.suppress(OSError):  # the writes themselves will say if there is no room
            if end - start <= SMALL_WRITE_BYTES:
                self._prepared = max(end, min(self._file_size, start + len(_ZEROS)))
                file.write_at(start, _ZEROS[: self._prepared - start])
            else:
                self._prepared = max(end, min(self._file_size, 4 * self._prepared))
                file.preallocate(self._prepared)
        file.seek(start)

    def sync(self) -> None:
        """On return all that was written is durable, names included. Raises `OSError`: then it may never be."""
        if self._poisoned:
            raise OSError(errno.EIO, "a sync of this file has failed before", str(self._folder))
        if self._current is not None:
            self._poisoned = True  # unless what follows returns
            self._current.sync()
            if not self._entry_synced:
                self._files.sync_folder(self._folder)
                self._entry_synced = True
            self._poisoned = False
            self._supersedes = None  # only now: a header that was not synced supersedes nothing

    def supersede(self, offset: int) -> None:
        """Leave the current file as it is; the next one voids what this and older ones hold from `offset` on."""
        self._close_current()
        self._supersedes = offset if self._supersedes is None else min(offset, self._supersedes)
        self._void(offset)
        if self._log_files and self._log_files[-1].name.first_offset >= self._supersedes:
            self._forget_last()

    def _close_current(self) -> None:
        self._poisoned = False
        if self._current is not None:
            with contextlib.suppress(OSError):  # its content no longer counts
                self._current.close()
            self._current = None

    def _void(self, offset: int) -> None:
        for file in self._log_files:
            file.end = max(file.name.first_offset, min(file.end, offset))

    def _forget_last(self) -> None:
        """Unlink the last file, in which nothing counts, so that retries on a full disk do not fill the folder."""
        try:
            self._files.unlink(self._folder / str(self._log_files[-1].name))
        except FileNotFoundError:
            pass
        except OSError:
            return  # superseded all the same, and retired later
        self._log_files.pop()

    def take_retired(self, below: int) -> list[LogFile]:
        """Forget the files that hold nothing from offset `below` on, for the caller to unlink; never the current one.

        The caller has made sure that segments, or a trim record, durably cover everything below.
        """
        current = self._log_files[-1] if self._current is not None else None
        retired = [file for file in self._log_files if file is not current and file.end <= below]
        self._log_files = [file for file in self._log_files if file not in retired]
        return retired

    def discard(self, file: LogFile) -> None:
        """Keep a retired file as a spare if one is wanted and it is worth it, else unlink it. Any thread may call.

        Raises `OSError`; a file that is gone already is fine.
        """
        path = self._folder / str(file.name)
        if file.may_be_reused and len(self._spares) < MAX_SPARES and file.size >= self._file_size // 2:
            spare = f"{SPARE_PREFIX}{file.name.generation:010d}"
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, self._folder / spare)
                self._spares.append(spare)
            return
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)

    def drop_spares(self) -> None:
        """Unlink the spares: the room is needed elsewhere, or the shard closes. Any thread may call."""
        while self._spares:
            with contextlib.suppress(IndexError, FileNotFoundError):
                self._files.unlink(self._folder / self._spares.popleft())

    def put_back(self, files: Iterable[LogFile]) -> None:
        """Remember files again that could not be unlinked."""
        self._log_files = sorted([*files, *self._log_files], key=lambda file: file.name)

    def finish_file(self) -> None:
        """Close the current file, synced, so that `retire` may take it; the next write begins a new one."""
        if self._current is not None:
            self.sync()
            self._current.truncate(self._position)  # gives back what was reserved and not used
            self._current.close()
            self._current = None
