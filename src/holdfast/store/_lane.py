"""What a subscriber does in one shard: where it reads, what it has in hand, what it has yet to write down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import structlog

from holdfast.acks import AckLog, Outcome, OutcomeRecord, Progress
from holdfast.store._delivery import Delivery
from holdfast.store._span import PlacedBundle, Span
from holdfast.store.shard_checkpoint import Range

_log = structlog.get_logger("holdfast.store")


class Readable(Protocol):
    """A shard, as far as a lane needs it."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def durable(self) -> int: ...

    def span(self, position: int, end: int | None) -> Span | None: ...

    def lost(self) -> Sequence[Range]: ...


class Lane:
    """The subscriber's mutex guards what is in hand and what is to be written; one thread at a time reads."""

    def __init__(self, shard: Readable, acks: AckLog, number: int, start: int) -> None:
        self.shard, self.acks = shard, acks
        self._number, self._start = number, start
        self._progress: Progress | None = None
        self.in_flight: dict[int, Delivery] = {}
        self.retrying: dict[int, float] = {}  # offset -> when it is due
        self.attempts: dict[int, tuple[int, int]] = {}  # tries and failures, of offsets that were nacked
        self.acked: list[int] = []
        self.noted: list[OutcomeRecord] = []
        self._cursor = self.progress.watermark
        self._placed: Iterator[PlacedBundle] = iter(())
        self.mean_size = 0  # bytes of a bundle where this lane reads now

    @property
    def progress(self) -> Progress:
        """As the ack log has it, which may have read its state anew meanwhile."""
        progress = self.acks.progress(self._number)
        if progress is not self._progress:
            progress.begin(self._start)
            self._progress = progress
        return progress

    @property
    def has_attempts(self) -> bool:
        """Whether any bundle was tried before; a `Progress` that was replaced meanwhile knows of no fewer tries."""
        return bool(self.attempts) or (self._progress is not None and self._progress.has_attempts)

    @property
    def oldest(self) -> Delivery | None:
        """What has been in flight for longest; all deadlines are equally long, and a dict keeps its order."""
        return next(iter(self.in_flight.values()), None)

    def read(self) -> PlacedBundle | None:
        """The next bundle that has no final outcome, in offset order; `None` when there is none yet."""
        while True:
            for placed in self._placed:
                self._cursor = placed.offset + 1
                return placed
            span = self._next_span()
            if span is None:
                return None
            self._placed = span.bundles(None)
            self.mean_size = span.mean_size

    def rewind(self, offset: int) -> None:
        """Read on from here once more: what was read could not be handed out."""
        self._cursor, self._placed = offset, iter(())

    def read_again(self, offset: int) -> PlacedBundle | None:
        """The bundle at `offset`; `None` when it is final by now, or gone."""
        if self.progress.is_final(offset):
            return None
        span = self.shard.span(offset, offset + 1)
        return None if span is None or span.start != offset else next(iter(span.bundles(None)))

    def _next_span(self) -> Span | None:
        """Bundles from the cursor on, all of them without a final outcome."""
        while True:
            position = self.progress.next_unfinished(self._cursor)
            span = self.shard.span(position, None)
            if span is None:
                return None
            if span.start > position:
                self._pass_over(position, span.start)
            ranges = self.progress.unfinished(span.start, span.end)
            self._cursor = ranges[0][0] if ranges else span.end
            if ranges and ranges[0] == (span.start, span.end):
                return span
            if ranges:
                part = self.shard.span(*ranges[0])
                if part is not None and part.start == self._cursor:
                    return part

    def _pass_over(self, first: int, end: int) -> None:
        """Nothing is there any more. What has no outcome yet gets one, or the watermark would stop here for ever."""
        self.acks.refresh()
        lost = self.shard.lost()
        for hole in self.progress.unfinished(first, end):
            never = [part for each in lost if (part := (max(hole[0], each[0]), min(hole[1], each[1])))[0] < part[1]]
            if never:  # their append failed
                self.noted.append(OutcomeRecord.of_ranges(self._number, Outcome.ACK, never))
            gone = _without(hole, never)
            if gone:
                _log.warning("bundles are gone without an outcome", shard=self.shard.name, ranges=gone)
                self.noted.append(
                    OutcomeRecord.of_ranges(self._number, Outcome.DROPPED, gone, reason="not there any more")
                )


def _without(whole: Range, parts: Sequence[Range]) -> list[Range]:
    left, position = [], whole[0]
    for first, end in sorted(parts):
        if position < first:
            left.append((position, first))
        position = max(position, end)
    return [*left, (position, whole[1])] if position < whole[1] else left
