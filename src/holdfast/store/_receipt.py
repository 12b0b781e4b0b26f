"""What an append hands back, and the group whose fate it shares."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, Protocol

from holdfast.durability import Durability
from holdfast.errors import HoldfastError, WaitTimeout


class Group:
    """Appends that are written and synced together. It reaches one level after the other, or fails."""

    __slots__ = ("_callbacks", "_condition", "failure", "reached")

    def __init__(self) -> None:
        self.reached = Durability.MEMORY
        self.failure: Callable[[], HoldfastError] | None = None  # makes a fresh exception for each caller
        self._condition = threading.Condition(threading.Lock())
        self._callbacks: list[Callable[[], None]] = []

    def reach(self, level: Durability) -> None:
        with self._condition:
            self.reached = level
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            callback()

    def fail(self, failure: Callable[[], HoldfastError]) -> None:
        with self._condition:
            self.failure = failure
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            callback()

    def settled(self, level: Durability) -> bool:
        return self.reached >= level or self.failure is not None

    def wait(self, level: Durability, timeout: float | None) -> bool:
        """True when the level was reached or never will be; False when time ran out first."""
        with self._condition:
            return self._condition.wait_for(lambda: self.settled(level), timeout)

    def on_change(self, level: Durability, callback: Callable[[], None]) -> None:
        """Call `callback` at the next change, or now if there is nothing left to wait for."""
        with self._condition:
            if not self.settled(level):
                self._callbacks.append(callback)
                return
        callback()


class Leader(Protocol):
    """Who can commit a group at once, in the caller's own thread."""

    def lead(self, group: Group) -> None: ...

    def nudge(self) -> None: ...


class Receipt:
    """Says where a bundle is, and how durable it has become."""

    __slots__ = ("_group", "_leader", "level", "offset", "shard")

    def __init__(self, offset: int, shard: int, level: Durability, group: Group, leader: Leader) -> None:
        self.offset = offset
        self.shard = shard
        self.level = level  # what was asked for
        self._group = group
        self._leader = leader

    @property
    def durability(self) -> Durability:
        """The level reached so far."""
        return self._group.reached

    @property
    def failed(self) -> bool:
        """It was not stored durably, and never will be."""
        return self._group.failure is not None and self._group.reached < Durability.FSYNC

    def at(self, level: Durability) -> Receipt:
        """A receipt of the same bundle that resolves at `level`."""
        return Receipt(self.offset, self.shard, level, self._group, self._leader)

    def wait(self, timeout: float | None = None) -> Durability:
        """Block until the level asked for is reached, and return the level reached.

        Without a timeout an idle caller commits in its own thread, which saves the hand-over to the committer's.

        Raises `WaitTimeout` (the bundle may still make it), or why it failed: then it was not stored durably.
        """
        group, level = self._group, self.level
        if group.reached < level:
            if timeout is None:
                self._leader.lead(group)
            else:  # a disk that hangs would hold the caller beyond any timeout
                self._leader.nudge()
            if group.reached < level and not group.wait(level, timeout):
                raise WaitTimeout(
                    f"offset {self.offset} was not at level {level} within {timeout} s; it may still get there"
                )
        return self._result()

    def _result(self) -> Durability:
        group = self._group
        if group.reached < self.level and group.failure is not None:
            raise group.failure()
        return group.reached

    def __await__(self) -> Generator[Any, None, Durability]:
        """The same without blocking the event loop."""
        self._leader.nudge()
        while not self._group.settled(self.level):
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._group.on_change(self.level, lambda loop=loop, future=future: _wake(loop, future))  # type: ignore[misc]
            yield from future.__await__()
        return self._result()

    def __repr__(self) -> str:
        return f"Receipt(shard={self.shard}, offset={self.offset}, durability={self.durability})"


def wake_once(future: asyncio.Future[None]) -> None:
    """For a future that may be done already, or given up."""
    if not future.done():
        future.set_result(None)


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(wake_once, future)
