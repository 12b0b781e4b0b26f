"""What Spark finds wrong with a pipeline before it runs, told at the line it is written on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from holdfast import Store
from holdfast.errors import NotAStore
from holdfast.pipeline import Topology, load
from holdfast.pipeline._check_sql import check, examine, is_stateful
from holdfast.pipeline._known import known_schemas
from holdfast.pipeline._spark_error import error_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAD = """store: {path: data}
sources:
  logs: {type: topic, topic: a/logs, slot: s, schema: {id: int64, level: string, ts: "timestamp[us, UTC]"}}
  dark: {type: topic, topic: a/dark, slot: s}
transforms:
"""


def topology(*transforms: str, inputs: str = "", sink: str = "", **environ: str) -> Topology:
    """A pipeline whose transforms are on lines 6, 7, ...; one sink takes them all, and both sources."""
    names = [line.split(":")[0] for line in transforms]
    lines = "".join(f"  {line}\n" for line in transforms)
    taken = inputs or ", ".join(["logs", "dark", *names])
    look = f"sinks:\n  look: {{type: delta, path: lake, inputs: [{taken}]{sink}}}\n"
    return load((HEAD + lines + look), environ, folder=Path("/nowhere"))


def told(spark: SparkSession, *transforms: str, inputs: str = "", sink: str = "", **environ: str) -> list[str]:
    return [str(each) for each in check(topology(*transforms, inputs=inputs, sink=sink, **environ), spark, {})]


def test_nothing_wrong(spark: SparkSession) -> None:
    """Declared columns can be named, also behind other transforms, whatever the order in the file."""
    assert told(
        spark,
        "late: {type: filter, inputs: [named], condition: n > 5}",
        "named: {type: sql, inputs: [r.a], query: select id + 1 as n from r_a}",
        "r: {type: route, inputs: [logs], outputs: {a: level = 'A'}, other: true}",
        inputs="late, r.other, dark",
    ) == []  # fmt: skip


def test_columns_that_are_not_there(spark: SparkSession) -> None:
    """Each condition and query is told of by itself, with Spark's suggestion, in one line without Java frames."""
    suggestion = "Did you mean one of the following? [`level`, `id`, `ts`]"
    unresolved = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name"
    found = told(
        spark,
        "a: {type: filter, inputs: [logs], condition: levl = 'A'}",
        "b: {type: sql, inputs: [logs], query: 'select id from logs where levl > 1'}",
        "c: {type: route, inputs: [logs], outputs: {x: levl = 'A', y: id > 1, z: leve}}",
        inputs="a, b, c.x, c.y, c.z, dark",
    )
    assert found == [
        f"line 6, transforms.a.condition: {unresolved} `levl` cannot be resolved. {suggestion} (line 1, column 1)",
        f"line 7, transforms.b.query: {unresolved} `levl` cannot be resolved. {suggestion} (line 1, column 27)",
        f"line 8, transforms.c.outputs.x: {unresolved} `levl` cannot be resolved. {suggestion} (line 1, column 1)",
        f"line 8, transforms.c.outputs.z: {unresolved} `leve` cannot be resolved. {suggestion} (line 1, column 1)",
    ]


def test_what_does_not_parse(spark: SparkSession) -> None:
    """Also where the columns are not known."""
    assert told(
        spark,
        "a: {type: filter, inputs: [dark], condition: 'x >'}",
        "b: {type: sql, inputs: [dark], query: 'select id from (dark'}",
        "c: {type: route, inputs: [dark], outputs: {x: 'y =', z: whatever > 5}}",
        "d: {type: filter, inputs: [logs], condition: '(id'}",
        "e: {type: filter, inputs: [dark], condition: anything > 5}",
        inputs="a, b, c.x, c.z, d, e",
    ) == [
        "line 6, transforms.a.condition: [PARSE_SYNTAX_ERROR] Syntax error at or near end of input (line 1, column 4)",
        "line 7, transforms.b.query: [PARSE_SYNTAX_ERROR] Syntax error at or near end of input: missing ')' "
        "(line 1, column 21)",
        "line 8, transforms.c.outputs.x: [PARSE_SYNTAX_ERROR] Syntax error at or near end of input (line 1, column 4)",
        "line 9, transforms.d.condition: [PARSE_SYNTAX_ERROR] Syntax error at or near end of input (line 1, column 4)",
    ]


