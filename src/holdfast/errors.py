"""Every error that Holdfast raises, one tree; a kind answers what the caller can do about it.

HoldfastError
├── InputError                 fix what you passed in; nothing was stored
│   ├── InvalidName            a namespace, topic, slot or subscriber name
│   ├── InvalidBundle          a bundle that cannot be stored: too large, an Arrow type that IPC cannot carry, ...
│   ├── InvalidPosition        an offset or mapping of offsets that does not fit the topic
│   ├── InvalidSettings        a setting with an impossible value
│   ├── UnknownTopic           no topic of that name in this store
│   ├── UnknownSlot            no slot of that name in this topic
│   ├── UnknownSubscriber      no subscriber of that name on this topic
│   ├── InvalidPipeline        a pipeline's file with mistakes; carries all of them in `problems`
│   ├── UnsupportedType        an Arrow type that the place it should go to has no match for
│   ├── SinkRefused            a sink that will not take this data however often it is tried
│   └── AlreadySettled         a delivery that was answered before
├── TryAgain                   nothing is wrong with the input: the same call may succeed later
│   ├── Backpressure           a bound is reached; carries `retry_after` in seconds
│   │   └── DiskFull           the disk has no room
│   ├── DiskFault              the disk refused a call (an I/O error, permissions, a missing mount)
│   ├── WaitTimeout            a wait ended before the level was reached; the bundle may still become durable
│   ├── SinkFailed             a sink did not take a batch; the same batch may go through later
│   │   ├── SinkMoved          somebody else wrote to the sink in this subscriber's name
│   │   └── SinkTimeout        a sink did not answer by its deadline
│   ├── ShardTaken             another process (or another open store) owns the shard; names the holder
│   └── SubscriberTaken        somebody else holds the subscriber's lease; names the holder
├── ReopenRequired             this object can do no more: close it and open again
│   ├── Closed                 it was closed
│   ├── ReadOnly               it was opened for reading only
│   ├── SchemaChanged          the topic has columns that this query does not know: start the query again
│   ├── Fenced                 the subscriber's lease was taken over, or the subscriber removed
│   └── ShardFailed            a write or sync failed and could not be made good; the shard is read-only until reopened
├── Missing                    something that must be installed is not: Java, or an extra of this package
└── StorageError               what is on disk is not what it should be
    ├── NotAStore              nothing there, or something that is not Holdfast's
    ├── NewerVersion           written by a later version of Holdfast
    ├── Corruption             bytes fail their checksum or contradict each other; carries file and position
    └── DataLost               an offset range that should be here is missing
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple


class HoldfastError(Exception):
    """The parent of every error here; `exit_code` is what the command line ends with (sysexits)."""

    exit_code = 70


class InputError(HoldfastError, ValueError):
    """The caller can mend it; nothing was stored."""

    exit_code = 64


class InvalidName(InputError):
    """A name that could not be a folder, a label or a slot."""


class InvalidBundle(InputError):
    """A bundle that cannot be stored as it is."""

    exit_code = 65


class InvalidPosition(InputError):
    """A position that does not fit the topic's shards."""


class InvalidSettings(InputError):
    """A setting with an impossible value; the text lists every one found."""

    exit_code = 78


class UnknownTopic(InputError):
    """The store has no such topic."""


class UnknownSlot(InputError):
    """The topic has no such slot."""


class UnknownSubscriber(InputError):
    """The topic has no such subscriber."""


class AlreadySettled(InputError):
    """The delivery has its answer already."""


class Problem(NamedTuple):
    """One mistake in a file: the line it is on (1 is the first), the keys that lead to it, what is wrong."""

    line: int
    path: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.path}: {self.text}" if self.path else f"line {self.line}: {self.text}"


class InvalidPipeline(InputError):
    """A pipeline's file cannot be run; `problems` are all the mistakes in it, in the order of their lines."""

    exit_code = 78

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file, self.problems = file, sorted(problems)
        count = "1 mistake" if len(self.problems) == 1 else f"{len(self.problems)} mistakes"
        super().__init__("\n  ".join([f"{file}: {count}", *map(str, self.problems)]))


class UnsupportedType(InputError):
    """A column's type has no match where it should go; the text names both."""

    exit_code = 65


class SinkRefused(InputError):
    """The sink will never take this as it is: a type that its table cannot hold, a table of another kind."""

    exit_code = 65


class TryAgain(HoldfastError):
    """The same call may succeed later."""

    exit_code = 75


class Backpressure(TryAgain):
    """A bound is reached; try again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DiskFull(Backpressure):
    """The disk has no room; the bundle was not stored."""


class DiskFault(TryAgain):
    """The disk refused a call; what was asked for may be half done, and can be repeated."""


class WaitTimeout(TryAgain, TimeoutError):
    """The level asked for was not reached in time; the bundle may still reach it."""


class SinkFailed(TryAgain):
    """A sink did not take a batch; nothing of it counts as delivered."""


class SinkMoved(SinkFailed):
    """The sink is at another position than this query left it at: look again before anything is written."""


class SinkTimeout(SinkFailed):
    """The sink did not answer by its deadline; whether it took the batch is not known."""


class ShardTaken(TryAgain):
    """Somebody else holds the shard's lock."""

    exit_code = 69


class SubscriberTaken(TryAgain):
    """Somebody else holds the subscriber's lease."""

    exit_code = 69


class ReopenRequired(HoldfastError):
    """Close this object and open it again."""

    exit_code = 69


class Closed(ReopenRequired):
    """Used after close."""


class ReadOnly(ReopenRequired):
    """Opened for reading only."""


class SchemaChanged(ReopenRequired):
    """There is data with columns or types that the query's schema does not cover; a new query will have them."""


class Fenced(ReopenRequired):
    """Another holder took the subscriber's lease, or the subscriber was removed; nothing more is recorded for it."""


class ShardFailed(ReopenRequired):
    """The disk failed a write or sync, and writing elsewhere failed too."""


class Missing(HoldfastError):
    """Not installed; the text says what to install."""

    exit_code = 69


class StorageError(HoldfastError):
    """The bytes on disk are not what they should be."""

    exit_code = 65


class NotAStore(StorageError):
    """Missing, or not written by Holdfast."""

    exit_code = 69


class NewerVersion(StorageError):
    """Written by a later version of Holdfast than this one."""


class Corruption(StorageError):
    """Damaged bytes: `path` and `position` say where, the text what was found and expected."""

    def __init__(self, path: str | os.PathLike[str], position: int, what: str) -> None:
        self.path = os.fspath(path)
        self.position = position
        self.what = what
        super().__init__(
            f"{self.path}, byte {position}: {what}. "
            f"Run `holdfast fsck` on the store to see the extent; `--repair` sets the damage aside and keeps a copy."
        )


class DataLost(StorageError):
    """A range of offsets that nobody gave up is not there."""

    def __init__(self, shard: str, first: int, end: int, why: str) -> None:
        self.shard, self.first, self.end = shard, first, end
        super().__init__(f"{shard}: offsets {first} to {end - 1} are missing: {why}")
