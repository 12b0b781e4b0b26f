"""All that a shard's ack log says: progress by subscriber, batches that wait, batches that were answered."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
import numpy as np

from holdfast.acks._bounds import MAX_END, Range, joined, ranges_array
from holdfast.acks._found import Found
from holdfast.acks._progress import Progress
from holdfast.acks.outcome import Outcome
from holdfast.acks.records import AnswerRecord, BatchId, BatchRecord, BatchStatus

MAX_ANSWERS: Final = 10_000  # statuses kept for sources that come back; the oldest go first


class AckState:
    """Not thread-safe, except for each `Progress` in it.

    progress   by subscriber number
    batches    closed, and not answered yet
    answers    the last `MAX_ANSWERS`, oldest first; the first status of a batch stands
    """

    def __init__(self) -> None:
        self.progress: dict[int, Progress] = {}
        self.batches: dict[BatchId, list[Range]] = {}
        self.answers: dict[BatchId, BatchStatus] = {}

    def of(self, subscriber: int) -> Progress:
        """The subscriber's progress, begun if there is none."""
        progress = self.progress.get(subscriber)
        return self.progress.setdefault(subscriber, Progress()) if progress is None else progress

    def apply(self, found: Found) -> tuple[set[int], set[BatchId]]:
        """Take in what a scan found; the subscribers and batches that it was about."""
        subscribers = set(found.finals)
        for subscriber, runs in found.finals.items():
            progress = self.of(subscriber)
            for outcome, starts, ends in runs:
                progress.finish_bulk(np.frombuffer(starts, "u8"), np.frombuffer(ends, "u8"), Outcome(outcome))
        for (subscriber, outcome), (_, offsets, _) in found.notes.items():
            subscribers.add(subscriber)
            progress = self.of(subscriber)
            for offset in offsets:
                progress.note(offset, Outcome(outcome))
        for record in found.batches:
            if isinstance(record, BatchRecord):
                self._close(record)
            else:
                self._answer(record)
        return subscribers, {record.id for record in found.batches}

    def _close(self, record: BatchRecord) -> None:
        """A batch that is closed twice waits for the offsets of both; one that was answered stays so."""
        if record.id not in self.answers:
            given = ranges_array([*self.batches.get(record.id, ()), *record.ranges])
            pairs = joined(given[:, 0], given[:, 1]).reshape(-1, 2).tolist()
            self.batches[record.id] = [(first, end) for first, end in pairs]

    def _answer(self, record: AnswerRecord) -> None:
        self.batches.pop(record.id, None)
        self.answers.setdefault(record.id, record.status)
        if len(self.answers) > MAX_ANSWERS:
            del self.answers[next(iter(self.answers))]

    def keep(self, subscribers: Collection[int]) -> None:
        """Forget every other subscriber."""
        for gone in self.progress.keys() - set(subscribers):
            del self.progress[gone]

    def to_document(self, subscribers: Collection[int]) -> dict[str, Any]:
        """For a checkpoint, with these subscribers only."""
        return {
            "progress": {
                str(number): self.progress[number].to_document()
                for number in sorted(self.progress.keys() & set(subscribers))
            },
            "batches": [[*msgspec.structs.astuple(batch), ranges] for batch, ranges in self.batches.items()],
            "answers": [[*msgspec.structs.astuple(batch), str(status)] for batch, status in self.answers.items()],
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> AckState:
        """What `to_document` wrote; raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        made = cls()
        for number, progress in document["progress"].items():
            made.progress[int(number)] = Progress.from_document(progress)
        for *batch, ranges in document["batches"]:
            pairs = [(int(first), int(end)) for first, end in ranges]
            if not all(0 <= first < end <= MAX_END for first, end in pairs):
                raise ValueError(f"batch {batch} has a range that is empty or goes beyond {MAX_END}")
            made.batches[BatchId(*batch)] = pairs
        for *batch, status in document["answers"]:
            made.answers[BatchId(*batch)] = BatchStatus(status)
        return made
