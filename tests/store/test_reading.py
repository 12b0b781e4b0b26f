"""What is read: ranges, slots, columns, values, schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import arrow_strategies as arrows
import holdfast as hf
from holdfast.errors import InvalidBundle, InvalidName, UnknownSlot
from holdfast.testing import SimulatedFiles
from store.storekit import TOPIC, batch, open_store, put


def fresh(topic: hf.Topic) -> None:
    """Read from memory."""


def sealed(topic: hf.Topic) -> None:
    """Read from a segment."""
    topic.seal()


PLACES = pytest.mark.parametrize("place", [fresh, sealed])


def stored(files: SimulatedFiles, *bundles: Any, **options: Any) -> hf.Topic:
    topic = open_store(files, **options).topic(TOPIC)
    for bundle in bundles:
        topic.append(bundle)
    topic.flush()
    return topic


@PLACES
def test_columns(place: Callable[[hf.Topic], None]) -> None:
    """Columns come in the order asked for; those that a batch lacks are left out of it, and rows stay."""
    topic = stored(
        SimulatedFiles(),
        {"logs": pa.record_batch({"a": [1, 2], "b": ["x", "y"]})},
        {"logs": pa.record_batch({"b": ["z"]}), "attrs": pa.record_batch({"a": [9]})},
        {"attrs": pa.record_batch({"a": [8]})},
    )
    place(topic)
    assert [each.to_pydict() for each in topic.read(slot="logs", columns=["b", "a"])] == [
        {"b": ["x", "y"], "a": [1, 2]},
        {"b": ["z"]},
    ]
    assert [(each.num_rows, each.num_columns) for each in topic.read(slot="logs", columns=["nowhere"])] == [
        (2, 0),
        (1, 0),
    ]
    assert [(each.num_rows, each.num_columns) for each in topic.read(slot="logs", columns=[])] == [(2, 0), (1, 0)]
    assert [each.schema.names for each in topic.read(slot="logs")] == [["a", "b"], ["b"]]


@PLACES
def test_slots(place: Callable[[hf.Topic], None]) -> None:
    """Bundles can be read with some of their slots; one that has none of them keeps its offset."""
    topic = stored(
        SimulatedFiles(),
        {"logs": batch(0), "attrs": batch(1)},
        {"attrs": batch(2)},
    )
    place(topic)
    assert [set(bundle) for bundle in topic.bundles()] == [{"logs", "attrs"}, {"attrs"}]
    assert [set(bundle) for bundle in topic.bundles(slots=["attrs"])] == [{"attrs"}, {"attrs"}]
    assert [(bundle.offset, set(bundle)) for bundle in topic.bundles(slots=["logs"])] == [(0, {"logs"}), (1, set())]


@PLACES
def test_unknown_slot(place: Callable[[hf.Topic], None]) -> None:
    """A slot that the topic never had is an error that names those it has."""
    topic = stored(SimulatedFiles(), {"logs": batch(0)})
    place(topic)
    for use in (
        lambda: list(topic.read(slot="nope")),
        lambda: list(topic.bundles(slots=["nope"])),
        lambda: topic.schema("nope"),
    ):
        with pytest.raises(UnknownSlot) as caught:
            use()
        assert "nope" in str(caught.value)
        assert "logs" in str(caught.value)


@PLACES
def test_everything_about_a_bundle_comes_back(place: Callable[[hf.Topic], None]) -> None:
    """Values, types, metadata of schema and fields, attributes, event time, ingestion time, offset and shard."""
    field = pa.field("level", pa.dictionary(pa.int8(), pa.string()), nullable=False, metadata={"unit": "none"})
    schema = pa.schema([field, pa.field("tags", pa.map_(pa.string(), pa.int32()))], metadata={"version": "2"})
    rows = pa.record_batch(
        [
            pa.array(["warn", "info", "warn"]).dictionary_encode().cast(field.type),
            pa.array([None, [("a", 1)], []], schema.field(1).type),
        ],
        schema=schema,
    )
    bundle = hf.RecordBundle({"logs": rows}, {"source": "s1", "n": [1, {"deep": None}]}, event_time=(-5, 2**62))
    topic = stored(SimulatedFiles(), bundle)
    place(topic)
    (found,) = topic.bundles()
    arrows.assert_same(rows, found["logs"])
    assert found.attributes == bundle.attributes
    assert (found.event_time, found.offset, found.shard) == ((-5, 2**62), 0, 0)
    assert found.ingestion_time_ns == 1_700_000_000 * 10**9


@PLACES
def test_table_becomes_one_batch(place: Callable[[hf.Topic], None]) -> None:
    """A table of several chunks, or of none, is stored as one batch."""
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    topic = stored(SimulatedFiles(), {"logs": table}, {"logs": table.slice(0, 0)})
    place(topic)
    assert [each.to_pydict() for each in topic.read(slot="logs")] == [{"a": [1, 2, 3]}, {"a": []}]


@PLACES
def test_batches_without_rows_or_columns(place: Callable[[hf.Topic], None]) -> None:
    """Nothing is a value too: no rows, no columns, and rows without columns."""
    rows_only = pa.record_batch({"a": [1, 2, 3]}).select([])
    topic = stored(SimulatedFiles(), {"logs": batch(0).slice(0, 0)}, {"logs": rows_only}, {"logs": batch(1)})
    place(topic)
    assert [(each.num_rows, each.num_columns) for each in topic.read(slot="logs")] == [(0, 1), (3, 0), (1, 1)]


def test_later_changes_of_the_callers_memory_do_not_reach_the_store() -> None:
    """What was appended is a copy: writing over the caller's buffers changes nothing."""
    memory = bytearray(8 * 4)
    array = pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(memory)])
    topic = stored(SimulatedFiles(), {"logs": pa.record_batch({"a": array})})
    memory[:] = b"\xff" * len(memory)
    assert [each.to_pydict() for each in topic.read(slot="logs")] == [{"a": [0, 0, 0, 0]}]
    topic.seal()
    assert [each.to_pydict() for each in topic.read(slot="logs")] == [{"a": [0, 0, 0, 0]}]


