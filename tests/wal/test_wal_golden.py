"""The bytes of the WAL and the tail, pinned: a change of format is seen here first.

What Arrow writes is left out, for it may change with Arrow; `golden_wal.txt` is a whole file that must stay readable.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa

from holdfast.encoded import EncodedBundle, EncodedSlot, PayloadKind
from holdfast.testing import SimulatedFiles
from holdfast.wal import FileHeader, Tail, TailFile, WalName, encode_bundle, read_tail
from holdfast.wal._encode import encode_schema
from wal.walkit import FOLDER, SHARD_ID, assert_same, bundle, disk, offsets, replace, replayed, scan

GOLDEN = Path(__file__).with_name("golden_wal.txt")


def test_file_header() -> None:
    """Eighty bytes, field by field."""
    header = FileHeader(0x0A46B6FD, SHARD_ID, 7, 5, 3, 4, 1_700_000_000_000_000_000)
    assert header.encode().hex(" ", 8) == (
        "484657414c0d0a00 "  # magic
        "01000000fdb6460a "  # version, 0, salt
        "0001020304050607 08090a0b0c0d0e0f "  # shard id
        "0700000000000000 "  # generation
        "0500000000000000 "  # first offset
        "0300000000000000 "  # next segment_seq
        "0400000000000000 "  # supersedes
        "00002a36fe9c9717 "  # created
        "000000006c7086f7"  # 0, checksum
    )


def test_bundle_record() -> None:
    """The header of a bundle with two slots, attributes and an event time."""
    slots = (
        EncodedSlot(0, b"f" * 16, PayloadKind.MESSAGE, 3, 0x11223344, pa.py_buffer(bytes(16))),
        EncodedSlot(258, b"g" * 16, PayloadKind.STREAM, 2**40, 0x55667788, pa.py_buffer(bytes(24))),
    )
    encoded = EncodedBundle(9, 2, 6, 1_700_000_000_000_000_000, (-1, 7), b"\x81\xa1a\x01\xc0", slots, 40)
    assert encode_bundle(encoded, salt=0x0A46B6FD, position=80, synced=8).hex(" ", 8) == (
        "48467262fdb6460a "  # magic, salt
        "55527958b0000000 "  # checksum, header length
        "0200010028000000 "  # slots, flags, payload length
        "5000000000000000 "  # position
        "0900000000000000 "  # offset
        "0800000000000000 "  # synced
        "0200000000000000 "  # segment_seq
        "0600000005000000 "  # bundle_index, length of the attributes
        "00002a36fe9c9717 "  # ingestion time
        "ffffffffffffffff 0700000000000000 "  # event time
        "0000000044332211 0300000000000000 1000000000000000 6666666666666666 6666666666666666 "
        "0201010088776655 0000000000010000 1800000000000000 6767676767676767 6767676767676767 "
        "81a16101c0000000"  # attributes, zeros
    )


def test_schema_record() -> None:
    """The header of a schema record."""
    header = encode_schema(b"f" * 16, pa.py_buffer(bytes(8)), salt=0x0A46B6FD, position=328, offset=9, synced=8)
    assert header.hex(" ", 8) == (
        "48467273fdb6460a "  # magic, salt
        "fc4e6cad48000000 "  # checksum, header length
        "0000000008000000 "  # 0, 0, payload length
        "4801000000000000 "  # position
        "0900000000000000 "  # offset of the next bundle
        "0800000000000000 "  # synced
        "6666666666666666 6666666666666666 "  # fingerprint
        "8ab2288c00000000"  # checksum of the payload, 0
    )


def test_names() -> None:
    """The name says first offset and generation."""
    assert str(WalName(7, 5)) == "00000000000000000005-0000000007.wal"


def test_tail_file() -> None:
    """Two slots of 64 bytes; the one with the odd turn is the second."""
    files = SimulatedFiles()
    tail = TailFile(files, Path("/tail"), Tail(3, 2, 1, 10))
    tail.write(4, 3, 2)
    tail.close()
    assert files.read(Path("/tail")).hex(" ", 8) == (
        "48465441494c0d0a 0100000000000000 0c00000000000000 0300000000000000 "
        "0200000000000000 0100000000000000 0000000000000000 00000000fdb1e050 "
        "48465441494c0d0a 0100000000000000 0d00000000000000 0400000000000000 "
        "0300000000000000 0200000000000000 0000000000000000 0000000005240750"
    )
    assert read_tail(files, Path("/tail")) == Tail(4, 3, 2, 13)


def test_golden_file_stays_readable() -> None:
    """A file as it was first written, two bundles with a dictionary among them, comes back whole."""
    data = base64.b64decode(GOLDEN.read_text())
    result, found = scan(data)
    assert result.end is not None
    assert (result.end.bad, result.position) == (None, len(data))
    rows = pa.record_batch({"id": [1, 2, 3], "text": ["a", None, "c"]})
    kinds = pa.record_batch({"kind": pa.array(["x", "y", "x"]).dictionary_encode()})
    expected = [
        bundle(5, slots={0: rows, 2: kinds}, seq=3),
        bundle(6, slots={0: pa.record_batch({"id": [4], "text": ["d"]})}, seq=3),
    ]
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, payload_bytes=False)
    files = disk()
    path = FOLDER / "00000000000000000005-0000000007.wal"
    file = files.create(path)
    file.close()
    replace(files, path, data)
    assert offsets(replayed(files, start=5)) == [5, 6]
