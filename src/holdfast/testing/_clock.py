"""Time and identifiers that a test controls."""

from __future__ import annotations

import hashlib
import threading
from typing import Final

_START_NS: Final = 1_700_000_000 * 10**9  # some moment in 2023: late enough to look like wall time in output


class FakeClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now_ns: int = _START_NS, monotonic: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._start_ns = now_ns
        self._start = monotonic
        self._passed_ns = 0

    def now_ns(self) -> int:
        return self._start_ns + self._passed_ns

    def monotonic(self) -> float:
        return self._start + self._passed_ns / 10**9

    def advance(self, seconds: float) -> None:
        """Both times move on together."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s; set_wall moves wall time alone")
        with self._lock:
            self._passed_ns += round(seconds * 10**9)

    def set_wall(self, now_ns: int) -> None:
        """Wall time jumps, also backwards, as when a clock is corrected; monotonic time goes on as before."""
        with self._lock:
            self._start_ns = now_ns - self._passed_ns


class SequenceIds:
    """Bytes that look random and are the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self._calls = 0

    def random_bytes(self, count: int) -> bytes:
        with self._lock:
            self._calls += 1
            return hashlib.shake_128(f"{self._seed}/{self._calls}".encode()).digest(count)