def test_slice_of_a_large_batch_stores_only_itself() -> None:
    """A small slice does not drag its parent along."""
    files = SimulatedFiles()
    parent = pa.record_batch({"a": ["x" * 1000] * 1000})
    topic = stored(files, {"logs": parent.slice(500, 1)})
    statistics = topic.statistics()
    assert statistics is not None
    assert statistics.wal_bytes < 5000


def test_ranges_over_segments_and_memory() -> None:
    """Any start and end, over the border between segments and what is not sealed yet."""
    topic = open_store(SimulatedFiles()).topic(TOPIC)
    for number in range(7):
        put(topic, number)
        if number in (1, 4):
            topic.seal()
    for start in range(9):
        for end in (*range(9), None):
            found = [bundle.offset for bundle in topic.bundles(start, end)]
            assert found == list(range(start, 7 if end is None else min(end, 7)))
            ids = [each["id"][0].as_py() for each in topic.read(start, end, slot="logs")]
            assert ids == found


def test_reading_sees_what_is_durable_when_it_begins() -> None:
    """An iterator ends where the topic ended when it was first asked."""
    topic = open_store(SimulatedFiles()).topic(TOPIC)
    put(topic, 0)
    reading = topic.bundles()
    assert next(reading).offset == 0
    put(topic, 1)
    assert list(reading) == []
    assert [bundle.offset for bundle in topic.bundles(1)] == [1]


def test_what_is_not_synced_is_not_shown() -> None:
    """Readers act on what they see, so they see only what is durable."""
    topic = open_store(SimulatedFiles()).topic(TOPIC)
    put(topic, 0)
    topic.append({"logs": batch(1)}, durability="os").wait(timeout=30)
    assert [bundle.offset for bundle in topic.bundles()] == [0]
    assert topic.positions() == {0: (0, 1)}


def test_merged_schema() -> None:
    """A slot's schema is the union of all columns that it ever held, each with the widest type."""
    topic = stored(
        SimulatedFiles(),
        {"logs": pa.record_batch({"a": pa.array([1], pa.int32())})},
        {"logs": pa.record_batch({"a": pa.array([1], pa.int64()), "b": ["x"]})},
    )
    assert topic.schema("logs").names == ["a", "b"]
    assert topic.schema("logs").field("a").type == pa.int64()


@pytest.mark.parametrize("bundle", [{}, {"logs": 1}, {"logs": None}, [1], {1: batch(0)}])
def test_what_is_no_bundle(bundle: Any) -> None:
    """Input that cannot be stored is refused, and the next append is not affected."""
    topic = open_store(SimulatedFiles()).topic(TOPIC)
    with pytest.raises(InvalidBundle):
        topic.append(bundle)
    assert put(topic, 0) == 0


@pytest.mark.parametrize("slot", ["", "a/b", "a b", "é", "x" * 129])
def test_slot_names(slot: str) -> None:
    """Slot names are checked before anything is stored."""
    topic = open_store(SimulatedFiles()).topic(TOPIC)
    with pytest.raises(InvalidName):
        topic.append({slot: batch(0)})
    assert topic.slots() == {}


def test_many_schemas_in_one_slot() -> None:
    """More schemas than the encoder remembers, in turn and again, all come back as they were."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    for _ in range(2):
        for number in range(20):
            topic.append({"logs": pa.record_batch({f"c{number}": [number]})})
    topic.flush()
    expected = [{f"c{number}": [number]} for number in range(20)] * 2
    assert [each.to_pydict() for each in topic.read(slot="logs")] == expected
    topic.seal()
    assert [each.to_pydict() for each in topic.read(slot="logs")] == expected
