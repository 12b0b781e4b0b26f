"""A life as in `ack_life` on a disk that fails now and then: what was told before and after holds all the same."""

from __future__ import annotations

import errno
from collections.abc import Callable

from crash.ack_life import Life, offsets_of
from crash.still import without_committers
from holdfast.errors import HoldfastError


class FaultyLife(Life):
    """A life that goes on when something fails; `failed` counts."""

    failed = 0

    def attempt(self, action: Callable[[], object]) -> None:
        """Once with a disk that fails as it was told to, then again with a healthy one."""
        try:
            action()
        except (OSError, HoldfastError):
            self.failed += 1
        self.files.heal()

    def fail(self, operation: str, path: str, *, times: int = 1) -> None:
        self.files.fail(operation, path=path, error=errno.EIO, times=times)


@without_committers()
def live_with_faults() -> FaultyLife:
    """Failed syncs of ack log and folders, failed records of deletions and registrations, files that will not go."""
    life = FaultyLife()
    with life.open():
        _deleting(life)
    with life.open():
        _registering_and_removing(life)
    return life


def _deleting(life: FaultyLife) -> None:
    lake, audit = life.subscribe("lake"), life.subscribe("audit")
    for _ in range(6):
        life.append(1, seal=True)  # 0 to 5, a segment each
    hand, other = life.take(lake), life.take(audit)
    life.ack(lake, hand, [0, 1])
    life.ack(audit, other, [1, 0])
    life.fail("sync", "*.acks")  # the ack log is rotated instead
    life.attempt(life.upkeep)
    life.upkeep()
    life.ack(lake, hand, [3])
    life.ack(audit, other, [3])
    life.fail("rename", "*shard.checkpoint*")
    life.attempt(life.upkeep)
    life.fail("sync_folder", "*shard-0000")
    life.attempt(life.upkeep)
    life.fail("unlink", "*.seg")
    life.attempt(life.upkeep)
    life.ack(lake, hand, [2])
    life.ack(audit, other, [2])
    life.fail("sync_folder", "*segments")
    life.attempt(life.upkeep)
    life.fail("sync", "*.acks")
    life.attempt(lambda: life.reject(lake, hand, 4))
    life.flush(lake)
    life.fail("append", "*.acks")
    life.attempt(lambda: life.ack(audit, other, [4]))
    life.flush(audit)
    life.upkeep()
    life.ack(lake, hand, [5])


def _registering_and_removing(life: FaultyLife) -> None:
    """`audit` holds 5; a removal that failed may have happened, or not."""
    life.append(1, seal=True)  # 6
    life.fail("sync_folder", "*prod/logs")
    life.attempt(lambda: life.remove("audit"))
    life.attempt(life.upkeep)
    life.attempt(life.upkeep)
    life.fail("sync_folder", "*prod/logs")
    life.attempt(lambda: life.subscribe("late", "latest"))
    life.append(1, seal=True)  # 7
    life.fail("sync", "*topic.checkpoint*")
    life.attempt(lambda: life.subscribe("later"))
    lake = life.subscribe("lake")
    life.ack(lake, life.take(lake), [6, 7])
    life.attempt(life.upkeep)
    life.fail("sync", "*.acks", times=2)
    life.attempt(lambda: life.truncate(8))
    life.truncate(8)
    assert offsets_of(life.topic) == []
    life.append(2)
