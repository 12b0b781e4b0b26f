"""The key log on disk: its bytes, and what damage does to it."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import crc32c
import pytest
from structlog.testing import capture_logs

from holdfast.errors import NewerVersion
from holdfast.testing import FakeClock, SimulatedFiles, crash, flip_bit
from store.keykit import TOPIC, Process

KEYS = TOPIC / "keys"
FIRST = KEYS / "0000000000000001.keys"
NOW_NS = 1_700_000_000 * 10**9
NONE = 2**64 - 1


def header(generation: int, follows: int, carried: int, voids: int = 0, version: int = 1) -> bytes:
    """A file header, written out by hand."""
    body = b"HFKEYS\r\n" + struct.pack("<HHIQQQI", version, 0, voids, generation, follows, carried, 0)
    return body + struct.pack("<I", crc32c.crc32c(body))


def record(kind: int, voids: int, *entries: tuple[int, int, int, bytes]) -> bytes:
    """A record, written out by hand: entries of two numbers, a shard and a key."""
    body = b"".join(struct.pack("<QQHH", one, two, shard, len(key)) for one, two, shard, key in entries)
    body += b"".join(key for *_, key in entries)
    checked = struct.pack("<IBBHI", len(body), kind, 0, len(entries), voids) + body
    return b"HFky" + struct.pack("<I", crc32c.crc32c(checked)) + checked


def test_golden_bytes() -> None:
    """Two keys of two processes, one of which is lost; then a shard that was recovered."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock, switch_bytes=10**6), Process(files, 1, clock, switch_bytes=10**6)
    first.append(b"one")
    second.append(b"two")
    second.fail(written=False)
    first.kill()
    Process(files, 0, clock)
    expected = [
        header(1, 0, 48),
        record(1, 0, (NONE, NOW_NS, 0, b"one")),
        record(1, 0, (0, NOW_NS, 0, b"one")),
        record(1, 0, (NONE, NOW_NS, 1, b"two")),
        record(1, 0, (0, NOW_NS, 1, b"two")),
        record(2, 0, (0, 1, 1, b"")),
        record(2, 0, (0, 1, 1, b"")),
        record(3, 1, (0, 0, 0, b"")),
        record(3, 1, (0, 0, 0, b"")),
    ]
    assert files.read(FIRST) == b"".join(expected)
    assert expected[0].hex() == (
        "48464b4559530d0a010000000000000001000000000000000000000000000000300000000000000000000000834d898a"
    )
    assert expected[2].hex() == (
        "48466b790c8cd078"  # magic, checksum
        "1700000001000100" "00000000"  # length, kind, count, voids
        "0000000000000000" "00002a36fe9c9717" "0000" "0300" "6f6e65"  # offset, time, shard, length, key
    )  # fmt: skip


def test_golden_bytes_of_a_switch() -> None:
    """What is carried over: lost ranges, then keys, then what comes after."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock, switch_bytes=10**6)
    process.append(b"gone")
    process.fail(written=False)
    process.append(b"kept")
    size = files.size(FIRST)
    process.keys._log._switch_bytes = 1
    process.append(b"more")
    carried = record(2, 0, (0, 1, 0, b"")) + record(1, 1, (1, NOW_NS, 0, b"kept"))
    assert files.list(KEYS) == ["0000000000000002.keys", "LOCK", "OPENING"]
    assert files.read(KEYS / "0000000000000002.keys") == (
        header(2, size, 48 + len(carried), 1)
        + carried
        + record(1, 1, (NONE, NOW_NS, 0, b"more"))
        + record(1, 1, (2, NOW_NS, 0, b"more"))
    )


def test_a_newer_version_is_refused() -> None:
    """The file names itself, and the error says what to do."""
    files = SimulatedFiles()
    files.make_folder(KEYS)
    file = files.create(FIRST)
    file.append([header(1, 0, 48, version=2)])
    with pytest.raises(NewerVersion, match=r"0000000000000001\.keys is a key log of version 2; .* up to 1: upgrade it"):
        Process(files, 0, FakeClock())


def a_life() -> SimulatedFiles:
    """Keys `a` to `d`: `a` and `b` sealed, `c` failed, `d` sealed after it; the process closed."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock, switch_bytes=10**6)
    for key in (b"a", b"b"):
        process.append(key)
    process.commit()
    process.append(b"c")
    process.fail(written=False)
    process.append(b"d")
    process.commit()
    process.seal()
    process.kill()
    return files


