"""How far long work has got."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # what is being looked at, bytes done, bytes in all


class Work:
    """Counts bytes and files as they are dealt with, and tells whoever wants to know."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self.files = 0
        self.bytes = 0
        self.total = 0

    def expect(self, size: int) -> None:
        """So many more bytes are to come."""
        self.total += size

    def did(self, what: str, size: int) -> None:
        """One more file, with so many bytes, is done."""
        self.files += 1
        self.bytes += size
        self.total = max(self.total, self.bytes)
        if self._progress is not None:
            self._progress(what, self.bytes, self.total)
