"""What follows from outcomes and from time passing, for one topic: answers, deletions, rotation, expiry, adoption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from holdfast.acks import AckLog
from holdfast.clock import Clock
from holdfast.config import BufferSettings
from holdfast.errors import HoldfastError
from holdfast.store._finalizers import Finalizers
from holdfast.store._keeper import Keeper
from holdfast.store._subscriptions import Subscriptions
from holdfast.store._sweeper import Sweeper

UPKEEP_SECONDS: Final = 0.01  # after an outcome was written: so that one look serves many
RETRY_SECONDS: Final = 1.0
PRESSED_SECONDS: Final = 0.25  # while a bound makes appends wait
ADOPT_SECONDS: Final = 1.0  # a shard that nobody holds is looked after so long after outcomes for it at the latest
_log = structlog.get_logger("holdfast.store")


class Kept(Protocol):
    """What upkeep asks of its topic."""

    @property
    def name(self) -> str: ...

    @property
    def sweeper(self) -> Sweeper | None: ...

    @property
    def own_shard(self) -> int | None: ...

    def ack_logs(self) -> Mapping[int, AckLog]: ...

    def is_orphan(self, shard: int) -> bool: ...

    def adopt(self, shard: int, wanted_bytes: int) -> int: ...


class Upkeep:
    """Runs on the store's keeper thread."""

    def __init__(
        self,
        topic: Kept,
        settings: BufferSettings,
        keeper: Keeper,
        clock: Clock,
        finalizers: Finalizers,
        subscriptions: Subscriptions,
    ) -> None:
        self._topic, self._settings = topic, settings
        self._keeper, self._clock = keeper, clock
        self._finalizers, self._subscriptions = finalizers, subscriptions
        self._closed = False

    def begin(self) -> None:
        """This process owns a shard from now on."""
        self._keeper.soon(self._grant)
        self._keeper.soon(self.check)

    def soon(self, delay: float = 0.0) -> None:
        if not self._closed:
            self._keeper.soon(self.run, delay)

    def orphan_changed(self) -> None:
        """There are outcomes for a shard that this process does not own."""
        if not self._closed and self._topic.sweeper is not None:
            self._keeper.soon(self._adopt, ADOPT_SECONDS)

    def wants_grant(self) -> None:
        if not self._closed:
            self._keeper.soon(self._grant)

    def run(self) -> None:
        """After outcomes were written: answer sources, delete what everyone has finished."""
        self._run(pressed=False)

    def _run(self, *, pressed: bool) -> None:
        try:
            logs = self._topic.ack_logs()
            for log in logs.values():
                log.refresh()
            self._finalizers.settle(self._answering(logs), logs)
            sweeper, own = self._topic.sweeper, self._topic.own_shard
            if sweeper is None or own is None:
                return
            if sweeper.sweep(pressed=pressed or sweeper.is_pressed):
                self.soon()
            elif sweeper.is_pressed:
                self.soon(PRESSED_SECONDS)
            if logs[own].needs_rotation:
                self._rotate(logs[own])
        except (OSError, HoldfastError) as problem:
            self._later("looking after the topic failed; tried again", self.run, problem)

    def _answering(self, logs: Mapping[int, AckLog]) -> list[int]:
        """The shards whose batches this process answers: its own, and those that nobody holds."""
        own = self._topic.own_shard
        if own is None:
            return []
        waiting = [number for number, log in logs.items() if number != own and log.state.batches]
        return [own, *(number for number in waiting if self._topic.is_orphan(number))]

    def _rotate(self, log: AckLog) -> None:
        with log.exclusive():
            log.rotate(self._subscriptions.registry().numbers)

    def check(self) -> None:
        """Every `check_interval`: whatever depends on time, and not on anything that happens."""
        try:
            self._expire()
            self._adopt()
        except (OSError, HoldfastError) as problem:
            self._later("looking after the topic failed; tried again", self.check, problem)
        self._run(pressed=True)
        if not self._closed:
            self._keeper.soon(self.check, self._settings.retention.check_interval)

    def _expire(self) -> None:
        """Remove subscribers that nobody has held for as long as they allow."""
        now = self._clock.now_ns()
        for name, registration in self._subscriptions.registry().subscribers.items():
            if registration.expire_after is None:
                continue
            if self._subscriptions.holder(name) is not None:
                continue
            if registration.absent_since_ns is None:
                self._subscriptions.change(name, absent_since_ns=now)
            elif now - registration.absent_since_ns > registration.expire_after * 1e9:
                why = f"nobody held it for {registration.expire_after:g} s"
                self._subscriptions.remove(name, why, kind="expired")

    def _adopt(self) -> None:
        """Shards left behind by processes that are gone: delete there too what everyone has finished."""
        own = self._topic.own_shard
        if own is None:
            return
        for number in self._topic.ack_logs():
            if number != own and self._topic.is_orphan(number):
                self._topic.adopt(number, 0)

    def _grant(self) -> None:
        """The shard has used up half of what the budget granted: ask for more, and make room if that is refused."""
        sweeper = self._topic.sweeper
        if sweeper is None:
            return
        try:
            again = sweeper.ask_for_grant()
            if again is not None and not self._closed:
                sweeper.sweep()
                if sweeper.ask_for_grant() is not None:
                    self._keeper.soon(self._grant, again)
        except (OSError, HoldfastError) as problem:
            self._later("the budget could not be asked; tried again", self._grant, problem)

    def _later(self, what: str, task: Callable[[], None], problem: Exception) -> None:
        _log.warning(what, topic=self._topic.name, error=str(problem))
        if not self._closed:
            self._keeper.soon(task, RETRY_SECONDS)

    def close(self) -> None:
        self._closed = True
        for task in (self.run, self.check, self._grant, self._adopt):
            self._keeper.forget(task)
