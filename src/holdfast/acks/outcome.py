"""What became of a bundle for a subscriber."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Outcome(IntEnum):
    """The first three are final, in rising order of how bad they are; the number is what stands on disk."""

    ACK = 1  # delivered, filtered out on purpose, or delivered with some rows dead-lettered
    REJECTED = 2  # dead-lettered
    DROPPED = 3  # given up by policy
    NACK = 4  # will be retried; does not use up an attempt
    FAILED = 5  # will be retried; uses up one attempt

    @property
    def is_final(self) -> bool:
        """Whether the offset is done with: nothing recorded later changes it."""
        return self <= LAST_FINAL


LAST_FINAL: Final = 3  # the highest number of a final outcome
