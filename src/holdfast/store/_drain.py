"""A subscriber's holder that reads by offset and acks whole ranges: what a query of a cluster is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from holdfast.acks import AckLog, Outcome, OutcomeRecord, Progress
from holdfast.errors import InvalidPosition
from holdfast.store._disk_error import disk_error
from holdfast.store._lane import Readable
from holdfast.store.lease import Lease
from holdfast.store.registry import Registration
from holdfast.store.shard_checkpoint import Range


class Home(Protocol):
    """What a drain asks of its topic."""

    @property
    def name(self) -> str: ...

    def shards(self) -> Sequence[Readable]: ...

    def acks(self, shard: int) -> AckLog: ...

    def acks_written(self, shard: int) -> None: ...


class Drain:
    """Made by `Topic.drain`. It delivers nothing: whoever holds it reads with `Topic.read` or another process does."""

    def __init__(self, home: Home, registration: Registration, lease: Lease) -> None:
        self.name, self.epoch = registration.name, lease.epoch
        self._home, self._registration, self._lease = home, registration, lease

    def positions(self) -> dict[int, int]:
        """For each shard the watermark: everything below it has a final outcome."""
        return {shard.number: self.progress(shard.number).watermark for shard in self._home.shards()}

    def progress(self, shard: int) -> Progress:
        """How far it is in a shard, by the ack log as it is now."""
        acks = self._home.acks(shard)
        acks.refresh()
        progress = acks.progress(self._registration.number)
        progress.begin(self._registration.start(shard))
        return progress

    def ack(self, ranges: Mapping[int, Range], *, sync: bool = False) -> None:
        """Everything from `first` to before `end` is delivered, for each shard. What was final before stays as it is.

        Raises `Fenced` when another holder has taken over; then nothing was written for that shard and those after it.
        """
        ack_ranges(self._home, self._registration, ranges, sync=sync, guard=self.check, epoch=self.epoch)

    def check(self) -> None:
        """Raises `Fenced` if another holder has taken over, or if the subscriber was removed."""
        self._lease.check()

    def close(self) -> None:
        """Let go of the lease; the subscriber stays registered, and what it has not finished is kept."""
        self._lease.release()

    def __enter__(self) -> Drain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ack_ranges(
    home: Home,
    registration: Registration,
    ranges: Mapping[int, Range],
    *,
    sync: bool,
    guard: Callable[[], None],
    epoch: int = 0,
) -> None:
    """Write down that a subscriber has had these ranges, if `guard` lets it; nothing if any of them cannot be."""
    for number, (first, end) in ranges.items():
        _check_range(home, number, first, end)
    for number, (first, end) in ranges.items():
        if first < end:
            record = OutcomeRecord.of_ranges(registration.number, Outcome.ACK, [(first, end)])
            try:
                home.acks(number).append([record], sync=sync, guard=guard, epoch=epoch)
            except OSError as problem:
                raise disk_error(problem, f"acks of {registration.name}") from problem
            home.acks_written(number)


def _check_range(home: Home, number: int, first: int, end: int) -> None:
    """Only what is durable can have been delivered: an ack beyond it would skip what is appended later."""
    for shard in home.shards():
        if shard.number == number:
            if not 0 <= first <= end <= shard.durable:
                raise InvalidPosition(
                    f"offsets {first} to {end} of shard {number} of {home.name}: it is durable up to {shard.durable}; "
                    "ack only what was read"
                )
            return
    raise InvalidPosition(f"{home.name} has no shard {number}; it has {[shard.number for shard in home.shards()]}")
