"""How far a subscriber is in a shard: the watermark, and what is final above it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.acks._bounds import MAX_END, Bounds, Range, joined, offsets_array, ranges_array
from holdfast.acks._intervals import IntervalSet
from holdfast.acks._packed import pack, unpack
from holdfast.acks.outcome import Outcome
from holdfast.errors import InvalidPosition

# Unfinished offsets whose tries are remembered. When one more comes, the one noted first is forgotten: it gets more
# attempts than it should, and is not lost.
MAX_NOTED: Final = 100_000
_FEW: Final = 24  # up to so many ranges, one by one is quicker than in bulk


class Progress:
    """The outcomes of one subscriber in one shard. The first final outcome of an offset stands. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watermark = 0
        self._final = IntervalSet()  # above the watermark, and never touching it
        self._worse = {Outcome.REJECTED: IntervalSet(), Outcome.DROPPED: IntervalSet()}  # below it, too
        self._noted: dict[int, tuple[int, int]] = {}  # offset -> tries, failures; in the order of the first

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def watermark(self) -> int:
        """Everything below it has a final outcome, or is none of this subscriber's business."""
        return self._watermark

    @property
    def end(self) -> int:
        """One above the highest offset with a final outcome."""
        with self._lock:
            return max(self._watermark, self._final.end)

    @property
    def gap_count(self) -> int:
        """How many intervals are final above the watermark."""
        return self._final.count

    @property
    def final_above(self) -> int:
        """How many offsets are final above the watermark."""
        return self._final.size

    @property
    def rejected(self) -> int:
        """How many offsets were rejected, as far as they are not pruned."""
        return self._worse[Outcome.REJECTED].size

    @property
    def dropped(self) -> int:
        """How many offsets were dropped, as far as they are not pruned."""
        return self._worse[Outcome.DROPPED].size

    def is_final(self, offset: int) -> bool:
        with self._lock:
            return offset < self._watermark or offset in self._final

    def next_unfinished(self, offset: int) -> int:
        """The lowest offset from this one on that is not final."""
        with self._lock:
            return self._final.next_absent(max(offset, self._watermark))

    def unfinished(self, first: int, end: int) -> list[Range]:
        """The parts of `[first, end)` that are not final."""
        with self._lock:
            return self._final.gaps(max(first, self._watermark), end)

    def worst(self, first: int, end: int) -> Outcome | None:
        """The worst outcome in `[first, end)`; `None` while anything in it is unfinished."""
        with self._lock:
            if first < end and self._final.next_absent(max(first, self._watermark)) < end:
                return None
            for outcome in (Outcome.DROPPED, Outcome.REJECTED):
                if self._worse[outcome].overlaps(first, end):
                    return outcome
            return Outcome.ACK

    @property
    def has_attempts(self) -> bool:
        """Was any unfinished offset nacked or failed?"""
        return bool(self._noted)

    def attempts(self, offset: int) -> tuple[int, int]:
        """How often this unfinished offset was nacked or failed, and how often of these it failed."""
        with self._lock:
            return self._noted.get(offset, (0, 0))

    # -- recording ---------------------------------------------------------------------------------------------------

    def begin(self, start: int) -> None:
        """Everything below `start` is none of this subscriber's business; that is not an outcome."""
        with self._lock:
            if start <= self._watermark:
                return
            self._watermark = start
            self._absorb()
            self._forget_below(self._watermark)

    def finish(self, ranges: Iterable[Range], outcome: Outcome) -> None:
        """Record a final outcome for ranges of offsets; what is final already keeps the outcome it has."""
        given = ranges_array(ranges if isinstance(ranges, np.ndarray) else list(ranges))
        self.finish_bulk(given[:, 0], given[:, 1], outcome)

    def finish_offsets(self, offsets: Sequence[int] | NDArray[Any], outcome: Outcome) -> None:
        """Record a final outcome for single offsets; what is final already keeps the outcome it has."""
        starts = offsets_array(offsets)
        self.finish_bulk(starts, starts + np.uint64(1), outcome)

    def finish_one(self, offset: int, outcome: Outcome) -> None:
        """Record a final outcome for one offset; if it is final already, it keeps the outcome it has."""
        if not 0 <= offset < MAX_END:
            raise InvalidPosition(f"{offset} is not an offset: a whole number from 0 to {MAX_END - 1}")
        with self._lock:
            self._finish(offset, offset + 1, _final(outcome))

    def finish_bulk(self, starts: Bounds, ends: Bounds, outcome: Outcome) -> None:
        """As `finish`, for as many ranges as there are `starts` and `ends`, each known to be a range."""
        outcome = _final(outcome)
        with self._lock:
            if len(starts) <= _FEW:
                for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
                    self._finish(first, end, outcome)
            else:
                self._finish_many(joined(starts, ends), outcome)

    def note(self, offset: int, outcome: Outcome) -> None:
        """Count a nack or a failure of an offset that is not final."""
        if outcome.is_final:
            raise ValueError(f"{outcome.name} is final: finish the offset with it")
        with self._lock:
            if offset < self._watermark or offset in self._final:
                return
            tries, failures = self._noted.get(offset, (0, 0))
            self._noted[offset] = (tries + 1, failures + (outcome is Outcome.FAILED))
            if len(self._noted) > MAX_NOTED:
                del self._noted[next(iter(self._noted))]

    def prune(self, before: int) -> None:
        """Forget below `before` what was rejected, dropped or tried; `worst` then says `ACK` of what is final there."""
        with self._lock:
            for offsets in self._worse.values():
                offsets.discard_below(before)
            self._forget_below(before)

    def _finish(self, first: int, end: int, outcome: Outcome) -> None:
        final = self._final
        if outcome is not Outcome.ACK:
            worse = self._worse[outcome]
            for part in final.gaps(max(first, self._watermark), end):
                worse.add(*part)
        if self._noted:
            self._forget(first, end)
        if first <= self._watermark:
            if end > self._watermark:
                self._watermark = end
                self._absorb()
        else:
            final.add(first, end)

    def _finish_many(self, bounds: Bounds, outcome: Outcome) -> None:
        above = int(np.searchsorted(bounds, np.uint64(self._watermark), "right"))
        bounds = bounds[above:]
        if len(bounds) % 2:  # the watermark lies within a range
            bounds = np.concatenate([np.array([self._watermark], np.uint64), bounds])
        if not len(bounds):
            return
        if outcome is not Outcome.ACK:
            self._worse[outcome].add_bounds(self._final.missing(bounds))
        self._final.add_bounds(bounds)
        self._absorb()
        if self._noted:
            kept = self._noted.items()
            self._noted = {
                offset: counts for offset, counts in kept if offset >= self._watermark and offset not in self._final
            }

    def _absorb(self) -> None:
        """Move the watermark over what is final right above it, and drop what it has passed."""
        final = self._final
        while final.count and final.first <= self._watermark:
            self._watermark = max(self._watermark, final.pop_first()[1])

    def _forget(self, first: int, end: int) -> None:
        if end - first <= len(self._noted):
            for offset in range(first, end):
                self._noted.pop(offset, None)
        else:
            self._noted = {key: counts for key, counts in self._noted.items() if not first <= key < end}

    def _forget_below(self, before: int) -> None:
        if self._noted:
            self._noted = {offset: counts for offset, counts in self._noted.items() if offset >= before}

    # -- the checkpoint ----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """All of it, for a checkpoint; intervals are packed, for there may be a million."""
        with self._lock:
            return {
                "watermark": self._watermark,
                "final": pack(self._final.bounds()),
                "rejected": pack(self._worse[Outcome.REJECTED].bounds()),
                "dropped": pack(self._worse[Outcome.DROPPED].bounds()),
                "noted": [[offset, *counts] for offset, counts in self._noted.items()],
            }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Progress:
        """What `to_document` wrote; raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        made = cls()
        made._watermark = _number(document["watermark"])
        made._final = IntervalSet.from_bounds(unpack(document["final"]))
        if made._final.count and made._final.first <= made._watermark:
            raise ValueError(f"offset {made._final.first} is final above the watermark, which is {made._watermark}")
        made._worse = {
            Outcome.REJECTED: IntervalSet.from_bounds(unpack(document["rejected"])),
            Outcome.DROPPED: IntervalSet.from_bounds(unpack(document["dropped"])),
        }
        for offset, tries, failures in document["noted"]:
            made._noted[_number(offset)] = (_number(tries), _number(failures))
        if len(made._noted) > MAX_NOTED:
            raise ValueError(f"tries of {len(made._noted)} offsets; expected {MAX_NOTED} at most")
        return made


def _final(outcome: Outcome) -> Outcome:
    if not outcome.is_final:
        raise ValueError(f"{outcome.name} is not final: note the offset with it")
    return outcome


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_END:
        raise ValueError(f"found {value!r}, expected a number from 0 to {MAX_END}")
    return value
