"""What a scan finds, gathered so that it can be applied in bulk."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from holdfast.acks.outcome import LAST_FINAL
from holdfast.acks.records import AnswerRecord, BatchRecord

Run: TypeAlias = tuple[int, "array[int]", "array[int]"]  # an outcome, starts, ends


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of an ack log that say nothing any more: what they recorded is delivered again.

    `length` is 0 for what is missing altogether.
    """

    path: str
    position: int
    length: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.length} bytes passed over: {self.what}"


class Found:
    """Outcomes by subscriber, batches and answers in the order of writing, damage, and how many records there were.

    Outcomes of a subscriber are runs of equal ones: what matters is the order of different final outcomes, because the
    first one stands. Those that are not final commute with all others, and are kept apart.
    """

    def __init__(self) -> None:
        self.finals: dict[int, list[Run]] = {}
        self.notes: dict[tuple[int, int], Run] = {}
        self.batches: list[BatchRecord | AnswerRecord] = []
        self.damage: list[Damage] = []
        self.records = 0

    def run(self, subscriber: int, outcome: int) -> Run:
        """Where the next outcome of this subscriber is to be added."""
        if outcome > LAST_FINAL:
            note = self.notes.get((subscriber, outcome))
            if note is None:
                note = self.notes[subscriber, outcome] = (outcome, array("Q"), array("Q"))
            return note
        runs = self.finals.get(subscriber)
        if runs is None:
            runs = self.finals[subscriber] = []
        if not runs or runs[-1][0] != outcome:
            runs.append((outcome, array("Q"), array("Q")))
        return runs[-1]

    def add(self, subscriber: int, outcome: int, starts: np.ndarray, ends: np.ndarray) -> None:
        """Many outcomes at once."""
        _, run_starts, run_ends = self.run(subscriber, outcome)
        run_starts.frombytes(starts.tobytes())
        run_ends.frombytes(ends.tobytes())
