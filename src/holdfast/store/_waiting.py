"""Who waits for a subscriber to have something to deliver: threads, and tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from holdfast.store._receipt import wake_once


class Waiting:
    """`mutex` is the subscriber's. True while a thread waits."""

    def __init__(self, mutex: threading.Lock) -> None:
        self._mutex = mutex
        self._wake = threading.Condition(mutex)
        self.news = 0  # counts what may have brought something to deliver
        self.threads = 0
        self.callbacks: list[Callable[[], None]] = []  # one for each task
        self._over = False

    def __bool__(self) -> bool:
        return self.threads > 0

    def wait(self, news: int, until: Callable[[], float | None]) -> None:
        """Until there is more news than this, or so many seconds have passed; `until` is called with the mutex."""
        with self._mutex:
            remaining = until()
            self.threads += 1
            try:
                self._wake.wait_for(lambda: self.news != news or self._over, remaining)
            finally:
                self.threads -= 1

    async def wait_in(self, loop: asyncio.AbstractEventLoop, news: int, until: Callable[[], float | None]) -> None:
        """The same, without blocking the event loop."""
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(wake_once, woken)

        with self._mutex:
            if self.news != news or self._over:
                return
            delay = until()
            self.callbacks.append(wake)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken, delay)
        finally:  # also when the wait is given up
            with self._mutex:
                self.callbacks = [each for each in self.callbacks if each is not wake]

    def wake_threads(self) -> None:
        """There may be room again. Called with the mutex."""
        self.news += 1
        self._wake.notify_all()

    def wake_all(self) -> None:
        """To look at the news."""
        with self._mutex:
            self._wake.notify_all()
            callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()

    def end(self) -> None:
        """Nobody waits any more: nothing will come."""
        self._over = True
        self.wake_all()
