"""The settings of every source: data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field

from holdfast.config.node import NodeSettings, SlotName, TopicName
from holdfast.receivers._types import parse_type


def _is_type(text: str) -> str:
    parse_type(text)
    return text


TypeText = Annotated[str, AfterValidator(_is_type)]


class SourceSettings(NodeSettings):
    """What every source has."""

    type: str
    topic: TopicName
    slot: SlotName = "events"
    acknowledgements: bool | None = None  # the pipeline's default
    columns: Mapping[str, TypeText] | None = Field(None, alias="schema", min_length=1)
    leave_out: tuple[str, ...] = ()  # columns that no sink is to see: those whose types Spark cannot bring together

    @property
    def declared_schema(self) -> pa.Schema | None:
        """What the file says that this source brings; `None` if it says nothing."""
        if self.columns is None:
            return None
        return pa.schema([(name, parse_type(text)) for name, text in self.columns.items()])


DEMO_SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("level", pa.string()),
        ("service", pa.string()),
        ("ms", pa.float64()),
        ("message", pa.string()),
    ]
)


class DemoSettings(SourceSettings):
    """Rows made up here: the same ones in every run with the same seed."""

    type: Literal["demo"]
    rows_per_second: int = Field(1000, ge=1)
    rows_per_bundle: int = Field(100, ge=1, le=1_000_000)
    limit: int | None = Field(None, ge=1)  # rows; without it there is no end
    seed: int = 0

    @property
    def declared_schema(self) -> pa.Schema:
        """Always the same."""
        return DEMO_SCHEMA


class TopicSettings(SourceSettings):
    """A topic that somebody appends to by the Python API, or another pipeline: there is nothing to receive here."""

    type: Literal["topic"]
    slot: SlotName
    source: str | None = Field(None, min_length=1)  # only bundles with this attribute `source`; otherwise all
