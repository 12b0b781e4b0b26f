"""Locks as `flock` gives them: on the file and not on its name, gone with whoever held them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SimulatedLock:
    """A claim on a lock file."""

    def __init__(self, table: LockTable, number: int, *, shared: bool) -> None:
        self._table = table
        self.number = number
        self.shared = shared

    def ring(self) -> None:
        self._table.ring(self)

    def release(self) -> None:
        self._table.release(self)


class LockTable:
    """Who holds which lock file; `rung` is told the number of one that is rung.

    `claim` is called with `changed` held, which a wait gives up meanwhile.
    """

    def __init__(self, changed: threading.Condition, rung: Callable[[int], None]) -> None:
        self._changed = changed
        self._rung = rung
        self._held: list[SimulatedLock] = []

    def claim(self, number: int, *, shared: bool, wait: bool) -> SimulatedLock | None:
        """The lock, or `None` if others hold it and `wait` is false."""
        while any(held.number == number and not (shared and held.shared) for held in self._held):
            if not wait:
                return None
            self._changed.wait()
        lock = SimulatedLock(self, number, shared=shared)
        self._held.append(lock)
        return lock

    def ring(self, lock: SimulatedLock) -> None:
        with self._changed:
            if lock in self._held:
                self._rung(lock.number)

    def release(self, lock: SimulatedLock) -> None:
        with self._changed:
            if lock in self._held:
                self._held.remove(lock)
                self._changed.notify_all()
