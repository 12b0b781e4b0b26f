"""From a topology to the frame that a sink's query writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.types import IntegerType, NullType, StructType

from holdfast.pipeline._columns import needed_columns
from holdfast.pipeline.topology import Source, Topology
from holdfast.pipeline.transforms import apply, union
from holdfast.spark.types import struct_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.sinks._settings import SinkSettings


@dataclass(frozen=True)
class Input:
    """A topic that a sink draws from: the sources of it that the sink names, and the columns it needs."""

    topic: str
    slot: str
    sources: tuple[Source, ...]
    columns: tuple[str, ...] | None  # None: all, those that come later too

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that its sources say nobody is to see."""
        return tuple(dict.fromkeys(name for source in self.sources for name in source.settings.leave_out))

    def seen(self, schema: pa.Schema) -> pa.Schema:
        """The topic's schema without them."""
        for name in self.left_out:
            while (index := schema.get_field_index(name)) >= 0:
                schema = schema.remove(index)
        return schema

    @property
    def origins(self) -> tuple[str, ...] | None:
        """The values of the attribute `source`; `None` for every bundle."""
        origins = [source.origin for source in self.sources]
        return None if None in origins else tuple(origin for origin in origins if origin is not None)


def inputs_of(topology: Topology, sink: str) -> list[Input]:
    """One for each topic, all columns."""
    by_topic: dict[str, list[Source]] = {}
    for source in topology.sources_of(sink):
        by_topic.setdefault(source.topic, []).append(source)
    return [Input(topic, sources[0].slot, tuple(sources), None) for topic, sources in by_topic.items()]


def build(topology: Topology, sink: str, session: SparkSession, frame_of: Callable[[Source], DataFrame]) -> DataFrame:
    """What the sink is given, when `frame_of` gives the rows of each source."""
    frames = {source.name: frame_of(source) for source in topology.sources_of(sink)}
    for node in topology.plan(sink):
        frames |= apply(node, frames, session)
    return union([frames[name] for name in topology.sinks[sink].settings.inputs])


def pruned(
    topology: Topology, sink: str, session: SparkSession, schemas: Mapping[str, pa.Schema]
) -> tuple[list[Input], DataFrame]:
    """The sink's inputs with the columns that it needs, and its frame over no rows; `schemas` are by topic."""
    inputs = inputs_of(topology, sink)
    structs = {each.topic: readable(struct_of(each.seen(schemas[each.topic]), each.topic)) for each in inputs}

    def empty(source: Source, extra: str | None = None) -> DataFrame:
        struct = StructType(list(structs[source.topic].fields))
        if extra is not None:
            struct.add(extra, IntegerType())
        return session.createDataFrame(session.sparkContext.emptyRDD(), struct)

    needed = needed_columns(
        lambda extra: build(topology, sink, session, lambda source: empty(source, extra)),
        {name for struct in structs.values() for name in struct.names},
    )
    chosen = [
        each
        if needed is None
        else Input(
            each.topic, each.slot, each.sources,
            # Rows must be of something to be counted: where no column is needed, the first is read.
            tuple(name for name in structs[each.topic].names if name in needed) or tuple(structs[each.topic].names[:1]),
        )
        for each in inputs
    ]  # fmt: skip
    return chosen, build(topology, sink, session, empty)


def raw(session: SparkSession, inputs: Sequence[Input], options: Callable[[Input], Mapping[str, str]]) -> DataFrame:
    """The rows of all topics of a query: one reader for each, however many sources and branches there are.

    Spark would give a topic that is read twice in one query two positions, and neither would be the batch's. Several
    topics stand side by side, each as a struct of its own, null in the rows of the others.
    """
    frames = [_reader(session, each, options(each)) for each in inputs]
    if len(frames) == 1:
        return frames[0]
    kinds = [frame.schema for frame in frames]

    def packed(number: int, frame: DataFrame) -> DataFrame:
        whole = functions.struct(*[functions.col(_quoted(name)) for name in frame.columns])
        return frame.select(
            *[
                (whole if each == number else functions.lit(None).cast(kind)).alias(f"t{each}")
                for each, kind in enumerate(kinds)
            ]
        )

    whole, *others = [packed(number, frame) for number, frame in enumerate(frames)]
    for other in others:
        whole = whole.union(other)
    return whole


def transformed(topology: Topology, sink: str, inputs: Sequence[Input], rows: DataFrame) -> DataFrame:
    """What the sink is given of rows that `raw` gave."""
    several = len(inputs) > 1
    frames: dict[str, DataFrame] = {}
    for number, each in enumerate(inputs):
        own = rows.where(f"t{number} is not null").select(f"t{number}.*") if several else rows
        frames |= by_source(each, own)
    return build(topology, sink, rows.sparkSession, lambda source: frames[source.name])


def streaming(
    topology: Topology,
    sink: str,
    session: SparkSession,
    inputs: Sequence[Input],
    options: Callable[[Input], Mapping[str, str]],
) -> DataFrame:
    """The frame of a query that keeps state: its transforms are part of the stream."""
    frames: dict[str, DataFrame] = {}
    for each in inputs:
        frames |= by_source(each, _reader(session, each, options(each)))
    return build(topology, sink, session, lambda source: frames[source.name])


def by_source(each: Input, rows: DataFrame) -> dict[str, DataFrame]:
    """The rows of a topic, apart by the source that they came from."""
    frames = {}
    for source in each.sources:
        own = functions.col("_source") == functions.lit(source.origin)
        frame = rows.where(own).drop("_source") if len(each.sources) > 1 else rows
        frames[source.name] = frame.drop(*[f.name for f in frame.schema if isinstance(f.dataType, NullType)])
    return frames


def _reader(session: SparkSession, each: Input, options: Mapping[str, str]) -> DataFrame:
    given = {"topic": each.topic, "slot": each.slot, **options}
    if each.origins is not None:
        given["sources"] = json.dumps(each.origins)
    if len(each.sources) > 1:
        given["metadata"] = "_source"
    if each.left_out:
        given["leaveOut"] = json.dumps(each.left_out)
    if each.columns is not None:
        given["columns"] = json.dumps(each.columns)
    return session.readStream.format("holdfast").options(**given).load()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def readable(struct: StructType) -> StructType:
    """Without columns that only ever held nulls: no table has a type for them. They come when they have one."""
    return StructType([field for field in struct if not isinstance(field.dataType, NullType)])


def patience(settings: SinkSettings) -> dict[str, str]:
    """How long a query waits for company before it commits."""
    limits = {"maxBytesPerTrigger": str(settings.max_batch_bytes)}
    if settings.low_latency:
        return limits
    enough = min(settings.max_batch_bytes, getattr(settings, "target_file_size", settings.max_batch_bytes))
    return {**limits, "minBytesPerTrigger": str(enough), "maxTriggerDelay": f"{settings.commit_interval}s"}
