"""A process that appends ack records to a shard's log, and says how many have returned; or one that rotates it.

    python appender.py append SHARD SUBSCRIBER COUNT
    python appender.py rotate SHARD UNTIL

The first writes the offsets 0, 1, 2, ... of its subscriber, each in a record of its own, and prints the last one that
returned after every few. The second rotates until a file of the name UNTIL exists, and prints 0 when it begins
and at the end how often it did.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.acks import AckLog, Outcome, OutcomeRecord
from holdfast.clock import SystemClock
from holdfast.files import SystemFiles

SHARD_ID = bytes(16)
EVERY = 50


def append(log: AckLog, subscriber: int, count: int) -> None:
    for offset in range(count):
        log.append([OutcomeRecord.of_offsets(subscriber, Outcome.ACK, [offset])])
        if offset % EVERY == 0 or offset == count - 1:
            print(offset, flush=True)


def rotate(log: AckLog, until: Path) -> None:
    rotations = 0
    print(rotations, flush=True)
    while not until.exists():
        log.refresh()
        if log.needs_rotation:
            with log.exclusive():
                log.rotate(log.state.progress.keys())
            rotations += 1
    print(rotations, flush=True)


def main() -> None:
    what, shard = sys.argv[1], Path(sys.argv[2])
    log = AckLog(SystemFiles(), shard, SHARD_ID, clock=SystemClock(), rotate_bytes=50_000)
    if what == "append":
        append(log, int(sys.argv[3]), int(sys.argv[4]))
    else:
        rotate(log, Path(sys.argv[3]))


if __name__ == "__main__":
    main()
