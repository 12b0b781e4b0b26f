"""Watches on the simulated disk: woken by what is recorded in the journal, and by locks that are rung."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.testing._disk import Disk, File, Folder
from holdfast.testing._faults import system_error


class SimulatedWatch:
    """Implements `holdfast.files.Watch`. Timeouts are in real time: a clock that stands still would never end one."""

    def __init__(self, table: WatchTable) -> None:
        self._table = table
        self._changed = table.changed
        self._numbers: dict[Path, int] = {}
        self._happened = False
        self._closed = False

    def add(self, path: Path) -> None:
        with self._changed:
            self._check_open(path)
            self._numbers[path] = self._table.find(path).number

    def remove(self, path: Path) -> None:
        with self._changed:
            self._numbers.pop(path, None)

    def wait(self, timeout: float | None) -> bool:
        with self._changed:
            self._check_open(Path())
            woken = self._changed.wait_for(lambda: self._happened or self._closed, timeout)
            self._happened = False
            return woken

    def wake(self) -> None:
        with self._changed:
            self._happened = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._table.forget(self)
            self._changed.notify_all()

    def hear(self, number: int) -> None:
        """Wake if the lock file that is rung is watched itself; its folder is not told."""
        if number in self._numbers.values():
            self.wake()

    def notice(self, disk: Disk, touched: Collection[int]) -> None:
        """Wake if one of `touched` is watched, or is a file in a folder that is."""
        files = {number for number in touched if isinstance(disk.nodes[number], File)}
        for number in self._numbers.values():
            node = disk.nodes[number]
            if number in touched or (isinstance(node, Folder) and not files.isdisjoint(node.seen.values())):
                self.wake()
                return

    def _check_open(self, path: Path) -> None:
        if self._closed:
            raise system_error(errno.EBADF, path)


class WatchTable:
    """The watches that are open. `find` looks a path up; `changed` is held by whoever calls."""

    def __init__(self, changed: threading.Condition, find: Callable[[Path], File | Folder]) -> None:
        self.changed = changed
        self.find = find
        self._open: list[SimulatedWatch] = []

    def watch(self) -> SimulatedWatch:
        watch = SimulatedWatch(self)
        self._open.append(watch)
        return watch

    def forget(self, watch: SimulatedWatch) -> None:
        if watch in self._open:
            self._open.remove(watch)

    def hear(self, number: int) -> None:
        for watch in self._open:
            watch.hear(number)

    def notice(self, disk: Disk, touched: Collection[int]) -> None:
        for watch in self._open:
            watch.notice(disk, touched)
