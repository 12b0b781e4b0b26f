"""Records: what is written comes back, and what is not whole is never taken for a record."""

from __future__ import annotations

import struct

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrow_strategies as arrows
from holdfast.encoded import EncodedBundle
from holdfast.errors import Corruption, NewerVersion
from holdfast.wal import FileHeader, ScanEnd, WalName, WalScan
from wal.walkit import (
    FOLDER,
    SHARD_ID,
    assert_same,
    bundle,
    disk,
    new_log,
    offsets,
    only,
    record,
    salt_of,
    scan,
    write,
    written,
)


@settings(max_examples=40, deadline=None)
@given(batches=st.lists(arrows.batches(), min_size=1, max_size=4), event=st.none() | st.integers(-(2**63), 2**63 - 1))
def test_any_arrow_batch_comes_back(batches: list[pa.RecordBatch], event: int | None) -> None:
    """Bundles of every Arrow type come back from the file with all their fields, bytes and schema metadata."""
    files = disk()
    log = new_log(files)
    stored = []
    for offset, each in enumerate(batches):
        encoded = bundle(offset, slots={offset * 7: each, 60_000: batches[0]})
        encoded.event_time = None if event is None else (event, event)
        stored.append(encoded)
    log.write(stored, 0)
    result, found = scan(written(files))
    assert result.end is not None
    assert result.end.bad is None
    assert len(found) == len(stored)
    for one, other in zip(found, stored, strict=True):
        assert_same(one, other)


def test_torn_at_every_byte() -> None:
    """Wherever the file is cut, exactly the bundles that are whole come back, and a record that began is bad."""
    files = disk()
    log = new_log(files)
    ends = []
    for offset in range(3):
        log.write([bundle(offset, width=30 * offset)], 0)
        ends.append(len(written(files)))
    data = written(files)
    for cut in range(80, len(data) + 1):
        result, found = scan(data[:cut])
        assert offsets(found) == [offset for offset, end in enumerate(ends) if end <= cut]
        assert result.end is not None
        assert result.offset == result.end.offset == len(found)
        begun = cut - result.position >= 8  # magic and salt: enough to say that it is a record of this file
        assert (result.end.bad is not None) == begun, cut


@pytest.mark.parametrize("rest", [bytes(1), bytes(70_000), b"\xff" * 333, b"HFrb" + bytes(500)])
def test_whatever_is_not_of_this_file_ends_it(rest: bytes) -> None:
    """Room that was reserved, or what a file that is written over held before, is a clean end."""
    files = disk()
    write(files, range(2))
    data = written(files)
    result, found = scan(data + rest)
    assert offsets(found) == [0, 1]
    assert result.end == ScanEnd(len(data), 2)
    result.look_beyond(pa.py_buffer(data + rest))
    assert result.end == ScanEnd(len(data), 2)


def test_records_of_the_file_that_is_written_over() -> None:
    """Behind the last record of a recycled file, whole records of its former life do not count."""
    former = disk()
    write(former, range(100, 110), generation=3)
    files = disk()
    write(files, range(2), generation=4)
    short, long = written(files), written(former)
    data = short + long[len(short) :]
    result, found = scan(data)
    assert offsets(found) == [0, 1]
    result.look_beyond(pa.py_buffer(data))
    assert result.end == ScanEnd(len(short), 2)
    assert (result.synced, result.highest_offset) == (1, 1)


