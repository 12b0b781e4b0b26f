"""What comes out of a segment is what went in."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sealing import FIRST, FOLDER, SEQ, SHARD_ID, Slots, encode, seal, sealed, signal, simulated

from arrow_strategies import assert_same, batches, schemas
from holdfast.encoded import PayloadKind, payload_kind
from holdfast.files import SystemFiles
from holdfast.segment import SegmentReader
from holdfast.segment._group import _has_union

COMPRESSIONS = (None, "lz4", "zstd")


def numbers(*values: int | None, **more: Any) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64()), **more})


def is_comparable(schema: pa.Schema) -> bool:
    """Not a union beside a dictionary: pyarrow shows the type codes of a sliced union wrongly, so that the values
    cannot be compared once the dictionary has another order. `test_dictionaries_inside_nested_types` has those.
    """
    return payload_kind(schema) is PayloadKind.MESSAGE or not any(_has_union(field.type) for field in schema)


@st.composite
def contents(draw: st.DrawFn) -> list[Slots]:
    """Bundles over two slots and a few schemas, so that streams have several chunks and slots several streams."""
    known = draw(st.lists(schemas().filter(is_comparable), min_size=1, max_size=3))
    one = st.sampled_from(known).flatmap(batches)
    return draw(st.lists(st.dictionaries(st.sampled_from([0, 5]), one), min_size=1, max_size=6))


def assert_holds(reader: SegmentReader, expected: list[Slots]) -> None:
    assert (reader.segment_seq, reader.first_offset, reader.shard_id) == (SEQ, FIRST, SHARD_ID)
    assert reader.bundle_count == len(expected)
    assert reader.end_offset == FIRST + len(expected)
    for index, (source, slots) in enumerate(zip(encode(expected), expected, strict=True)):
        bundle = reader.bundle(index)
        assert bundle.offset == source.offset
        assert bundle.ingestion_time_ns == source.ingestion_time_ns
        assert bundle.event_time == source.event_time
        assert bundle.attributes == source.attributes
        assert bundle.signal == (signal(slots) if slots else "")
        assert bundle.batches.keys() == slots.keys()
        for number, batch in slots.items():
            assert_same(batch, bundle.batches[number])
    for number in {number for slots in expected for number in slots}:
        of_slot = [slots[number] for slots in expected if number in slots]
        for batch, found in zip(of_slot, reader.batches(number), strict=True):
            assert_same(batch, found)
    assert reader.verify() == []


@settings(max_examples=150, deadline=None)
@given(contents(), st.sampled_from(COMPRESSIONS), st.sampled_from([1, 5, 65_536]))
def test_every_batch_comes_back_as_it_went_in(
    expected: list[Slots], compression: str | None, max_dictionary_size: int
) -> None:
    """Any storable batches, in any mix of slots and schemas, are equal after sealing, and the file is sound."""
    assert_holds(sealed(expected, compression=compression, max_dictionary_size=max_dictionary_size), expected)


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(contents(), st.sampled_from(COMPRESSIONS), st.sampled_from([1, 5, 65_536]))
def test_every_batch_comes_back_as_it_went_in_many_more(
    expected: list[Slots], compression: str | None, max_dictionary_size: int
) -> None:
    """The same, for longer."""
    assert_holds(sealed(expected, compression=compression, max_dictionary_size=max_dictionary_size), expected)


def test_real_files(tmp_path: Path) -> None:
    """On the machine's own filesystem a segment is one file of the size that it says, and nothing else."""
    expected = [{0: numbers(1, 2), 1: numbers(3, s=pa.array(["x"]))}, {}, {1: numbers()}]
    files = SystemFiles()
    info = seal(files, expected, tmp_path)
    assert files.list(tmp_path) == ["0000000000000007-00000000000000000100.seg"]
    assert (info.path.parent, info.size) == (tmp_path, files.size(info.path))
    assert (info.segment_seq, info.first_offset, info.bundle_count, info.end_offset) == (7, 100, 3, 103)
    assert (info.stream_count, info.rows) == (3, 3)
    reader = SegmentReader(files, info.path)
    files.unlink(info.path)
    assert_holds(reader, expected)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_without_columns_keep_their_rows(compression: str | None) -> None:
    """Row counts survive where there is no column to count."""
    none = numbers(1, 2, 3).select([])
    assert_holds(sealed([{0: none}, {0: none.slice(0, 0)}, {0: none.slice(1)}], compression=compression),
                 [{0: none}, {0: none.slice(0, 0)}, {0: none.slice(1)}])  # fmt: skip


