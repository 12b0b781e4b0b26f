"""Receipts of bundles that were appended before, here or in another process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

from holdfast.clock import Clock, Deadline
from holdfast.durability import Durability
from holdfast.errors import WaitTimeout
from holdfast.store._receipt import Group, Receipt

LOOK_SECONDS: Final = 0.005  # between two looks at another process's tail
ATTEND_SECONDS: Final = 0.25  # between two looks whether that process is still there


class _Nobody:
    """Leads no commit: there is none to lead."""

    def lead(self, group: Group) -> None:
        """Nothing to commit."""

    def nudge(self) -> None:
        """Nobody to wake."""


def durable_receipt(shard: int, offset: int, level: Durability) -> Receipt:
    """Of a bundle that is durable already."""
    group = Group()
    group.reach(Durability.FSYNC)
    return Receipt(offset, shard, level, group, _Nobody())


class FollowingReceipt(Receipt):
    """Of a bundle that another process is about to make durable: who waits looks at that shard now and then.

    `look(attend)` says whether the bundle is durable by now, and raises why it never will be; with `attend` it also
    sees after a shard whose owner has died.
    """

    __slots__ = ("_attend", "_clock", "_look")

    def __init__(self, shard: int, offset: int, level: Durability, look: Callable[[bool], bool], clock: Clock) -> None:
        super().__init__(offset, shard, level, Group(), _Nobody())
        self._look, self._clock = look, clock
        self._attend = Deadline(ATTEND_SECONDS, clock)

    def wait(self, timeout: float | None = None) -> Durability:
        """As for any receipt; raises `TryAgain` if the first append failed: append again then."""
        deadline, pause = Deadline(timeout, self._clock), threading.Event()
        while not self._reached():
            if deadline.passed():
                raise WaitTimeout(
                    f"offset {self.offset} of shard {self.shard}, which another process appends to, was not at level "
                    f"{self.level} within {timeout} s; it may still get there"
                )
            pause.wait(LOOK_SECONDS)
        return self.durability

    def __await__(self) -> Generator[Any, None, Durability]:
        # In a thread: a look reads files, and may open the shard of a process that died.
        while not (yield from asyncio.to_thread(self._reached).__await__()):
            yield from asyncio.sleep(LOOK_SECONDS).__await__()
        return self.durability

    def _reached(self) -> bool:
        if self.durability < self.level:
            attend = self._attend.passed()
            if attend:
                self._attend = Deadline(ATTEND_SECONDS, self._clock)
            if self._look(attend):
                self._group.reach(Durability.FSYNC)
        return self.durability >= self.level
