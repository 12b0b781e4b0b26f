"""Bundles and their attributes."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_strategies import assert_same, batches, schemas
from holdfast.bundle import MAX_ATTRIBUTE_BYTES, RecordBundle, decode_attributes, encode_attributes
from holdfast.errors import InvalidBundle

LOGS = pa.RecordBatch.from_pydict({"ts": [1, 2, 3], "body": ["a", "b", None]})
ATTRS = pa.RecordBatch.from_pydict({"id": [1]})

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
attributes = st.dictionaries(st.text(max_size=8), values, max_size=4)


def test_a_bundle_is_a_mapping_of_its_slots() -> None:
    """Slots are had by name, in the order given, and counted."""
    bundle = RecordBundle({"logs": LOGS, "log_attrs": ATTRS}, {"id": "7"}, event_time=(5, 9), shard=2, offset=42)
    assert bundle["logs"] is LOGS
    assert list(bundle) == ["logs", "log_attrs"] == list(bundle.slots)
    assert "logs" in bundle
    assert "spans" not in bundle
    assert len(bundle) == 2
    assert bundle.rows == 4
    assert bundle.nbytes == LOGS.nbytes + ATTRS.nbytes
    assert (bundle.event_time, bundle.shard, bundle.offset, bundle.ingestion_time_ns) == ((5, 9), 2, 42, None)
    assert bundle.attributes == {"id": "7"}
    with pytest.raises(KeyError, match="no slot 'spans' in this bundle; it has logs, log_attrs"):
        bundle["spans"]


def test_a_bundle_cannot_be_changed() -> None:
    """Neither its fields nor its mappings take an assignment, and it has no room for others."""
    bundle = RecordBundle({"logs": LOGS}, {"id": "7"})
    for name in ("slots", "attributes", "event_time", "offset", "shard", "ingestion_time_ns", "rows", "other"):
        with pytest.raises(AttributeError):
            setattr(bundle, name, None)
    with pytest.raises(TypeError):
        bundle.slots["x"] = LOGS  # type: ignore[index]
    with pytest.raises(TypeError):
        bundle.attributes["x"] = 1  # type: ignore[index]


def test_what_the_caller_changes_afterwards_does_not_reach_the_bundle() -> None:
    """Slots and attributes are copied, down to nested lists and mappings."""
    slots, given_attributes = {"logs": LOGS}, {"headers": {"a": [1]}}
    bundle = RecordBundle(slots, given_attributes)
    slots["more"] = ATTRS
    given_attributes["headers"]["a"].append(2)
    given_attributes["headers"]["b"] = []
    assert list(bundle) == ["logs"]
    assert bundle.attributes == {"headers": {"a": [1]}}


@given(batches(), st.integers(1, 3))
def test_a_table_becomes_one_batch(batch: pa.RecordBatch, pieces: int) -> None:
    """The chunks of a Table are put together; rows, types and metadata stay."""
    step = -(-batch.num_rows // pieces) or 1
    parts = [batch.slice(start, step) for start in range(0, batch.num_rows, step)]
    table = pa.Table.from_batches(parts, schema=batch.schema) if len(batch.schema) else pa.Table.from_batches([batch])
    try:
        table.combine_chunks()
    except pa.ArrowNotImplementedError:  # Arrow cannot put together dictionaries that are run-end encoded
        with pytest.raises(InvalidBundle, match="append its batches one by one"):
            RecordBundle({"x": table})
    else:
        assert_same(batch, RecordBundle({"x": table})["x"])


@given(schemas())
def test_a_table_without_chunks_is_a_batch_without_rows(schema: pa.Schema) -> None:
    """Zero chunks keep the schema."""
    batch = RecordBundle({"x": pa.Table.from_batches([], schema=schema)})["x"]
    assert batch.num_rows == 0
    assert batch.schema.equals(schema, check_metadata=True)


def test_a_table_without_columns_keeps_its_rows() -> None:
    """Rows are counted even when no column is left."""
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])}).select([])
    assert RecordBundle({"x": table}).rows == 3


def test_the_dictionaries_of_a_table_are_made_one() -> None:
    """Chunks with other dictionaries are put together, nested ones too, and the Table itself is left alone."""
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    nested = [pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), chunk) for chunk in chunks]
    table = pa.table({"flat": pa.chunked_array(chunks), "nested": pa.chunked_array(nested)})
    before = table.to_pylist()
    batch = RecordBundle({"x": table})["x"]
    assert batch.to_pylist() == before == table.to_pylist()
    assert batch.schema == table.schema


def test_a_table_whose_dictionaries_do_not_fit_their_index_is_refused() -> None:
    """The error says what to do instead."""
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array(np.arange(100, dtype=np.int8)), pa.array([f"{x}{n}" for n in range(100)])
        )
        for x in "ab"
    ]
    with pytest.raises(
        InvalidBundle, match=r"slot 'x': this Table does not fit one batch .*; append its batches one by one"
    ):
        RecordBundle({"x": pa.table({"d": pa.chunked_array(chunks)})})


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ({}, "at least one slot"),
        (None, "not of a NoneType"),
        (LOGS, "not of a pyarrow.lib.RecordBatch"),
        ([("logs", LOGS)], "not of a list"),
        ({"logs": None}, "slot 'logs' holds a NoneType; expected a pyarrow RecordBatch or Table"),
        ({"logs": {"a": [1]}}, "slot 'logs' holds a dict"),
        ({"logs": LOGS["ts"]}, "slot 'logs' holds a pyarrow.lib.Int64Array"),
        ({1: LOGS}, "a slot's name is a text, not a int"),
    ],
)
def test_what_a_bundle_cannot_be_made_of(slots: Any, text: str) -> None:
    """The error says what was found."""
    with pytest.raises(InvalidBundle) as caught:
        RecordBundle(slots)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "event_time", [(2, 1), (1,), (1, 2, 3), 5, ("1", "2"), (0, 2**63), (-(2**63) - 1, 0), (1.0, 2.0)]
)
def test_impossible_event_times(event_time: Any) -> None:
    """The range is two 64-bit integers, the first not above the second."""
    with pytest.raises(InvalidBundle, match="event_time is"):
        RecordBundle({"x": LOGS}, event_time=event_time)


def test_the_widest_event_time_is_taken() -> None:
    """Both ends of the 64-bit range are valid, and so is a single instant."""
    assert RecordBundle({"x": LOGS}, event_time=(-(2**63), 2**63 - 1)).event_time == (-(2**63), 2**63 - 1)
    assert RecordBundle({"x": LOGS}, event_time=(3, 3)).event_time == (3, 3)


def test_equality() -> None:
    """Slots with their metadata, attributes and event time count; the place in a shard does not."""
    bundle = RecordBundle({"logs": LOGS}, {"a": 1}, event_time=(1, 2))
    assert bundle == RecordBundle({"logs": LOGS.slice(0)}, {"a": 1}, event_time=(1, 2), offset=4, shard=1)
    assert bundle != RecordBundle({"logs": LOGS}, {"a": 2}, event_time=(1, 2))
    assert bundle != RecordBundle({"logs": LOGS}, {"a": 1}, event_time=(1, 3))
    assert bundle != RecordBundle({"log": LOGS}, {"a": 1}, event_time=(1, 2))
    assert bundle != RecordBundle({"logs": LOGS.slice(1)}, {"a": 1}, event_time=(1, 2))
    assert bundle != RecordBundle({"logs": LOGS, "x": ATTRS}, {"a": 1}, event_time=(1, 2))
    assert bundle != RecordBundle({"logs": LOGS.replace_schema_metadata({"k": "v"})}, {"a": 1}, event_time=(1, 2))
    assert bundle != {"logs": LOGS}
    with pytest.raises(TypeError, match="unhashable"):
        hash(bundle)


def test_of() -> None:
    """A bundle is itself; a mapping becomes one; attributes are laid over those that are there."""
    bundle = RecordBundle({"logs": LOGS}, {"a": 1, "b": 1}, event_time=(1, 2), offset=3, shard=4, ingestion_time_ns=5)
    assert RecordBundle.of(bundle) is bundle
    assert RecordBundle.of({"logs": LOGS}, {"a": 1}) == RecordBundle({"logs": LOGS}, {"a": 1})
    more = RecordBundle.of(bundle, {"b": 2})
    assert more.attributes == {"a": 1, "b": 2}
    assert (more.event_time, more.offset, more.shard, more.ingestion_time_ns) == ((1, 2), 3, 4, 5)
    assert bundle.attributes == {"a": 1, "b": 1}
    with pytest.raises(InvalidBundle):
        RecordBundle.of(7)  # type: ignore[arg-type]


def test_repr_is_short_and_helpful() -> None:
    """Slots with their rows, the size, the names of attributes and the place; no values."""
    bundle = RecordBundle({"logs": LOGS, "log_attrs": ATTRS}, {"id": "secret"}, offset=42, shard=0)
    assert repr(bundle) == "<RecordBundle logs: 3 rows; log_attrs: 1 rows; 47 B; attributes id; offset 42 of shard 0>"
    assert repr(RecordBundle({"x": ATTRS})) == "<RecordBundle x: 1 rows; 8 B>"


def test_a_bundle_can_be_pickled_and_copied() -> None:
    """Workers in other processes get an equal bundle."""
    bundle = RecordBundle({"logs": LOGS}, {"a": [1]}, event_time=(1, 2), offset=3, shard=4)
    for other in (pickle.loads(pickle.dumps(bundle)), copy.copy(bundle)):
        assert other == bundle
        assert (other.offset, other.shard) == (3, 4)


@given(batches())
def test_any_batch_has_a_size(batch: pa.RecordBatch) -> None:
    """Rows, bytes and repr can be had of every Arrow type."""
    bundle = RecordBundle({"x": batch})
    assert bundle.rows == batch.num_rows
    assert bundle.nbytes >= 0
    assert f"{batch.num_rows} rows" in repr(bundle)


@given(attributes)
def test_attributes_come_back_from_bytes(mapping: dict[str, Any]) -> None:
    """Every allowed value survives, and what a bundle accepts can be encoded."""
    kept = RecordBundle({"x": ATTRS}, mapping).attributes
    assert kept == mapping
    assert decode_attributes(encode_attributes(kept)) == mapping
    assert decode_attributes(memoryview(encode_attributes(kept))) == mapping


def test_no_attributes_are_no_bytes() -> None:
    """An empty mapping takes no room."""
    assert encode_attributes({}) == b""
    assert decode_attributes(b"") == {}
    assert RecordBundle({"x": ATTRS}).attributes == {}


def test_tuples_become_lists() -> None:
    """A tuple is taken as a list, so that a bundle equals itself after storing."""
    assert RecordBundle({"x": ATTRS}, {"a": (1, (2,))}).attributes == {"a": [1, [2]]}


class Colour(enum.StrEnum):
    RED = "red"


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": object()}, "attribute a is a object; allowed: None, bool,"),
        ({"a": {"b": [1, {2}]}}, "attribute a.b.1 is a set; allowed"),
        ({"a": 2**64}, "attribute a is an integer of more than 64 bits"),
        ({"a": -(2**63) - 1}, "attribute a is an integer of more than 64 bits"),
        ({"a": np.float64(1)}, "attribute a is a numpy.float64"),
        ({"a": Colour.RED}, "Colour; allowed"),
        ({1: "a"}, "attribute 1: a name is a text, not a int"),
        ({"a": {b"b": 1}}, "attribute a.b'b': a name is a text, not a bytes"),
        ({"a": ENDLESS}, "attribute a nests deeper than 32 levels"),
        ([("a", 1)], "attributes are a mapping of name to value, not a list"),
        ("abc", "attributes are a mapping of name to value, not a str"),
    ],
)
def test_attributes_of_other_types_are_refused(value: Any, text: str) -> None:
    """The error names the place inside the attributes, what stands there, and what may."""
    with pytest.raises(InvalidBundle) as caught:
        RecordBundle({"x": ATTRS}, value)
    assert text in str(caught.value)


def test_attributes_have_a_limit() -> None:
    """Exactly 64 KiB of encoded attributes fit; one byte more does not."""
    overhead = len(encode_attributes({"a": b"x" * 60_000})) - 60_000
    fits = {"a": b"x" * (MAX_ATTRIBUTE_BYTES - overhead)}
    assert len(encode_attributes(fits)) == MAX_ATTRIBUTE_BYTES == 65_536
    with pytest.raises(InvalidBundle, match="attributes take 65537 bytes, allowed are 65536; use a slot for them"):
        encode_attributes({"a": fits["a"] + b"x"})


@pytest.mark.parametrize("mapping", [{"a": object()}, {"a": "\ud800"}, {"a": 2**70}, {"a": ENDLESS}])
def test_what_cannot_be_encoded_is_an_invalid_bundle(mapping: dict[str, Any]) -> None:
    """No error of the encoder's own comes out."""
    with pytest.raises(InvalidBundle, match="attributes cannot be encoded"):
        encode_attributes(mapping)


@pytest.mark.parametrize("data", [b"\x01", b"\x81", b"\x81\x01\x01", b"\xc1", b"\x80\x80"])
def test_bytes_that_are_no_attributes(data: bytes) -> None:
    """Anything but one whole MessagePack map with texts as keys is refused."""
    with pytest.raises(InvalidBundle, match="not a MessagePack map"):
        decode_attributes(data)
