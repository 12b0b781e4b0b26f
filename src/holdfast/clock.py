"""Time and randomness, passed in so that a test can simulate both."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for deadlines."""

    def now_ns(self) -> int: ...

    def monotonic(self) -> float: ...


class Ids(Protocol):
    """Where identifiers and salts come from."""

    def random_bytes(self, count: int) -> bytes: ...


class SystemClock:
    """The machine's clock."""

    now_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)


class SystemIds:
    """The kernel's randomness."""

    random_bytes = staticmethod(os.urandom)


class Deadline:
    """One point in time handed down through calls; `None` seconds never ends."""

    __slots__ = ("_clock", "_end")

    def __init__(self, seconds: float | None, clock: Clock) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock.monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left, never below zero; `None` for ever."""
        return None if self._end is None else max(0.0, self._end - self._clock.monotonic())

    def passed(self) -> bool:
        return self._end is not None and self._clock.monotonic() >= self._end
