"""Slot tables: stable numbers for slot names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidBundle, InvalidName, InvalidSettings, UnknownSlot
from holdfast.slots import MAX_SLOTS, OTAP_SLOTS, SlotTable

slot_names = st.text("abcXYZ019_.-", min_size=1, max_size=6)


@given(st.lists(slot_names, max_size=20))
def test_numbers_are_given_out_in_order_of_arrival_and_stay(arrivals: list[str]) -> None:
    """A name gets the next number when it is first seen and never another."""
    table = SlotTable()
    for name in arrivals:
        table = table.with_name(name)
    first_seen = list(dict.fromkeys(arrivals))
    assert dict(table.names) == {name: number for number, name in enumerate(first_seen)}
    assert [table.name(table.number(name)) for name in first_seen] == first_seen
    assert SlotTable.from_document(json.loads(json.dumps(table.to_document()))) == table


def test_growing_leaves_the_old_table_alone() -> None:
    """A table is immutable: `with_name` gives another, or itself if the name is there."""
    old = SlotTable({"logs": 0})
    new = old.with_name("log_attrs")
    assert "log_attrs" not in old
    assert list(new) == ["logs", "log_attrs"]
    assert new.with_name("logs") is new
    with pytest.raises(TypeError):
        new.names["x"] = 1  # type: ignore[index]


def test_numbers_are_not_used_twice_after_a_hole() -> None:
    """The next number is above every number in the table."""
    assert SlotTable({"a": 0, "b": 7}).with_name("c").number("c") == 8


def test_a_topic_has_at_most_65535_slots() -> None:
    """The last number still fits 16 bits; after it the table is full, and says so."""
    table = SlotTable({"a": MAX_SLOTS - 2}).with_name("b")
    assert table.number("b") == 65_534
    with pytest.raises(InvalidBundle, match="at most 65535 slots"):
        table.with_name("c")
    assert table.with_name("a") is table


def test_a_bad_slot_name_gets_no_number() -> None:
    """A new name has to be a valid slot name."""
    with pytest.raises(InvalidName):
        SlotTable().with_name("a/b")
    with pytest.raises(InvalidName):
        SlotTable({"a b": 0})


@pytest.mark.parametrize("names", [{"a": -1}, {"a": MAX_SLOTS}, {"a": "0"}, {"a": True}, {"a": 1, "b": 1}])
def test_impossible_numbers_are_refused(names: dict[str, int]) -> None:
    """Numbers outside 16 bits and shared numbers are errors."""
    with pytest.raises(InvalidSettings):
        SlotTable(names)


@pytest.mark.parametrize(
    "document", [{}, {"slots": []}, {"fixed": "other"}, {"slots": {}, "fixed": "otap"}, {"fixed": 1}]
)
def test_a_document_of_another_shape_is_refused(document: dict[str, object]) -> None:
    """Only what `to_document` writes is read."""
    with pytest.raises(InvalidSettings, match="not a slot table"):
        SlotTable.from_document(document)


def test_unknown_names_and_numbers() -> None:
    """The error names what there is."""
    table = SlotTable({"logs": 0, "log_attrs": 1})
    with pytest.raises(UnknownSlot, match=r"^no slot 'log'; did you mean 'logs'\?$"):
        table.number("log")
    with pytest.raises(UnknownSlot, match=r"^no slot 'zzz'; there are logs \(0\), log_attrs \(1\)$"):
        table.number("zzz")
    with pytest.raises(UnknownSlot, match=r"^no slot has number 9; there are logs \(0\), log_attrs \(1\)$"):
        table.name(9)
    with pytest.raises(UnknownSlot, match="there are none yet"):
        SlotTable().number("a")


def test_the_signal_of_an_ordinary_table_is_its_lowest_slot() -> None:
    """Without a protocol, a bundle is called after its lowest-numbered slot."""
    table = SlotTable({"orders": 0, "items": 1, "notes": 2})
    assert table.signal([2, 1]) == "items"
    with pytest.raises(InvalidBundle):
        table.signal([])
    with pytest.raises(UnknownSlot):
        table.signal([7])


def test_the_numbers_of_the_opentelemetry_arrow_protocol() -> None:
    """The fixed table has the protocol's payload numbers, so that its batches can be stored as they come."""
    assert dict(OTAP_SLOTS.names) == {
        "resource_attrs": 1, "scope_attrs": 2,
        "univariate_metrics": 10, "number_data_points": 11, "summary_data_points": 12, "histogram_data_points": 13,
        "exp_histogram_data_points": 14, "number_dp_attrs": 15, "summary_dp_attrs": 16, "histogram_dp_attrs": 17,
        "exp_histogram_dp_attrs": 18, "number_dp_exemplars": 19, "histogram_dp_exemplars": 20,
        "exp_histogram_dp_exemplars": 21, "number_dp_exemplar_attrs": 22, "histogram_dp_exemplar_attrs": 23,
        "exp_histogram_dp_exemplar_attrs": 24, "multivariate_metrics": 25, "metric_attrs": 26,
        "logs": 30, "log_attrs": 31,
        "spans": 40, "span_attrs": 41, "span_events": 42, "span_links": 43, "span_event_attrs": 44,
        "span_link_attrs": 45,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "signal"),
    [
        (["logs"], "logs"),
        (["resource_attrs", "scope_attrs", "logs", "log_attrs"], "logs"),
        (["span_links", "resource_attrs"], "traces"),
        (["scope_attrs", "multivariate_metrics"], "metrics"),
        (["number_dp_attrs"], "metrics"),
        (["scope_attrs", "resource_attrs"], "resource_attrs"),
    ],
)
def test_the_signal_of_an_opentelemetry_bundle(slots: list[str], signal: str) -> None:
    """Shared attributes do not decide: the first slot that belongs to a signal does."""
    assert OTAP_SLOTS.signal(map(OTAP_SLOTS.number, slots)) == signal


def test_a_fixed_table_does_not_grow() -> None:
    """It refuses new names, points at those that come near, and is known by its name in a document."""
    with pytest.raises(UnknownSlot, match=r"^no slot 'span_attr' in the fixed table 'otap'; did you mean 'span_attrs'"):
        OTAP_SLOTS.with_name("span_attr")
    assert OTAP_SLOTS.with_name("logs") is OTAP_SLOTS
    assert OTAP_SLOTS.to_document() == {"fixed": "otap"}
    assert SlotTable.from_document({"fixed": "otap"}) is OTAP_SLOTS
