"""One thread for what a store does in the background besides sealing: writing acks, answering sources, retention."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from holdfast.clock import Clock

FROZEN_SECONDS: Final = 0.05  # before the next look at a clock that stands still, as one in a test may
Task = Callable[[], None]
_log = structlog.get_logger("holdfast.store")


class Keeper:
    """Runs each task once it is due; a task that is waiting already is not added again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = threading.Condition()
        self._due: dict[Task, float] = {}
        self._running: Task | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def soon(self, task: Task, delay: float = 0.0) -> None:
        """Run `task` in `delay` seconds at the latest."""
        due = self._clock.monotonic() + delay
        earlier = self._due.get(task)
        if earlier is not None and earlier <= due:  # the usual case, without the lock: it is run after this call
            return
        with self._wake:
            if self._closing:
                return
            self._due[task] = min(due, self._due.get(task, due))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast keep", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def forget(self, task: Task) -> None:
        """Do not run `task` any more; on return it is not running either, unless it is the caller itself."""
        with self._wake:
            self._due.pop(task, None)
            while self._running == task and threading.current_thread() is not self._thread:
                self._wake.wait()

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._due.clear()
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception as problem:  # one task must not stop the others; whoever asked for it asks again
                _log.error("a task in the background failed", task=repr(task), error=repr(problem))
            with self._wake:
                self._running = None
                self._wake.notify_all()

    def _next(self) -> Task | None:
        """The next task that is due, taken off the list; waits for it. None once closing."""
        with self._wake:
            while not self._closing:
                task = min(self._due, key=self._due.__getitem__, default=None)
                if task is None:
                    self._wake.wait()
                    continue
                now = self._clock.monotonic()
                delay = self._due[task] - now
                if delay <= 0:
                    del self._due[task]
                    self._running = task
                    return task
                if not self._wake.wait(delay) and self._clock.monotonic() == now:
                    self._wake.wait(FROZEN_SECONDS)
            return None
