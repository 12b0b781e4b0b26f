"""Damaged ack logs: what cannot be read is reported and delivered again; never is more final than was written."""

from __future__ import annotations

import struct

import crc32c
import pytest

from acks.ackkit import (
    ACK,
    DROPPED,
    FAILED,
    FOLDER,
    REJECTED,
    SHARD,
    SHARD_ID,
    answer,
    batch,
    batch_id,
    content,
    disk,
    finals,
    offsets,
    open_log,
    path,
    ranges,
    read,
    rotate,
    write,
)
from acks.acklife import facts_in
from holdfast.acks import AckState, Record
from holdfast.acks._encode import _seal, encode_record
from holdfast.acks._found import Found
from holdfast.acks._scan import AckScan
from holdfast.acks.format import BODY, FILE_HEADER_BYTES, FileHeader
from holdfast.errors import NewerVersion
from holdfast.testing import SimulatedFiles, flip_bit


def encoded(*records: Record) -> bytes:
    return b"".join(part for record in records for part in encode_record(record, epoch=1, now_ns=5))


def scan(data: bytes, *, settled: bool = False) -> tuple[AckScan, Found, AckState]:
    """What stands behind a good header."""
    scan, found, state = AckScan(path(0), 0, SHARD_ID), Found(), AckState()
    scan.advance(FileHeader(0, SHARD_ID).encode() + data, found, settled=settled)
    state.apply(found)
    return scan, found, state


ONE, TWO, THREE = (encoded(offsets(1, number)) for number in (1, 2, 3))


def small_log() -> SimulatedFiles:
    """Every kind of record, before and after a rotation."""
    files = disk()
    log = open_log(files)
    log.append([offsets(1, 0, 1, 4), batch(1, (0, 5)), offsets(2, 7, outcome=REJECTED, reason="why"), batch(2, (1, 2))])
    rotate(log)
    log.append([ranges(1, (2, 4), (8, 11), outcome=DROPPED), offsets(1, 20)])
    log.append([answer(1), offsets(1, 6, outcome=FAILED), offsets(2, 0)])
    return files


def test_every_single_bit_flip_is_reported_and_makes_nothing_final() -> None:
    """In the file and in the checkpoint, any one bit: what is left was written, and the damage is told."""
    files = small_log()
    true = facts_in(read(files)[0].state)
    assert len(true) == 3 + 5 + 1 + 2 + 2  # finals of subscriber 1 and 2, and the two batches
    for where in (path(1), SHARD / "acks.checkpoint"):
        for bit in range(8 * files.size(where)):
            flip_bit(files, where, bit)
            log, change = read(files)
            assert facts_in(log.state) <= true, f"{where} bit {bit}"
            assert change.damage, f"{where} bit {bit}"
            flip_bit(files, where, bit)
    assert facts_in(read(files)[0].state) == true


