"""What happens to rows between sources and sinks: filter, sql, route.

Several inputs of a filter or route are put together by the names of their columns; one that lacks a column has nulls
there. In sql each input is a view of its name; a route's output `<route>.<output>` is the view `<route>_<output>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from holdfast.config.node import NodeSettings, Seconds
from holdfast.errors import InputError, InvalidSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.pipeline.topology import Transform

OTHER: Final = "other"  # the output of a route for what no other output takes
# A text, a quoted name, a comment; in none of them does a semicolon end a statement.
_OPAQUE: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_QUERY: Final = re.compile(r"\s*(select|with)\b", re.IGNORECASE)


def _condition(text: str) -> str:
    if not text.strip():
        raise InvalidSettings("the condition is empty")
    return text


def _one_query(text: str) -> str:
    """A single SELECT, without the semicolon it may end in."""
    bare = _OPAQUE.sub(" ", text).rstrip()
    if ";" in bare.rstrip(";").rstrip():
        raise InvalidSettings("there is more than one statement; a query is a single SELECT")
    if _QUERY.match(bare) is None:
        word = bare.split(None, 1)[0][:32] if bare.strip() else "nothing"
        raise InvalidSettings(f"the query begins with {word!r}; it must be a SELECT, or a WITH and a SELECT")
    return text.rstrip().rstrip(";").rstrip() if bare.endswith(";") and text.rstrip().endswith(";") else text


Condition = Annotated[str, AfterValidator(_condition)]
Query = Annotated[str, AfterValidator(_one_query)]


class TransformSettings(NodeSettings):
    """What every transform has."""

    type: str
    inputs: tuple[str, ...] = Field(min_length=1)


class FilterSettings(TransformSettings):
    """Keeps the rows for which the condition is true."""

    type: Literal["filter"]
    condition: Condition


class WatermarkSettings(NodeSettings):
    """How late rows may come: what aggregates and joins of streams need in order to ever finish."""

    column: str = Field(min_length=1)
    delay: Seconds = Field(ge=0)


class SqlSettings(TransformSettings):
    """One query over the inputs."""

    type: Literal["sql"]
    query: Query
    watermark: Mapping[str, WatermarkSettings] = {}  # by input; or one for all: {column, delay}

    @model_validator(mode="before")
    @classmethod
    def _one_for_all(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        given, inputs = values.get("watermark"), values.get("inputs")
        one = isinstance(given, dict) and given and not any(isinstance(each, dict) for each in given.values())
        if one and isinstance(inputs, list | tuple):
            return {**values, "watermark": {name: given for name in inputs if isinstance(name, str)}}
        return values

    @model_validator(mode="after")
    def _of_inputs(self) -> SqlSettings:
        strangers = [name for name in self.watermark if name not in self.inputs]
        if strangers:
            raise ValueError(f"watermark: `{strangers[0]}` is not an input of this query")
        views = [view_name(name) for name in self.inputs]
        doubled = [name for name, view in zip(self.inputs, views, strict=True) if views.count(view) > 1]
        if doubled and len(set(doubled)) > 1:
            raise ValueError(f"inputs {' and '.join(f'`{name}`' for name in doubled)} would be the same view")
        return self


class RouteSettings(TransformSettings):
    """A row goes to every output whose condition is true, and to `other`, if asked for, when none is."""

    type: Literal["route"]
    outputs: Mapping[str, Condition] = Field(min_length=1)
    other: bool = False

    @field_validator("outputs")
    @classmethod
    def _not_other(cls, outputs: Mapping[str, str]) -> Mapping[str, str]:
        if OTHER in outputs:
            raise ValueError("`other` is what no output takes; say `other: true` beside `outputs`")
        return outputs


TRANSFORMS: Final[dict[str, type[TransformSettings]]] = {
    "filter": FilterSettings,
    "route": RouteSettings,
    "sql": SqlSettings,
}


def view_name(name: str) -> str:
    """The view that a query finds an input under."""
    return name.replace(".", "_")


def apply(node: Transform, frames: Mapping[str, DataFrame], session: SparkSession) -> dict[str, DataFrame]:
    """The frames that a transform gives, by name: its own, or one for each output of a route.

    `frames` holds its inputs, made in `session`: a session of this sink's own, since a query's views are put there.
    """
    match node.settings:
        case FilterSettings(condition=condition):
            return {node.name: union([frames[name] for name in node.settings.inputs]).filter(condition)}
        case RouteSettings() as settings:
            return _route(node.name, settings, union([frames[name] for name in settings.inputs]))
        case SqlSettings() as settings:
            return {node.name: _query(settings, frames, session)}
    raise InputError(f"transform {node.name} is of the type {node.settings.type}, which is unknown")


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of all frames, by the names of the columns."""
    whole, *others = frames
    for each in others:
        whole = whole.unionByName(each, allowMissingColumns=True)
    return whole


def _route(name: str, settings: RouteSettings, frame: DataFrame) -> dict[str, DataFrame]:
    from pyspark.sql import functions

    outputs = {f"{name}.{output}": frame.filter(condition) for output, condition in settings.outputs.items()}
    if settings.other:
        taken = functions.lit(False)
        for condition in settings.outputs.values():
            # A condition over a null is neither true nor false: the row is not taken.
            taken = taken | functions.coalesce(functions.expr(condition), functions.lit(False))
        outputs[f"{name}.{OTHER}"] = frame.filter(~taken)
    return outputs


def _query(settings: SqlSettings, frames: Mapping[str, DataFrame], session: SparkSession) -> DataFrame:
    parse_query(settings.query, session)
    for name in settings.inputs:
        with_watermark(settings, name, frames[name]).createOrReplaceTempView(view_name(name))
    return session.sql(settings.query)


def with_watermark(settings: SqlSettings, name: str, frame: DataFrame) -> DataFrame:
    """An input of a query as the query sees it."""
    late = settings.watermark.get(name)
    return frame if late is None else frame.withWatermark(late.column, f"{round(late.delay * 1000)} milliseconds")


def parse_query(query: str, session: SparkSession) -> None:
    """Raises Spark's `ParseException` for anything that is not one query: commands and insertions are not."""
    _parser(session).parseQuery(query)


def parse_condition(condition: str, session: SparkSession) -> None:
    """Raises Spark's `ParseException` for anything that is not one expression."""
    _parser(session).parseExpression(condition)


def _parser(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState().sqlParser()