def test_every_flipped_byte() -> None:
    """A key may be forgotten, and is reported then; none that failed is ever taken for stored; all goes on."""
    original = a_life()
    for position in range(original.size(FIRST)):
        files = original.kill()
        flip_bit(files, FIRST, position * 8 + position % 8)
        with capture_logs() as logs:
            process = Process(files, 1, FakeClock())
            known = {key: process.append(key)[1] for key in (b"a", b"b", b"c", b"d")}
        assert not known[b"c"], f"byte {position}: a failed append was taken for stored"
        assert sum(known.values()) >= 2, f"byte {position}: a flipped bit cost more than the record it is in"
        assert [each["event"] for each in logs] == ["key log is damaged; its keys may be appended twice"]
        assert all(process.append(key)[1] for key in known)
        assert [name for name in files.list(KEYS) if name.endswith(".damaged")] == [FIRST.name + ".damaged"]


def test_a_destroyed_void_costs_all_keys_before_it() -> None:
    """Both copies of a void are gone: what it voided cannot be told from the rest, so all of it is appended again."""
    files = a_life()
    data = files.read(FIRST)
    void = record(2, 0, (2, 3, 0, b""))
    start = data.index(void)
    file = files.open(FIRST)
    file.write_at(start, bytes(2 * len(void)))
    with capture_logs() as logs:
        process = Process(files, 1, FakeClock())
        known = {key: process.append(key)[1] for key in (b"a", b"b", b"c", b"d")}
    assert known == {b"a": False, b"b": False, b"c": False, b"d": True}
    assert [each["event"] for each in logs] == [
        "key log is damaged; its keys may be appended twice",
        "key log lost a void; all keys before it are forgotten",
    ]


def test_only_the_newest_damaged_file_is_kept() -> None:
    """Damage twice leaves one copy, of the second."""
    files = a_life()
    for number, name in ((1, FIRST.name), (2, "0000000000000002.keys")):
        flip_bit(files, KEYS / name, 8 * 60)
        Process(files, number, FakeClock()).append(b"new %d" % number)
        assert [each for each in files.list(KEYS) if each.endswith(".damaged")] == [name + ".damaged"]


def test_torn_last_record() -> None:
    """A write that a crash cut short is no key: what comes before counts, and the next writer leaves the file."""
    whole = a_life()
    data = whole.read(FIRST)
    last = data.rindex(b"HFky")
    for end in range(last + 1, len(data)):
        files = whole.kill()
        files.open(FIRST).truncate(end)
        process = Process(files, 1, FakeClock())
        # The key is in the record before, without its offset: only its shard knows, and that is asked.
        assert [process.append(key)[1] for key in (b"a", b"b", b"c")] == [True, True, False]
        assert files.list(KEYS)[0] == "0000000000000001.keys.damaged"


def test_a_switch_that_was_not_finished_is_done_again() -> None:
    """An older generation beside the newest means that its name may not be durable: the next writer makes another."""
    files, clock = SimulatedFiles(), FakeClock()
    process, other = Process(files, 0, clock), Process(files, 1, clock)
    process.append(b"before")
    process.keys._log._switch_bytes = 1
    files.fail("sync_folder", errno.EIO, path="*/keys")
    with pytest.raises(OSError, match="Input/output error"):
        process.append(b"refused")
    assert [name for name in files.list(KEYS) if name.endswith(".keys")] == [FIRST.name, "0000000000000002.keys"]
    assert other.append(b"before")[1] is True
    assert other.append(b"refused")[1] is False
    assert [name for name in files.list(KEYS) if name.endswith(".keys")] == ["0000000000000003.keys"]
    assert process.append(b"refused")[1] is True


