"""The oracle of every end-to-end test: what was promised is there, once, as it was, and nothing else is.

Each row has an id that no other row has, and a `check` that follows from the id.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset

import holdfast as hf

SLOT = "logs"


def check_of(number: int) -> int:
    """What the row with this id carries beside it."""
    return zlib.crc32(f"row {number}".encode())


def rows(first: int, end: int, **columns: Callable[[int], Any] | pa.Array) -> pa.RecordBatch:
    """Rows with the ids from `first` to before `end`; more columns as arrays, or as functions of the id."""
    ids = range(first, end)
    more = {name: [each(number) for number in ids] if callable(each) else each for name, each in columns.items()}
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "check": [check_of(number) for number in ids], **more})


class Ledger:
    """Hands out ids, appends rows with them, and knows which were answered as durable."""

    def __init__(self) -> None:
        self.durable: set[int] = set()
        self._next = 0
        self._lock = threading.Lock()

    def append(self, topic: hf.Topic, count: int = 10, *, rows_of: Callable[[int, int], pa.RecordBatch] = rows,
               **options: Any) -> set[int]:  # fmt: skip
        """One bundle, durable; its ids."""
        with self._lock:
            first, self._next = self._next, self._next + count
        topic.append({SLOT: rows_of(first, first + count)}, **options).wait(timeout=120)
        ids = set(range(first, first + count))
        with self._lock:
            self.durable |= ids
        return ids


def delta(path: Path) -> pa.Table:
    """A Delta table, read without Spark; an empty one if it has not been made."""
    if not (path / "_delta_log").is_dir() or not any((path / "_delta_log").glob("*.json")):
        return pa.table({"id": pa.array([], pa.int64()), "check": pa.array([], pa.int64())})
    return deltalake.DeltaTable(str(path)).to_pyarrow_table()


def parquet(path: Path) -> pa.Table:
    """A folder of Parquet files, as any reader sees it: names that begin with `_` are not data."""
    files = sorted(str(file) for file in path.rglob("*.parquet") if not _hidden(file.relative_to(path)))
    return pa.dataset.dataset(files, format="parquet").to_table() if files else delta(path / "none")


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def expect(table: pa.Table, promised: Collection[int], possible: Collection[int] = ()) -> None:
    """Every promised id is there once; others only if they are possible, and once; every row is whole.

    `possible`: rows whose append was not answered, since somebody was killed: they may be there, or not.
    """
    found = Counter(table.column("id").to_pylist())
    wanted = set(promised)
    doubled = sorted(number for number, times in found.items() if times > 1)
    lost = sorted(wanted - found.keys())
    invented = sorted(found.keys() - wanted - set(possible))
    assert (lost, doubled, invented) == ([], [], []), (
        f"{len(wanted)} promised, {len(found)} found; {len(lost)} lost: {lost[:9]}, {len(doubled)} doubled: "
        f"{doubled[:9]}, {len(invented)} invented: {invented[:9]}"
    )
    wrong = [row for row in table.select(["id", "check"]).to_pylist() if row["check"] != check_of(row["id"])]
    assert wrong == []