def test_damage_in_the_middle_costs_that_record_alone() -> None:
    """The records before and behind it count, and the report says where it is and how long."""
    for bit in range(8 * len(TWO)):
        damaged = bytearray(TWO)
        damaged[bit // 8] ^= 1 << bit % 8
        _, found, state = scan(ONE + bytes(damaged) + THREE)
        assert sorted(finals(state, 1)) == [1, 3]
        (damage,) = found.damage
        assert (damage.position, damage.length) == (FILE_HEADER_BYTES + len(ONE), len(TWO))


@pytest.mark.parametrize("cut", range(1, 44))
def test_torn_record_at_the_end_is_waited_for(cut: int) -> None:
    """Somebody may be in the middle of writing it: no damage, and when the rest is there it counts."""
    position, found = AckScan(path(0), 0, SHARD_ID), Found()
    whole = FileHeader(0, SHARD_ID).encode() + ONE + TWO
    position.advance(whole[: len(whole) - cut], found, settled=False)
    assert (found.damage, found.records, position.position) == ([], 1, FILE_HEADER_BYTES + len(ONE))
    position.advance(whole[position.position :], found, settled=False)
    assert (found.damage, found.records, position.position) == ([], 2, len(whole))


@pytest.mark.parametrize("cut", range(1, 44))
def test_torn_record_that_nobody_writes_any_more_is_damage(cut: int) -> None:
    """At the end of a settled file it is reported; with whole records behind it, at once."""
    _, found, state = scan(ONE + TWO[: len(TWO) - cut], settled=True)
    assert [(each.position, each.length) for each in found.damage] == [(FILE_HEADER_BYTES + 44, 44 - cut)]
    _, found, state = scan(ONE + TWO[: len(TWO) - cut] + THREE)
    assert sorted(finals(state, 1)) == [1, 3]
    assert [(each.position, each.length) for each in found.damage] == [(FILE_HEADER_BYTES + 44, 44 - cut)]


def test_a_long_torn_record_does_not_hold_up_those_behind_it() -> None:
    """A record that says it is long and is cut off: the short ones behind it count without waiting for its length."""
    long = encoded(offsets(1, *range(100, 10_000)))
    _, found, state = scan(long[:500] + ONE)
    assert sorted(finals(state, 1)) == [1]
    assert len(found.damage) == 1


def test_rubbish_at_the_end_is_told_once() -> None:
    """Bytes that are no record are damage as soon as one follows, and are not searched again each time."""
    position, found = AckScan(path(0), 0, SHARD_ID), Found()
    data = FileHeader(0, SHARD_ID).encode() + ONE + bytes(5000)
    position.advance(data, found, settled=False)
    assert (found.damage, position.position) == ([], len(data) - 3)
    data += TWO
    position.advance(data[position.position :], found, settled=False)
    assert [(each.position, each.length) for each in found.damage] == [(FILE_HEADER_BYTES + 44, 5000)]
    assert (found.records, position.position) == (2, len(data))


def test_no_text_can_look_like_a_record() -> None:
    """A reason or an identity that quotes a record does not become one when its own record is damaged."""
    quoted = encoded(offsets(1, 7)).decode("latin-1")
    data = bytearray(encoded(offsets(1, 1, reason=quoted)))
    data[4] ^= 1
    _, found, state = scan(bytes(data) + TWO)
    assert sorted(finals(state, 1)) == [2]
    assert len(found.damage) == 1


def body(
    kind: int, outcome: int, count: int, entries: bytes, *, text: bytes = b"", text_length: int | None = None
) -> bytes:
    length = len(text) if text_length is None else text_length
    return _seal(BODY.pack(kind, outcome, length, 1, 0, count, 0) + text + entries)


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@pytest.mark.parametrize(
    "record",
    [
        body(9, 1, 1, numbers(1)),
        body(0, 1, 1, numbers(1)),
        body(1, 0, 1, numbers(1)),
        body(1, 6, 1, numbers(1)),
        body(1, 1, 0, b""),
        body(1, 1, 2, numbers(1)),
        body(1, 1, 2**32 - 1, numbers(1)),
        body(1, 1, 1, numbers(2**63)),
        body(1, 1, 1, numbers(1), text_length=600),
        body(2, 1, 1, numbers(5, 5)),
        body(2, 1, 1, numbers(6, 5)),
        body(2, 1, 1, numbers(0, 2**63 + 1)),
        body(2, 4, 1, numbers(5, 6)),
        body(3, 0, 1, b"\xc1"),
        body(3, 0, 1, b"\x92\x93\xa1a\xa1b\xa1c\x91\x92\x05\x05"),
        body(3, 0, 1, b"\x92\x93\xa1a\xa1b\xa0\x90"),
        body(4, 0, 1, b"\x92\x93\xa1a\xa1b\xa1c\xa4fine"),
    ],
)
def test_a_whole_record_that_makes_no_sense_counts_for_nothing(record: bytes) -> None:
    """Its checksum holds and its content does not, or is of a kind not known: passed over, and reported."""
    _, found, state = scan(ONE + record + TWO)
    assert sorted(finals(state, 1)) == [1, 2]
    assert not state.batches
    assert not state.answers
    (damage,) = found.damage
    assert (damage.position, damage.length) == (FILE_HEADER_BYTES + 44, len(record))


def test_damaged_file_header() -> None:
    """It is reported; the records behind it have checksums of their own, and count."""
    files = small_log()
    flip_bit(files, path(1), 8 * 20)
    log, change = read(files)
    (damage,) = change.damage
    assert (damage.position, damage.length) == (0, FILE_HEADER_BYTES)
    assert str(damage).startswith(f"{path(1)}, byte 0: 48 bytes passed over: file header fails its checksum: found 0x")
    assert finals(log.state, 1)[20] is ACK


def test_a_file_of_another_shard_counts_for_nothing() -> None:
    """A whole header that says another shard, or another number, is not ours: reported, and not read."""
    for header in (FileHeader(1, bytes(16)), FileHeader(2, SHARD_ID)):
        files = small_log()
        write(files, path(1), header.encode() + files.read(path(1))[FILE_HEADER_BYTES:])
        log, change = read(files)
        assert finals(log.state, 1) == dict.fromkeys([0, 1, 4], ACK)
        assert "nothing in it counts" in change.damage[0].what


def test_a_later_version_is_refused() -> None:
    """What a later Holdfast wrote is not guessed at: it is an error that says to upgrade, as often as it is read."""
    files = small_log()
    head = bytearray(FileHeader(1, SHARD_ID).encode()[:-4])
    head[8] = 2
    write(files, path(1), bytes(head) + struct.pack("<I", crc32c.crc32c(bytes(head))))
    log = open_log(files)
    for _ in range(2):
        with pytest.raises(NewerVersion, match="version 2; this Holdfast reads up to 1: upgrade it"):
            log.refresh()


def test_missing_file() -> None:
    """A file between the checkpoint and the current one that is gone is reported, and the later ones count."""
    files = small_log()
    write(files, path(4), FileHeader(4, SHARD_ID).encode() + encoded(offsets(1, 30)))
    files.unlink(path(1))
    log, change = read(files)
    assert [damage.what for damage in change.damage] == ["missing: ack file 1 to 3"]
    assert sorted(finals(log.state, 1)) == [0, 1, 4, 30]
    assert log.refresh().damage == ()


def test_missing_current_file() -> None:
    """It is reported once; the next append makes it anew, and is read."""
    files = small_log()
    files.unlink(path(1))
    log, change = read(files)
    assert [damage.what for damage in change.damage] == ["missing: ack file 1"]
    assert log.refresh().damage == ()
    open_log(files).append([offsets(1, 30)])
    log.refresh()
    assert sorted(finals(log.state, 1)) == [0, 1, 4, 30]


def test_files_of_an_old_backup_are_not_appended_to() -> None:
    """Below the checkpoint nothing is read, so nothing is written there: a file that is read is made."""
    files = small_log()
    files.unlink(path(1))
    write(files, path(0), FileHeader(0, SHARD_ID).encode())
    open_log(files).append([offsets(1, 30)])
    assert files.exists(path(1))
    assert sorted(finals(read(files)[0].state, 1)) == [0, 1, 4, 30]


def test_missing_checkpoint() -> None:
    """Files that begin after a checkpoint that is gone: reported, and what they hold counts."""
    files = small_log()
    files.unlink(SHARD / "acks.checkpoint")
    log, change = read(files)
    assert [damage.path for damage in change.damage] == [str(SHARD / "acks.checkpoint")]
    assert finals(log.state, 1) == {2: DROPPED, 3: DROPPED, 8: DROPPED, 9: DROPPED, 10: DROPPED, 20: ACK}


def test_checkpoint_of_another_shard() -> None:
    """It is not ours, and counts for nothing."""
    files, other = small_log(), disk()
    log = open_log(other)
    log.append([ranges(1, (0, 50))])
    rotate(log)
    data = other.read(SHARD / "acks.checkpoint")
    mine = open_log(files)
    mine._shard_id = mine._follower._shard_id = bytes(16)
    write(files, SHARD / "acks.checkpoint", data)
    change = mine.refresh()
    assert "not the ack checkpoint of shard 00000000000000000000000000000000" in change.damage[0].what
    assert not facts_in(mine.state)


def test_damage_is_counted_beyond_a_rotation() -> None:
    """A rotation takes the damaged file away; how much was damaged stays on record."""
    files = small_log()
    flip_bit(files, path(1), 8 * (FILE_HEADER_BYTES + 40))
    log, change = read(files)
    (damage,) = change.damage
    rotate(log)
    assert (log.statistics().damage_count, log.statistics().damage_bytes) == (1, damage.length)
    again, change = read(files)
    assert change.damage == ()
    assert (again.statistics().damage_count, again.statistics().damage_bytes) == (1, damage.length)
    assert content(again.state) == content(log.state)


def test_a_file_that_became_shorter_is_read_again() -> None:
    """Nothing of ours cuts a file: it is reported, and what is there counts."""
    files = disk()
    log = open_log(files)
    log.append([offsets(1, 0), offsets(1, 1)])
    log.refresh()
    write(files, path(0), files.read(path(0))[:-44])
    (damage,) = log.refresh().damage
    assert damage.what == "the file ends here and was 136 bytes long"
    assert finals(log.state, 1) == {0: ACK, 1: ACK}
    assert FOLDER.name in damage.path
    assert batch_id(1) not in log.state.batches
