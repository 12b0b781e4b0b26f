"""The settings of every sink: data only, so that a pipeline's file can be checked without Spark."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from holdfast.config.node import Folder, NodeSettings, Seconds, Size, SlotName, TopicName


class RetrySettings(NodeSettings):
    """How long a query that failed waits before it is started again; the wait doubles each time."""

    initial: Seconds = Field(1.0, gt=0)
    max: Seconds = Field(60.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> RetrySettings:
        if self.initial > self.max:
            raise ValueError(f"initial ({self.initial:g} s) must not exceed max ({self.max:g} s)")
        return self


class SinkSettings(NodeSettings):
    """What every sink has."""

    type: str
    inputs: tuple[str, ...] = Field(min_length=1)
    authoritative: bool = False  # a waiting source is answered by the authoritative sinks alone, if there are any
    on_full: Literal["block", "drop"] = "block"
    expire_after: Seconds | None = Field(None, gt=0)  # a sink that did not run for so long is forgotten
    commit_interval: Seconds = Field(10.0, gt=0)
    low_latency: bool = False  # commits as soon as there is something, whatever the interval
    max_batch_bytes: Size = Field(256_000_000, ge=1)
    deadline: Seconds = Field(300.0, gt=0)  # of one batch
    retry: RetrySettings = RetrySettings()


class FileSinkSettings(SinkSettings):
    """What every sink has that writes files into a folder."""

    path: Folder
    target_file_size: Size = Field(128_000_000, ge=1)
    partition_by: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _once(self) -> FileSinkSettings:
        if len(set(self.partition_by)) < len(self.partition_by):
            raise ValueError("partition_by names a column twice")
        return self


class DeltaSettings(FileSinkSettings):
    """A Delta table."""

    type: Literal["delta"]


class ParquetSettings(FileSinkSettings):
    """A folder of Parquet files."""

    type: Literal["parquet"]


class ConsoleSettings(SinkSettings):
    """Rows on standard output, for a look."""

    type: Literal["console"]
    limit: int = Field(20, ge=1, le=10_000)  # rows of one batch that are printed


class HoldfastSinkSettings(SinkSettings):
    """Another topic, of the pipeline's own store or of another one."""

    type: Literal["holdfast"]
    store: Folder | None = None  # the pipeline's own
    topic: TopicName
    slot: SlotName = "events"


SINK_SETTINGS: Final[dict[str, type[SinkSettings]]] = {
    "console": ConsoleSettings,
    "delta": DeltaSettings,
    "holdfast": HoldfastSinkSettings,
    "parquet": ParquetSettings,
}
