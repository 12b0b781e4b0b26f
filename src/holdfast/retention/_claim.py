r"""A worker's claim on the budget: the file `budget.claim` in its shard's folder.

     0               8         10       12       16       24       32          40
     +---------------+---------+--------+--------+--------+--------+-----------+
     | "HFCLAIM\n"   | version | level  | crc32c | limit  | wanted | wanted at |
     +---------------+---------+--------+--------+--------+--------+-----------+
       8 bytes         u16       u16      u32      u64      u64      u64

Numbers are little-endian; the checksum is over bytes 8 to 11 and 16 to 39. `limit` is how many bytes the shard's folder
may grow to: what is on disk below that is spent, the rest is promised. `wanted` is how many bytes its worker waits for,
because of the cap of `level` alone: 0 the store's, 1 its namespace's, 2 its topic's; at `wanted at`, in nanoseconds, it
last said so.

The worker holds the file locked as long as it lives, so a claim ends with its process, whatever ended it. The file is
overwritten in place and never synced: after a power cut there is no worker whose claim could matter. All who read or
write claims of a level hold that level's `budget.lock`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

import crc32c
import structlog

from holdfast.files import Files, Lock, LockHeld

_log = structlog.get_logger("holdfast.retention")

BUDGET_LOCK: Final = "budget.lock"
CLAIM: Final = "budget.claim"
_MAGIC: Final = b"HFCLAIM\n"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<HH")
_CHECKSUM: Final = struct.Struct("<I")
_BODY: Final = struct.Struct("<QQQ")


class Claim(NamedTuple):
    """What a worker may still write, and what it waits for."""

    limit: int = 0
    wanted: int = 0
    wanted_at_ns: int = 0
    wanted_level: int = 0


def encode_claim(claim: Claim) -> bytes:
    """The bytes of a claim file."""
    head, body = _HEAD.pack(_VERSION, claim.wanted_level), _BODY.pack(*claim[:3])
    return _MAGIC + head + _CHECKSUM.pack(crc32c.crc32c(head + body)) + body


def decode_claim(data: bytes) -> Claim | None:
    """The claim in `data`; `None` if it is damaged or of another version."""
    if len(data) != 40 or data[:8] != _MAGIC:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, 12)
    version, level = _HEAD.unpack_from(data, 8)
    if checksum != crc32c.crc32c(data[8:12] + data[16:]) or version != _VERSION:
        return None
    limit, wanted, wanted_at_ns = _BODY.unpack_from(data, 16)
    return Claim(limit, wanted, wanted_at_ns, level)


class OwnClaim:
    """The claim of this worker; locked until `release`."""

    def __init__(self, files: Files, shard: Path, *, wait: bool) -> None:
        """Without `wait`, raises `LockHeld` while somebody looks whether the shard has a worker."""
        self._files, self._path = files, shard / CLAIM
        self._lock: Lock = files.lock(self._path, note="", wait=wait)
        self.claim = Claim()
        self.write(self.claim)  # over what a worker before us left

    def write(self, claim: Claim) -> None:
        file = self._files.open(self._path)
        try:
            file.write_at(0, encode_claim(claim))
        finally:
            file.close()
        self.claim = claim

    def release(self) -> None:
        self._lock.release()


def read_claim(files: Files, shard: Path) -> Claim | None:
    """The claim of another worker; `None` if the shard has no live one."""
    path = shard / CLAIM
    if not files.exists(path):
        return None
    try:
        files.lock(path, note="", shared=True).release()
    except LockHeld:
        data = files.read(path)
    else:
        return None
    claim = decode_claim(data)
    if claim is None and data:
        _log.warning("claim on the budget is damaged; counted as nothing promised", file=str(path))
    return claim or Claim()
