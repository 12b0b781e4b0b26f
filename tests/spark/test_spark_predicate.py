"""Conditions that the source judges itself: as Spark would, and never at the price of a row."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow import compute as pc

from holdfast.errors import InvalidSettings
from holdfast.segment._statistics import measure
from holdfast.spark._conform import conform
from holdfast.spark._predicate import COMPARE, Predicate, keeps, matching, parse, usable
from holdfast.store import StreamFacts
from spark.topickit import piece, target_of

NAN = float("nan")
FLOATS = [0.0, -0.0, 1.5, -1.5, NAN, math.inf, -math.inf]
TEXTS = ["", "a", "ab", "abc", "b", "zz", "é", "木", "\U0001f600", "y" * 300]
MOMENTS = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
DAYS = [date(2026, 1, day) for day in (1, 2, 3)]
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    (pa.int8(), [-128, 0, 5, 127]),
    (pa.uint32(), [0, 5, 2**32 - 1]),
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.float16(), FLOATS),
    (pa.string(), TEXTS),
    (pa.string_view(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.dictionary(pa.int8(), pa.float64()), FLOATS),
    (pa.run_end_encoded(pa.int32(), pa.int64()), [1, 2]),
    (pa.bool_(), [True, False]),
    (pa.date32(), DAYS),
    (pa.date64(), DAYS),
    (pa.timestamp("ns", "Europe/Berlin"), MOMENTS),
    (pa.timestamp("s", "UTC"), MOMENTS),
    (pa.null(), [None]),
]
OPS = (*COMPARE, "in", "is null", "is not null", "starts with")


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, Predicate]:
    """A stream's rows, and a condition on them."""
    kind, known = draw(st.sampled_from(KINDS))
    values = draw(st.lists(st.none() | st.sampled_from(known), min_size=1, max_size=5))
    op = draw(st.sampled_from(OPS))
    operand: Any = draw(st.sampled_from(known))
    if op == "in":
        operand = tuple(draw(st.lists(st.none() | st.sampled_from(known), max_size=3)))
    encoded = pa.types.is_run_end_encoded(kind)
    column = pc.run_end_encode(pa.array(values, kind.value_type)) if encoded else pa.array(values, kind)
    return pa.table({"c": column}), Predicate("c", op, None if op.startswith("is ") else operand)