def test_an_input_that_is_not_named(spark: SparkSession) -> None:
    """A query sees its inputs only."""
    (found,) = told(spark, "a: {type: sql, inputs: [logs], query: select * from dark}")
    assert found == (
        "line 6, transforms.a.query: [TABLE_OR_VIEW_NOT_FOUND] The table or view `dark` cannot be found. Verify the "
        "spelling and correctness of the schema and catalog (line 1, column 15); the inputs of this query are `logs`"
    )


def test_what_a_stream_cannot_do(spark: SparkSession) -> None:
    """Sorting, limits, window functions, aggregates without a watermark: refused here, not when the query starts."""
    found = told(
        spark,
        "a: {type: sql, inputs: [logs], query: select id from logs order by id}",
        "b: {type: sql, inputs: [logs], query: select id from logs limit 5}",
        "c: {type: sql, inputs: [logs], query: 'select id, row_number() over (order by ts) n from logs'}",
        "d: {type: sql, inputs: [logs], query: select count(*) n from logs}",
        "e: {type: sql, inputs: [logs], query: select id from logs where id in (select id from logs)}",
    )
    parts = [
        "line 6, transforms.a.query: Sorting is not supported on streaming DataFrames/Datasets",
        "line 7, transforms.b.query: LIMIT and OFFSET have no meaning over rows that never end; leave them out",
        "line 8, transforms.c.query: [NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING] ",
        "line 9, transforms.d.query: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] ",
        "line 10, transforms.e.query: [INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY] ",
    ]
    assert len(found) == len(parts)
    for line, part in zip(found, parts, strict=True):
        assert line.startswith(part)
        assert "\n" not in line


def test_watermarks(spark: SparkSession) -> None:
    """With one, an aggregate is allowed; one on a column that is not there is told at its key."""
    query = "\"select window(ts, '1 minute') w, count(*) n from logs group by 1\""
    (found,) = told(
        spark,
        f"a: {{type: sql, inputs: [logs], query: {query}, watermark: {{column: ts, delay: 10m}}}}",
        f"b: {{type: sql, inputs: [logs], query: {query}, watermark: {{logs: {{column: tz, delay: 10m}}}}}}",
        inputs="a, b, dark",
    )
    assert found.startswith("line 7, transforms.b.watermark: [UNRESOLVED_COLUMN.WITH_SUGGESTION] ")


def test_what_follows_from_a_mistake_is_not_told(spark: SparkSession) -> None:
    """Behind a transform that is wrong, only what does not parse is."""
    assert len(told(
        spark,
        "a: {type: filter, inputs: [logs], condition: nope > 1}",
        "b: {type: filter, inputs: [a], condition: neither > 1}",
        "c: {type: filter, inputs: [b], condition: 'x >'}",
    )) == 2  # fmt: skip


def test_partition_columns(spark: SparkSession) -> None:
    """A table can only be divided by a column that reaches it."""
    made = topology(inputs="logs, dark", sink=", partition_by: [level, size, lvl]")
    assert list(map(str, check(made, spark, {"dark": pa.schema([("size", pa.int64())])}))) == [
        "line 7, sinks.look.partition_by[2]: there is no column `lvl`; did you mean `level`?"
    ]


def test_known_columns(spark: SparkSession) -> None:
    """What a topic holds counts as well as what is declared; a column of nulls only has no type to speak of."""
    made = topology(
        "a: {type: filter, inputs: [dark], condition: size > 1}",
        "b: {type: filter, inputs: [dark], condition: sze > 1}",
        "c: {type: filter, inputs: [logs], condition: extra > id}",
        "d: {type: filter, inputs: [dark], condition: void is null}",
    )
    known = {
        "dark": pa.schema([("size", pa.int64()), ("void", pa.null())]),
        "logs": pa.schema([("extra", pa.int32()), ("id", pa.null())]),
    }
    found = check(made, spark, known)
    assert [(each.line, each.path) for each in found] == [(7, "transforms.b.condition"), (9, "transforms.d.condition")]


def test_types_that_do_not_go_together(spark: SparkSession) -> None:
    """Inputs with one column of two types cannot be one table. A type that Spark lacks, in the data, is no mistake of
    the file's: the sinks that read it say so, and the others run.
    """
    made = topology(inputs="logs, dark")
    (found,) = check(made, spark, {"dark": pa.schema([("level", pa.list_(pa.int8()))])})
    assert (found.line, found.path) == (7, "sinks.look.inputs")
    assert check(made, spark, {"dark": pa.schema([("x", pa.dense_union([pa.field("a", pa.int8())]))])}) == []


