"""A size cap that several workers keep together, each with a shard of its own.

A worker asks before it writes (`admit`), and what it is granted is in its claim, on top of what is on disk:

    committed  =  files outside of shards  +  for each shard  max(bytes on disk, limit of its live worker)

    grant                            while committed <= cap, one's own limit left out; then own limit = on disk + size
    spend                            nothing to say: bytes move from promised to on disk, and committed stays
    give back                        `settle`, after deleting or sealing: own limit = on disk + what is still to come

Claims change and are summed up only under the `budget.lock` of each level, taken from the widest to the narrowest and
held for one listing. So grants come one after the other, and each sees all before it: committed exceeds a cap by at
most the one grant that crossed it. What is on disk exceeds it by that, and by the one segment that each worker may be
sealing while its bundles are still in the WAL too.

Nobody waits for room while holding a lock, so nobody waits for ever. A worker that is refused asks for room and comes
again. If there is nothing to evict, all are refused: that is backpressure, and the next finished segment ends it.

An even share is the cap divided by the number of live workers. Any of them may use what the others leave. When the cap
is reached, those below their share go first: one above it is refused while one below it waits; and one below its share
gives up nothing unfinished while another is above.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.clock import Clock
from holdfast.config import Cap
from holdfast.files import Files, LockHeld
from holdfast.retention._claim import BUDGET_LOCK, Claim, OwnClaim, read_claim
from holdfast.retention._neighbours import Neighbours
from holdfast.retention._relief import Relief, choose
from holdfast.retention._request import Request, clear_request, read_request, write_request
from holdfast.retention._standing import Standing, level_number, standing_of
from holdfast.retention._usage import Meter
from holdfast.retention._victims import Victim, oldest_finished
from holdfast.units import format_bytes

BUSY_RETRY_SECONDS: Final = 0.01  # another worker is listing files: a few milliseconds
FULL_RETRY_SECONDS: Final = 0.25  # somebody has to delete first


class Verdict(NamedTuple):
    """Whether a worker may write; if not, why, and after how many seconds to ask again."""

    ok: bool
    reason: str = ""
    retry_after: float = 0.0


class Budget:
    """One shard's part in the caps it is under. Threads may share it."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        store: Path,
        shard: Path,
        caps: Sequence[Cap],
        *,
        neighbours: Neighbours,
        min_free_disk: float = 0.0,
        who: str = "",
    ) -> None:
        """`shard` is owned by the caller, `caps` are the widest first; `who` names the caller to those it asks."""
        self._files, self._clock, self._store, self._shard = files, clock, store, shard
        self._caps, self._neighbours = tuple(caps), neighbours
        self._min_free_disk, self._who = min_free_disk, who or str(shard)
        self._meter = Meter(files, store, clock)
        self._turn = threading.Lock()  # of this object's threads
        self._own: OwnClaim | None = None

    def admit(self, size: int) -> Verdict:
        """May this shard write `size` more bytes? A grant replaces what is left of the one before. Never waits."""
        free, total = self._files.free_bytes(self._shard)
        if free < total * self._min_free_disk:
            floor = format_bytes(total * self._min_free_disk)
            return _wait(f"the disk has {format_bytes(free)} free, below the {floor} that min_free_disk keeps")
        if not self._caps:
            return Verdict(ok=True)
        try:
            with self._locked(wait=False) as own:
                standings = self._standings()
                full = [each for each in standings if each.counted_bytes > each.cap.size]
                if not full:
                    own.write(Claim(limit=standings[0].own_bytes + size))
                    return Verdict(ok=True)
                # Room at one level is of no use while another refuses: then others need not hold back for us.
                wanted = size if len(full) == 1 else 0
                own.write(Claim(own.claim.limit, wanted, self._clock.now_ns(), level_number(full[0].cap)))
        except LockHeld:
            return Verdict(ok=False, reason="another worker is measuring", retry_after=BUSY_RETRY_SECONDS)
        return _wait("; ".join(map(_explain, full)))

    def settle(self, unspent: int = 0) -> None:
        """Give back what was granted and not written, but for `unspent`.

        To be called after deletions, and when a segment is sealed and its WAL gone: until then it counts as taken.
        """
        if self._caps:
            with self._locked() as own:
                own.write(Claim(limit=self._meter.shard(self._shard).total_bytes + unspent))

    def standings(self) -> tuple[Standing, ...]:
        """How each level stands, the widest first."""
        if not self._caps:
            return ()
        with self._locked():
            return self._standings()

    def victims(self, wanted_bytes: int) -> list[Victim]:
        """The oldest finished segments under the widest cap that together have `wanted_bytes`, or all of them."""
        shards = [shard.folder for widest in self.standings()[:1] for shard in widest.shards]
        return oldest_finished({shard: self._neighbours.finished(shard) for shard in shards}, wanted_bytes)

    def relieve(self) -> Relief:
        """Bring every level under its cap: ask the owners, reclaim in shards without one, tell what is ours to do.

        1. Measure, under the locks.
        2. Choose, without them: trash first, then what is oldest of all that is finished, then what is unfinished.
        3. Ask live owners, under the locks.       Nothing is lost if one never answers: the request expires.
        4. Reclaim in shards without an owner.     Each is claimed for as long as that takes.
        """
        relief = choose(self._shard, self.standings(), self._neighbours)
        if relief.ask:
            with self._locked():
                now_ns = self._clock.now_ns()
                for shard, (finished, unfinished) in relief.ask.items():
                    request = Request(self._who, finished, unfinished, now_ns)
                    with contextlib.suppress(FileNotFoundError):  # the shard went meanwhile, and its bytes with it
                        write_request(self._files, shard, request, self._clock)
        freed = sum(self._neighbours.reclaim(shard, wanted) for shard, wanted in relief.reclaim.items())
        return relief._replace(freed_bytes=freed)

    def request(self) -> Request | None:
        """What another worker asks of this shard, as far as a cap is over still: others may have made room since."""
        request = read_request(self._files, self._shard, self._clock)
        if request is None or not self._caps:
            return None
        with self._locked() as own:
            over = max(
                each.committed_bytes + max(0, own.claim.limit - each.own_bytes) - each.cap.size
                for each in self._standings()
            )
        if over <= 0:
            self.answered()
            return None
        finished = min(request.finished_bytes, over)
        return request._replace(
            finished_bytes=finished, unfinished_bytes=min(request.unfinished_bytes, over - finished)
        )

    def answered(self) -> None:
        """Take the request away; one that came meanwhile goes with it, and is made again if it must."""
        clear_request(self._files, self._shard)

    def close(self) -> None:
        """Give up the claim, and with it what was promised."""
        with self._turn:
            if self._own is not None:
                self._own.release()
                self._own = None

    @contextlib.contextmanager
    def _locked(self, *, wait: bool = True) -> Iterator[OwnClaim]:
        """Hold the lock of each level; without `wait`, raises `LockHeld` if anybody else has one."""
        if not self._turn.acquire(blocking=wait):
            raise LockHeld(self._shard, "another thread of this process")
        with contextlib.ExitStack() as stack:
            stack.callback(self._turn.release)
            for cap in self._caps:
                lock = self._files.lock(self._store / cap.folder / BUDGET_LOCK, note="", wait=wait)
                stack.callback(lock.release)
            if self._own is None:
                self._own = OwnClaim(self._files, self._shard, wait=wait)
            yield self._own

    def _standings(self) -> tuple[Standing, ...]:
        now_ns = self._clock.now_ns()
        return tuple(self._standing(cap, now_ns) for cap in self._caps)

    def _standing(self, cap: Cap, now_ns: int) -> Standing:
        usage = self._meter.measure(cap)
        others = (each.folder for each in usage.shards if each.folder != self._shard)
        claims = {shard: claim for shard in others if (claim := read_claim(self._files, shard)) is not None}
        return standing_of(cap, usage, self._shard, claims, now_ns)


def _explain(full: Standing) -> str:
    where = "the store" if full.cap.level == "store" else f"{full.cap.level} {full.cap.folder.as_posix()}"
    used, cap = format_bytes(full.counted_bytes), format_bytes(full.cap.size)
    return f"{where} has {used} on disk or promised, and its size_cap is {cap}"


def _wait(reason: str) -> Verdict:
    return Verdict(ok=False, reason=reason, retry_after=FULL_RETRY_SECONDS)
