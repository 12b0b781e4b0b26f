"""What one task of a file sink does, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sinkkit import numbers

from holdfast.files import Files
from holdfast.sinks import _folder_writer as module
from holdfast.sinks._folder_writer import FolderWriter
from holdfast.testing import CrashMode, SimulatedFiles, crash

ROOT = Path("/out")


def writer(files: Files, schema: pa.Schema, partition_by: tuple[str, ...] = (), target: int = 10**6) -> FolderWriter:
    files.make_folder(ROOT)
    return FolderWriter(files, str(ROOT), "part", schema, partition_by, target_file_size=target, plain_folders=True)


def read(files: Files, path: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(files.read(ROOT / path)))


def test_what_was_finished_survives_a_power_cut() -> None:
    """Once `finish` has returned, files and names are durable, those in new folders too."""
    files = SimulatedFiles()
    data = numbers(0, 4, p=["a", "b", "a", None])
    work = writer(files, data.schema, ("p",))
    for batch in data.to_batches(max_chunksize=2):
        work.write(batch)
    facts = work.finish()
    after = crash(files, CrashMode.LOST)
    found = {file.values: read(after, file.path).column("id").to_pylist() for file in facts}
    assert found == {("a",): [0, 2], ("b",): [1], (None,): [3]}
    assert {file.path: after.size(ROOT / file.path) for file in facts} == {file.path: file.size for file in facts}


def test_files_are_rolled_at_the_target_size() -> None:
    """Rows are gathered into row groups and files; every row is in one of them, in order."""
    files = SimulatedFiles()
    data = numbers(0, 20_000)
    work = writer(files, data.schema, target=30_000)
    for batch in data.to_batches(max_chunksize=500):
        work.write(batch)
    facts = work.finish()
    assert len(facts) > 2
    assert all(file.size < 60_000 for file in facts)
    tables = [read(files, file.path) for file in facts]
    assert pa.concat_tables(tables).column("id").to_pylist() == list(range(20_000))
    assert [table.num_rows for table in tables] == [file.rows for file in facts]


def test_the_number_of_open_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More partitions than files may be open give more files, and lose no row."""
    monkeypatch.setattr(module, "MAX_OPEN_FILES", 3)
    files = SimulatedFiles()
    data = numbers(0, 40, p=pa.array([number % 8 for number in range(40)], pa.int64()))
    work = writer(files, data.schema, ("p",))
    for batch in data.to_batches(max_chunksize=8):
        work.write(batch)
    facts = work.finish()
    assert len(facts) == 40
    assert sorted(row for file in facts for row in read(files, file.path).column("id").to_pylist()) == list(range(40))


def test_the_memory_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that wait for a row group of their own are written early when all together take too much."""
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 100)
    files = SimulatedFiles()
    data = numbers(0, 100)
    work = writer(files, data.schema)
    for batch in data.to_batches(max_chunksize=10):
        work.write(batch)
    (file,) = work.finish()
    metadata = pq.read_metadata(pa.BufferReader(files.read(ROOT / file.path)))
    assert (metadata.num_rows, metadata.num_row_groups) == (100, 5)


def test_a_failed_task_leaves_nothing() -> None:
    """Given up, finished and open files are removed."""
    files = SimulatedFiles()
    data = numbers(0, 5000)
    work = writer(files, data.schema, target=10_000)
    for batch in data.to_batches(max_chunksize=1000):
        work.write(batch)
    assert files.list(ROOT)
    work.abandon()
    del work
    assert files.list(ROOT) == []


def test_a_sync_that_fails_is_told() -> None:
    """A file that the disk refused to sync is not reported as written."""
    files = SimulatedFiles()
    data = numbers(0, 5)
    work = writer(files, data.schema)
    work.write(data.to_batches()[0])
    files.fail("sync", path="*part*")
    with pytest.raises(OSError):
        work.finish()


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (["b", "a"], "a", "b"),
        (["x" * 40], "x" * 32, "x" * 32 + "\U0010ffff"),
        (["\U0010ffff" * 40], "\U0010ffff" * 32, None),
        ([1.5, float("nan")], None, None),
        ([-0.5, float("inf")], -0.5, None),
        ([None, None], None, None),
        ([True], None, None),
    ],
)
def test_bounds_are_left_out_unless_they_hold(values: list[Any], low: Any, high: Any) -> None:
    """The statistics of a file never say more than is so."""
    import json

    files = SimulatedFiles()
    kind = pa.array(values).type if values[0] is not None else pa.int64()
    data = pa.table({"x": pa.array(values, kind)})
    work = writer(files, data.schema)
    work.write(data.to_batches()[0])
    (file,) = work.finish()
    stats = json.loads(file.stats)
    assert stats["numRecords"] == len(values)
    assert stats["nullCount"] == {"x": values.count(None)}
    assert (stats["minValues"].get("x"), stats["maxValues"].get("x")) == (low, high)
