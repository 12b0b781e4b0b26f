"""Dictionaries keep their encoding, share one vocabulary per stream, and rotate the stream when they cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from sealing import encode, seal, sealed, simulated

from arrow_strategies import assert_same
from holdfast.segment import SegmentReader


def words(*values: str | None, index: pa.DataType | None = None, ordered: bool = False) -> pa.RecordBatch:
    """A dictionary-encoded column whose vocabulary is what `values` holds, in order of appearance."""
    vocabulary = list(dict.fromkeys(value for value in values if value is not None))
    indices = [None if value is None else vocabulary.index(value) for value in values]
    array = pa.DictionaryArray.from_arrays(
        pa.array(indices, index or pa.int32()), pa.array(vocabulary, pa.string()), ordered=ordered
    )
    return pa.record_batch({"word": array})


def seal_batches(batches: Sequence[pa.RecordBatch], **options: Any) -> SegmentReader:
    """A segment of one slot, already compared with what went in."""
    reader = sealed([{0: batch} for batch in batches], **options)
    for batch, found in zip(batches, reader.batches(0), strict=True):
        assert_same(batch, found)
    assert reader.verify() == []
    return reader


def vocabularies(reader: SegmentReader) -> list[list[Any]]:
    """The vocabulary that each batch of column `word` comes with."""
    return [batch["word"].dictionary.to_pylist() for batch in reader.batches(0)]


def chunks(reader: SegmentReader) -> list[int]:
    return [stream.chunks for stream in reader.streams]


def test_one_vocabulary_in_order_of_first_appearance() -> None:
    """All batches of a stream have the union of their dictionaries, also those without rows."""
    reader = seal_batches([words("b", "a"), words(), words("c", "a", None), words("b")])
    assert chunks(reader) == [4]
    assert vocabularies(reader) == [["b", "a", "c"]] * 4


def test_rotation_by_cardinality() -> None:
    """A union beyond the limit divides the batches over streams of the same slot and fingerprint, in order."""
    reader = seal_batches([words(f"w{2 * i}", f"w{2 * i + 1}") for i in range(8)], max_dictionary_size=5)
    assert chunks(reader) == [2, 2, 2, 2]
    assert len({(stream.slot, stream.fingerprint) for stream in reader.streams}) == 1
    assert vocabularies(reader)[0] == ["w0", "w1", "w2", "w3"]


def test_the_limit_itself_is_allowed() -> None:
    """A vocabulary of exactly the limit does not rotate."""
    batches = [words("a", "b"), words("c")]
    assert chunks(seal_batches(batches, max_dictionary_size=3)) == [2]
    assert chunks(seal_batches(batches, max_dictionary_size=2)) == [1, 1]


def test_one_large_dictionary_shared_by_all() -> None:
    """A vocabulary that every batch brings along anyway is stored once, whatever its size."""
    assert chunks(seal_batches([words("a", "b", "c")] * 6, max_dictionary_size=1)) == [6]


@pytest.mark.parametrize(("index", "size"), [(pa.int8(), 60), (pa.uint8(), 120)])
def test_rotation_by_index_type(index: pa.DataType, size: int) -> None:
    """A union that the index type cannot count rotates; one that fits does not."""
    batches = [words(*(f"{part}-{i}" for i in range(size)), index=index) for part in range(3)]
    assert chunks(seal_batches(batches[:2])) == [2]
    assert chunks(seal_batches(batches)) == [1, 2]


def test_ordered_dictionaries_are_left_as_they_are() -> None:
    """Where the order of a dictionary has a meaning, only equal dictionaries share a stream."""
    low, high = words("low", "mid", ordered=True), words("mid", "high", ordered=True)
    reader = seal_batches([low, low, high, low])
    assert chunks(reader) == [2, 1, 1]
    assert vocabularies(reader) == [["low", "mid"], ["low", "mid"], ["mid", "high"], ["low", "mid"]]


def test_dictionaries_that_hold_null() -> None:
    """A null inside the vocabulary comes back as null; such dictionaries share a stream when equal."""

    def batch(*vocabulary: str | None) -> pa.RecordBatch:
        indices = pa.array([*range(len(vocabulary)), None], pa.int32())
        return pa.record_batch({"word": pa.DictionaryArray.from_arrays(indices, pa.array(vocabulary))})

    reader = seal_batches([batch("a", None), batch("a", None), batch("b", None), batch("c")])
    assert chunks(reader) == [2, 1, 1]
    assert [stream.null_counts for stream in reader.streams] == [(None,), (None,), (1,)]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_floating_point_vocabularies_keep_their_bits(kind: pa.DataType) -> None:
    """Zeros of different sign stay apart; not-a-number is equal to itself."""

    def batch(value: float) -> pa.RecordBatch:
        return pa.record_batch({"word": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([value], kind))})

    reader = seal_batches([batch(value) for value in (0.0, 0.0, -0.0, float("nan"), float("nan"))])
    assert chunks(reader) == [2, 1, 2]
    signs = [math.copysign(1, found["word"].dictionary[0].as_py()) for found in reader.batches(0)]
    assert signs[:3] == [1, 1, -1]


def test_dictionaries_below_a_vocabulary() -> None:
    """Vocabularies whose values are dictionary-encoded themselves share a stream only when both levels agree."""

    def batch(word: str) -> pa.RecordBatch:
        inner = pa.StructArray.from_arrays([words(word)["word"]], ["x"])
        return pa.record_batch({"word": pa.DictionaryArray.from_arrays(pa.array([0, 0]), inner)})

    assert chunks(seal_batches([batch("a"), batch("a"), batch("b")])) == [2, 1]


def test_vocabularies_of_nested_values() -> None:
    """Dictionaries of lists cannot be united; each distinct one has its own stream."""

    def batch(value: int) -> pa.RecordBatch:
        return pa.record_batch({"word": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[value]]))})

    assert chunks(seal_batches([batch(1), batch(1), batch(2)])) == [2, 1]


@pytest.mark.parametrize(
    "shape", ["struct", "list", "list view", "fixed list", "map", "union", "dense union", "run ends", "extension"]
)
def test_dictionaries_inside_nested_types(shape: str) -> None:
    """Vocabularies are united wherever they stand, and the payloads themselves stay untouched."""

    def nest(values: pa.Array) -> pa.Array:
        rows = len(values)
        match shape:
            case "struct":
                return pa.StructArray.from_arrays([values], ["x"])
            case "list":
                return pa.ListArray.from_arrays(list(range(rows + 1)), values)
            case "list view":
                return pa.ListViewArray.from_arrays(list(range(rows)), [1] * rows, values)
            case "fixed list":
                return pa.FixedSizeListArray.from_arrays(values, 1)
            case "map":
                return pa.MapArray.from_arrays(list(range(rows + 1)), pa.array(["k"] * rows), values)
            case "union":
                codes = pa.array([0] * rows, pa.int8())
                return pa.UnionArray.from_sparse(codes, [values, pa.nulls(rows, pa.int64())])
            case "dense union":
                codes = pa.array([0] * rows, pa.int8())
                return pa.UnionArray.from_dense(codes, pa.array(range(rows), pa.int32()), [values])
            case "run ends":
                return pa.RunEndEncodedArray.from_arrays(list(range(1, rows + 1)), values)
            case _:
                from arrow_strategies import Celsius

                return pa.ExtensionArray.from_storage(Celsius(values.type), values)

    batches = [pa.record_batch({"c": nest(words(*values)["word"])}) for values in (["a", "b"], ["c", "b"], ["d", "c"])]
    assert chunks(seal_batches(batches)) == [3]
    assert chunks(seal_batches(batches, max_dictionary_size=3)) == [1, 2]
    bundles = encode([{0: batch} for batch in batches])
    before = [payload.data.to_pybytes() for bundle in bundles for payload in bundle.slots]
    seal(simulated(), bundles)
    assert [payload.data.to_pybytes() for bundle in bundles for payload in bundle.slots] == before


def test_two_dictionary_columns_rotate_together() -> None:
    """A stream rotates as a whole when any one of its vocabularies is full."""
    batches = [
        pa.record_batch({"word": words("same")["word"], "other": words(f"w{i}", "z")["word"].slice(0, 1)})
        for i in range(4)
    ]
    assert chunks(seal_batches(batches, max_dictionary_size=3)) == [2, 2]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_dictionaries(compression: str) -> None:
    """Compression and dictionaries go together."""
    reader = seal_batches([words("a" * 1000, "b"), words("c")], compression=compression)
    assert chunks(reader) == [2]
