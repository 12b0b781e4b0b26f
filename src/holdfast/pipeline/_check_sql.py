"""Conditions and queries, tried on streams of the right columns that never start.

Each transform is built once, over streaming frames that have the declared or known columns of the sources. So Spark
itself says what does not parse, what names columns that are not there, and what a stream cannot do. Where the columns
of a source are not known yet, what draws from it is only parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from holdfast.config._explain import nearest
from holdfast.config.yaml import Keys, key_path, quoted
from holdfast.errors import Problem, UnsupportedType
from holdfast.pipeline._nodes import Sink, Source, Transform
from holdfast.pipeline._plan import is_stateful, unsupported
from holdfast.pipeline._spark_error import SPARK_ERRORS, error_class, error_text, unlogged
from holdfast.pipeline.topology import Topology
from holdfast.pipeline.transforms import (
    FilterSettings,
    RouteSettings,
    SqlSettings,
    apply,
    parse_condition,
    parse_query,
    union,
    view_name,
    with_watermark,
)
from holdfast.sinks._settings import FileSinkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Made = TypeVar("Made")

__all__ = ["Checked", "check", "examine", "is_stateful"]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found: mistakes, and for each sink whether its query keeps state (`None`: not known)."""

    problems: list[Problem]
    stateful: Mapping[str, bool | None]


def check(topology: Topology, spark: SparkSession, known: Mapping[str, pa.Schema]) -> list[Problem]:
    """Every mistake in the SQL of a pipeline. `known` are schemas of sources, by name, found in their topics."""
    return examine(topology, spark, known).problems


def examine(topology: Topology, spark: SparkSession, known: Mapping[str, pa.Schema]) -> Checked:
    """The same, with what was learnt about the sinks."""
    trial = _Trial(topology, spark.newSession())
    for source in topology.sources.values():
        trial.source(source, known.get(source.name))
    vertices = topology.graph.vertices
    order = TopologicalSorter({name: list(topology.graph.before(vertex)) for name, vertex in vertices.items()})
    for name in order.static_order():
        if name in topology.transforms:
            trial.transform(topology.transforms[name])
    stateful = {name: trial.sink(sink) for name, sink in topology.sinks.items()}
    return Checked(sorted(trial.problems), stateful)


