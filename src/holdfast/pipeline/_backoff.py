"""How long to wait before the next attempt."""

from __future__ import annotations

from typing import Final

from holdfast.clock import Ids

_STEPS: Final = 2**16


class Backoff:
    """Doubles from `initial` to `longest` seconds, each a little shorter by chance, so that not all come at once."""

    def __init__(self, initial: float, longest: float, ids: Ids) -> None:
        self._initial, self._longest, self._ids = initial, longest, ids
        self.failures = 0

    def after_failure(self) -> float:
        """Seconds to wait now: between half and all of what the number of failures in a row calls for."""
        whole = min(self._longest, self._initial * 2.0 ** min(self.failures, 64))
        self.failures += 1
        return whole * (1 + int.from_bytes(self._ids.random_bytes(2), "big") / _STEPS) / 2

    def reset(self) -> None:
        """It works again."""
        self.failures = 0
