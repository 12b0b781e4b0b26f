"""What a sink is: one place that batches are delivered to, with a position of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.clock import Deadline
from holdfast.config import StoreSettings
from holdfast.errors import InvalidPosition, SinkMoved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """Whose data a sink takes, and where the pipeline keeps what belongs to the sink.

    state       a folder of this sink's own, which executors share; used by sinks that cannot keep a position elsewhere
    store       the folder of the pipeline's store, for a sink that writes to it again
    settings    those of that store
    """

    store_id: str
    subscriber: str
    state: Path
    store: Path | None = None
    settings: StoreSettings | None = None


@dataclass(frozen=True, slots=True)
class Ranges:
    """What a batch covers: for each shard key (`prod/logs/0`) the first offset and the end, which is not included.

    `rows` and `bytes` are what was read, before transforms; `None` if that is not known.
    """

    store_id: str
    subscriber: str
    ranges: Mapping[str, tuple[int, int]]
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for key, (first, end) in self.ranges.items():
            if not 0 <= first < end:
                raise InvalidPosition(f"{key}: a batch covers offsets {first} to {end}: empty, or backwards")

    @property
    def ends(self) -> dict[str, int]:
        """The position of the sink once it has the batch."""
        return {key: end for key, (_, end) in sorted(self.ranges.items())}

    def __str__(self) -> str:
        return ", ".join(f"{key} [{first}, {end})" for key, (first, end) in sorted(self.ranges.items()))


class WriteResult(NamedTuple):
    """What a write did. Nothing at all: the sink had the batch already (`repeated`), or it had no rows."""

    rows: int
    files: int
    repeated: bool = False


class Sink(Protocol):
    """One sink of a pipeline, in the driver process. Calls come one at a time."""

    exactly_once: bool

    def open(self, spark: SparkSession, identity: SinkIdentity) -> None:
        """Be ready to write; raises `SinkRefused` for a place that is not fit for it."""
        ...

    def position(self) -> dict[str, int]:
        """For each shard key the end offset that the sink durably holds; nothing if it cannot tell.

        First brings to an end what a crash left half done.
        """
        ...

    def write(self, frame: DataFrame, ranges: Ranges, deadline: Deadline) -> WriteResult:
        """Deliver a batch. On return its rows and the position are durable.

        A batch without rows may leave the position behind: whoever reads the range again finds no rows again.
        """
        ...

    def close(self) -> None: ...


def held(position: Mapping[str, int], ranges: Ranges, sink: str) -> bool:
    """Does a sink at `position` have the batch already? Raises `SinkMoved` if it has a part of it.

    A position below the start is right: what is between was given up, or had no rows.
    """
    at = {key: position.get(key, 0) for key in ranges.ranges}
    if all(at[key] >= end for key, (_, end) in ranges.ranges.items()):
        return True
    ahead = {key: at[key] for key, (first, _) in ranges.ranges.items() if at[key] > first}
    if ahead:
        where = ", ".join(f"{key} at {end}" for key, end in sorted(ahead.items()))
        raise SinkMoved(
            f"{sink} already holds a part of this batch of subscriber {ranges.subscriber} ({ranges}): it has {where}; "
            "nothing was written: start again from the sink's position"
        )
    return False
