"""A worker process: `budget_worker.py STORE SHARD CAP SIZE COUNT` writes COUNT segments and says how it went.

With COUNT 0 it takes one grant, says so, and holds it until it is ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.config import Cap
from holdfast.files import LockHeld, SystemFiles
from holdfast.retention import Budget, SegmentFacts
from holdfast.segment import parse_segment_name, segment_name

MAX_REFUSALS = 200_000


class Shards:
    """All shards as this process finds them by listing; every segment in them is finished."""

    def __init__(self, store: Path) -> None:
        self.files, self.store = SystemFiles(), store

    def finished(self, shard: Path) -> Iterable[SegmentFacts]:
        found: list[SegmentFacts] = []
        if not self.files.is_folder(shard / "segments"):  # its worker is just making it
            return found
        for name in self.files.list(shard / "segments"):
            parsed = parse_segment_name(name)
            if parsed is not None:
                path = shard / "segments" / name
                try:
                    at, size = self.files.modified_ns(path), self.files.size(path)
                except FileNotFoundError:
                    continue
                found.append(SegmentFacts(parsed[1], parsed[1] + 1, size, (at, at), finished=True))
        return found

    def delete(self, shard: Path, wanted: int) -> int:
        freed = 0
        for facts in self.finished(shard):
            if freed >= wanted:
                break
            self.files.unlink(shard / "segments" / segment_name(facts.first, facts.first))
            freed += facts.size
        return freed

    def reclaim(self, shard: Path, wanted_bytes: int) -> int:
        try:
            lock = self.files.lock(shard / "LOCK", note="reclaim")
        except LockHeld:
            return 0
        try:
            return self.delete(shard, wanted_bytes)
        finally:
            lock.release()

    def total(self) -> int:
        """The bytes of all segments, also while others delete some."""
        found = 0
        for path in self.store.glob("*/*/*/segments/*.seg"):
            try:
                found += path.stat().st_size
            except FileNotFoundError:
                continue
        return found


def work(store: Path, number: int, cap: int, size: int, count: int) -> None:
    shards = Shards(store)
    files = shards.files
    shard = store / f"a/x/shard-{number:04d}"
    files.make_folder(shard / "segments")
    owned = files.lock(shard / "LOCK", note=str(os.getpid()), wait=True)  # another worker may be reclaiming here
    budget = Budget(files, SystemClock(), store, shard, [Cap("store", Path(), cap)], neighbours=shards)
    if count == 0:
        print(json.dumps(budget.admit(size)._asdict()), flush=True)
        sys.stdin.read()
        return
    written = refused = most = 0
    while written < count and refused < MAX_REFUSALS:
        request = budget.request()
        if request is not None:
            shards.delete(shard, request.asked_bytes)
            budget.answered()
            budget.settle()
        if budget.admit(size).ok:
            path = shard / "segments" / segment_name(written, written)
            path.write_bytes(b"x" * size)
            written += 1
            most = max(most, shards.total())
        else:
            refused += 1
            relief = budget.relieve()
            if relief.own_bytes:
                shards.delete(shard, relief.own_bytes)
                budget.settle()
            os.sched_yield()
    print(json.dumps({"written": written, "most": most}), flush=True)
    budget.close()
    owned.release()


if __name__ == "__main__":
    work(Path(sys.argv[1]), *map(int, sys.argv[2:]))
