"""The settings of a pipeline beside its sources, transforms and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from holdfast.config.node import Folder, NodeSettings


def _conf_text(value: Any) -> Any:
    """Spark takes texts; YAML has numbers and truth values too."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class StorePlace(NodeSettings):
    """Where the store is."""

    path: Folder


class IngestSettings(NodeSettings):
    """The processes that receive."""

    workers: int = Field(1, ge=1, le=1000)  # each has a shard of its own in every topic


class SparkSettings(NodeSettings):
    """The Spark that runs the queries."""

    master: str = Field("local[*]", min_length=1)
    conf: Mapping[str, Annotated[str, BeforeValidator(_conf_text)]] = Field({}, repr=False)  # may hold credentials


class PipelineSettings(NodeSettings):
    """The top level of the file. What is inside the sections is checked section by section."""

    store: StorePlace
    acknowledgements: bool = True
    state: Folder | None = None  # the pipeline's own files; by default beside the store
    ingest: IngestSettings = IngestSettings()
    spark: SparkSettings = SparkSettings()
    buffer: Any = None
    namespaces: Any = None
    topics: Any = None
    sources: Any = None
    transforms: Any = None
    sinks: Any = None
