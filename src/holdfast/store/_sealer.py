"""One thread that seals for all shards of a store, beside appends and not in their way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from holdfast.clock import Clock
from holdfast.files import Files
from holdfast.store._shard import Shard

PRESSURE_CHECK_SECONDS: Final = 5.0
FIRST_RETRY_SECONDS: Final = 0.2
LAST_RETRY_SECONDS: Final = 30.0
_log = structlog.get_logger("holdfast.store")


class Sealer:
    """Seals what is full, what has been open for too long, and everything when the disk runs short."""

    def __init__(self, files: Files, folder: Path, clock: Clock, min_free_disk: Callable[[Shard], float]) -> None:
        self._files, self._folder, self._clock = files, folder, clock
        self._min_free_disk = min_free_disk
        self._wake = threading.Condition()
        self._shards: list[Shard] = []
        self._due: list[Shard] = []
        self._retry_at: dict[Shard, tuple[float, float]] = {}  # when, and after how long a pause
        self._closing = False
        self._sleeps_until = 0.0
        self._next_pressure_check = clock.monotonic() + PRESSURE_CHECK_SECONDS
        self._thread: threading.Thread | None = None

    def add(self, shard: Shard) -> None:
        with self._wake:
            self._shards.append(shard)
            if shard.has_work:
                self._due.append(shard)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast seal", daemon=True)
                self._thread.start()
            self._wake.notify()

    def due(self, shard: Shard) -> None:
        """This shard has a full segment."""
        with self._wake:
            if shard in self._shards and shard not in self._due:
                self._due.append(shard)
            self._wake.notify()

    def opened(self, deadline: float) -> None:
        """A segment was opened that is to be sealed by then."""
        if deadline < self._sleeps_until:
            with self._wake:
                self._wake.notify()

    def remove(self, shard: Shard) -> None:
        """This shard is about to close, and seals for itself from now on."""
        with self._wake:
            self._shards = [each for each in self._shards if each is not shard]
            self._due = [each for each in self._due if each is not shard]
            self._retry_at.pop(shard, None)

    def close(self) -> None:
        """End the thread; shards seal what is left when they close."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and not self._ready() and (delay := self._delay()) > 0:
                    self._sleeps_until = self._clock.monotonic() + delay
                    self._wake.wait(delay)
                self._sleeps_until = 0.0
                if self._closing:
                    return
                shards, due = list(self._shards), self._ready()
            for shard in due:
                self._seal(shard)
            now = self._clock.monotonic()
            for shard in shards:
                deadline = shard.seal_deadline()
                if deadline is not None and deadline <= now:
                    self._attempt(shard, shard.roll)
            self._relieve(shards, now)

    def _ready(self) -> list[Shard]:
        now = self._clock.monotonic()
        return [shard for shard in self._due if self._retry_at.get(shard, (0.0, 0.0))[0] <= now]

    def _delay(self) -> float:
        now = self._clock.monotonic()
        moments = [self._next_pressure_check]
        moments += [deadline for shard in self._shards if (deadline := shard.seal_deadline()) is not None]
        moments += [self._retry_at[shard][0] for shard in self._due if shard in self._retry_at]
        return min(moments) - now

    def _seal(self, shard: Shard) -> None:
        if self._attempt(shard, shard.seal_next):
            with self._wake:
                self._retry_at.pop(shard, None)
                if not shard.has_work and shard in self._due:
                    self._due.remove(shard)

    def _attempt(self, shard: Shard, action: Callable[[], object]) -> bool:
        """Whatever goes wrong with one shard is tried again later, and stops no other."""
        try:
            action()
        except Exception as problem:
            with self._wake:
                _, pause = self._retry_at.get(shard, (0.0, FIRST_RETRY_SECONDS / 2))
                pause = min(pause * 2, LAST_RETRY_SECONDS)
                self._retry_at[shard] = (self._clock.monotonic() + pause, pause)
            _log.warning("sealing failed; nothing is lost, the WAL keeps it", shard=shard.name, error=repr(problem))
            return False
        return True

    def _relieve(self, shards: list[Shard], now: float) -> None:
        """Seal early when the disk runs short: a sealed bundle stands in one place, not in two."""
        if now < self._next_pressure_check:
            return
        self._next_pressure_check = now + PRESSURE_CHECK_SECONDS
        try:
            free, total = self._files.free_bytes(self._folder)
        except OSError as problem:
            _log.warning("free space is unknown", folder=str(self._folder), error=str(problem))
            return
        for shard in shards:
            if free < total * self._min_free_disk(shard):
                self._attempt(shard, shard.relieve)