def test_begin_of_a_record_flipped_while_others_follow() -> None:
    """A record whose first bytes are damaged looks like the end, until one sees that others follow."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0)], 0)
    at = len(written(files))
    for offset in (1, 2):
        log.write([bundle(offset)], offset)
    for bit in range(64):
        data = bytearray(written(files))
        data[at + bit // 8] ^= 1 << bit % 8
        result, found = scan(bytes(data))
        assert offsets(found) == [0]
        result.look_beyond(pa.py_buffer(bytes(data)))
        assert result.end is not None
        assert result.end.bad == "no record begins here, yet others follow"
        assert (result.synced, result.highest_offset) == (2, 2)


def test_header_whole_but_payload_cut() -> None:
    """A record whose header is there and whose payload is not is bad, and its offset counts as given out."""
    files = disk()
    write(files, range(2))
    data = written(files)
    result, found = scan(data[:-8])
    assert offsets(found) == [0]
    assert result.end is not None
    assert result.end.bad == "the file ends 8 bytes before the record of offset 1 does"
    assert result.highest_offset == 1


def test_payload_of_zeros_where_the_length_reached_the_disk_and_the_bytes_did_not() -> None:
    """A payload that is zeros fails its checksum, and says which offset and slot it was."""
    files = disk()
    write(files, range(2))
    data = bytearray(written(files))
    size = bundle(1).size
    data[-size:] = bytes(size)
    result, found = scan(bytes(data))
    assert offsets(found) == [0]
    assert result.end is not None
    assert result.end.bad is not None
    assert result.end.bad.startswith("payload of offset 1, slot 0, fails its checksum: found 0x")
    assert result.highest_offset == 1


def test_look_beyond_finds_the_marks_of_later_records() -> None:
    """Behind a bad record, whole headers still say what was durable and which offsets were given out."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0)], 0)
    end = len(written(files))
    for offset in range(1, 5):
        log.write([bundle(offset)], offset)
    data = bytearray(written(files))
    data[end - 1] ^= 1  # the last byte of the first bundle's payload
    result, found = scan(bytes(data))
    assert found == []
    assert (result.synced, result.highest_offset) == (0, 0)
    result.look_beyond(pa.py_buffer(bytes(data)))
    assert (result.synced, result.highest_offset) == (4, 4)


def test_payload_that_is_a_whole_wal_file_of_this_shard() -> None:
    """A WAL file stored as somebody's payload is never taken for records, not even behind a bad one."""
    inner = disk()
    write(inner, range(100, 120))
    blob = written(inner)
    files = disk()
    log = new_log(files, generation=1)
    carrier = pa.record_batch({"blob": pa.array([blob], pa.large_binary())})
    log.write([bundle(0, slots={0: carrier})], 0)
    data = written(files)
    assert blob in data
    result, found = scan(data)
    assert offsets(found) == [0]
    damaged = bytearray(data)
    damaged[80] ^= 1
    result, found = scan(bytes(damaged))
    assert found == []
    result.look_beyond(pa.py_buffer(bytes(damaged)))
    assert (result.synced, result.highest_offset) == (0, 0)