def test_secrets_in_queries(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """Where something came from the environment, only the kind of mistake is told; and nothing is logged."""
    found = told(
        spark,
        "a: {type: filter, inputs: [logs], condition: \"nope = '${WORD}'\"}",
        "b: {type: sql, inputs: [logs], query: \"select '${WORD}' from (logs\"}",
        WORD="opensesame",
    )
    assert found == [
        "line 6, transforms.a.condition: [UNRESOLVED_COLUMN.WITH_SUGGESTION] "
        "(not shown in full: a part of it came from the environment)",
        "line 7, transforms.b.query: [PARSE_SYNTAX_ERROR] (not shown in full: a part of it came from the environment)",
    ]
    assert "opensesame" not in "".join(capfd.readouterr())


def test_java_errors_in_one_line(spark: SparkSession) -> None:
    """An error that Spark has no name for is told by its class and first line."""
    from py4j.protocol import Py4JJavaError

    jvm = spark._jvm
    assert jvm is not None
    with pytest.raises(Py4JJavaError) as caught:
        jvm.java.lang.Class.forName("no.such.Class")
    assert error_text(caught.value) == "ClassNotFoundException: no.such.Class"


# -- state -----------------------------------------------------------------------


STATELESS = [
    "select id from a where id > 1",
    "select id from a union all select id from b",
    "select a.id from a join (values (1), (2)) v(x) on a.id = v.x",
    "select explode(array(id)) from a",
    "select a.id from a join (select max(x) m from values (1), (2) t(x)) v on a.id = v.m",
]
STATEFUL = [
    "select count(*) from a",
    "select distinct id from a",
    "select a.id from a join b on a.id = b.id",
    "select x.id from a x join a y on x.id = y.id",
    "with c as (select id, count(*) n from a group by id) select * from c where n > 1",
    "select id from a intersect select id from b",
]


@pytest.fixture
def views(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for name in ("a", "b"):
        session.readStream.format("rate").load().selectExpr("value as id").createOrReplaceTempView(name)
    return session


@pytest.mark.parametrize(("queries", "expected"), [(STATELESS, False), (STATEFUL, True)])
def test_is_stateful(views: SparkSession, queries: list[str], expected: bool) -> None:
    """Aggregates, deduplication and joins of streams keep state; what is done to fixed rows beside does not."""
    for query in queries:
        assert is_stateful(views.sql(query)) is expected, query


def test_is_stateful_without_sql(views: SparkSession) -> None:
    """The same of frames."""
    frame: DataFrame = views.table("a")
    assert is_stateful(frame.dropDuplicates(["id"]))
    assert not is_stateful(frame.filter("id > 1"))


def test_is_stateful_of_a_batch(spark: SparkSession) -> None:
    """In a batch frame everything counts, since any of its inputs may be a stream later."""
    frame = spark.range(3)
    assert is_stateful(frame.groupBy("id").count())
    assert is_stateful(frame.join(frame, "id"))
    assert not is_stateful(frame.filter("id > 1"))


def test_sinks_that_keep_state(spark: SparkSession) -> None:
    """It is told for each sink; nothing where the columns are not known."""
    text = HEAD + (
        "  d: {type: sql, inputs: [logs], query: 'select distinct id, ts from logs',\n"
        "      watermark: {column: ts, delay: 1s}}\n"
        "sinks:\n"
        "  plain: {type: console, inputs: [logs]}\n"
        "  dedupe: {type: console, inputs: [d]}\n"
        "  unknown: {type: console, inputs: [dark]}\n"
    )
    checked = examine(load(text, {}), spark, {})
    assert checked.problems == []
    assert checked.stateful == {"plain": False, "dedupe": True, "unknown": None}


# -- what a store holds -----------------------------------------------------------------------


def test_known_schemas(tmp_path: Path) -> None:
    """Columns are found in the store, if there is one; looking makes nothing."""
    made = load(HEAD + "sinks: {look: {type: console, inputs: [logs, dark]}}", {}, folder=tmp_path)
    assert known_schemas(made) == {}
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    assert known_schemas(made) == {}
    with Store.open(tmp_path / "data") as store:
        store.topic("a/dark").append({"s": pa.record_batch({"size": [1]})}).wait()
        store.topic("a/logs").append({"other": pa.record_batch({"x": [1]})}).wait()
        assert known_schemas(made) == {"dark": pa.schema([("size", pa.int64())])}


def test_something_else_where_the_store_should_be(tmp_path: Path) -> None:
    """A folder with other things in it is not taken for an empty one."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter.txt").write_text("dear")
    made = load(HEAD + "sinks: {look: {type: console, inputs: [logs, dark]}}", {}, folder=tmp_path)
    with pytest.raises(NotAStore):
        known_schemas(made)
