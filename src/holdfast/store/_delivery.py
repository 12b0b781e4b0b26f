"""A bundle on its way through a subscriber's hands."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.bundle import RecordBundle
from holdfast.errors import AlreadySettled

if TYPE_CHECKING:
    from holdfast.store._lane import Lane


Rows = tuple[str, list[int]]  # a slot, and which of its rows


class Answer(Enum):
    """What is known of a delivery; those that are answered may not be again."""

    OPEN = "open"
    LAPSED = "lapsed"  # its deadline passed: it counts as nacked, though a late ack is still welcome
    MOOT = "moot"  # an earlier delivery of the bundle got its final answer late: this one's counts no more
    ANSWERED = "answered"


class Settler(Protocol):
    """Who takes the answers: the subscriber."""

    def ack(self, delivery: Delivery) -> None: ...

    def nack(self, delivery: Delivery, reason: str, retry_in: float | None, *, transient: bool) -> None: ...

    def reject(self, delivery: Delivery, reason: str) -> None: ...

    def reject_rows(self, delivery: Delivery, slot: str, rows: Iterable[int], reason: str) -> None: ...


class Delivery(msgspec.Struct, eq=False):
    """One attempt to deliver one bundle. Answer it once: `ack`, `nack` or `reject`; silence counts as a nack.

    As a context manager it acks at the end, or nacks with the error that ended the block.
    """

    bundle: RecordBundle
    shard: int
    offset: int
    attempt: int  # 1 for the first
    expires: float  # monotonic
    _lane: Lane
    _settler: Settler
    answer: Answer = Answer.OPEN

    def ack(self) -> None:
        """Delivered, or left out on purpose. Written down within a few milliseconds; `Subscriber.flush` does it now."""
        self._settler.ack(self)

    def nack(self, reason: str = "", retry_in: float | None = None, *, transient: bool = False) -> None:
        """Not delivered: try again after `retry_in` seconds, by default after a pause that grows with each attempt.

        Unless the failure is `transient` (the sink is away, not this bundle at fault) it uses up one of
        `max_attempts`; after the last one the bundle is rejected.
        """
        self._settler.nack(self, reason, retry_in, transient=transient)

    def reject(self, reason: str) -> None:
        """Never deliver it again: keep it in the dead-letter topic. Durable on return."""
        self._settler.reject(self, reason)

    def reject_rows(self, slot: str, rows: Iterable[int], reason: str) -> None:
        """Keep these rows of a slot in the dead-letter topic, durable on return; `ack` answers for the others."""
        self._settler.reject_rows(self, slot, rows, reason)

    def expect_open(self) -> None:
        if self.answer is Answer.ANSWERED:
            raise AlreadySettled(f"the delivery of offset {self.offset} of shard {self.shard} was answered before")

    def __enter__(self) -> Delivery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.answer is Answer.ANSWERED:
            return
        if error is None:
            self.ack()
        else:  # who is interrupted says nothing about the bundle
            self.nack(f"{type(error).__name__}: {error}", transient=not isinstance(error, Exception))

    def __repr__(self) -> str:
        return f"<Delivery offset {self.offset} of shard {self.shard}, attempt {self.attempt}, {self.answer.value}>"
