"""The comparison at the end of the demonstration: whatever is wrong with a table is found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.operate.demo import _oracle
from holdfast.operate.demo._oracle import TableCheck, check_table, judge
from holdfast.operate.demo._plan import SEED, TABLES
from holdfast.receivers._settings import DEMO_SCHEMA
from holdfast.receivers.demo import rows

TOTAL = 60
GENERATED = rows(0, TOTAL, SEED).to_pylist()
LEVELS = {"lake": {"DEBUG", "INFO", "WARN", "ERROR"}, "errors": {"ERROR"}, "rest": {"INFO", "WARN"}}
BELONGS = {name: [row["seq"] for row in GENERATED if row["level"] in levels] for name, levels in LEVELS.items()}
OTHERS = {"seq": 7777, "ts": None, "level": "info", "service": "", "ms": -1.0, "message": None}

tables = st.sampled_from(TABLES)


def check(name: str, found: list[dict[str, Any]]) -> TableCheck:
    (table,) = (each for each in TABLES if each.name == name)
    return check_table(name, pa.Table.from_pylist(found, schema=DEMO_SCHEMA), TOTAL, SEED, table.belongs)


def counts(found: TableCheck) -> tuple[int, int, int, int]:
    return found.delivered, found.lost, found.doubled, found.foreign


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows are many windows."""
    monkeypatch.setattr(_oracle, "WINDOW_ROWS", 7)


def test_every_table_has_rows_to_expect() -> None:
    """Otherwise the other tests would prove little."""
    assert all(BELONGS.values())
    assert len(BELONGS["lake"]) == TOTAL > len(BELONGS["rest"]) + len(BELONGS["errors"])


@given(tables, st.data())
def test_each_row_in_any_number_of_copies(table: Any, data: st.DataObject) -> None:
    """In any order: what is missing is lost, what is there twice is doubled, and nothing else is counted."""
    belongs = BELONGS[table.name]
    copies = data.draw(st.lists(st.integers(0, 3), min_size=len(belongs), max_size=len(belongs)))
    numbers = [number for number, often in zip(belongs, copies, strict=True) for _ in range(often)]
    found = check(table.name, [GENERATED[number] for number in data.draw(st.permutations(numbers))])
    often = Counter(min(each, 2) for each in copies)
    assert counts(found) == (often[1] + often[2], often[0], often[2], 0)
    assert found.expected == len(belongs)
    assert found.passed == (set(copies) == {1})


@given(tables, st.data())
def test_a_changed_row(table: Any, data: st.DataObject) -> None:
    """A row with another value in any one column is foreign, and the one that was generated is lost."""
    numbers = BELONGS[table.name]
    changed, column = data.draw(st.sampled_from(numbers)), data.draw(st.sampled_from(DEMO_SCHEMA.names))
    value = data.draw(st.sampled_from([OTHERS[column], None]))
    found = check(
        table.name, [{**GENERATED[each], column: value} if each == changed else GENERATED[each] for each in numbers]
    )
    assert counts(found) == (len(numbers) - 1, 1, 0, 1)
    assert not found.passed


@given(tables, st.data())
def test_a_foreign_row(table: Any, data: st.DataObject) -> None:
    """One that was never generated, or belongs elsewhere, is told from those that belong here."""
    elsewhere = [each["seq"] for each in GENERATED if each["seq"] not in BELONGS[table.name]]
    outside = rows(data.draw(st.sampled_from([TOTAL, 10**9])), 1, SEED).to_pylist()[0]
    negative = {**GENERATED[0], "seq": -1}
    strangers = data.draw(st.lists(st.sampled_from([outside, negative, *(GENERATED[each] for each in elsewhere)])))
    found = check(table.name, [*(GENERATED[each] for each in BELONGS[table.name]), *strangers])
    assert counts(found) == (len(BELONGS[table.name]), 0, 0, len(strangers))
    assert found.passed == (not strangers)


@pytest.mark.parametrize(
    "found",
    [
        pa.table({"seq": [0, 1]}),
        pa.Table.from_pylist(GENERATED[:2], schema=DEMO_SCHEMA).append_column("more", pa.array([1, 2])),
        pa.Table.from_pylist(GENERATED[:2], schema=DEMO_SCHEMA).set_column(0, "seq", pa.array(["a", "b"])),
    ],
    ids=["a column is missing", "a column too many", "a column of another type"],
)
def test_other_columns(found: pa.Table) -> None:
    """Rows that are not of the source's shape are foreign, all of them."""
    assert counts(check_table("lake", found, TOTAL, SEED, TABLES[0].belongs)) == (0, TOTAL, 0, 2)


def test_types_that_a_reader_may_choose() -> None:
    """Large or dictionary-encoded texts, and columns in another order, are the same rows."""
    found = pa.Table.from_batches([rows(0, TOTAL, SEED)])
    for name, kind in (("message", pa.large_string()), ("level", pa.dictionary(pa.int32(), pa.string()))):
        found = found.set_column(found.column_names.index(name), name, found[name].cast(kind))
    found = found.select(sorted(found.column_names))
    assert counts(check_table("lake", found, TOTAL, SEED, TABLES[0].belongs)) == (TOTAL, 0, 0, 0)


def test_the_rows_of_another_seed() -> None:
    """Right numbers are not enough."""
    found = pa.Table.from_batches([rows(0, TOTAL, SEED + 1)])
    result = check_table("lake", found, TOTAL, SEED, TABLES[0].belongs)
    assert result.lost == result.foreign > 0


@given(st.lists(st.sets(st.integers(0, 9)), min_size=3, max_size=3), st.booleans())
def test_the_verdict_counts_rows_and_not_tables(gone: list[set[int]], twice: bool) -> None:
    """A row that one table or all lack is lost once; what was generated is delivered or lost."""
    checks = []
    for (name, numbers), lacking in zip(BELONGS.items(), gone, strict=True):
        here = [GENERATED[each] for each in numbers if each not in lacking]
        checks.append(check(name, here + here[:1] * twice))
    verdict = judge(TOTAL, checks)
    lost = {each for numbers, lacking in zip(BELONGS.values(), gone, strict=True) for each in lacking & set(numbers)}
    assert (verdict.generated, verdict.lost, verdict.delivered) == (TOTAL, len(lost), TOTAL - len(lost))
    assert bool(verdict.doubled) == twice
    assert verdict.passed == (not lost and not twice)
