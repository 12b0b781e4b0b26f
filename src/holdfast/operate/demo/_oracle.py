"""Each table against the rows that the source was to generate.

What is expected follows from the rows' numbers alone: nothing that the pipeline wrote down is asked, except the tables
themselves. A row in a table is right if it belongs there and every column of it is as it was generated. Everything else
is foreign: a row that was never generated, belongs elsewhere, or was changed on the way (and then is lost too).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operate.demo._plan import Belongs
from holdfast.receivers._settings import DEMO_SCHEMA
from holdfast.receivers.demo import rows

WINDOW_ROWS: Final = 100_000  # generated at a time
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TableCheck:
    """What was found in a table; `right` says of each generated row how often it is there as it should be."""

    name: str
    belongs: npt.NDArray[np.bool_]
    right: Counts
    foreign: int

    @property
    def expected(self) -> int:
        return int(self.belongs.sum())

    @property
    def delivered(self) -> int:
        """Rows that belong here and are here, each counted once."""
        return int((self.right > 0).sum())

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Of each generated row, whether it belongs here and is not here."""
        missing: npt.NDArray[np.bool_] = self.belongs & (self.right == 0)
        return missing

    @property
    def lost(self) -> int:
        return int(self.missing.sum())

    @property
    def doubled(self) -> int:
        """Rows that are here more than once."""
        return int((self.right > 1).sum())

    @property
    def passed(self) -> bool:
        return not (self.lost or self.doubled or self.foreign)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Over all tables. A generated row is delivered if no table lacks it: `generated` is `delivered` and `lost`."""

    generated: int
    lost: int
    doubled: int  # rows that some table has more than once
    foreign: int

    @property
    def delivered(self) -> int:
        return self.generated - self.lost

    @property
    def passed(self) -> bool:
        return not (self.lost or self.doubled or self.foreign)


def check_table(name: str, found: pa.Table, total: int, seed: int, belongs: Belongs) -> TableCheck:
    """Compare all columns of all rows with the `total` rows that were to be generated."""
    wanted = np.zeros(total, dtype=bool)
    right = np.zeros(total, dtype=np.int64)
    ours = _as_generated(found)
    numbers = np.empty(0, np.int64) if ours is None else ours["seq"].fill_null(-1).to_numpy()
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    for first in range(0, total, WINDOW_ROWS):
        batch = rows(first, min(WINDOW_ROWS, total - first), seed)
        end = first + batch.num_rows
        wanted[first:end] = belongs(batch).to_numpy(zero_copy_only=False)
        if ours is not None:
            here = slice(*np.searchsorted(numbers, [first, end]))
            places = numbers[here] - first
            same = _equal(ours.take(order[here]), batch.take(pa.array(places))) & wanted[first:end][places]
            right[first:end] = np.bincount(places[same], minlength=batch.num_rows)
    return TableCheck(name, wanted, right, found.num_rows - int(right.sum()))


def judge(total: int, checks: Iterable[TableCheck]) -> Verdict:
    """All tables together."""
    missing, doubled = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    foreign = 0
    for check in checks:
        missing |= check.missing
        doubled |= check.right > 1
        foreign += check.foreign
    return Verdict(total, int(missing.sum()), int(doubled.sum()), foreign)


def _as_generated(found: pa.Table) -> pa.Table | None:
    """In the columns and types of the source; `None` if it has others: then no row of it is right."""
    if sorted(found.column_names) != sorted(DEMO_SCHEMA.names):
        return None
    try:
        return found.select(DEMO_SCHEMA.names).cast(DEMO_SCHEMA)
    except pa.ArrowInvalid:
        return None


def _equal(found: pa.Table, generated: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Row by row; a null equals nothing, for no row is generated with one."""
    same = np.ones(found.num_rows, dtype=bool)
    for name in DEMO_SCHEMA.names:
        equal = pc.equal(found[name].combine_chunks(), generated[name]).fill_null(False)
        same &= equal.to_numpy(zero_copy_only=False)
    return same
