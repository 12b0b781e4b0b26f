"""Payloads: what is decoded is what was encoded."""

from __future__ import annotations

import crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from arrow_strategies import Celsius, assert_same, batches
from holdfast.encoded import ALIGNMENT, EncodedSlot, PayloadKind, decode_slot, encode_slot, payload_kind
from holdfast.errors import InvalidBundle

ROWS = 20_000


def encoded(batch: pa.RecordBatch) -> EncodedSlot:
    return encode_slot(3, b"f" * 16, payload_kind(batch.schema), batch)


def decoded(slot: EncodedSlot, batch: pa.RecordBatch) -> pa.RecordBatch:
    return decode_slot(slot.kind, slot.data, batch.schema)


def round_trip(batch: pa.RecordBatch) -> None:
    batch.validate(full=True)
    slot = encoded(batch)
    assert_same(batch, decoded(slot, batch))
    assert slot.rows == batch.num_rows
    assert len(slot.data) % ALIGNMENT == 0
    assert slot.checksum == crc32c.crc32c(slot.data)


@settings(max_examples=300, deadline=None)
@given(batches())
def test_every_batch_comes_back_as_it_went_in(batch: pa.RecordBatch) -> None:
    """Any storable batch, sliced and nested as it may be, is equal after a round trip, and padded."""
    round_trip(batch)


@pytest.mark.long
@settings(max_examples=20_000, deadline=None)
@given(batches())
def test_every_batch_comes_back_as_it_went_in_at_length(batch: pa.RecordBatch) -> None:
    """The same over many more batches."""
    round_trip(batch)


@pytest.mark.parametrize("dictionary", [False, True])
def test_changing_the_source_afterwards_does_not_reach_the_payload(dictionary: bool) -> None:
    """The payload is a copy: a caller may reuse its buffers as soon as the slot is encoded."""
    numbers = np.arange(100, dtype=np.int32)
    column = pa.array(numbers)
    if dictionary:
        column = pa.DictionaryArray.from_arrays(column, pa.array([str(value) for value in range(100)]))
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    slot = encoded(batch)
    before = bytes(slot.data)
    numbers[:] = 7
    assert bytes(slot.data) == before
    assert crc32c.crc32c(slot.data) == slot.checksum
    assert decoded(slot, batch)["x"].cast(pa.string() if dictionary else pa.int32())[99].as_py() in {99, "99"}


TEXTS = [f"a text that is longer than twelve bytes, number {number}" for number in range(ROWS)]
OFFSETS = pa.array(np.arange(ROWS + 1, dtype=np.int32))
WIDE = {
    "int64": pa.array(np.arange(ROWS)),
    "bool": pa.array(np.arange(ROWS) % 2 == 0),
    "fixed_size_binary": pa.array([b"%08d" % number for number in range(ROWS)], pa.binary(8)),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "binary_view": pa.array([text.encode() for text in TEXTS], pa.binary_view()),
    "struct": pa.StructArray.from_arrays([pa.array(TEXTS)], ["text"]),
    "list": pa.ListArray.from_arrays(OFFSETS, pa.array(TEXTS)),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array(np.arange(ROWS, dtype=np.uint16)), pa.array(TEXTS)),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(OFFSETS.slice(1), pa.array(TEXTS)),
}