def test_a_single_bundle_without_slots() -> None:
    """A segment may have no stream at all."""
    reader = sealed([{}])
    assert (reader.streams, list(reader.slots), reader.bundle(0).batches) == ((), [], {})
    assert list(reader.batches(0)) == []
    assert reader.verify() == []


@pytest.mark.parametrize("count", [1, pytest.param(10_000, marks=pytest.mark.long)])
def test_many_bundles(count: int) -> None:
    """The number of bundles has no bound of its own."""
    expected: list[Slots] = [{0: numbers(index)} for index in range(count)]
    reader = sealed(expected)
    assert [batch["n"][0].as_py() for batch in reader.batches(0)] == list(range(count))
    assert len(reader.streams) == 1


def test_streams_are_shared_by_slot_and_schema() -> None:
    """Each pair of slot and schema has one stream, however the bundles alternate."""
    plain, wide = numbers(1), numbers(2, s=pa.array(["x"]))
    reader = sealed([{0: plain}, {0: wide}, {0: plain, 1: plain}, {0: wide}])
    assert [(stream.slot, stream.chunks, stream.rows) for stream in reader.streams] == [(0, 2, 2), (0, 2, 2), (1, 1, 1)]
    assert [batch.num_columns for batch in reader.batches(0)] == [1, 2, 1, 2]


def test_same_input_gives_the_same_bytes() -> None:
    """Sealing is deterministic: a repeated seal replaces a file by an equal one."""
    words = [numbers(i, d=pa.array([f"w{i}"]).dictionary_encode()) for i in range(4)]
    expected: list[Slots] = [{0: batch} for batch in words]
    files = simulated()
    first = files.read(seal(files, expected, max_dictionary_size=2).path)
    assert files.read(seal(files, expected, max_dictionary_size=2).path) == first


def test_messages_are_stored_as_they_were_appended() -> None:
    """Without dictionaries and compression the payload bytes stand in the file unchanged, and in order."""
    bundles = encode([{0: numbers(index, index + 1)} for index in range(5)])
    files = simulated()
    data = files.read(seal(files, bundles).path)
    payloads = [payload.data.to_pybytes() for bundle in bundles for payload in bundle.slots]
    places = [data.index(payload) for payload in payloads]
    assert all(after - before == len(payloads[0]) for before, after in pairwise(places))
    assert places[0] % 8 == 0


def test_each_stream_is_an_arrow_file_of_its_own() -> None:
    """Cut out of the segment, a stream opens with plain Arrow."""
    expected = [{0: numbers(1)}, {0: numbers(2, 3)}]
    files = simulated()
    info = seal(files, expected)
    (stream,) = SegmentReader(files, info.path).streams
    assert stream.position % 64 == 0
    cut = pa.BufferReader(files.read(info.path, stream.position, stream.length))
    assert pa.ipc.open_file(cut).read_all().to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("offset", 105), "bundle 1 of segment 7, first offset 100, says that it is bundle 1 of segment 7, offset 105"),
        (
            ("segment_seq", 8),
            "bundle 1 of segment 7, first offset 100, says that it is bundle 1 of segment 8, offset 101",
        ),
        (
            ("bundle_index", 2),
            "bundle 1 of segment 7, first offset 100, says that it is bundle 2 of segment 7, offset 101",
        ),
    ],
)
def test_bundles_that_are_not_one_segment(change: tuple[str, int], text: str) -> None:
    """A list with a hole, or of two segments, is refused before anything is written."""
    bundles = encode([{0: numbers(1)}, {0: numbers(2)}])
    setattr(bundles[1], *change)
    files = simulated()
    with pytest.raises(ValueError) as caught:
        seal(files, bundles)
    assert str(caught.value) == text
    assert files.list(FOLDER) == []