@dataclass(slots=True)
class _Trial:
    """The frames made so far; `None` where the columns are not known, or something before is wrong."""

    topology: Topology
    session: SparkSession
    frames: dict[str, DataFrame | None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def source(self, source: Source, known: pa.Schema | None) -> None:
        schema = _either(known, source.declared_schema)
        try:
            self.frames[source.name] = None if schema is None else _stream(schema, source, self.session)
        except UnsupportedType as error:
            self.frames[source.name] = None
            if known is None:  # else it is in the data, not in the file: the sinks that read it say so, and others run
                self._note(("sources", source.name), str(error))

    def transform(self, node: Transform) -> None:
        inputs = {name: self.frames.get(name) for name in node.settings.inputs}
        ready = {name: frame for name, frame in inputs.items() if frame is not None}
        keys: Keys = ("transforms", node.name)
        made: dict[str, DataFrame] | None = None
        if len(ready) < len(inputs):
            self._parse(node, keys)
        elif self._parts_are_right(node, ready, keys):
            made = self._try(_place(node), lambda: apply(node, ready, self.session))
        for name in node.outputs:
            frame = None if made is None else made[name]
            self.frames[name] = frame if frame is not None and self._can_stream(frame, _place(node)) else None

    def sink(self, sink: Sink) -> bool | None:
        frames = [self.frames.get(name) for name in sink.settings.inputs]
        ready = [frame for frame in frames if frame is not None]
        keys: Keys = ("sinks", sink.name)
        if len(ready) < len(frames):
            return None
        frame = self._try((*keys, "inputs"), lambda: union(ready))
        if frame is None or not self._can_stream(frame, (*keys, "inputs")):
            return None
        if isinstance(sink.settings, FileSinkSettings):
            for index, column in enumerate(sink.settings.partition_by):
                if column not in frame.columns:
                    place = (*keys, "partition_by", index)
                    shown = self.topology.document.shown(place, column)
                    self._note(place, f"there is no column {shown}{nearest(column, frame.columns)}")
        return is_stateful(frame)

    def _parse(self, node: Transform, keys: Keys) -> None:
        """All that can be said without the columns."""
        match node.settings:
            case FilterSettings(condition=condition):
                self._try((*keys, "condition"), lambda: parse_condition(condition, self.session))
            case RouteSettings(outputs=outputs):
                for output, condition in outputs.items():
                    self._try_condition((*keys, "outputs", output), condition)
            case SqlSettings(query=query):
                self._try((*keys, "query"), lambda: parse_query(query, self.session))

    def _try_condition(self, keys: Keys, condition: str) -> None:
        self._try(keys, lambda: parse_condition(condition, self.session))

    def _parts_are_right(self, node: Transform, ready: Mapping[str, DataFrame], keys: Keys) -> bool:
        """What has a place of its own in the file is tried by itself, so that the mistake is noted there."""
        before = len(self.problems)
        match node.settings:
            case RouteSettings() | FilterSettings():
                frame = self._try((*keys, "inputs"), lambda: union([ready[name] for name in node.settings.inputs]))
                if frame is not None and isinstance(node.settings, RouteSettings):
                    for output, condition in node.settings.outputs.items():
                        self._try_filter((*keys, "outputs", output), frame, condition)
            case SqlSettings() as settings:
                for name in settings.watermark:
                    self._try_watermark((*keys, "watermark"), settings, name, ready[name])
        return len(self.problems) == before

    def _try_filter(self, keys: Keys, frame: DataFrame, condition: str) -> None:
        self._try(keys, lambda: frame.filter(condition))

    def _try_watermark(self, keys: Keys, settings: SqlSettings, name: str, frame: DataFrame) -> None:
        self._try(keys, lambda: with_watermark(settings, name, frame))

    def _can_stream(self, frame: DataFrame, keys: Keys) -> bool:
        before = len(self.problems)
        text = self._try(keys, lambda: unsupported(frame))
        if text is not None:
            self._note(keys, text)
        return len(self.problems) == before

    def _try(self, keys: Keys, make: Callable[[], Made]) -> Made | None:
        try:
            with unlogged():
                return make()
        except SPARK_ERRORS as error:
            self._note(keys, self._explained(keys, error))
            return None

    def _explained(self, keys: Keys, error: Exception) -> str:
        if self.topology.document.came_from_environment(keys):
            return f"[{error_class(error)}] (not shown in full: a part of it came from the environment)"
        text = error_text(error)
        if error_class(error) == "TABLE_OR_VIEW_NOT_FOUND" and keys[0] == "transforms":
            inputs = self.topology.transforms[str(keys[1])].settings.inputs
            text += f"; the inputs of this query are {', '.join(quoted(view_name(name)) for name in inputs)}"
        return text

    def _note(self, keys: Keys, text: str) -> None:
        document = self.topology.document
        problem = Problem(document.line(keys), key_path(keys), document.redact(text))
        if problem not in self.problems:
            self.problems.append(problem)


def _place(node: Transform) -> Keys:
    """The key that a transform's mistakes are noted at."""
    key = {FilterSettings: "condition", RouteSettings: "outputs", SqlSettings: "query"}.get(type(node.settings))
    return ("transforms", node.name) if key is None else ("transforms", node.name, key)


def _either(known: pa.Schema | None, declared: pa.Schema | None) -> pa.Schema | None:
    """What is in the topic, and what was declared but has not come yet. A column of nulls only has no type yet."""
    if known is None:
        return declared
    typed = [each for each in known if not pa.types.is_null(each.type)]
    names = {each.name for each in typed}
    return pa.schema([*typed, *(each for each in declared or () if each.name not in names)])


def _stream(schema: pa.Schema, source: Source, session: SparkSession) -> DataFrame:
    """A stream of these columns; it is never started."""
    from pyspark.sql import functions

    from holdfast.spark.types import struct_of

    schema = pa.schema([field for field in schema if field.name not in source.settings.leave_out])
    struct = struct_of(schema, f"topic {source.topic}, slot {source.slot}")
    columns = [functions.lit(None).cast(each.dataType).alias(each.name) for each in struct]
    return session.readStream.format("rate").load().select(*columns)
