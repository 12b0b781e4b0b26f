"""Time and randomness, passed in so that a test can simulate both."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


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


def breathe(items: Iterable[T], every: int = 250, pause: float = 0) -> Iterator[T]:
    """`items`, with a pause for other threads after every few; where the disk is to rest too, of some length.

    A long loop would make a thread that comes back from the disk wait for the interpreter, 5 ms each time; the
    committer comes back twice for each group.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % every == 0:
            time.sleep(pause)


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
