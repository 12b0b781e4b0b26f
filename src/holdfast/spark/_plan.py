"""Where a query stands, how far its next batch goes, and which tasks read it. Runs beside the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.clock import SystemClock
from holdfast.errors import DataLost, InvalidPosition, SchemaChanged, UnsupportedType
from holdfast.spark._conform import expect_covered
from holdfast.spark._options import METADATA, Options
from holdfast.spark._stores import open_store, slot_of
from holdfast.spark._walk import Amount, Barrier, Walk
from holdfast.spark.types import struct_of
from holdfast.store import Store, Topic


@dataclass
class RangePartition(InputPartition):
    """What one task reads: a range of one shard, and the rows that must be in it."""

    store_id: str
    shard: int
    first: int
    end: int
    rows: int

    def __init__(self, store_id: str, shard: int, first: int, end: int, rows: int) -> None:
        super().__init__(None)
        self.store_id, self.shard, self.first, self.end, self.rows = store_id, shard, first, end, rows


class Planner:
    """Of one query, or one batch read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self.store: Store = open_store(options.path)
        self.topic: Topic = self.store.topic(options.topic)
        self._slot_name = slot_of(self.topic, options.slot)
        self._slot = self.topic.slot_number(self._slot_name)
        self._known = data_schema(schema, options)
        self._columns = None if options.columns is None else [name for name in options.columns if name not in METADATA]
        self._judged: tuple[pa.Schema, Barrier | None] | None = None  # the topic's schema as last looked at
        self._walks: dict[int, Walk] = {}
        self._strict = options.fail_on_data_loss
        self._clock = SystemClock()
        self._pending_since: float | None = None
        self._served = -1  # the shard that came last in a batch

    # -- where a query begins -----------------------------------------------------------------------------------------

    def initial(self) -> dict[int, int]:
        """Where the query begins if Spark does not know: at what its subscriber has not finished."""
        options, topic = self._options, self.topic
        if options.subscriber is None:
            return self._absolute(options.start)
        if options.epoch is None:
            topic.register(options.subscriber, options.start)  # type: ignore[arg-type]  # a text is one of the two
        return {
            shard: max(topic.progress(options.subscriber, shard).watermark, (options.floor or {}).get(shard, 0))
            for shard in self.durable()
        }

    def _absolute(self, position: str | int | Mapping[int, int]) -> dict[int, int]:
        positions = self.topic.positions()
        if isinstance(position, int):
            position = self.topic.mapping(position)
        if isinstance(position, str):
            return {shard: first if position == "earliest" else end for shard, (first, end) in positions.items()}
        for shard, offset in position.items():
            if shard not in positions:
                raise InvalidPosition(f"{self.topic.name} has no shard {shard}; it has {sorted(positions)}")
            if offset > positions[shard][1]:
                raise InvalidPosition(
                    f"offset {offset} of shard {shard} of {self.topic.name}: it ends at {positions[shard][1]}"
                )
        return {shard: position.get(shard, first) for shard, (first, _) in positions.items()}

    def window(self) -> tuple[dict[int, int], dict[int, int]]:
        """For a batch read: from where to where."""
        start, durable, asked = self._absolute(self._options.start), self.durable(), self._options.end
        ends = self.topic.mapping(asked) if asked is not None else {}
        return start, {shard: min(stop, ends.get(shard, stop)) for shard, stop in durable.items()}

    def durable(self) -> dict[int, int]:
        """How far each shard can be read."""
        return {shard.number: shard.durable for shard in self.topic.shards()}

    # -- how far a batch goes -----------------------------------------------------------------------------------------

    def latest(
        self, start: Mapping[int, int], limit: Amount, cap: Mapping[int, int] | None, *, patient: bool
    ) -> dict[int, int]:
        """Up to where the next batch goes: as much as is admitted; nothing, while `patient`, until it is worth it.

        Raises `SchemaChanged` when the very next bundle has columns that the query does not.
        """
        durable = {shard: min(end, (cap or {}).get(shard, end)) for shard, end in self.durable().items()}
        if cap is not None:
            durable = {shard: end for shard, end in durable.items() if shard in cap}
        for shard, position in start.items():
            if position > self.durable().get(shard, 0):
                why = "the query has read them, and they are not there any more: is the store an old copy?"
                raise DataLost(f"{self.topic.name}/{shard}", self.durable().get(shard, 0), position, why)
        begin = {shard: self._begin(start, shard) for shard in durable}
        if self._options.subscriber is not None and self.topic.registration(self._options.subscriber).paused:
            return begin
        walks = [self._walk(shard, begin[shard]) for shard in sorted(durable)]
        barrier = self._barrier()
        waiting = [walk for walk in walks if durable[walk.shard] > walk.start]
        if not waiting:
            self._pending_since = None
            return begin
        enough = Amount(max(limit.bytes, self._options.min_bytes), limit.rows)
        for walk in waiting:
            walk.look(durable[walk.shard], enough, barrier)
            if walk.stopped_by is not None:  # now, though others may have more: a busy shard would hold it up for ever
                raise walk.stopped_by
        if patient and not self._worth_it(waiting, limit):
            return begin
        self._pending_since = None
        ends = dict(begin)
        left, rows_left = limit.bytes, limit.rows
        waiting = sorted(waiting, key=lambda walk: (walk.shard <= self._served, walk.shard))  # everyone has a turn
        for position, walk in enumerate(waiting):
            if position and (left <= 0 or (rows_left is not None and rows_left <= 0)):
                break
            others = len(waiting) - position
            share = Amount(left // others, None if rows_left is None else rows_left // others)
            ends[walk.shard], taken = walk.admit(share)
            self._served = walk.shard
            left -= taken.bytes
            rows_left = None if rows_left is None else rows_left - (taken.rows or 0)
        return ends

    def _begin(self, start: Mapping[int, int], shard: int) -> int:
        """A shard that Spark has not heard of is new; its beginning is this query's too."""
        known = start.get(shard)
        begin = self._first_of(shard) if known is None else known
        return max(begin, (self._options.floor or {}).get(shard, 0))

    def _first_of(self, shard: int) -> int:
        if self._options.subscriber is not None:
            return self.topic.progress(self._options.subscriber, shard).watermark
        return self.topic.positions()[shard][0]

    def _walk(self, shard: int, start: int) -> Walk:
        walk = self._walks.get(shard)
        if walk is None:
            walk = self._walks[shard] = Walk(self.topic, shard, self._slot)
        walk.begin(start)
        return walk

    def _worth_it(self, waiting: list[Walk], limit: Amount) -> bool:
        options = self._options
        if sum(walk.pending.bytes for walk in waiting) >= options.min_bytes:
            return True
        if limit.rows is not None and sum(walk.pending.rows or 0 for walk in waiting) >= limit.rows:
            return True  # it could not grow any further
        if self._pending_since is None:
            self._pending_since = self._clock.monotonic()
        return self._clock.monotonic() - self._pending_since >= options.max_delay

    def _barrier(self) -> Barrier | None:
        """`None` while the topic has no schema that the query does not cover: then no bundle has one."""
        schema = self.topic.schema(self._slot_name)
        if self._judged is None or self._judged[0] is not schema:
            try:
                self._check(schema)
                self._judged = schema, None
            except (SchemaChanged, UnsupportedType):  # raised again for the bundle that has it
                self._judged = schema, self._check
        return self._judged[1]

    def _check(self, schema: pa.Schema) -> None:
        expect_covered(self._known, normal(schema, self._options, self.topic.name), self._columns, self.topic.name)

    # -- which tasks read it ------------------------------------------------------------------------------------------

    def whatever_is_there(self) -> list[RangePartition]:
        """For a batch read: what retention has taken before is not missed, unless it was asked for by its offset."""
        self._strict = self._options.fail_on_data_loss and self._options.start != "earliest"
        return self.partitions(*self.window())

    def partitions(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[RangePartition]:
        """Ranges for tasks: a shard is cut where segments meet; what is gone and was finished is left out."""
        found: list[RangePartition] = []
        for shard in sorted(end):
            first = max(start.get(shard, 0) if shard in start else self._first_of(shard), self._floor(shard))
            if first < end[shard]:
                found += self._pack(shard, first, end[shard])
        return found

    def _floor(self, shard: int) -> int:
        return (self._options.floor or {}).get(shard, 0)

    def _pack(self, shard: int, first: int, end: int) -> Iterator[RangePartition]:
        options, begin, size, rows, position = self._options, first, 0, 0, first
        for span in self.topic.spans(shard, first, end):
            if span.start > position:
                self._expect_finished(shard, position, span.start)
            span_size = int(span.sizes(self._slot).sum())
            if size and size + span_size > options.partition_bytes:
                yield RangePartition(self.store.id, shard, begin, position, rows)
                begin, size, rows = span.start, 0, 0
            size += span_size
            rows += int(span.rows(self._slot).sum())
            position = span.end
        if position < end:
            self._expect_finished(shard, position, end)
        if rows:
            yield RangePartition(self.store.id, shard, begin, position, rows)

    def _expect_finished(self, shard: int, first: int, end: int) -> None:
        """These offsets are gone: that is loss, unless they never held anything, or the subscriber had finished."""
        options = self._options
        if not self._strict:
            return
        lost = sorted(self.topic.lost(shard))
        open_ranges = [(first, end)]
        if options.subscriber is not None and not options.stateful:
            open_ranges = self.topic.progress(options.subscriber, shard).unfinished(first, end)
        for gone_first, gone_end in open_ranges:
            position = gone_first
            for lost_first, lost_end in lost:
                if lost_first <= position < lost_end:
                    position = lost_end
            if position < gone_end:
                why = "they are gone, and this query has not finished them"
                if options.subscriber is None:
                    why += "; a subscriber would keep them (option subscriber)"
                raise DataLost(f"{self.topic.name}/{shard}", position, gone_end, why + "; failOnDataLoss=false goes on")


def data_schema(schema: StructType, options: Options) -> pa.Schema:
    """The query's schema without the metadata columns, as Arrow types."""
    whole = to_arrow_schema(schema, timezone="UTC")
    asked = requested_metadata(options)
    return pa.schema([field for field in whole if field.name not in asked])


def requested_metadata(options: Options) -> tuple[str, ...]:
    """The metadata columns that were asked for, by `metadata` or among `columns`, in their own order."""
    asked = {*options.metadata, *(options.columns or ())}
    return tuple(name for name in METADATA if name in asked)


def normal(schema: pa.Schema, options: Options, where: str) -> pa.Schema:
    """A stored schema in the Arrow types that Spark uses: of the columns that the query may have."""
    return to_arrow_schema(struct_of(readable(schema, options), where), timezone="UTC")


def readable(schema: pa.Schema, options: Options) -> pa.Schema:
    """The columns of a schema that a query may have, in their own order."""
    asked = None if options.columns is None else set(options.columns)
    return pa.schema(
        [field for field in schema if field.name not in options.leave_out and (asked is None or field.name in asked)]
    )
