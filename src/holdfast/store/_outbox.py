"""A subscriber's answers on their way into the ack logs: soon, many at a time, and never without its lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from holdfast.acks import Outcome, OutcomeRecord
from holdfast.errors import HoldfastError, TryAgain
from holdfast.store._disk_error import disk_error
from holdfast.store._keeper import Keeper
from holdfast.store._lane import Lane
from holdfast.store.lease import Lease

FLUSH_SECONDS: Final = 0.005  # an answer is written down after so long at most
FLUSH_COUNT: Final = 512  # or as soon as so many wait for it
RETRY_SECONDS: Final = 1.0  # after the disk refused
_log = structlog.get_logger("holdfast.store")


class Outbox:
    """What is to be written stands in the lanes; `mutex` is the subscriber's, and guards it."""

    def __init__(
        self,
        name: str,
        number: int,
        lease: Lease,
        keeper: Keeper,
        mutex: threading.Lock,
        lanes: Callable[[], Iterable[Lane]],
        wrote: Callable[[int], None],
        ended: Callable[[HoldfastError], None],
    ) -> None:
        self._name, self._number, self._lease, self._keeper = name, number, lease, keeper
        self._mutex, self._lanes, self._wrote, self._ended = mutex, lanes, wrote, ended
        self._writing = threading.Lock()  # one thread at a time
        self.unwritten = 0
        self._asked = False  # does the keeper know that there is something to write?

    def add(self, count: int = 1) -> int:
        """There is more to write, by the keeper at the latest; how much in all. Called with the mutex."""
        self.unwritten += count
        if not self._asked:
            self._asked = True
            self._keeper.soon(self.flush_late, FLUSH_SECONDS)
        return self.unwritten

    def flush(self, *, sync: bool = False) -> None:
        """Write everything down; with `sync` also what was written before is durable on return.

        Raises `DiskFull` or `DiskFault`, and keeps what could not be written; `Fenced`, and the subscriber has ended.
        """
        if not self.unwritten and not sync and not self._writing.locked():
            return
        with self._writing:
            with self._mutex:
                lanes = list(self._lanes())
                taken = [(lane, lane.acked, lane.noted) for lane in lanes if lane.acked or lane.noted]
                for lane, _, _ in taken:
                    lane.acked, lane.noted = [], []
                self.unwritten, self._asked = 0, False
            try:
                while taken:
                    self._write(*taken[0], sync=sync)
                    taken.pop(0)
                if sync:
                    self._sync(lanes)
            except HoldfastError as problem:  # fenced, for one
                self._ended(problem)
                raise
            except OSError as problem:
                with self._mutex:
                    for lane, acked, noted in taken:
                        lane.acked, lane.noted = [*acked, *lane.acked], [*noted, *lane.noted]
                        self.add(len(acked) + len(noted))
                raise disk_error(problem, f"acks of {self._name}") from problem

    def _write(self, lane: Lane, acked: list[int], noted: Sequence[OutcomeRecord], *, sync: bool) -> None:
        records = list(noted)
        if acked:
            records.append(OutcomeRecord.of_offsets(self._number, Outcome.ACK, acked))
        lane.acks.append(records, sync=sync, guard=self._lease.check, epoch=self._lease.epoch)
        self._wrote(lane.shard.number)

    def _sync(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            lane.acks.refresh()
            lane.acks.sync()

    def flush_late(self) -> None:
        """For the keeper: nobody waits for it, so a disk that refuses is asked again later."""
        try:
            self.flush()
        except TryAgain as problem:
            _log.warning("acks could not be written; tried again", subscriber=self._name, error=str(problem))
            self._keeper.soon(self.flush_late, RETRY_SECONDS)
        except HoldfastError as problem:
            _log.warning("subscriber ended", subscriber=self._name, error=str(problem))

    def close(self) -> None:
        """The keeper is not to write any more."""
        self._keeper.forget(self.flush_late)
