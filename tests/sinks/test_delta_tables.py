"""The tables that the Delta sink writes: types, partitions, statistics, widening; and tables that it refuses."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sinkkit import KEY, delta, identity, numbers, ranges, soon

from holdfast.errors import SinkRefused
from holdfast.sinks import DeltaSink

deltalake = pytest.importorskip("deltalake")
UTC = dt.UTC


def opened(path: Path, spark: Any, **settings: Any) -> DeltaSink:
    sink = delta(path, **settings)
    sink.open(spark, identity())
    return sink


def table(path: Path) -> Any:
    return deltalake.DeltaTable(str(path))


def rows(path: Path, by: str = "id", **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table(path).to_pyarrow_table(**rest).to_pylist()
    return sorted(found, key=lambda row: row[by])


MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
NESTED = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
KINDS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([1, None], pa.int8()),
        "text": ["ü" * 40, "a"],
        "bytes": pa.array([b"\x00\xff", None], pa.binary()),
        "ratio": [1.5, math.inf],
        "nan": [math.nan, 1.0],
        "flag": [True, False],
        "day": pa.array([dt.date(2024, 5, 6), None]),
        "at": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        "price": pa.array([decimal.Decimal("12.34"), None], pa.decimal128(10, 2)),
        "huge": pa.array([decimal.Decimal("9" * 36 + ".99")] * 2, pa.decimal128(38, 2)),
        "tags": pa.array([["x", None], []], pa.list_(pa.string())),
        "attributes": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "nested": pa.array([{"a": 1, "b": {"c": "z"}}, None], NESTED),
        "odd name.x,`y`=ü": ["p", "q"],
    }
)  # fmt: skip


def test_every_type_comes_back_with_statistics(spark: Any, tmp_path: Path) -> None:
    """Values of all types come back as they went in; the log's bounds hold for them, and are left out if unsure."""
    sink = opened(tmp_path / "t", spark)
    frame = spark.createDataFrame(KINDS).selectExpr("*", "timestamp_ntz'2024-05-06 07:08:09.123456' as local")
    sink.write(frame, ranges(0, 1), soon())
    found, expected = rows(tmp_path / "t"), KINDS.to_pylist()
    assert [row.pop("local") for row in found] == [MOMENT.replace(tzinfo=None)] * 2
    assert math.isnan(found[0].pop("nan"))
    assert math.isnan(expected[0].pop("nan"))
    assert found == expected
    (facts,) = pa.table(table(tmp_path / "t").get_add_actions(flatten=True)).to_pylist()
    assert facts["num_records"] == 2
    assert (facts["min.id"], facts["max.id"], facts["null_count.id"]) == (1, 2, 0)
    assert (facts["min.small"], facts["null_count.small"]) == (1, 1)
    assert (facts["min.text"], facts["max.text"]) == ("a", "ü" * 32 + "\U0010ffff")
    assert facts["min.ratio"] == 1.5
    assert (facts["min.day"], facts["min.at"], facts["max.at"]) == (dt.date(2024, 5, 6), MOMENT, MOMENT)
    assert facts["max.local"] == MOMENT.replace(tzinfo=None)
    assert facts["max.price"] == decimal.Decimal("12.34")
    assert (facts["min.nested.a"], facts["max.nested.b.c"], facts["null_count.nested.a"]) == (1, "z", 1)
    unsure = ("max.ratio", "min.nan", "max.nan", "min.huge", "max.flag", "max.bytes")
    assert {name: facts.get(name) for name in unsure} == dict.fromkeys(unsure)
    for column, value in (("text", "ü" * 40), ("at", MOMENT), ("price", decimal.Decimal("12.34")), ("small", 1)):
        assert [row["id"] for row in rows(tmp_path / "t", filters=[(column, "=", value)])] == [1]


