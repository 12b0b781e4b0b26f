"""The bytes of the ack log, pinned: a change of format is seen here first."""

from __future__ import annotations

import re

import numpy as np

import holdfast.acks
from acks.ackkit import (
    DROPPED,
    FAILED,
    FOLDER,
    NACK,
    SHARD,
    SHARD_ID,
    answer,
    batch,
    content,
    disk,
    offsets,
    open_log,
    path,
    ranges,
    read,
    rotate,
    write,
)
from holdfast.acks import BatchStatus, Record
from holdfast.acks._encode import encode_record
from holdfast.acks._packed import unpack
from holdfast.acks.format import FileHeader

NOW_NS = 1_700_000_000_000_000_000
HEADER = "484641434b0d0a00 0100000000000000 0300000000000000 0001020304050607 08090a0b0c0d0e0f 00000000b9a9e115"
OFFSET = "f5484661 65cb7f4520000000 0101000007000000 0200000001000000 00002a36fe9c9717 0500000000000000"
CHECKPOINT = (
    b"HFCKPT\r\n\x01\x00\x00\x00P\x01\x00\x00\x19\xe6\x18+"
    b'{"answers":[["source","run","2","delivered"]],"batches":[["source","run","1",[[4,6]]]],"damage":[0,0],'
    b'"kind":"acks","progress":{"1":{"dropped":"","final":"","noted":[[7,1,0]],"rejected":"","watermark":4},'
    b'"2":{"dropped":"","final":"","noted":[],"rejected":"","watermark":2}},"replay_from":1,'
    b'"shard_id":"000102030405060708090a0b0c0d0e0f"}'
)


def encoded(record: Record) -> str:
    (data,) = encode_record(record, epoch=2, now_ns=NOW_NS)
    return data.hex(" ", 8)


def test_file_header() -> None:
    """Magic, version, file number, shard id, checksum."""
    assert FileHeader(3, SHARD_ID).encode().hex(" ", 8) == HEADER


def test_record_of_one_offset() -> None:
    """The shortest record, which is also the worked example of the package's page."""
    assert encoded(offsets(7, 5)) == OFFSET
    drawn = re.findall(r"^ {4}((?:[0-9a-f]{2} {1,2}){8,})", holdfast.acks.__doc__ or "", re.MULTILINE)
    assert "".join(drawn).replace(" ", "") == OFFSET.replace(" ", "")


def test_record_of_offsets_with_a_reason() -> None:
    """The reason stands in UTF-8 before the offsets, which keep their order."""
    assert encoded(offsets(7, 9, 4, outcome=FAILED, reason="no löck")) == (
        "f5484661 1a5a64bf30000000 0105080007000000 0200000002000000 00002a36fe9c9717 "
        "6e6f206cc3b6636b 0900000000000000 0400000000000000"
    )


def test_record_of_ranges() -> None:
    """Each range is its first offset and its end."""
    assert encoded(ranges(7, (4, 6), (9, 10), outcome=DROPPED)) == (
        "f5484661 2f5762a638000000 0203000007000000 0200000002000000 00002a36fe9c9717 "
        "0400000000000000 0600000000000000 0900000000000000 0a00000000000000"
    )


def test_record_of_a_batch() -> None:
    """Identity and ranges, in MessagePack."""
    (data,) = encode_record(batch(1, (4, 6), (9, 10)), epoch=2, now_ns=NOW_NS)
    assert data.hex(" ", 8) == (
        "f548 4661822fed0b2e00 0000030000000000 0000020000000100 000000002a36fe9c 97179293a6736f75 726365a372756ea1 "
        "319292040692090a"
    )


def test_record_of_an_answer() -> None:
    """Identity and status, in MessagePack."""
    assert encoded(answer(1, BatchStatus.REJECTED)) == (
        "f5484661 abf98d8830000000 0400000000000000 0200000001000000 00002a36fe9c9717 "
        "9293a6736f757263 65a372756ea131a8 72656a6563746564"
    )


def test_checkpoint_and_names() -> None:
    """A rotation leaves one empty file, the lock and this checkpoint."""
    files = disk()
    log = open_log(files)
    log.append([ranges(1, (0, 4)), ranges(2, (0, 2)), offsets(1, 7, outcome=NACK), batch(1, (4, 6)), answer(2)])
    rotate(log)
    assert files.list(FOLDER) == ["0000000000000001.acks", "LOCK"]
    assert files.read(SHARD / "acks.checkpoint") == CHECKPOINT


def test_packed_numbers_stay_readable() -> None:
    """Numbers packed by whichever version of zlib come back."""
    assert unpack("eAFjYmVgZFBjZGQAAADmADE=").tolist() == [5, 6, 300, 301]
    assert unpack("").tolist() == []
    assert unpack("").dtype == np.uint64


def test_golden_files_stay_readable() -> None:
    """A checkpoint and a file as they were first written come back whole."""
    files = disk()
    log = open_log(files)
    log.append([ranges(1, (0, 4)), ranges(2, (0, 2)), offsets(1, 7, outcome=NACK), batch(1, (4, 6)), answer(2)])
    expected = read(files)[0].state
    written = disk()
    write(written, SHARD / "acks.checkpoint", CHECKPOINT)
    write(written, path(1), FileHeader(1, SHARD_ID).encode() + bytes.fromhex(OFFSET))
    found, change = read(written)
    assert change.damage == ()
    assert found.state.progress.pop(7).is_final(5)
    assert content(found.state) == content(expected)
