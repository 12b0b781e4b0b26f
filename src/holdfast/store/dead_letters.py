"""What a subscriber rejected, kept in the topic `<name>.dead` as a bundle that says where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from holdfast.bundle import RecordBundle
from holdfast.config.settings import DEAD_SUFFIX
from holdfast.errors import InputError, InvalidBundle, UnknownSlot
from holdfast.store._delivery import Delivery, Rows
from holdfast.store.registry import Registration
from holdfast.store.reserved import DEAD, PREFIX

MAX_REASON_LENGTH: Final = 1024  # characters; attributes are bounded, and a reason is not a place for data
ROWS_IN_A_LETTER: Final = 1_000  # their numbers are kept in attributes, which are bounded

__all__ = ["DEAD_SUFFIX", "DeadLetter", "rows_of_letters"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A bundle, or some rows of one, that a subscriber will not take."""

    topic: str
    subscriber: str
    number: int  # the subscriber's
    shard: int
    offset: int
    reason: str
    attempts: int
    time_ns: int
    bundle: RecordBundle
    slot: str | None = None  # with `rows`: only these rows of this slot
    rows: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        topic: str,
        registration: Registration,
        delivery: Delivery,
        attempts: int,
        reason: str,
        rows: Rows | None,
        time_ns: int,
    ) -> DeadLetter:
        bundle = delivery.bundle
        if rows is not None:
            slot, numbers = rows
            kept = {slot: bundle[slot].take(pa.array(numbers, pa.int64()))}
            bundle = RecordBundle(kept, bundle.attributes, event_time=bundle.event_time)
        return cls(
            topic, registration.name, registration.number, delivery.shard, delivery.offset,
            reason.encode(errors="replace").decode()[:MAX_REASON_LENGTH], attempts, time_ns, bundle,
            None if rows is None else rows[0], None if rows is None else tuple(rows[1]),
        )  # fmt: skip

    @property
    def key(self) -> str:
        """The same for the same rejection, so that it is kept once however often it is repeated after a crash."""
        which = hashlib.sha256(repr((self.slot, self.rows)).encode()).hexdigest()[:16]
        return f"dead:{self.topic}:{self.number}:{self.shard}:{self.offset}:{which}"

    def to_bundle(self) -> RecordBundle:
        """As it is stored."""
        about = {
            "topic": self.topic, "subscriber": self.subscriber, "number": self.number,
            "shard": self.shard, "offset": self.offset, "reason": self.reason,
            "attempts": self.attempts, "time_ns": self.time_ns,
            "slot": self.slot, "rows": None if self.rows is None else _packed(self.rows),
        }  # fmt: skip
        own = {name: value for name, value in self.bundle.attributes.items() if not name.startswith(PREFIX)}
        return RecordBundle(self.bundle.slots, {**own, DEAD: about}, event_time=self.bundle.event_time)

    @classmethod
    def from_bundle(cls, bundle: RecordBundle) -> DeadLetter:
        """Raises `InvalidBundle` if it is no dead letter."""
        about = bundle.attributes.get(DEAD)
        try:
            if not isinstance(about, Mapping):
                raise TypeError(f"its attribute {DEAD} is {about!r}")
            rows = about["rows"]
            return cls(
                str(about["topic"]), str(about["subscriber"]), int(about["number"]), int(about["shard"]),
                int(about["offset"]), str(about["reason"]), int(about["attempts"]), int(about["time_ns"]),
                bundle, about["slot"], None if rows is None else _unpacked(rows),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as problem:
            raise InvalidBundle(f"offset {bundle.offset} is no dead letter: {problem!r}") from None

    def original(self) -> RecordBundle:
        """The bundle as it was appended, or what is left of it, without what Holdfast added."""
        own = {name: value for name, value in self.bundle.attributes.items() if not name.startswith(PREFIX)}
        return RecordBundle(self.bundle.slots, own, event_time=self.bundle.event_time)


def rows_of_letters(bundle: RecordBundle, slot: str, rows: Iterable[int]) -> list[Rows]:
    """Rows of a bundle that are to be rejected, as many at a time as a letter holds.

    Raises `UnknownSlot` or `InputError` if the bundle does not have them, or if there are none.
    """
    if slot not in bundle:
        raise UnknownSlot(f"no slot {slot!r} in this bundle; it has {', '.join(bundle)}")
    batch = bundle[slot]
    wanted = sorted({int(row) for row in rows})
    bad = [row for row in wanted if not 0 <= row < batch.num_rows]
    if bad or not wanted:
        raise InputError(f"rows {bad or wanted} of slot {slot!r}: it has the rows 0 to {batch.num_rows - 1}")
    return [(slot, wanted[first : first + ROWS_IN_A_LETTER]) for first in range(0, len(wanted), ROWS_IN_A_LETTER)]


def _packed(rows: tuple[int, ...]) -> list[Any]:
    """Runs as [first, end]: attributes are bounded, and rejected rows often come in runs."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][1] == row:
            runs[-1][1] = row + 1
        else:
            runs.append([row, row + 1])
    return runs


def _unpacked(runs: list[list[int]]) -> tuple[int, ...]:
    return tuple(row for first, end in runs for row in range(first, end))