def test_a_switch_of_a_process_that_was_killed_in_it() -> None:
    """It had renamed the new generation, and not unlinked the old one: nobody goes on writing into the old one."""
    files, clock = SimulatedFiles(), FakeClock()
    process, killed = Process(files, 0, clock), Process(files, 1, clock, switch_bytes=1)
    process.append(b"before")

    class Killed(BaseException):
        pass

    def before(operation: str, path: Path) -> None:
        if operation == "unlink" and path == FIRST:
            raise Killed

    files.before = before
    with pytest.raises(Killed):
        killed.append(b"never")
    files.before = None
    killed.kill()
    process.append(b"after")
    third = Process(files, 2, clock)
    assert [third.append(key)[1] for key in (b"before", b"after", b"never")] == [True, True, False]


def test_keys_that_a_failed_switch_carried_over_are_made_durable() -> None:
    """Another process's new generation shows them, but its name is not durable: sealing does not rely on it."""
    files, clock = SimulatedFiles(), FakeClock()
    process, other = Process(files, 0, clock), Process(files, 1, clock, switch_bytes=1)
    process.append(b"key")
    process.commit()
    files.fail("sync_folder", errno.EIO, path="*/keys")
    with pytest.raises(OSError, match="Input/output error"):
        other.append(b"refused")
    assert process.append(b"key")[1] is True
    process.seal()
    assert Process(crash(files), 2, clock).append(b"key")[1] is True


def test_what_is_left_of_a_failed_write() -> None:
    """It could not even be taken back: it is read as damage, once, and the file is left for another."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock)
    process.append(b"before")
    files.fail("append", errno.ENOSPC, path="*.keys", short=200)
    files.fail("truncate", errno.EIO, path="*.keys")
    with pytest.raises(OSError, match="No space"):
        process.append(b"long" * 64)
    with capture_logs() as logs:
        process.append(b"after")
        other = Process(files, 1, clock)
        assert [other.append(key)[1] for key in (b"before", b"after", b"long" * 64)] == [True, True, False]
    assert [each["event"] for each in logs] == ["key log is damaged; its keys may be appended twice"]
    assert process.keys.statistics().damaged_bytes == 200


def test_a_failed_sync_makes_it_leave_the_file() -> None:
    """No later sync of that file is believed: what it holds is written into another one."""
    files = SimulatedFiles()
    process = Process(files, 0, FakeClock())
    process.append(b"key")
    files.fail("sync", errno.EIO, path="*.keys")
    with pytest.raises(OSError, match="Input/output error"):
        process.keys.before_seal()
    process.keys.before_seal()
    assert [name for name in files.list(KEYS) if name.endswith(".keys")] == ["0000000000000002.keys"]


def test_who_knows_all_does_not_read_it_again() -> None:
    """After another process has switched, only what came after the carried part is read."""
    files, clock = SimulatedFiles(), FakeClock()
    process, other = Process(files, 0, clock, switch_bytes=10**6), Process(files, 1, clock, switch_bytes=1)
    for number in range(50):
        process.append(b"%d" % number)
    other.append(b"49")
    other.keys._log.sync()
    process.append(b"49")
    other.append(b"switches")
    carried = files.size(KEYS / "0000000000000002.keys")
    read = files.read
    sizes = []

    def counted(path: Path, start: int = 0, length: int | None = None) -> bytes:
        data = read(path, start, length)
        sizes.append(len(data))
        return data

    files.read = counted  # type: ignore[method-assign]
    assert process.append(b"switches")[1] is True
    assert sum(sizes) < carried / 4