def test_partitions(spark: Any, tmp_path: Path) -> None:
    """Rows go to a file for each partition, whatever characters, nulls or types its values have."""
    odd = "a b/ü%=;&+../\\\n"
    sink = opened(tmp_path / "t", spark, partition_by=("city", "day", "level"))
    data = numbers(
        0, 6,
        city=["Bern", odd, None, "Bern", odd, "x" * 300],
        day=pa.array([dt.date(2024, 1, 1)] * 5 + [None]),
        level=pa.array([1, 2, None, 1, 2, 3], pa.int32()),
    )  # fmt: skip
    result = sink.write(spark.createDataFrame(data), ranges(0, 6), soon())
    assert (result.rows, result.files) == (6, 4)
    assert [{name: row[name] for name in data.column_names} for row in rows(tmp_path / "t")] == data.to_pylist()
    assert [row["id"] for row in rows(tmp_path / "t", filters=[("city", "=", odd)])] == [1, 4]
    assert (tmp_path / "t/city=Bern/day=2024-01-01/level=1").is_dir()
    for file in (tmp_path / "t").rglob("*.parquet"):
        assert pq.read_schema(file).names == ["id"]
    sink.write(spark.createDataFrame(numbers(6, 7)), ranges(6, 7), soon())
    assert rows(tmp_path / "t")[6] == {"id": 6, "city": None, "day": None, "level": None}


def test_a_new_column_in_mid_stream(spark: Any, tmp_path: Path) -> None:
    """Columns and fields of structs that come later are added, older rows have null there, and so have later ones."""
    sink = opened(tmp_path / "t", spark)
    first = numbers(0, 1, s=pa.array([{"a": 1}], pa.struct([("a", pa.int32())])))
    second = numbers(1, 2, s=pa.array([{"a": 2, "b": "x"}]), extra=[2.5])
    sink.write(spark.createDataFrame(first), ranges(0, 1), soon())
    with pytest.raises(SinkRefused, match=r"column 's' holds int32 there, and the data has int64"):
        sink.write(spark.createDataFrame(second), ranges(1, 2), soon())
    second = second.set_column(
        1, "s", pa.array([{"a": 2, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())]))
    )
    sink.write(spark.createDataFrame(second), ranges(1, 2), soon())
    sink.write(spark.createDataFrame(numbers(2, 3)), ranges(2, 3), soon())
    assert rows(tmp_path / "t") == [
        {"id": 0, "s": {"a": 1, "b": None}, "extra": None},
        {"id": 1, "s": {"a": 2, "b": "x"}, "extra": 2.5},
        {"id": 2, "s": None, "extra": None},
    ]


def test_narrow_values_go_into_wide_columns(spark: Any, tmp_path: Path) -> None:
    """A column takes what fits into its type; what does not is refused with both types, and nothing is written."""
    sink = opened(tmp_path / "t", spark)
    wide = pa.table({"id": pa.array([1], pa.int64()), "x": pa.array([1.5], pa.float64())})
    sink.write(spark.createDataFrame(wide), ranges(0, 1), soon())
    narrow = pa.table({"id": pa.array([2], pa.int16()), "x": pa.array([7], pa.int32())})
    sink.write(spark.createDataFrame(narrow), ranges(1, 2), soon())
    assert rows(tmp_path / "t") == [{"id": 1, "x": 1.5}, {"id": 2, "x": 7.0}]
    for bad, text in ((["word"], "holds double there, and the data has string"), ([2**60], "has int64")):
        with pytest.raises(SinkRefused, match=text):
            sink.write(spark.createDataFrame(pa.table({"id": [3], "x": bad})), ranges(2, 3), soon())
    with pytest.raises(SinkRefused, match=r"'(ID|id)' and '(ID|id)' have the same name"):
        sink.write(spark.createDataFrame(pa.table({"ID": [3]})), ranges(2, 3), soon())
    assert sink.position() == {KEY: 2}


