"""Processes that share a topic's keys: a real `KeyIndex` each, and a shard small enough to be obviously right.

The shard keeps the order of events that the real one keeps, on the same disk, so that crashes hit both:

    log          bundles, appended by `commit` and synced; frames of 64 bytes under a checksum
    state        a checkpoint: what was sealed, what was lost, the next offset
    tail         what other processes may rely on; never synced
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import crc32c

from holdfast.clock import Clock
from holdfast.config import IdempotencySettings
from holdfast.durability import Durability
from holdfast.errors import Backpressure, DiskFull
from holdfast.files import Files, Lock, LockHeld, replace_file
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.store._receipt import Group, Receipt
from holdfast.store.keys import KeyIndex, ReplayedKey

TOPIC = Path("/topic")
FRAME = struct.Struct("<IQQQ36s")
TAIL = struct.Struct("<QI")
SMALL = 600  # bytes after which the key log switches generations


class Stored(NamedTuple):
    """A bundle: its place, its key, and a serial number that tells two with the same key apart."""

    offset: int
    key: bytes
    serial: int
    time_ns: int

    def encode(self) -> bytes:
        data = FRAME.pack(0, self.offset, self.serial, self.time_ns, self.key)
        return struct.pack("<I", crc32c.crc32c(data[4:])) + data[4:]


def decode_frames(data: bytes) -> list[Stored]:
    """The whole frames up to the first that is not; offsets rise."""
    found: list[Stored] = []
    for start in range(0, len(data) - FRAME.size + 1, FRAME.size):
        checksum, offset, serial, time_ns, key = FRAME.unpack_from(data, start)
        if crc32c.crc32c(data[start + 4 : start + FRAME.size]) != checksum:
            break
        found.append(Stored(offset, key.rstrip(b"\0"), serial, time_ns))
    return found


class NoLeader:
    """Receipts here are resolved by `Process.commit` alone."""

    def lead(self, group: Group) -> None: ...

    def nudge(self) -> None: ...


class Process:
    """One process: its shard and its end of the keys."""

    def __init__(
        self,
        files: Files,
        number: int,
        clock: Clock,
        *,
        topic: Path = TOPIC,
        switch_bytes: int = SMALL,
        window: float = 1000.0,
        max_keys: int = 10_000,
    ) -> None:
        self.files, self.number, self.clock, self.topic = files, number, clock, topic
        settings = IdempotencySettings(window=window, max_keys=max_keys)
        self.keys = KeyIndex(files, topic, clock, settings, self, switch_bytes=switch_bytes)
        self.pending: list[tuple[Stored, Group]] = []
        self.enqueued: list[Stored] = []
        self.room = True
        files.make_folder(topic)
        self.dirty = False
        with self.keys.opening():
            self.lock = self._open(number)
        try:
            self.next_offset, self.lost = self._state()
        except BaseException:
            self.lock.release()
            raise

    # -- what the index asks for --------------------------------------------------------------------------------

    def numbers(self) -> Iterable[int]:
        return [int(name[6:]) for name in self.files.list(self.topic) if name.startswith("shard-")]

    def durable(self, shard: int) -> int:
        path = self._folder(shard) / "tail"
        data = self.files.read(path) if self.files.exists(path) else b""
        if len(data) != TAIL.size:
            return 0
        value, checksum = TAIL.unpack(data)
        return value if crc32c.crc32c(data[:8]) == checksum else 0

    def attend(self, shard: int) -> bool:
        with self.keys.opening():
            try:
                self._open(shard).release()
            except LockHeld:
                return False
        return True

    # -- append, commit, fail, seal -----------------------------------------------------------------------------

    def append(self, key: bytes, serial: int = 0, level: Durability = Durability.FSYNC) -> tuple[Receipt, bool]:
        return self.keys.append(
            key,
            self.number,
            lambda: self._enqueue(key, serial),
            wait_for_room=self._wait_for_room,
            level=level,
        )

    def _enqueue(self, key: bytes, serial: int) -> Receipt:
        if not self.room:
            raise Backpressure("no room")
        stored = Stored(self.next_offset, key, serial, self.clock.now_ns())
        self.next_offset += 1
        group = Group()
        self.pending.append((stored, group))
        self.enqueued.append(stored)
        return Receipt(stored.offset, self.number, Durability.FSYNC, group, NoLeader())

    def _wait_for_room(self) -> None:
        raise Backpressure("still no room")

    def write(self) -> None:
        """Put what is pending into the log, unsynced."""
        if self.dirty:
            self._write_state(self._sealed(self.number))
        data = b"".join(stored.encode() for stored, _ in self.pending)
        file = self.files.open(self._folder(self.number) / "log")
        file.append([data])
        file.close()

    def commit(self) -> list[Stored]:
        """Make what is pending durable, let the tail move, resolve the receipts."""
        if not self.pending:
            return []
        self.write()
        file = self.files.open(self._folder(self.number) / "log")
        file.sync()
        file.close()
        if self.keys.settled():
            self._write_tail(self.number, self.pending[-1][0].offset + 1)
        return self._resolve()

    def _resolve(self) -> list[Stored]:
        resolved, self.pending = self.pending, []
        for _, group in resolved:
            group.reach(Durability.FSYNC)
        return [stored for stored, _ in resolved]

    def fail(self, *, written: bool) -> None:
        """Give up what is pending; with `written` its bytes may come back after a crash all the same."""
        if not self.pending:
            return
        if written:
            self.write()
        first, end = self.pending[0][0].offset, self.pending[-1][0].offset + 1
        self.lost.append((first, end))
        self.dirty = True
        self.keys.lose(self.number, first, end)
        failed, self.pending = self.pending, []
        for _, group in failed:
            group.fail(lambda: DiskFull("no room for it"))

    def seal(self) -> None:
        """Move what is in the log elsewhere; from then on no replay brings its keys."""
        self.keys.before_seal()
        sealed = self._sealed(self.number)
        found = self._in_log(self.number, self.lost)
        self._write_state([*sealed, *(each for each in found if each not in sealed)])
        if not self.pending:
            replace_file(self.files, self._folder(self.number) / "log", [b""])

    def kill(self) -> None:
        """What is left when the process is gone: its locks are free, nothing else happened."""
        self.lock.release()

    # -- the shard on disk --------------------------------------------------------------------------------------

    def _folder(self, shard: int) -> Path:
        return self.topic / f"shard-{shard}"

    def _open(self, shard: int) -> Lock:
        """Lock and recover a shard, in the order of the real one; the keys before the tail."""
        folder = self._folder(shard)
        self.files.make_folder(folder)
        lock = self.files.lock(folder / "LOCK", note="")
        try:
            next_offset, lost = self._state(shard)
            lost = sorted({*lost, *self.keys.lost(shard)})
            found = self._in_log(shard, lost)
            end = max([next_offset, *(each.offset + 1 for each in found), *(stop for _, stop in lost)])
            replace_file(self.files, folder / "log", [each.encode() for each in found])
            self._write_state(self._sealed(shard), shard, end, lost)
            replayed = [ReplayedKey(each.key, each.offset, each.time_ns) for each in found]
            self.keys.recovered(shard, end, lost, replayed)
            replace_file(self.files, folder / "tail", [bytes(TAIL.size)])
            self._write_tail(shard, end)
        except BaseException:
            lock.release()
            raise
        return lock

    def _state(self, shard: int | None = None) -> tuple[int, list[tuple[int, int]]]:
        path = self._folder(self.number if shard is None else shard) / "state"
        if not self.files.exists(path):
            return 0, []
        document = read_checkpoint(self.files, path)
        return document["next"], [(first, end) for first, end in document["lost"]]

    def _sealed(self, shard: int) -> list[Stored]:
        path = self._folder(shard) / "state"
        if not self.files.exists(path):
            return []
        document = read_checkpoint(self.files, path)
        return [Stored(offset, key.encode(), serial, time) for offset, key, serial, time in document["sealed"]]

    def _in_log(self, shard: int, lost: list[tuple[int, int]]) -> list[Stored]:
        path = self._folder(shard) / "log"
        if not self.files.exists(path):
            return []
        above = max((each.offset + 1 for each in self._sealed(shard)), default=0)
        return [
            each
            for each in decode_frames(self.files.read(path))
            if each.offset >= above and not any(first <= each.offset < end for first, end in lost)
        ]

    def _write_state(
        self,
        sealed: list[Stored],
        shard: int | None = None,
        next_offset: int | None = None,
        lost: list[tuple[int, int]] | None = None,
    ) -> None:
        below = max((each.offset + 1 for each in sealed), default=0)
        document = {
            "sealed": [[each.offset, each.key.decode(), each.serial, each.time_ns] for each in sealed],
            "lost": self.lost if lost is None else lost,
            "next": max(below, 0 if next_offset is None else next_offset),
        }
        write_checkpoint(self.files, self._folder(self.number if shard is None else shard) / "state", document)
        if shard is None:
            self.dirty = False

    def _write_tail(self, shard: int, durable: int) -> None:
        value = struct.pack("<Q", durable)
        file = self.files.open(self._folder(shard) / "tail")
        file.write_at(0, value + struct.pack("<I", crc32c.crc32c(value)))
        file.close()

    def stored(self) -> dict[tuple[int, int], Stored]:
        """Every bundle of every shard, by shard and offset."""
        found = {}
        for shard in self.numbers():
            lost = self.lost if shard == self.number else self._state(shard)[1]
            for each in (*self._sealed(shard), *self._in_log(shard, lost)):
                found[shard, each.offset] = each
        return found