def rank(value: Any) -> Any:
    """Spark's order: what is not a number is above all numbers, and equal to itself."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def holds(value: Any, op: str, operand: Any) -> bool:
    """What Spark says of `value op operand`, null counting as no."""
    if op == "is null":
        return value is None
    if value is None:
        return False
    if op == "is not null":
        return True
    if op == "in":
        return any(each is not None and rank(each) == rank(value) for each in operand)
    if op == "starts with":
        return bool(value.startswith(operand))
    ours, theirs = rank(value), rank(operand)
    return {
        "=": ours == theirs,
        "!=": ours != theirs,
        "<": ours < theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        ">=": ours >= theirs,
    }[op]


def conformed(table: pa.Table) -> pa.RecordBatch:
    target = target_of(table.schema)
    pieces = [piece(0, batch) for batch in table.to_batches()]
    return pa.Table.from_batches(list(conform(pieces, target)), schema=target).combine_chunks().to_batches()[0]


@given(cases())
def test_rows_are_judged_as_spark_would(case: tuple[pa.Table, Predicate]) -> None:
    """Of the conditions that are taken on, each says yes to exactly the rows that Spark says yes to."""
    table, predicate = case
    batch = conformed(table)
    assume(usable(predicate, batch.schema))

    kept = [bool(each) for each in predicate.rows(batch).to_pylist()]

    assert kept == [holds(value, predicate.op, predicate.value) for value in batch["c"].to_pylist()]
    assert matching([predicate], batch).num_rows == sum(kept)


@given(cases())
def test_statistics_never_lose_a_row(case: tuple[pa.Table, Predicate]) -> None:
    """A stream that has a row for which the condition holds is never passed over."""
    table, predicate = case
    batch = conformed(table)
    assume(usable(predicate, batch.schema))
    measured = measure(table)
    facts = StreamFacts(table.schema, len(table), measured.null_counts, measured.bounds)

    if any(holds(value, predicate.op, predicate.value) for value in batch["c"].to_pylist()):
        assert keeps([predicate], facts, batch.schema)


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (Predicate("c", "=", 4), False),
        (Predicate("c", "=", 5), True),
        (Predicate("c", "<", 5), False),
        (Predicate("c", "<=", 5), True),
        (Predicate("c", ">", 9), False),
        (Predicate("c", ">=", 9), True),
        (Predicate("c", "in", (1, 2, 10)), False),
        (Predicate("c", "in", (1, 7)), True),
        (Predicate("c", "in", ()), False),
        (Predicate("c", "is null"), False),
        (Predicate("c", "is not null"), True),
        (Predicate("absent", "is null"), True),
        (Predicate("absent", "=", 1), False),
        (Predicate("absent", "is not null"), False),
    ],
)
def test_streams_that_cannot_match_are_passed_over(predicate: Predicate, kept: bool) -> None:
    """Bounds, null counts and absent columns decide without a look at the rows."""
    table = pa.table({"c": pa.array([5, 9], pa.int64())})
    measured = measure(table)
    facts = StreamFacts(table.schema, 2, measured.null_counts, measured.bounds)
    target = pa.schema([("c", pa.int64()), ("absent", pa.int64())])

    assert keeps([predicate], facts, target) is kept


@pytest.mark.parametrize(
    ("values", "prefix", "kept"),
    [(["ab", "ad"], "ac", True), (["ab", "ad"], "b", False), (["ab", "ad"], "aa", False), (["b", "c"], "a", False)],
)
def test_prefixes(values: list[str], prefix: str, kept: bool) -> None:
    """A prefix outside the bounds, cut to its length, cannot be there."""
    table = pa.table({"c": values})
    measured = measure(table)
    facts = StreamFacts(table.schema, 2, measured.null_counts, measured.bounds)

    assert keeps([Predicate("c", "starts with", prefix)], facts, table.schema) is kept


def test_all_null_streams() -> None:
    """A stream of nulls alone satisfies nothing but IS NULL."""
    table = pa.table({"c": pa.array([None, None], pa.int64())})
    measured = measure(table)
    facts = StreamFacts(table.schema, 2, measured.null_counts, measured.bounds)

    assert not keeps([Predicate("c", "!=", 3)], facts, table.schema)
    assert keeps([Predicate("c", "is null")], facts, table.schema)


@pytest.mark.parametrize(
    ("kind", "op", "value"),
    [
        (pa.int8(), "=", 300),
        (pa.int64(), "=", 1.5),
        (pa.int64(), "=", "1"),
        (pa.float32(), "=", 0.1),
        (pa.float64(), "=", NAN),
        (pa.float64(), "in", (1.0, NAN)),
        (pa.string(), "starts with", 3),
        (pa.int64(), "starts with", "3"),
        (pa.binary(), "=", b"x"),
        (pa.decimal128(20, 0), "=", 3),
        (pa.struct([("a", pa.int8())]), "=", {"a": 1}),
        (pa.timestamp("us", "UTC"), "=", datetime(2026, 1, 1)),
        (pa.timestamp("us"), "=", date(2026, 1, 1)),
    ],
)
def test_conditions_left_to_spark(kind: pa.DataType, op: str, value: Any) -> None:
    """What could not be judged exactly as Spark does is not taken on."""
    assert not usable(Predicate("c", op, value), pa.schema([("c", kind)]))


def test_unknown_columns_are_left_to_spark() -> None:
    """A condition on a column that is not read is not taken on."""
    assert not usable(Predicate("x", "is null"), pa.schema([("c", pa.int8())]))


# -- option filter -----------------------------------------------------------------------------------------------------

TARGET = pa.schema(
    [
        ("id", pa.int64()),
        ("ms", pa.float64()),
        ("level", pa.string()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("odd name", pa.int64()),
        ("is", pa.int64()),
    ]
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("id=1", [Predicate("id", "=", 1)]),
        ("  id  <>  -1 ", [Predicate("id", "!=", -1)]),
        ("id != +3", [Predicate("id", "!=", 3)]),
        ("ms > 100", [Predicate("ms", ">", 100.0)]),
        ("ms <= 1.5e2", [Predicate("ms", "<=", 150.0)]),
        ("level = 'it''s'", [Predicate("level", "=", "it's")]),
        ("level = ''", [Predicate("level", "=", "")]),
        ("level = ' and '", [Predicate("level", "=", " and ")]),
        ("id IN (1, 2,3)", [Predicate("id", "in", (1, 2, 3))]),
        ("level in ('a')", [Predicate("level", "in", ("a",))]),
        ("level IS NULL", [Predicate("level", "is null")]),
        ("level is Not null", [Predicate("level", "is not null")]),
        ("ok = TRUE", [Predicate("ok", "=", True)]),
        ("day >= date '2026-01-31'", [Predicate("day", ">=", date(2026, 1, 31))]),
        ("at < timestamp '2026-01-31T12:00:00+00:00'", [Predicate("at", "<", datetime(2026, 1, 31, 12, tzinfo=UTC))]),
        ("local = timestamp '2026-01-31T12:00:00'", [Predicate("local", "=", datetime(2026, 1, 31, 12))]),
        ("`odd name` = 1", [Predicate("odd name", "=", 1)]),
        ("`is` is not null", [Predicate("is", "is not null")]),
        ("id > 1 AND id < 5 and level = 'x'", [
            Predicate("id", ">", 1), Predicate("id", "<", 5), Predicate("level", "=", "x")
        ]),
    ],
)  # fmt: skip
def test_filters(text: str, wanted: list[Predicate]) -> None:
    """What the option `filter` takes."""
    assert parse(text, TARGET) == wanted


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "a condition begins with a column"),
        ("id = 1 and", "a condition begins with a column"),
        ("1 = id", "a condition begins with a column"),
        ("id = 1 or id = 2", "join conditions with AND"),
        ("id = 1 id = 2", "join conditions with AND"),
        ("id", "id is compared with =, !=, <, <=, >, >=, IN or IS NULL"),
        ("id between 1 and 2", "id is compared with =, !=, <, <=, >, >=, IN or IS NULL"),
        ("id not in (1)", "id is compared with =, !=, <, <=, >, >=, IN or IS NULL"),
        ("id =", "'nothing' where a number or a 'text' should be"),
        ("id = level", "'level' where a number or a 'text' should be"),
        ("id == 1", "'=' where a number or a 'text' should be"),
        ("id is 5", "after IS comes NULL or NOT NULL"),
        ("id is not", "after IS comes NULL or NOT NULL"),
        ("id in 1", "after IN comes a list in parentheses"),
        ("id in ()", "')' where a number or a 'text' should be"),
        ("id = 1.5", "id is of type int64, and cannot be compared with Decimal('1.5')"),
        ("id = 'x'", "id is of type int64, and cannot be compared with 'x'"),
        ("level = 1", "level is of type string, and cannot be compared with 1"),
        ("id = 99999999999999999999", "id is of type int64, and cannot be compared with 99999999999999999999"),
        ("day = date '2026-02-30'", "day is out of range for month"),
        ("at = timestamp '2026-01-01'", "'2026-01-01' has no time zone; write it like '2026-01-31T12:00:00+00:00'"),
        ("id = 1; drop", "nothing is known that begins with '; drop'"),
        ("level = 'open", 'nothing is known that begins with "\'open"'),
    ],
)
def test_filters_that_are_refused(text: str, what: str) -> None:
    """What it does not take is refused, with the whole text and what is wrong in it."""
    with pytest.raises(InvalidSettings) as caught:
        parse(text, TARGET)

    assert str(caught.value) == f"option filter is {text!r}: {what}"


@pytest.mark.parametrize(
    "text", ["id in (1 2 3)", "id in (1", "id in (1,", "id in (1 and 2)", "id in (1 = 2)", "id in ((1)"]
)
def test_lists_that_are_refused(text: str) -> None:
    """A list whose commas or parentheses are wrong is never read as another list."""
    with pytest.raises(InvalidSettings, match="option filter is "):
        parse(text, TARGET)


def test_filters_on_unknown_columns() -> None:
    """The columns that there are are named."""
    with pytest.raises(InvalidSettings) as caught:
        parse("idd = 1", pa.schema([("id", pa.int64()), ("ms", pa.float64())]))

    assert str(caught.value) == "option filter names column 'idd'; there are id, ms"
