"""Damage is found wherever it is, and the error says where."""

from __future__ import annotations

import struct

import crc32c
import pyarrow as pa
import pytest
from sealing import PATH, seal, simulated, unsealed

from holdfast.errors import Corruption, NewerVersion, StorageError
from holdfast.segment._meta import CHUNKS, MANIFEST, Directory, StreamEntry, encode_meta

HINT = "Run `holdfast fsck` on the store to see the extent; `--repair` sets the damage aside and keeps a copy."


def segment() -> bytes:
    """A small segment with everything in it: two slots, a dictionary, a bundle without slots, attributes."""
    files = simulated()
    plain = pa.record_batch({"n": pa.array([1], pa.int16())})
    words = pa.record_batch({"d": pa.array(["x"]).dictionary_encode()})
    seal(files, [{0: plain, 1: words}, {0: plain}, {}])
    return files.read(PATH)


def is_damaged(data: bytes) -> bool:
    try:
        return bool(unsealed(data).verify())
    except StorageError:
        return True


def test_the_small_segment_is_sound() -> None:
    """What the other tests damage is whole to begin with."""
    assert not is_damaged(segment())


@pytest.mark.parametrize(
    "part", [part if part < 2 else pytest.param(part, marks=pytest.mark.long) for part in range(8)]
)
def test_every_flipped_bit_is_detected(part: int) -> None:
    """Opening and verifying finds each single flipped bit: one in every byte of the file, another one in each part."""
    data = bytearray(segment())
    missed = []
    for position in range(len(data)):
        bit = 1 << (position + part) % 8
        data[position] ^= bit
        if not is_damaged(data):
            missed.append(position)
        data[position] ^= bit
    assert missed == []


def test_every_truncation_is_detected() -> None:
    """A file cut anywhere does not open."""
    data = segment()
    for length in range(len(data)):
        with pytest.raises(Corruption):
            unsealed(data[:length])


def test_something_appended_is_detected() -> None:
    """A file with more bytes than it should have does not open."""
    with pytest.raises(Corruption, match="segment is cut short or overwritten: ends with"):
        unsealed(segment() + b"\0")


def message(data: bytes) -> str:
    with pytest.raises(StorageError) as caught:
        unsealed(data)
    return str(caught.value)


def test_foreign_and_truncated_files_are_named() -> None:
    """The error names the file, the place, what was found and what was expected."""
    data = segment()
    size = len(data)
    magic = r"expected b'HFSEG\r\n\x00'"
    assert message(b"") == f"{PATH}, byte 0: not a segment: begins with b'', {magic}. {HINT}"
    assert message(b"PAR1....") == f"{PATH}, byte 0: not a segment: begins with b'PAR1....', {magic}. {HINT}"
    assert message(data[:100]) == (f"{PATH}, byte 0: segment is cut short: 100 bytes, expected at least 128. {HINT}")
    assert message(data[: size - 64] + bytes(64)) == (
        f"{PATH}, byte {size - 64}: segment is cut short or overwritten: "
        rf"ends with b'\x00\x00\x00\x00\x00\x00\x00\x00', expected b'HFSEGEND'. {HINT}"
    )
    assert message(data[:64] + bytes(64) + data[64:]) == (
        f"{PATH}, byte {size}: segment has {size + 64} bytes, its footer says {size}. {HINT}"
    )


def test_newer_version_is_not_called_corruption() -> None:
    """A sound header of a later version asks for an upgrade."""
    data = bytearray(segment())
    struct.pack_into("<H", data, 8, 2)
    struct.pack_into("<I", data, 60, crc32c.crc32c(data[:60]))
    with pytest.raises(NewerVersion) as caught:
        unsealed(data)
    assert str(caught.value) == f"{PATH} is a segment of version 2; this Holdfast reads up to 1: upgrade it"


def test_header_and_footer_of_different_segments() -> None:
    """Two halves of two segments do not pass as one."""
    data = bytearray(segment())
    struct.pack_into("<Q", data, 16, 8)
    struct.pack_into("<I", data, 60, crc32c.crc32c(data[:60]))
    assert "footer is of segment 7, first offset 100, 3 bundles; the header is of segment 8" in message(data)


def test_verify_lists_all_damage() -> None:
    """One damaged part does not hide another; positions are those of the parts."""
    data = bytearray(segment())
    first, second = unsealed(data).streams[:2]
    data[first.position] ^= 1
    data[first.position + first.schema_length] ^= 1
    data[second.position - 1] ^= 1
    found = [(problem.position, problem.what.split(":")[0]) for problem in unsealed(data).verify()]
    assert found == [
        (first.position, "schema of stream 0 fails its checksum"),
        (first.position + first.schema_length, "chunk 0 of stream 0 fails its checksum"),
        (second.position - 1, "padding between parts is not zero"),
    ]