@pytest.mark.parametrize("kind", WIDE)
def test_a_slice_does_not_bring_its_parent_along(kind: str) -> None:
    """Three rows out of many make a payload of the size of three rows."""
    batch = pa.RecordBatch.from_arrays([WIDE[kind]], names=["x"]).slice(ROWS // 2, 3)
    slot = encoded(batch)
    assert len(slot.data) < 1000
    assert_same(batch, decoded(slot, batch))


def test_trimming_keeps_nulls_and_every_other_column() -> None:
    """A dictionary cut down to what a slice uses gives the same values, nulls among them."""
    wide = pa.array([text + "!" * 20 for text in TEXTS])
    indices = pa.array([5, None, 5, 19_999, 3], pa.int32())
    schema = pa.schema(
        [
            pa.field("d", pa.dictionary(pa.int32(), pa.string()), metadata={"k": "v"}),
            pa.field("n", pa.int64(), nullable=False),
        ],
        metadata={"a": "b"},
    )
    batch = pa.RecordBatch.from_arrays(
        [pa.DictionaryArray.from_arrays(indices, wide), pa.array(range(5))], schema=schema
    )
    slot = encoded(batch)
    assert len(slot.data) < 2000
    assert_same(batch, decoded(slot, batch))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("values", [pa.array(TEXTS, pa.string_view()), WIDE["struct"], pa.array(TEXTS)])
def test_a_large_dictionary_of_any_kind_comes_back(values: pa.Array, ordered: bool) -> None:
    """Dictionaries that cannot be cut down are carried whole, with the right values."""
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int16()), values, ordered=ordered)
    round_trip(pa.RecordBatch.from_arrays([column], names=["x"]))


def test_an_ordered_dictionary_keeps_the_values_that_no_row_uses() -> None:
    """An ordered dictionary is a scale, so it is never cut down."""
    column = pa.DictionaryArray.from_arrays(pa.array([1], pa.int16()), pa.array(TEXTS), ordered=True)
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    assert len(decoded(encoded(batch), batch)["x"].dictionary) == ROWS


def test_a_large_batch_of_views_comes_back() -> None:
    """A batch whose views use all their bytes is left as it is."""
    round_trip(pa.RecordBatch.from_arrays([WIDE["string_view"], WIDE["binary_view"]], names=["s", "b"]))


def test_rows_without_columns_are_counted() -> None:
    """A batch of no columns keeps its number of rows."""
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    assert decoded(encoded(batch), batch).num_rows == 5


def test_environment_variables_do_not_change_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's switches to its old stream formats have no effect on what is stored."""
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]).dictionary_encode()], names=["x"])
    before = bytes(encoded(batch).data)
    monkeypatch.setenv("ARROW_PRE_0_15_IPC_FORMAT", "1")
    monkeypatch.setenv("ARROW_PRE_1_0_METADATA_VERSION", "1")
    assert bytes(encoded(batch).data) == before


def test_a_batch_that_ipc_cannot_write_is_refused() -> None:
    """More rows than IPC can count are an error of the caller, not of Arrow."""
    batch = pa.RecordBatch.from_arrays([pa.nulls(2**31)], names=["x"])
    with pytest.raises(InvalidBundle, match=r"a batch of 2147483648 rows cannot be written as Arrow IPC: .*2\^31"):
        encoded(batch)


DICTIONARY = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    "kind",
    [
        DICTIONARY,
        pa.list_(DICTIONARY),
        pa.list_view(DICTIONARY),
        pa.struct([("a", pa.int8()), ("b", DICTIONARY)]),
        pa.map_(pa.string(), DICTIONARY),
        pa.dense_union([pa.field("a", DICTIONARY)]),
        pa.run_end_encoded(pa.int32(), DICTIONARY),
        Celsius(DICTIONARY),
        pa.list_(Celsius(pa.struct([("a", DICTIONARY)]))),
    ],
    ids=str,
)
def test_a_dictionary_anywhere_asks_for_a_stream(kind: pa.DataType) -> None:
    """A bare message cannot carry dictionaries, however deep they stand."""
    assert payload_kind(pa.schema([("x", pa.int8()), ("y", kind)])) is PayloadKind.STREAM


def test_without_dictionaries_a_message_is_enough() -> None:
    """Schemas without dictionaries take the small form."""
    schema = pa.schema(
        [("x", pa.list_(pa.struct([("a", pa.uuid())]))), ("y", pa.run_end_encoded(pa.int16(), pa.string()))]
    )
    assert payload_kind(schema) is PayloadKind.MESSAGE
    assert payload_kind(pa.schema([])) is PayloadKind.MESSAGE
