"""Calls that fail on request, and how often each was made."""

from __future__ import annotations

import errno
import fnmatch
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.files import Files, WritableFile

# Every method of the two protocols that asks the system for something can be made to fail; taken from them, so
# that the list cannot go stale.
OPERATIONS: Final = frozenset(
    name
    for protocol in (Files, WritableFile)
    for name, value in vars(protocol).items()
    if callable(value) and not name.startswith("_")
) - {"close", "seek", "start_sync"}
WRITES: Final = frozenset({"append", "write_at"})


@dataclass(slots=True)
class Fault:
    """A rule: matching calls number `nth` to `nth + times - 1` fail with `error`; `times=None` is for ever.

    `seen` counts the calls that matched since the rule was made, `fired` those that it failed.
    """

    operation: str
    error: int
    nth: int
    times: int | None
    path: str
    short: int | None
    seen: int = 0
    fired: int = 0

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(f"{self.operation!r} cannot fail; these can: {', '.join(sorted(OPERATIONS))}")
        if self.short is not None and self.operation not in WRITES:
            raise ValueError(f"short={self.short} makes sense for {' and '.join(sorted(WRITES))} only")
        if self.nth < 1:
            raise ValueError(f"nth counts from 1, not {self.nth}")

    def strikes(self, operation: str, path: Path) -> bool:
        """Count this call if it matches, and tell whether it is to fail."""
        if operation != self.operation or not fnmatch.fnmatchcase(path.as_posix(), self.path):
            return False
        self.seen += 1
        if self.seen < self.nth or (self.times is not None and self.seen >= self.nth + self.times):
            return False
        self.fired += 1
        return True


class Faults:
    """The rules in force. The caller holds the lock."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []
        self.calls: Counter[str] = Counter()

    def strike(self, operation: str, path: Path) -> Fault | None:
        """Count a call; the first rule that fails it, while the others count on."""
        self.calls[operation] += 1
        struck = [rule for rule in self.rules if rule.strikes(operation, path)]
        return struck[0] if struck else None


def system_error(code: int, path: Path) -> OSError:
    """What the system raises for `code`: the right subclass, text and path."""
    return OSError(code, os.strerror(code), str(path))


def no_space(path: Path) -> OSError:
    return system_error(errno.ENOSPC, path)