# -- a meta block that is whole, but wrong --------------------------------------------------------------------


def with_meta(meta: bytes) -> bytes:
    """The small segment with another meta block, under right checksums."""
    data = segment()
    (start,) = struct.unpack_from("<Q", data, len(data) - 64)
    body = data[:start] + meta + bytes(-len(meta) % 64)
    fields = struct.pack("<QQIIQQQHH", start, len(meta), crc32c.crc32c(meta), 3, 7, 100, len(body) + 64, 1, 0)
    checksum = crc32c.crc32c(b"HFSEGEND", crc32c.crc32c(fields))
    return body + fields + struct.pack("<I", checksum) + b"HFSEGEND"


def changed(table: str, column: str, row: int, value: int) -> bytes:
    """The small segment with one number of the manifest's pairs or of the chunk table changed."""
    meta = unsealed(segment())._meta
    chunks, manifest = meta.chunks.to_pydict(), meta.manifest.to_pydict()
    if table == "chunks":
        chunks[column][row] = value
    else:
        pairs = [pair for slots in manifest["slots"] for pair in slots]
        pairs[row][column] = value
    representatives = {slot: meta.representative(slot) for slot in meta.directory.representatives}
    return with_meta(
        encode_meta(
            meta.directory.streams,
            [pa.RecordBatch.from_pydict({})] * 2,
            pa.RecordBatch.from_pydict(manifest, schema=MANIFEST),
            pa.RecordBatch.from_pydict(chunks, schema=CHUNKS),
            representatives,
        )
    )


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "text"),
    [
        ("manifest", "stream", 0, 9, "manifest names a stream that is not in the directory"),
        ("manifest", "chunk", 0, 2, "manifest names a chunk that its stream does not have"),
        ("manifest", "chunk", 0, 1, "manifest names a chunk twice"),
        ("chunks", "stream", 0, 1, "chunk table is not in the order of streams"),
        ("chunks", "stream", 2, 2, "chunks 2 to 2 of the chunk table are not those of stream 1"),
        ("chunks", "length", 0, 0, "chunk table has a chunk without bytes"),
        ("chunks", "length", 0, 8, "chunk table has a gap or an overlap inside a stream"),
        ("chunks", "rows", 0, -1, "chunk table has a negative row count"),
        ("chunks", "rows", 0, 2, "stream 0 has 2 rows, its chunks have 3"),
        ("chunks", "length", 2, 1 << 40, "do not lie inside stream 1"),
    ],
)
def test_contradictions_in_the_meta_block(table: str, column: str, row: int, value: int, text: str) -> None:
    """A meta block whose parts contradict each other does not open, though its checksum is right."""
    assert text in message(changed(table, column, row, value))


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("id", 5, "stream 0 has the id 5"),
        ("fingerprint", b"short", "stream 0 has a fingerprint of 5 bytes"),
        ("slot", 9, "slot 9 has no representative schema"),
        ("position", 65, "stream 0 begins at 65, expected a multiple of 64 from 64 on"),
        ("length", 1 << 40, "beyond the meta block's start"),
        ("chunks", 1, "chunk table has 3 chunks, the streams of the directory have 2"),
        ("rows", 7, "stream 0 has 7 rows, its chunks have 2"),
        ("schema_length", 1 << 20, "do not lie inside stream 0"),
    ],
)
def test_contradictions_in_the_directory(field: str, value: object, text: str) -> None:
    """An entry of the directory that does not fit the file does not open."""
    reader = unsealed(segment())
    meta = reader._meta
    first, second = meta.directory.streams
    values = {name: getattr(first, name) for name in StreamEntry.__struct_fields__} | {field: value}
    representatives = {slot: meta.representative(slot) for slot in meta.directory.representatives}
    bounds = [pa.RecordBatch.from_pydict({})] * 2
    block = encode_meta([StreamEntry(**values), second], bounds, meta.manifest, meta.chunks, representatives)
    assert text in message(with_meta(block))


def test_meta_block_that_is_not_one() -> None:
    """Rubbish under a right checksum is corruption, not a crash."""
    assert set(Directory.__struct_fields__) == {"streams", "manifest", "chunks", "representatives"}
    assert "meta block cannot be decoded" in message(with_meta(struct.pack("<Q", 8) + b"[1,2,3] "))
    assert "does not fit a meta block of 8 bytes" in message(with_meta(struct.pack("<Q", 99)))
    assert "meta block cannot be decoded" in message(
        with_meta(struct.pack("<Q", 72) + b'{"streams":[],"manifest":[0,999],"chunks":[0,0],"representatives":{}}   ')
    )
