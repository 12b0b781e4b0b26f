"""What a task does: read a range of one shard, and hand it to Spark. Runs in executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.bundle import decode_attributes
from holdfast.errors import DataLost, SchemaChanged, UnsupportedType
from holdfast.spark._conform import Extra, Piece, conform, expect_covered
from holdfast.spark._options import METADATA, Options
from holdfast.spark._plan import RangePartition, normal, requested_metadata
from holdfast.spark._predicate import Predicate, keeps, matching
from holdfast.spark._stores import open_topic, slot_of
from holdfast.store import Span, StreamFacts, Topic
from holdfast.store.reserved import TO


def read_range(
    part: RangePartition, options: Options, target: pa.Schema, predicates: Sequence[Predicate]
) -> Iterator[pa.RecordBatch]:
    """The rows of a range in batches of schema `target`; raises `DataLost` if there are not as many as planned."""
    topic = open_topic(options.path, options.topic, part.store_id)
    reading = _Reading(topic, options, target, predicates)
    rows = 0
    for span in topic.spans(part.shard, part.first, part.end):
        rows += int(span.rows(reading.slot).sum())
        for batch in reading.span(span, part.shard):
            matched = matching(predicates, batch)
            if matched.num_rows:
                yield matched
    if rows != part.rows:
        where = f"{options.topic}/{part.shard} at {options.path}"
        raise DataLost(where, part.first, part.end, f"{part.rows} rows were planned, {rows} are there")


class _Reading:
    def __init__(self, topic: Topic, options: Options, target: pa.Schema, predicates: Sequence[Predicate]) -> None:
        self._topic, self._options, self._target, self._predicates = topic, options, target, predicates
        self.slot = topic.slot_number(slot_of(topic, options.slot))
        self._metadata = requested_metadata(options)
        self._data = pa.schema([field for field in target if field.name not in self._metadata])
        self._columns = None if options.columns is None else [name for name in options.columns if name not in METADATA]
        self._measured = [each for each in predicates if each.column not in self._metadata]  # by statistics
        self._checked: list[pa.Schema] = []
        self._knows_all = self._covers(topic.schema(slot_of(topic, options.slot)))
        self._addressee = None if options.subscriber is None else topic.registration(options.subscriber).number

    def span(self, span: Span, shard: int) -> Iterator[pa.RecordBatch]:
        keep = self._keep if self._predicates else None
        wanted, first = self._wanted(span), span.start
        kinds, sizes = span.kinds(self.slot), span.sizes(self.slot).tolist()
        chunks = span.chunks(self.slot, self._columns, keep)
        if not self._knows_all:
            chunks = ((offset, self._covered(batch)) for offset, batch in chunks)
        pieces = (
            Piece(offset - first, batch, kinds[offset - first], sizes[offset - first])
            for offset, batch in chunks
            if wanted is None or wanted[offset - first]
        )
        return conform(pieces, self._target, self._extra(span, shard) if self._metadata else None)

    def _keep(self, facts: StreamFacts) -> bool:
        return keeps(self._measured, facts, self._target)

    def _covers(self, schema: pa.Schema) -> bool:
        """Does the query's schema cover the topic's? Then it covers every batch, one by one or not."""
        try:
            expect_covered(self._data, normal(schema, self._options, self._topic.name), self._columns, self._topic.name)
        except (SchemaChanged, UnsupportedType):
            return False
        return True

    def _covered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = batch.schema
        if not any(schema.equals(known) for known in self._checked[-4:]):
            name = self._topic.name
            expect_covered(self._data, normal(schema, self._options, name), self._columns, name)
            self._checked.append(schema)
        return batch

    def _wanted(self, span: Span) -> list[bool] | None:
        """Which bundles this query is meant to have; `None` for all of them."""
        sources, to = self._options.sources, TO.encode()
        attributes = span.attributes()
        if sources is None and not any(to in each for each in attributes):
            return None
        wanted = []
        for encoded in attributes:
            each = decode_attributes(encoded)
            addressed = TO not in each or each[TO] == self._addressee
            wanted.append(addressed and (sources is None or each.get("source") in sources))
        return wanted

    def _extra(self, span: Span, shard: int) -> Extra:
        def extra(pieces: Sequence[Piece]) -> list[pa.Array]:
            bundles = np.repeat([piece.bundle for piece in pieces], [piece.batch.num_rows for piece in pieces])
            columns = {
                "_shard": lambda: pa.array(np.full(len(bundles), shard, np.int32)),
                "_offset": lambda: pa.array(bundles + span.start),
                "_ingestion_time": lambda: pa.array(np.asarray(span.ingestion_times())[bundles] // 1000),
                "_source": lambda: _sources(span, bundles),
            }
            return [columns[name]().cast(self._target.field(name).type) for name in self._metadata]

        return extra


def _sources(span: Span, bundles: Any) -> pa.Array:
    attributes = span.attributes()
    found = {index: decode_attributes(attributes[index]).get("source") for index in np.unique(bundles).tolist()}
    return pa.array([found[index] for index in bundles.tolist()], pa.string())
