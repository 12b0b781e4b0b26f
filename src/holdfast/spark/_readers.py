"""The readers that Spark asks for. Plain values only: they are pickled, and run in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from holdfast.errors import InvalidSettings, NotAStore
from holdfast.spark._offsets import from_offset, to_offset
from holdfast.spark._options import Options
from holdfast.spark._plan import Planner, RangePartition
from holdfast.spark._predicate import Predicate, parse, usable
from holdfast.spark._read import read_range
from holdfast.spark._walk import Amount
from holdfast.spark.causes import plainly

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
_OPS = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.In: "in",
    spark.IsNull: "is null",
    spark.IsNotNull: "is not null",
    spark.StringStartsWith: "starts with",
}


class _Reader:
    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._target = to_arrow_schema(schema, timezone="UTC")
        self._predicates = [] if options.filter is None else parse(options.filter, self._target)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            raise TypeError(f"{partition!r} is not of this source")
        return read_range(partition, self._options, self._target, self._predicates)


class BatchReader(_Reader, DataSourceReader):
    """What is there now, or between two positions."""

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        return Planner(self._options, self._schema).whatever_is_there()


class PushingReader(BatchReader):
    """As `BatchReader`, with the query's own conditions. Spark judges them all again: here they only save work."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        for each in filters:
            predicate = _predicate(each)
            if predicate is not None and usable(predicate, self._target):
                self._predicates.append(predicate)
        return filters


def batch_reader(options: Options, schema: StructType) -> BatchReader:
    """With option `pushdown`, and Spark's own setting for it, one that takes the query's conditions.

    Spark refuses such a reader while its setting is off; it asks for the reader in another program when it is on, which
    is how we know. And it is not for every frame: Spark 4.3 uses the reader of one scan again for a later scan of the
    same frame that has no condition to push, which then lacks rows. So it must be asked for; `filter` is always right.
    """
    pushing = options.pushdown and _PUSHING in sys.modules
    return (PushingReader if pushing else BatchReader)(options, schema)


def _predicate(filter_: Filter) -> Predicate | None:
    op = _OPS.get(type(filter_))
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if op is None or len(attribute) != 1:
        return None
    return Predicate(attribute[0], op, getattr(filter_, "value", None))


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's eye on the topic. Spark asks it every few milliseconds whether there is more."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.subscriber is None and options.start == "latest":
            raise InvalidSettings(
                "startingOffset latest needs option subscriber, whose registration says from where on: "
                "without it each start of the query would begin at another place"
            )
        self._planner: Planner | None = None
        self._cap: dict[int, int] | None = None
        self._initial: dict[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need none of what the planner has open."""
        return {**self.__dict__, "_planner": None}

    @property
    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options, self._schema)
        return self._planner

    def _offset(self, position: dict[int, int]) -> dict[str, Any]:
        options = self._options
        store = self._plan.store
        return to_offset(options.topic, position, store=options.path, store_id=store.id, subscriber=options.subscriber)

    def _position(self, offset: dict[str, Any]) -> dict[int, int]:
        """What Spark gives back to us; it may have kept it since another store was at this path."""
        store = self._plan.store
        if offset.get("id", store.id) != store.id:
            raise NotAStore(
                f"at {self._options.path} there is store {store.id}, but the query's checkpoint is of {offset['id']}: "
                "give the query a new checkpoint, or put the store back"
            )
        return from_offset(offset, self._options.topic)

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        if self._initial is None:  # asked more than once, and must say the same
            self._initial = self._plan.initial()
        return self._offset(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        return ReadMaxBytes(self._options.max_bytes)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        self._cap = self._plan.durable()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        options = self._options
        amount = Amount(options.max_bytes, options.max_rows)
        if isinstance(limit, ReadMaxRows):
            amount = Amount(options.max_bytes, min(limit.max_rows, options.max_rows or limit.max_rows))
        elif isinstance(limit, ReadMaxBytes):
            amount = Amount(min(limit.max_bytes, options.max_bytes), options.max_rows)
        patient = self._cap is None and options.min_bytes > 0
        begin = self._position(start)
        return self._offset(self._plan.latest(begin, amount, self._cap, patient=patient))

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        return self._offset(self._plan.durable())

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._plan.partitions(self._position(start), self._position(end))

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything before `end`: ack it, unless a runner does."""
        options = self._options
        if options.subscriber is not None and options.epoch is None:
            acknowledge(self._plan, options.subscriber, self._position(end))


def acknowledge(planner: Planner, subscriber: str, end: dict[int, int]) -> None:
    """Everything below `end` was delivered."""
    topic = planner.topic
    ranges = {shard: (topic.progress(subscriber, shard).watermark, offset) for shard, offset in end.items()}
    topic.acknowledge(subscriber, {shard: each for shard, each in ranges.items() if each[0] < each[1]})
