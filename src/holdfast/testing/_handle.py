"""Open files on the simulated disk."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.testing._disk import File
from holdfast.testing._faults import Fault, no_space, system_error
from holdfast.testing._journal import Sync, Truncate, Write

if TYPE_CHECKING:
    from holdfast.testing._simulated import SimulatedFiles


class _Handle:
    """What all open files have."""

    def __init__(self, files: SimulatedFiles, path: Path, node: File) -> None:
        self._files = files
        self._path = path
        self._node = node
        self._end = node.seen.size
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    def sync(self) -> None:
        """A failure strands what was pending: a later sync succeeds without having written it."""
        with self._files._call("sync", self._path) as fault:
            self._check_open()
            failed = fault is not None
            self._files._record(Sync(self._files._index, "sync", self._path, self._node.number, failed))
            if fault is not None:
                raise system_error(fault.error, self._path)

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise system_error(errno.EBADF, self._path)

    def _write(self, operation: str, position: int, data: bytes, fault: Fault | None) -> None:
        """Write what a fault and the disk's capacity let through, then raise if that was not all."""
        self._check_open()
        error: OSError | None = None
        if fault is not None and fault.short is not None:
            data, error = data[: fault.short], system_error(fault.error, self._path)
        reach = self._node.seen.size + self._files._room()
        if data and position + len(data) > reach:
            data, error = data[: max(0, reach - position)], no_space(self._path)
        if data:
            now_ns = self._files._clock.now_ns()
            record = Write(self._files._index, operation, self._path, self._node.number, position, data, now_ns)
            self._files._record(record)
            self._end = max(self._end, position + len(data))
        if error is not None:
            raise error


class SimulatedFile(_Handle):
    """Knows its own end, as the real one does: two handles on one file do not see each other's appends."""

    def append(self, buffers: Sequence[Any]) -> int:
        with self._files._call("append", self._path) as fault:
            data = b"".join(buffers)
            self._write("append", self._end, data, fault)
            return len(data)

    def write_at(self, position: int, data: Any) -> None:
        with self._files._call("write_at", self._path) as fault:
            if position < 0:
                raise system_error(errno.EINVAL, self._path)
            self._write("write_at", position, bytes(memoryview(data)), fault)

    def preallocate(self, size: int) -> None:
        """Only looks whether there is room: nothing is set aside."""
        with self._files._call("preallocate", self._path):
            self._check_open()
            if size > self._node.seen.size + self._files._room():
                raise no_space(self._path)

    def seek(self, position: int) -> None:
        self._end = position

    def truncate(self, size: int) -> None:
        with self._files._call("truncate", self._path):
            self._check_open()
            if size < 0:
                raise system_error(errno.EINVAL, self._path)
            if size > self._node.seen.size + self._files._room():
                raise no_space(self._path)
            now_ns = self._files._clock.now_ns()
            self._files._record(Truncate(self._files._index, "truncate", self._path, self._node.number, size, now_ns))
            self._end = size

    def start_sync(self) -> None:
        """A hint, and it is not taken."""


class SimulatedSharedFile(_Handle):
    """Finds the end at each append anew, wherever others have moved it."""

    def append(self, buffers: Sequence[Any]) -> int:
        with self._files._call("append", self._path) as fault:
            data = b"".join(buffers)
            self._write("append", self._node.seen.size, data, fault)
            return len(data)
