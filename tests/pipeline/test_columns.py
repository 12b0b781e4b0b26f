"""Which columns of its topics a sink's query reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from e2e.pipekit import APP, pipeline
from holdfast.pipeline._frames import pruned

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.timestamp("us", tz="UTC")),
                    ("n", pa.list_(pa.int64())), ("void", pa.null())])  # fmt: skip
ALL = None

CASES = {
    "select a, b from app": {"a", "b"},
    "select * from app": ALL,
    "select *, a + 1 as next from app": ALL,
    "select * except (b) from app": ALL,
    "select a from app where b = 'x'": {"a", "b"},
    "select a as x from (select a, b, c from app where c > 1) where b is not null": {"a", "b", "c"},
    "select count(*) as rows from app": set(),
    "select 'x' as tag from app": set(),
    "select b, sum(c) as total from app where a > 3 group by b": {"a", "b", "c"},
    "select l.a, r.b from app l join app r on l.c = r.c": {"a", "b", "c"},
    "with big as (select a, d from app where c > 2) select d from big where a < 5": {"a", "c", "d"},
    "select a from app union all select cast(c as bigint) from app": {"a", "c"},
    "select x from app lateral view explode(n) t as x": {"n"},
    "select a, row_number() over (partition by b order by c) as place from app": {"a", "b", "c"},
    "select struct(a, b) as both from app": {"a", "b"},
    "select A from APP where B = 'x'": {"a", "b"},
    "select a from app where 1 = 0": set(),
    "select distinct b from app": {"b"},
}


@pytest.mark.parametrize("query", CASES)
def test_the_columns_of_a_query(query: str, spark: Any, tmp_path: Path) -> None:
    """A query reads at least the columns that it needs; one that takes whatever comes reads all, later ones too."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [picked], path: '{base}/lake', {quick}}",
        transforms=f'picked: {{type: sql, inputs: [app], query: "{query}"}}',
    )
    (found,), frame = pruned(topology, "lake", spark.newSession(), {"prod/logs": SCHEMA})
    expected = CASES[query]
    if expected is ALL:
        assert found.columns is None
    elif found.columns is not None:  # reading more than is needed would be allowed, but never less
        assert expected <= set(found.columns)
    assert "__holdfast_any_column" not in frame.columns


@pytest.mark.parametrize(
    "query",
    ["select a, b from app", "select a from app where b = 'x'", "select b, sum(c) as t from app group by b",
     "select l.a, r.b from app l join app r on l.c = r.c"],
)  # fmt: skip
def test_nothing_is_read_that_is_not_needed(query: str, spark: Any, tmp_path: Path) -> None:
    """Of the common kinds of queries exactly the columns that they name are read."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [picked], path: '{base}/lake', {quick}}",
        transforms=f'picked: {{type: sql, inputs: [app], query: "{query}"}}',
    )
    (found,), _ = pruned(topology, "lake", spark.newSession(), {"prod/logs": SCHEMA})
    assert set(found.columns or ()) == CASES.get(query, {"b", "c"})


def test_filters_and_routes_take_all_columns(spark: Any, tmp_path: Path) -> None:
    """Behind filters and routes alone every column arrives, also one that comes later; one of nulls only does not."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [split.high, split.other], path: '{base}/lake', {quick}}",
        transforms="""
        few: {type: filter, inputs: [app], condition: "b <> ''"}
        split: {type: route, inputs: [few], outputs: {high: "a > 1"}, other: true}
        """,
    )
    (found,), frame = pruned(topology, "lake", spark.newSession(), {"prod/logs": SCHEMA})
    assert found.columns is None
    assert frame.columns == ["a", "b", "c", "d", "n"]


def test_columns_of_two_topics(spark: Any, tmp_path: Path) -> None:
    """Each topic is asked only for columns that it has."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [both], path: '{base}/lake', {quick}}",
        sources=f"{APP}\nweb: {{type: topic, topic: prod/web, slot: logs}}",
        transforms='both: {type: sql, inputs: [app, web], query: "select a, b from app union select a, u from web"}',
    )
    other = pa.schema([("a", pa.int64()), ("u", pa.string()), ("rest", pa.string())])
    app, web = pruned(topology, "lake", spark.newSession(), {"prod/logs": SCHEMA, "prod/web": other})[0]
    assert {app.topic: app.columns, web.topic: web.columns} == {"prod/logs": ("a", "b"), "prod/web": ("a", "u")}
