"""Asking a shard's owner to make room: the file `evict.request` in its folder.

A checkpoint (see `files.checkpoint`) that is replaced whole. Whoever asks holds the `budget.lock` of each level that it
is under, so two who ask the same shard never write at once. The owner answers by deleting, and unlinks the file. A
request that nobody answers expires: an owner that was away must not delete for a pressure that has passed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from holdfast.clock import Clock
from holdfast.errors import StorageError
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint

_log = structlog.get_logger("holdfast.retention")

REQUEST: Final = "evict.request"
REQUEST_SECONDS: Final = 5.0
_REQUEST_NS: Final = int(REQUEST_SECONDS * 1e9)


class Request(NamedTuple):
    """How much another worker asks a shard for."""

    by: str  # who asks
    finished_bytes: int  # of trash and finished segments
    unfinished_bytes: int  # of unfinished ones beyond them; only a topic with `drop_oldest` gives any
    asked_ns: int

    @property
    def over_bytes(self) -> int:
        """For `Situation.over_bytes`."""
        return self.finished_bytes + self.unfinished_bytes if self.unfinished_bytes else 0

    @property
    def asked_bytes(self) -> int:
        """For `Situation.asked_bytes`."""
        return self.finished_bytes


def read_request(files: Files, shard: Path, clock: Clock) -> Request | None:
    """What `shard` is asked for now; a request that expired or is damaged is unlinked."""
    path = shard / REQUEST
    if not files.exists(path):
        return None
    try:
        document = read_checkpoint(files, path)
        request = Request(
            document["by"], document["finished_bytes"], document["unfinished_bytes"], document["asked_ns"]
        )
    except FileNotFoundError:
        return None
    except (StorageError, KeyError) as problem:
        _log.warning("request for room is damaged; whoever asked asks again", file=str(path), error=str(problem))
        clear_request(files, shard)
        return None
    if abs(clock.now_ns() - request.asked_ns) > _REQUEST_NS:  # a clock that was set back expires it too
        clear_request(files, shard)
        return None
    return request


def write_request(files: Files, shard: Path, request: Request, clock: Clock) -> None:
    """Ask; of two requests for the same pressure the larger one counts."""
    before = read_request(files, shard, clock)
    if before is not None:
        request = request._replace(
            finished_bytes=max(request.finished_bytes, before.finished_bytes),
            unfinished_bytes=max(request.unfinished_bytes, before.unfinished_bytes),
        )
    write_checkpoint(files, shard / REQUEST, {"kind": "evict", **request._asdict()})


def clear_request(files: Files, shard: Path) -> None:
    """The request is answered."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(shard / REQUEST)
