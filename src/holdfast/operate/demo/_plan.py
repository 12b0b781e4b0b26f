"""What the demonstration runs, and what must be in each table in the end.

The conditions stand here twice: as SQL in the pipeline's file, for Spark, and in Arrow's terms for the comparison,
which must not depend on anything that the pipeline does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError

TOPIC: Final = "demo/events"
SOURCE: Final = "events"
FILE: Final = "pipeline.yaml"
STORE: Final = "store"
SEED: Final = 7
BUNDLES_PER_SECOND: Final = 20
MOST_ROWS: Final = 50_000_000  # in all: the comparison has a few bytes for each in memory

Belongs = Callable[[pa.RecordBatch], pa.BooleanArray]


@dataclass(frozen=True, slots=True)
class DemoTable:
    """A table of the demonstration, and whether a generated row belongs into it."""

    name: str
    kind: str
    belongs: Belongs


def _any(rows: pa.RecordBatch) -> pa.BooleanArray:
    return pc.is_valid(rows["seq"])


def _error(rows: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(rows["level"], "ERROR")


def _rest(rows: pa.RecordBatch) -> pa.BooleanArray:
    return pc.invert(pc.is_in(rows["level"], pa.array(["DEBUG", "ERROR"])))


TABLES: Final = (
    DemoTable("lake", "delta", _any),
    DemoTable("errors", "parquet", _error),
    DemoTable("rest", "delta", _rest),
)

_PIPELINE: Final = """\
# Made by `holdfast demo`. `holdfast graph` draws it, `holdfast run` runs it.
store: {{path: ./{store}}}
spark:
  master: local[2]
  conf: {{spark.driver.memory: 1g, spark.sql.shuffle.partitions: 2}}
buffer:
  segment: {{target_size: 1MB, max_open_duration: 5s}}   # small, so that data is sealed and deleted while one looks

sources:
  {source}:
    {{type: demo, topic: {topic}, rows_per_second: {rate}, rows_per_bundle: {bundle}, limit: {rows}, seed: {seed}}}

transforms:
  kept:     {{type: filter, inputs: [{source}], condition: "level <> 'DEBUG'"}}
  by_level: {{type: route, inputs: [kept], outputs: {{errors: "level = 'ERROR'"}}, other: true}}

sinks:
  lake:   {{type: delta, inputs: [{source}], path: ./lake, commit_interval: 2s}}
  errors: {{type: parquet, inputs: [by_level.errors], path: ./errors, commit_interval: 2s}}
  rest:   {{type: delta, inputs: [by_level.other], path: ./rest, commit_interval: 2s}}
"""


@dataclass(frozen=True)
class DemoPlan:
    """`rows_per_second` for `seconds`, in a folder that is new or empty; with `chaos`, processes are killed."""

    folder: Path
    seconds: float = 30.0
    rows_per_second: int = 2_000
    chaos: bool = False

    def __post_init__(self) -> None:
        if not self.seconds > 0 or self.rows_per_second < 1:
            raise InputError(
                f"--seconds {self.seconds:g} --rows-per-second {self.rows_per_second}: both must be above zero"
            )
        if self.seconds * self.rows_per_second > MOST_ROWS:
            raise InputError(
                f"--seconds {self.seconds:g} --rows-per-second {self.rows_per_second}: more than {MOST_ROWS:,} rows "
                "in all cannot be compared at the end; choose less of either"
            )

    @property
    def rows(self) -> int:
        """How many the source generates; it may take longer than it was given, and generates no fewer."""
        return max(1, round(self.seconds * self.rows_per_second))

    @property
    def rows_per_bundle(self) -> int:
        return min(10_000, max(1, self.rows_per_second // BUNDLES_PER_SECOND))

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def store(self) -> Path:
        return self.folder / STORE

    def pipeline(self) -> str:
        """The pipeline's file."""
        return _PIPELINE.format(
            store=STORE, source=SOURCE, topic=TOPIC, seed=SEED,
            rate=self.rows_per_second, bundle=self.rows_per_bundle, rows=self.rows,
        )  # fmt: skip

    def path(self, table: DemoTable) -> Path:
        """Where a table is."""
        return self.folder / table.name
