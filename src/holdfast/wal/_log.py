"""The WAL of a shard that is being written.

One thread at a time writes: whoever holds the shard's commit lock. Retiring files needs no such lock.
"""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
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
from holdfast.wal.format import FILE_HEADER_BYTES, SCHEMA_HEADER_BYTES, FileHeader, WalName

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
        self._lock = threading.Lock()  # guards the list of earlier files: whoever retires them does not commit
        self._earlier = list(earlier)  # oldest first
        self._file: LogFile | None = None  # the one being written
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
        file = self._file
        with self._lock:
            return sum([each.size for each in self._earlier]) + (0 if file is None else file.size)

    def write(self, bundles: Sequence[EncodedBundle], synced: int) -> None:
        """Append records, beginning new files as needed; every offset below `synced` is durable already.

        Raises `OSError`; then the current file may hold any part of the records, and `supersede` is the way on.
        """
        buffers: list[Any] = []
        for bundle in bundles:
            file = self._file
            if file is None or bundle.offset != file.end or self._full(file, bundle):
                self._flush(buffers)
                buffers = []
                file = self._begin(bundle.offset, bundle.segment_seq, synced)
            self._add_bundle(buffers, file, bundle, synced)
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
            self._add_bundle(buffers, file, bundle, synced)
        replace_file(self._files, self._folder / str(file.name), buffers)
        file.size = self._position
        with self._lock:
            self._void(bundles[0].offset)
            self._earlier.append(file)
        self._supersedes = None

    def _add_bundle(self, buffers: list[Any], file: LogFile, bundle: EncodedBundle, synced: int) -> None:
        slots = bundle.slots
        for slot in slots:
            if slot.fingerprint not in self._fingerprints:
                self._add_schema(buffers, slot.fingerprint, slot.schema, bundle.offset, synced)
        header = encode_bundle(bundle, salt=self._salt, position=self._position, synced=synced)
        buffers.append(header)
        buffers += [slot.data for slot in slots]
        self._position += len(header) + bundle.size
        file.end = bundle.offset + 1

    def _full(self, file: LogFile, bundle: EncodedBundle) -> bool:
        holds_none = file.end == file.name.first_offset
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
        if buffers and self._current is not None and self._file is not None:
            file = self._file
            self._make_room(self._current, file.size, self._position)
            self._current.append(buffers)
            file.size = self._position

    def _begin(self, first_offset: int, segment_seq: int, synced: int) -> LogFile:
        """Sync the current file, then make the next one: so its header's mark is true."""
        if self._current is not None and self._file is not None:
            self.sync()
            synced = max(synced, self._file.end)
            self._close_current()
        name = WalName(self._next_generation, first_offset)
        self._next_generation += 1
        file = self._file = LogFile(name, first_offset, FILE_HEADER_BYTES, may_be_reused=True)
        supersedes = min(first_offset, synced) if self._supersedes is None else self._supersedes
        self._current = self._open_next(name)
        self._current.append([self._start_file(file, segment_seq, supersedes)])
        return file

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
        with self._lock:
            self._void(offset)
            if self._earlier and self._earlier[-1].name.first_offset >= self._supersedes:
                self._forget_last()

    def _close_current(self) -> None:
        self._poisoned = False
        if self._current is not None:
            with contextlib.suppress(OSError):  # what counts of it was synced, or is written elsewhere
                self._current.close()
            self._current = None
        if self._file is not None:
            with self._lock:
                self._earlier.append(self._file)
            self._file = None

    def _void(self, offset: int) -> None:
        for file in self._earlier:
            file.end = max(file.name.first_offset, min(file.end, offset))

    def _forget_last(self) -> None:
        """Unlink the last file, in which nothing counts, so that retries on a full disk do not fill the folder."""
        try:
            self._files.unlink(self._folder / str(self._earlier[-1].name))
        except FileNotFoundError:
            pass
        except OSError:
            return  # superseded all the same, and retired later
        self._earlier.pop()

    def take_retired(self, below: int) -> list[LogFile]:
        """Forget the files that hold nothing from offset `below` on, for the caller to discard. Any thread may call.

        The caller has made sure that segments, or a trim record, durably cover everything below.
        """
        with self._lock:
            retired = [file for file in self._earlier if file.end <= below]
            self._earlier = [file for file in self._earlier if file.end > below]
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
        """Unlink the spares: the room is needed elsewhere, or the shard closes. Any thread may call.

        One that cannot be unlinked is left for the next opening of the shard to find.
        """
        while self._spares:
            with contextlib.suppress(IndexError, OSError):
                self._files.unlink(self._folder / self._spares.popleft())

    def put_back(self, files: Iterable[LogFile]) -> None:
        """Remember files again that could not be discarded. Any thread may call."""
        with self._lock:
            self._earlier = sorted([*files, *self._earlier], key=lambda file: file.name)

    def finish_file(self) -> None:
        """Close the current file, synced, so that it may be retired; the next write begins a new one."""
        if self._current is not None:
            self.sync()
            self._current.truncate(self._position)  # gives back what was prepared and not used
            self._close_current()
