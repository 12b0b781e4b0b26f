"""The Parquet sink with Spark: what its folder holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from sinkkit import KEY, STORE_ID, identity, numbers, parquet, ranges, soon

from holdfast.errors import SinkMoved, SinkRefused
from holdfast.sinks import ParquetSink, Ranges, WriteResult


def opened(path: Path, spark: Any, **settings: Any) -> ParquetSink:
    sink = parquet(path, **settings)
    sink.open(spark, identity())
    return sink


def rows(spark: Any, path: Path) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in spark.read.parquet(str(path)).collect()), key=lambda row: row["id"])


def test_batches_become_files_named_by_their_offsets(spark: Any, tmp_path: Path) -> None:
    """Rows come back once through any reader, the names tell the offsets, and a repeat writes nothing."""
    path = tmp_path / "out"
    sink = opened(path, spark)
    assert sink.position() == {}
    first, second = numbers(0, 3, text=["a", None, "ü"]), numbers(3, 5)
    assert sink.write(spark.createDataFrame(first), ranges(0, 3), soon()) == WriteResult(3, 1)
    assert sink.write(spark.createDataFrame(second), ranges(3, 5), soon()) == WriteResult(2, 1)
    assert sink.write(spark.createDataFrame(numbers(0, 0)), ranges(5, 9), soon()) == WriteResult(0, 0)
    again = opened(path, spark, seed=1)
    assert again.position() == {KEY: 5}
    assert again.write(spark.createDataFrame(second), ranges(3, 5), soon()).repeated
    with pytest.raises(SinkMoved, match=f"it has {KEY} at 5"):
        again.write(spark.createDataFrame(second), ranges(3, 6), soon())
    assert [row["id"] for row in rows(spark, path)] == [0, 1, 2, 3, 4]
    assert ds.dataset(path).to_table().sort_by("id").column("text").to_pylist() == ["a", None, "ü", None, None]
    stem = f"lake-{STORE_ID[:8]}-prod.logs.0"
    assert sorted(name for name in os.listdir(path) if name[0] != "_") == [
        f"{stem}-0-3-0.parquet",
        f"{stem}-3-5-0.parquet",
    ]


def test_hive_partitions(spark: Any, tmp_path: Path) -> None:
    """Partition values of all kinds can be read back from the folders' names."""
    path = tmp_path / "out"
    sink = opened(path, spark, partition_by=("city", "level"))
    data = numbers(0, 4, city=["Bern", "a b/ü%=;&+", None, "Bern"], level=pa.array([1, 2, 3, 1], pa.int32()))
    assert sink.write(spark.createDataFrame(data), ranges(0, 4), soon()).files == 3
    assert rows(spark, path) == data.to_pylist()
    hive = ds.dataset(path, partitioning=ds.partitioning(flavor="hive")).to_table().sort_by("id")
    assert hive.column("city").to_pylist() == data.column("city").to_pylist()
    with pytest.raises(SinkRefused, match="is partitioned by city, level, and this sink by nothing"):
        opened(path, spark)
    long = numbers(4, 5, city=["x" * 300], level=pa.array([1], pa.int32()))
    with pytest.raises(SinkRefused, match="too long for the name of a folder"):
        sink.write(spark.createDataFrame(long), ranges(4, 5), soon())
    assert sink.position() == {KEY: 4}


def test_columns_keep_their_types(spark: Any, tmp_path: Path) -> None:
    """Later files have all columns of earlier ones, in the same types; what does not fit is refused."""
    path = tmp_path / "out"
    sink = opened(path, spark)
    sink.write(spark.createDataFrame(pa.table({"id": [1], "x": [1.5]})), ranges(0, 1), soon())
    narrow = pa.table({"id": pa.array([2], pa.int32()), "more": ["m"]})
    sink.write(spark.createDataFrame(narrow), ranges(1, 2), soon())
    newest = ds.dataset(next(path.glob("*-1-2-0.parquet"))).schema
    assert [(field.name, str(field.type)) for field in newest] == [("id", "int64"), ("x", "double"), ("more", "string")]
    with pytest.raises(SinkRefused, match="holds double there, and the data has string"):
        sink.write(spark.createDataFrame(pa.table({"x": ["word"]})), ranges(2, 3), soon())


def test_many_shards_are_named_by_a_hash(spark: Any, tmp_path: Path) -> None:
    """A name stays within bounds, however many shards a batch has."""
    path = tmp_path / "out"
    sink = opened(path, spark)
    many = Ranges(STORE_ID, "lake", {f"prod/logs/{number}": (0, 10**12) for number in range(100)}, None, 10)
    sink.write(spark.createDataFrame(numbers(0, 1)), many, soon())
    (name,) = [name for name in os.listdir(path) if name[0] != "_"]
    assert len(name) < 80
    assert sink.position() == many.ends


def test_folders_that_hold_other_things(spark: Any, tmp_path: Path) -> None:
    """A folder with somebody else's files is left alone."""
    (tmp_path / "other.parquet").write_bytes(b"x")
    with pytest.raises(SinkRefused, match=r"holds other things \(other.parquet\)"):
        opened(tmp_path, spark)
    with pytest.raises(SinkRefused, match="is a file"):
        opened(tmp_path / "other.parquet", spark)
