"""How much is there to read, and from where to where: offsets, bytes and rows of one shard, found once each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.errors import SchemaChanged
from holdfast.store import Span, Topic

_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Amount:
    """What is admitted into a micro-batch."""

    bytes: int
    rows: int | None = None


class Barrier(Protocol):
    """Raises `SchemaChanged` for a schema that the query does not cover."""

    def __call__(self, schema: pa.Schema) -> None: ...


class Walk:
    """One shard from where the query stands; what was looked at is not looked at again."""

    def __init__(self, topic: Topic, shard: int, slot: int) -> None:
        self._topic, self.shard, self._slot = topic, shard, slot
        self.start = self._seen = -1
        self._ends = self._bytes = self._rows = _NONE  # of each bundle from `start` on: cumulative
        self._barrier: SchemaChanged | None = None  # what stands at `_seen`

    def begin(self, start: int) -> None:
        """The query stands here now."""
        if start == self.start:
            return
        if not self.start <= start <= self._seen:
            self._ends = self._bytes = self._rows = _NONE
            self._seen, self._barrier = start, None
        passed = int(np.searchsorted(self._ends, start, side="right"))
        if passed:
            bytes_before, rows_before = self._bytes[passed - 1], self._rows[passed - 1]
            self._ends = self._ends[passed:]
            self._bytes, self._rows = self._bytes[passed:] - bytes_before, self._rows[passed:] - rows_before
        self.start = start

    def look(self, durable: int, enough: Amount, barrier: Barrier | None) -> None:
        """Learn of what is below `durable`, up to the first bundle that `barrier` declines, or until it is `enough`."""
        if self._barrier is not None and barrier is None:
            self._barrier = None
        while self._seen < durable and self._barrier is None and not self._has(enough):
            for span in self._topic.spans(self.shard, self._seen, durable):
                stop = span.end if barrier is None else self._before_barrier(span, barrier)
                count = stop - span.start
                ends = np.arange(span.start + 1, stop + 1)
                self._add(ends, span.sizes(self._slot)[:count], span.rows(self._slot)[:count])
                self._seen = max(self._seen, stop)
                if self._barrier is not None or self._has(enough):
                    break
            else:
                self._seen = durable  # the rest never was, or is gone

    def _before_barrier(self, span: Span, barrier: Barrier) -> int:
        for offset, schema in sorted(span.schemas(self._slot), key=lambda found: found[0]):
            try:
                barrier(schema)
            except SchemaChanged as changed:
                self._barrier = changed
                return int(offset)
        return span.end

    def _has(self, enough: Amount) -> bool:
        if not len(self._ends):
            return False
        return bool(self._bytes[-1] >= enough.bytes or (enough.rows is not None and self._rows[-1] >= enough.rows))

    def _add(self, ends: NDArray[np.int64], sizes: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        bytes_before = self._bytes[-1] if len(self._bytes) else 0
        rows_before = self._rows[-1] if len(self._rows) else 0
        self._ends = np.concatenate([self._ends, ends])
        self._bytes = np.concatenate([self._bytes, np.cumsum(sizes) + bytes_before])
        self._rows = np.concatenate([self._rows, np.cumsum(rows) + rows_before])

    @property
    def pending(self) -> Amount:
        """What was found so far."""
        return Amount(int(self._bytes[-1]), int(self._rows[-1])) if len(self._ends) else Amount(0, 0)

    @property
    def seen(self) -> int:
        return max(self._seen, self.start)

    @property
    def stopped_by(self) -> SchemaChanged | None:
        """What is at `start` itself and cannot be read with this schema."""
        return self._barrier if self._barrier is not None and self.seen == self.start else None

    def admit(self, limit: Amount) -> tuple[int, Amount]:
        """How far a micro-batch of at most `limit` goes, one bundle at least, and how much that is."""
        if not len(self._ends):
            return self.seen, Amount(0, 0)
        count = int(np.searchsorted(self._bytes, limit.bytes, side="right"))
        if limit.rows is not None:
            count = min(count, int(np.searchsorted(self._rows, limit.rows, side="right")))
        count = max(count, 1)
        end = self.seen if count == len(self._ends) else int(self._ends[count - 1])
        return end, Amount(int(self._bytes[count - 1]), int(self._rows[count - 1]))
