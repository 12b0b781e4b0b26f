"""What is written into an ack log."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec
from numpy.typing import NDArray

from holdfast.acks._bounds import Bounds, Range, offsets_array, ranges_array
from holdfast.acks.outcome import Outcome
from holdfast.errors import InputError

MAX_ID_LENGTH: Final = 128  # characters of each part of a batch's identity


class BatchStatus(StrEnum):
    """What a source is told about its batch, from best to worst."""

    DELIVERED = "delivered"
    ERRORED = "errored"
    REJECTED = "rejected"
    DROPPED = "dropped"


class BatchId(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The stable identity of a source's batch; `InputError` unless each part has 1 to 128 characters."""

    source: str
    run: str
    batch: str

    def __post_init__(self) -> None:
        for name, part in (("source", self.source), ("run", self.run), ("batch", self.batch)):
            if not isinstance(part, str) or not 1 <= len(part) <= MAX_ID_LENGTH:
                raise InputError(f"a batch's {name} is a text of 1 to {MAX_ID_LENGTH} characters; found {part!r:.80}")


class OutcomeRecord(msgspec.Struct, frozen=True, eq=False):
    """One outcome of a subscriber for many offsets: single ones, or ranges (rows of two); make it with `of_...`."""

    subscriber: int
    outcome: Outcome
    entries: Bounds
    reason: str = ""

    @classmethod
    def of_offsets(
        cls, subscriber: int, outcome: Outcome, offsets: Sequence[int] | NDArray[Any], *, reason: str = ""
    ) -> OutcomeRecord:
        """For single offsets, in any order."""
        return cls(_subscriber(subscriber), Outcome(outcome), offsets_array(offsets), reason)

    @classmethod
    def of_ranges(
        cls, subscriber: int, outcome: Outcome, ranges: Sequence[Range] | NDArray[Any], *, reason: str = ""
    ) -> OutcomeRecord:
        """For ranges of offsets, in any order."""
        return cls(_subscriber(subscriber), Outcome(outcome), ranges_array(ranges), reason)

    @property
    def is_ranges(self) -> bool:
        return self.entries.ndim == 2


class BatchRecord(msgspec.Struct, frozen=True):
    """A source's batch is closed, and consists of these offsets of this shard."""

    id: BatchId
    ranges: Sequence[Range]


class AnswerRecord(msgspec.Struct, frozen=True):
    """A source's batch has its status; nothing will change it."""

    id: BatchId
    status: BatchStatus


Record: TypeAlias = OutcomeRecord | BatchRecord | AnswerRecord


def _subscriber(number: int) -> int:
    if not 0 <= number < 2**32:
        raise InputError(f"{number} is not the number of a subscriber: 0 to {2**32 - 1}")
    return number