def test_payload_that_holds_a_record_with_this_files_salt() -> None:
    """A record with the right salt and checksum does not count where it does not belong."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0)], 0)
    salt = salt_of(files, only(files))
    inner = record(bundle(999), salt=salt, position=80, synced=999)
    log.write([bundle(1, slots={0: pa.record_batch({"blob": pa.array([inner], pa.binary())})})], 1)
    data = bytearray(written(files))
    assert inner in data
    data[-1] ^= 1  # so that the record which carries it is bad
    result, found = scan(bytes(data))
    assert offsets(found) == [0]
    result.look_beyond(pa.py_buffer(bytes(data)))
    assert (result.synced, result.highest_offset) == (1, 1)


def _with(extra: EncodedBundle, *, salt: int = 0, position: int = 0) -> tuple[WalScan, list[EncodedBundle], int]:
    """A file of bundle 0 and one more record, its salt and position wrong by so much."""
    files = disk()
    write(files, range(1))
    data = written(files)
    right = salt_of(files, only(files))
    data += record(extra, salt=right ^ salt, position=len(data) + position, synced=1)
    result, found = scan(data)
    return result, found, len(written(files))


def test_record_at_a_wrong_position() -> None:
    """A record that was written to another place of its file is not taken."""
    result, found, size = _with(bundle(1), position=8)
    assert offsets(found) == [0]
    assert result.end == ScanEnd(size, 1, f"a record that belongs at byte {size + 8}")


def test_record_with_another_files_salt() -> None:
    """What a disk block held before does not pass for a record, and is no damage either."""
    result, found, size = _with(bundle(1), salt=1)
    assert offsets(found) == [0]
    assert result.end == ScanEnd(size, 1)


def test_offset_out_of_turn() -> None:
    """Within a file offsets rise by one."""
    result, found, size = _with(bundle(2))
    assert offsets(found) == [0]
    assert result.end == ScanEnd(size, 1, "offset 2 where 1 should be")


def test_bundle_whose_schema_is_not_in_the_file() -> None:
    """A bundle can be read only if its schema stands before it."""
    other = bundle(1, slots={0: pa.record_batch({"another": [1]})})
    result, found, size = _with(other)
    assert offsets(found) == [0]
    what = f"offset 1 needs schema {other.slots[0].fingerprint.hex()}, which no record before it holds"
    assert result.end == ScanEnd(size, 1, what)


def test_scan_goes_on_as_the_file_grows() -> None:
    """A follower scans only what is new, and stops at the offset it was told."""
    files = disk()
    log = write(files, range(3))
    data = pa.py_buffer(written(files))
    follower = WalScan(only(files), FileHeader.decode(data, only(files)))
    assert offsets(follower.advance(data, 2)) == [0, 1]
    assert follower.end is None
    assert offsets(follower.advance(data)) == [2]
    assert follower.end is not None
    log.write([bundle(3)], 3)
    grown = pa.py_buffer(written(files))
    assert offsets(follower.advance(grown, 10)) == [3]


def test_file_header_comes_back() -> None:
    """Every field of a header survives encoding."""
    header = FileHeader(2**32 - 1, SHARD_ID, 2**63, 7, 8, 5, -1)
    assert FileHeader.decode(header.encode(), FOLDER) == header


@pytest.mark.parametrize("size", [0, 1, 79])
def test_file_that_ends_within_its_header(size: int) -> None:
    """A header that is cut is told with how much of it there is."""
    data = FileHeader(1, SHARD_ID, 0, 0, 0, 0, 0).encode()[:size]
    with pytest.raises(Corruption, match="the file ends within its 80-byte header") as caught:
        FileHeader.decode(data, FOLDER / "a.wal")
    assert (caught.value.position, caught.value.path) == (size, str(FOLDER / "a.wal"))


def test_every_flipped_bit_of_a_file_header_is_seen() -> None:
    """No bit of the 80 bytes may be wrong."""
    data = FileHeader(1, SHARD_ID, 2, 3, 4, 3, 5).encode()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corruption):
            FileHeader.decode(bytes(damaged), FOLDER)


def test_newer_version_is_not_called_damage() -> None:
    """A file of a later Holdfast, its checksum right, asks for an upgrade."""
    body = bytearray(FileHeader(1, SHARD_ID, 0, 0, 0, 0, 0).encode()[:-4])
    struct.pack_into("<H", body, 8, 2)
    data = bytes(body) + struct.pack("<I", crc32c.crc32c(bytes(body)))
    with pytest.raises(NewerVersion) as caught:
        FileHeader.decode(data, FOLDER / "a.wal")
    assert str(caught.value) == "/shard/wal/a.wal is a WAL of version 2; this Holdfast reads up to 1: upgrade it"


def test_names() -> None:
    """Names carry first offset and generation, sort by generation, and nothing else is taken for one."""
    name = WalName(7, 42)
    assert str(name) == "00000000000000000042-0000000007.wal"
    assert WalName.parse(str(name)) == name
    assert sorted([WalName(2, 1), WalName(1, 9)]) == [WalName(1, 9), WalName(2, 1)]
    for other in ("42-7.wal", str(name) + ".tmp", "x" + str(name), "00000000000000000042.wal"):
        assert WalName.parse(other) is None
