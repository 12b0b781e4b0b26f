"""The nodes of a pipeline's graph, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.pipeline.transforms import OTHER, RouteSettings, TransformSettings
from holdfast.receivers._settings import SourceSettings, TopicSettings
from holdfast.sinks._settings import SinkSettings


@dataclass(frozen=True, slots=True)
class Source:
    """Where data comes from, and the topic and slot it is kept in.

    acknowledgements       does whoever sends wait for an answer?
    buffer_acknowledges    the answer is given when the data is durable (otherwise: when the sinks have it)
    """

    name: str
    settings: SourceSettings
    acknowledgements: bool = True
    buffer_acknowledges: bool = True

    @property
    def topic(self) -> str:
        """The topic that its data is kept in."""
        return self.settings.topic

    @property
    def slot(self) -> str:
        """The slot of each bundle that its rows are in."""
        return self.settings.slot

    @property
    def origin(self) -> str | None:
        """What the attribute `source` of its bundles says; `None` if every bundle of the topic is its own."""
        return self.settings.source if isinstance(self.settings, TopicSettings) else self.name

    @property
    def declared_schema(self) -> pa.Schema | None:
        """The columns that it brings, if that is known before any data is there."""
        return self.settings.declared_schema


@dataclass(frozen=True, slots=True)
class Transform:
    """What happens to rows on the way."""

    name: str
    settings: TransformSettings

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names that others can have as inputs."""
        if not isinstance(self.settings, RouteSettings):
            return (self.name,)
        outputs = (*self.settings.outputs, *([OTHER] if self.settings.other else []))
        return tuple(f"{self.name}.{output}" for output in outputs)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go; its name is the name of its subscriber."""

    name: str
    settings: SinkSettings
