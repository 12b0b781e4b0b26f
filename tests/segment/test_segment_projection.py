"""A read of some columns touches those columns alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sealing import FOLDER, PATH, seal, sealed, simulated, unsealed

from holdfast.errors import Corruption
from holdfast.segment import SegmentReader

MARK = 0x5EA1_5EA1_5EA1_5EA1  # a value that stands nowhere else in the file


def marked() -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array([1, 2]), "b": pa.array([MARK, MARK]), "c": pa.array(["x", None])})


def test_columns_come_in_the_order_asked_for() -> None:
    """Repeated names count once, absent ones not at all."""
    reader = sealed([{0: marked()}])
    (batch,) = reader.batches(0, columns=["c", "nowhere", "a", "c"])
    assert batch.to_pydict() == {"c": ["x", None], "a": [1, 2]}


def test_every_column_of_a_name_is_read() -> None:
    """Where several columns have one name, asking for it gives them all."""
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"]), pa.array([2])], ["n", "s", "n"])
    (batch,) = sealed([{0: twice}]).batches(0, columns=["s", "n"])
    assert batch.schema.names == ["s", "n", "n"]
    assert [column.to_pylist() for column in batch.columns] == [["x"], [1], [2]]


def test_absent_columns_leave_the_rows() -> None:
    """Streams without any of the columns give batches without columns, with the right number of rows."""
    other = pa.record_batch({"z": [1, 2, 3]}, metadata={"k": "v"})
    batches = list(sealed([{0: marked()}, {0: other}, {0: other.slice(1)}]).batches(0, columns=["a"]))
    assert [(batch.num_columns, batch.num_rows) for batch in batches] == [(1, 2), (0, 3), (0, 2)]
    assert batches[1].schema.metadata == {b"k": b"v"}


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_only_the_range_of_bundles_asked_for(compression: str | None) -> None:
    """Indexes count bundles, whether they have the slot or not; ends beyond the segment are cut."""
    contents = [{0: pa.record_batch({"n": [i]})} if i % 3 else {1: marked()} for i in range(10)]
    reader = sealed(contents, compression=compression)

    def values(start: int, end: int | None) -> list[int]:
        return [batch["n"][0].as_py() for batch in reader.batches(0, start, end, ["n"])]

    assert values(0, None) == [1, 2, 4, 5, 7, 8]
    assert values(2, 6) == [2, 4, 5]
    assert values(3, 4) == []
    assert values(8, 99) == [8]


def test_damage_in_another_column_is_not_noticed() -> None:
    """A projected read neither sees nor checks the bytes of other columns; a whole read does."""
    files = simulated()
    data = bytearray(files.read(seal(files, [{0: marked()}]).path))
    data[data.index(MARK.to_bytes(8, "little"))] ^= 1
    assert [batch.to_pydict() for batch in unsealed(data).batches(0, columns=["a", "c"])] == [
        {"a": [1, 2], "c": ["x", None]}
    ]
    with pytest.raises(Corruption, match="chunk 0 of stream 0 fails its checksum"):
        list(unsealed(data).batches(0))
    with pytest.raises(Corruption, match="chunk 0 of stream 0 fails its checksum"):
        list(unsealed(data).batches(0, columns=["a"], verify=True))
    with pytest.raises(Corruption, match="chunk 0 of stream 0 fails its checksum"):
        list(unsealed(data).batches(0, columns=["nowhere"], verify=True))
    with pytest.raises(Corruption, match="chunk 0 of stream 0 fails its checksum"):
        unsealed(data).bundle(0)


def test_damage_in_another_dictionary_is_not_noticed() -> None:
    """The same holds for vocabularies, which stand apart from the chunks."""
    batch = pa.record_batch({"a": [1], "d": pa.array(["poisoned word"]).dictionary_encode()})
    files = simulated()
    data = bytearray(files.read(seal(files, [{0: batch}]).path))
    data[data.index(b"poisoned word")] ^= 1
    assert [found.to_pydict() for found in unsealed(data).batches(0, columns=["a"])] == [{"a": [1]}]
    for columns in (None, ["a"]):
        with pytest.raises(Corruption, match="dictionaries of stream 0 fails its checksum"):
            list(unsealed(data).batches(0, columns=columns, verify=True))


def test_damage_in_another_slot_is_not_noticed() -> None:
    """Slots that were not asked for are not touched."""
    files = simulated()
    plain = pa.record_batch({"n": [5]})
    data = bytearray(files.read(seal(files, [{0: plain, 1: marked()}]).path))
    data[data.index(MARK.to_bytes(8, "little"))] ^= 1
    assert unsealed(data).bundle(0, {0}).batches[0].to_pydict() == {"n": [5]}
    with pytest.raises(Corruption, match="chunk 0 of stream 1 fails its checksum"):
        unsealed(data).bundle(0, {1})


def test_a_chunk_is_checked_once() -> None:
    """Each reader checks a chunk the first time it hands it out, not again."""
    files = simulated()
    seal(files, [{0: marked()}])
    data = bytearray(files.read(PATH))

    class Mapping:
        """A file that changes under the map, as no file should."""

        def map(self, path: object) -> pa.Buffer:
            return pa.py_buffer(data)

    reader = SegmentReader(Mapping(), FOLDER)  # type: ignore[arg-type]
    list(reader.batches(0))
    data[data.index(MARK.to_bytes(8, "little"))] ^= 1
    assert next(reader.batches(0))["b"][0].as_py() == MARK ^ 1
    assert [problem.what.split(":")[0] for problem in reader.verify()] == ["chunk 0 of stream 0 fails its checksum"]


def test_bundle_beyond_the_end() -> None:
    """A bundle number outside the segment is an error, also a negative one."""
    reader = sealed([{0: marked()}])
    for index in (-1, 1):
        with pytest.raises(IndexError, match=rf"has 1 bundles, asked for number {index}"):
            reader.bundle(index)
