"""Transforms over real rows: what is kept, what goes where, what a query may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.errors import InvalidSettings
from holdfast.pipeline._nodes import Transform
from holdfast.pipeline.transforms import TRANSFORMS, SqlSettings, _one_query, apply, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = pa.table({"id": [1, 2, 3, 4], "level": ["ERROR", "INFO", None, "WARN"], "ms": [5, 50, 500, None]})


def node(name: str, **settings: Any) -> Transform:
    return Transform(name, TRANSFORMS[settings["type"]].model_validate(settings))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


@pytest.fixture
def rows(session: SparkSession) -> DataFrame:
    return session.createDataFrame(ROWS)


def test_filter(session: SparkSession, rows: DataFrame) -> None:
    """Rows for which the condition is true are kept; a condition over a null is not true."""
    made = apply(node("slow", type="filter", inputs=["x"], condition="ms > 10"), {"x": rows}, session)
    assert {name: ids(frame) for name, frame in made.items()} == {"slow": [2, 3]}


def test_route(session: SparkSession, rows: DataFrame) -> None:
    """A row goes to every output whose condition is true, and to `other` if none is: no row is lost, nulls neither."""
    settings = {
        "type": "route",
        "inputs": ["x"],
        "outputs": {"bad": "level = 'ERROR'", "slow": "ms > 10", "quick": "ms < 100"},
    }
    made = apply(node("r", **settings, other=True), {"x": rows}, session)
    assert {name: ids(frame) for name, frame in made.items()} == {
        "r.bad": [1],
        "r.slow": [2, 3],
        "r.quick": [1, 2],
        "r.other": [4],
    }
    assert list(apply(node("r", **settings), {"x": rows}, session)) == ["r.bad", "r.slow", "r.quick"]


def test_several_inputs_of_a_filter(session: SparkSession, rows: DataFrame) -> None:
    """They are put together by the names of their columns; one that lacks a column has nulls there."""
    other = session.createDataFrame(pa.table({"level": ["INFO"], "id": [9]}))
    made = apply(node("f", type="filter", inputs=["x", "y"], condition="id > 3"), {"x": rows, "y": other}, session)
    assert sorted((row["id"], row["level"], row["ms"]) for row in made["f"].collect()) == [
        (4, "WARN", None),
        (9, "INFO", None),
    ]
    assert union([rows]) is rows


def test_sql(session: SparkSession, rows: DataFrame) -> None:
    """Inputs are views by name, a route's output with an underscore for the dot."""
    query = "with low as (select * from x where id < 3) select low.id from low join r_bad on low.id = r_bad.id;"
    made = apply(node("q", type="sql", inputs=["x", "r.bad"], query=query), {"x": rows, "r.bad": rows}, session)
    assert {name: ids(frame) for name, frame in made.items()} == {"q": [1, 2]}


def test_views_stay_in_their_session(spark: SparkSession, session: SparkSession, rows: DataFrame) -> None:
    """Two sinks with inputs of one name do not see each other's."""
    apply(node("q", type="sql", inputs=["mine"], query="select * from mine"), {"mine": rows}, session)
    assert session.catalog.tableExists("mine")
    assert not spark.newSession().catalog.tableExists("mine")


def test_watermarks(session: SparkSession) -> None:
    """An input gets the watermark that is given for it, or the one that is given for all."""
    stream = session.readStream.format("rate").load()
    query = "select window(timestamp, '1 minute') w, count(*) n from x group by 1"
    for given in ({"x": {"column": "timestamp", "delay": "1500ms"}}, {"column": "timestamp", "delay": 1.5}):
        settings = {"type": "sql", "inputs": ["x"], "query": query, "watermark": given}
        frame = apply(node("q", **settings), {"x": stream}, session)["q"]
        assert "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()
        found = TRANSFORMS["sql"].model_validate(settings)
        assert isinstance(found, SqlSettings)
        assert found.watermark["x"].delay == 1.5


@pytest.mark.parametrize(
    "query",
    [
        "select 1",
        "  SELECT 1 ;",
        "with a as (select 1) select * from a",
        "-- a note; with a semicolon\nselect ';' as \"a;b\", `c;d` from x /* ; */",
        "select 'it\\'s; fine'",
    ],
)
def test_queries_that_are_one(query: str) -> None:
    """A semicolon at the end, in a text or in a comment does not make two."""
    assert _one_query(query).strip().rstrip(" ;") == query.strip().rstrip(" ;")


@pytest.mark.parametrize(
    "query",
    ["", ";", "drop table x", "insert into x select 1", "select 1; drop table x", "selecting", "from x select 1"],
)
def test_queries_that_are_none(query: str) -> None:
    """Anything but a single SELECT is refused before Spark sees it."""
    with pytest.raises(InvalidSettings):
        _one_query(query)


def test_an_insertion_behind_a_with(session: SparkSession, rows: DataFrame) -> None:
    """What begins like a query and is none is refused by Spark's parser, and not run."""
    from pyspark.errors import ParseException

    query = "with a as (select * from x) insert overwrite directory '/tmp/never' using parquet select * from a"
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        apply(node("q", type="sql", inputs=["x"], query=query), {"x": rows}, session)