def test_the_size_of_files(spark: Any, tmp_path: Path) -> None:
    """Many partitions with few bytes make one file; many bytes are cut into files of about the target size."""
    sink = opened(tmp_path / "t", spark, target_file_size=100_000)
    few = spark.range(0, 100, 1, 7)
    assert sink.write(few, ranges(0, 1), soon()).files == 1
    many = spark.range(0, 40_000, 1, 3).selectExpr("id + 100 as id", "cast(hash(id) as string) as noise")
    result = sink.write(many, ranges(1, 2, size=600_000), soon())
    facts = pa.table(table(tmp_path / "t").get_add_actions(flatten=True)).to_pylist()
    assert result.files == len(facts) - 1 > 2
    assert sum(fact["num_records"] for fact in facts) == 40_100
    assert max(fact["size_bytes"] for fact in facts) < 300_000  # what was over came in one batch of rows
    assert len(set(table(tmp_path / "t").to_pyarrow_table().column("id").to_pylist())) == 40_100


def test_what_no_table_can_hold(spark: Any, tmp_path: Path) -> None:
    """Types without a match, columns twice, and partitions by what cannot be one are refused by name."""
    sink = opened(tmp_path / "t", spark, partition_by=("p",))
    one = spark.range(1)
    for query, text in (
        (["id", "interval 1 day as p"], "column 'p' has the type interval day"),
        (["id", "null as p"], "column 'p' has the type void"),
        (["id as p"], "names every column"),
        (["id", "1.5D as p"], "is a double; it takes text"),
        (["id"], "names 'p', which is no column"),
        (["id", "id as p", "id as P"], "'p' and 'P' have the same name"),
    ):
        with pytest.raises(SinkRefused, match=text):
            sink.write(one.selectExpr(*query), ranges(0, 1), soon())
    assert sink.position() == {}


def test_places_that_are_no_table(spark: Any, tmp_path: Path) -> None:
    """A file and a folder with other things in it are refused, with what is there."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("x")
    with pytest.raises(SinkRefused, match="is a file"):
        opened(tmp_path / "file", spark)
    with pytest.raises(SinkRefused, match=r"holds other things \(notes.txt\) and no _delta_log"):
        opened(tmp_path / "full", spark)


def test_tables_that_others_made(spark: Any, tmp_path: Path) -> None:
    """A table of somebody else's gets rows if it has their columns; it is not widened, and its rules are not broken."""
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, numbers(0, 1, name=["x"]))
    sink = opened(tmp_path / "t", spark)
    with pytest.raises(SinkRefused, match="was not made by this sink and lacks other; it has id, name"):
        sink.write(spark.createDataFrame(numbers(1, 2, other=["y"])), ranges(0, 1), soon())
    sink.write(spark.createDataFrame(numbers(1, 2)), ranges(0, 1), soon())
    assert rows(tmp_path / "t") == [{"id": 0, "name": "x"}, {"id": 1, "name": None}]
    with pytest.raises(SinkRefused, match="is partitioned by nothing, and this sink by name"):
        opened(tmp_path / "t", spark, partition_by=("name",))
    table(tmp_path / "t").alter.add_constraint({"positive": "id >= 0"})
    with pytest.raises(SinkRefused, match=r"delta\.constraints\.positive"):
        opened(tmp_path / "t", spark)
    deltalake.DeltaTable.create(str(tmp_path / "u"), pa.schema([pa.field("must", pa.int64(), nullable=False)]))
    with pytest.raises(SinkRefused, match="must not be null, and the data lacks must"):
        opened(tmp_path / "u", spark).write(spark.createDataFrame(numbers(0, 1)), ranges(0, 1), soon())


def test_timestamps_of_another_time_zone(spark: Any, tmp_path: Path) -> None:
    """The session's time zone changes nothing about what is stored."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        sink = opened(tmp_path / "t", spark)
        data = numbers(0, 1, at=pa.array([MOMENT], pa.timestamp("us", "UTC")))
        sink.write(spark.createDataFrame(data), ranges(0, 1), soon())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert rows(tmp_path / "t")[0]["at"] == MOMENT
