"""So many rows a second, and no faster."""

from __future__ import annotations

from holdfast.clock import Clock


class Pace:
    """A token bucket: `take` says how long to wait, and has taken nothing unless that is zero.

    What was not used is kept for at most `burst` rows, so a source that was held up does not make up for it in a flood.
    """

    def __init__(self, rows_per_second: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rows_per_second, burst, clock
        self._rows = float(burst)
        self._then = clock.monotonic()

    def take(self, rows: int) -> float:
        """Seconds until there is room for `rows`, or zero: they are taken. More than a burst needs a full one."""
        now = self._clock.monotonic()
        self._rows = min(self._burst, self._rows + (now - self._then) * self._rate)
        self._then = now
        needed = min(rows, self._burst)
        if self._rows < needed:
            return (needed - self._rows) / self._rate
        self._rows -= rows
        return 0.0
