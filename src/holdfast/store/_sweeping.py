"""Retention of a topic's shards by this process: of its own always, of one that nobody holds now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.clock import Clock
from holdfast.config import BufferSettings, Cap
from holdfast.errors import Closed, ShardTaken
from holdfast.files import Files
from holdfast.metrics import Reporter
from holdfast.retention import Neighbours, SegmentFacts
from holdfast.store._ack_logs import AckLogs
from holdfast.store._ownership import Ownership
from holdfast.store._report import report_sweeper
from holdfast.store._shard import Shard
from holdfast.store._shard_table import ShardTable
from holdfast.store._subscriptions import progress_of
from holdfast.store._sweeper import Sweeper
from holdfast.store.topic_state import TopicState


class Sweeping:
    """One for each open topic of a process."""

    def __init__(
        self,
        topic: str,
        store: Path,
        state: TopicState,
        settings: BufferSettings,
        caps: Sequence[Cap],
        *,
        shards: ShardTable,
        ownership: Ownership,
        acks: AckLogs,
        files: Files,
        clock: Clock,
        neighbours: Neighbours,
        delivering: Callable[[int], Iterable[int]],
    ) -> None:
        self._topic, self._store, self._state, self._settings, self._caps = topic, store, state, settings, caps
        self._shards, self._ownership, self._acks = shards, ownership, acks
        self._files, self._clock = files, clock
        self._neighbours, self._delivering = neighbours, delivering
        self.sweeper: Sweeper | None = None  # of the shard that this process owns
        self._reporter: Reporter | None = None

    def begin(self, own: Shard) -> None:
        """This process is the writer of this shard from now on."""
        self.sweeper = sweeper = self._sweeper_of(own)
        self._reporter = Reporter(lambda: report_sweeper(self._topic, sweeper))

    def _sweeper_of(self, shard: Shard) -> Sweeper:
        number = shard.number
        return Sweeper(
            shard, self._acks.of(number), self._settings, self._caps,
            store=self._store, files=self._files, clock=self._clock, registry=self._state.current,
            secure=self._state.secure, is_secure=lambda: self._state.is_secure,
            delivering=lambda: self._delivering(number),
            neighbours=self._neighbours,
        )  # fmt: skip

    def truncate(self, own: Shard, before: Mapping[int, int]) -> dict[int, int]:
        """As `Topic.truncate`, with a position as shard -> offset."""
        for number in before:
            if number != own.number:
                raise ShardTaken(
                    f"shard {number} of {self._topic} is not this process's (that is {own.number}): ask its writer"
                )
        sweeper = self.sweeper
        if sweeper is None:
            raise Closed(f"topic {self._topic} is closed; open the store again")
        return {number: sweeper.truncate(offset) for number, offset in before.items()}

    def adopt(self, shard: int, wanted_bytes: int) -> int:
        """Hold a shard that nobody holds while deleting there what may go; how many bytes it were."""
        own = self._shards.own
        is_own = own is not None and own.number == shard
        if is_own or (not wanted_bytes and not self.finished(shard)):
            return 0
        with self._ownership.adopting(shard) as adopted:
            return 0 if adopted is None else self._sweep(adopted, wanted_bytes)

    def _sweep(self, adopted: Shard, wanted_bytes: int) -> int:
        sweeper = self._sweeper_of(adopted)
        reporter = Reporter(lambda: report_sweeper(self._topic, sweeper))
        try:
            while sweeper.sweep(asked_bytes=wanted_bytes):
                pass
        finally:
            sweeper.close()
            reporter.close()
        return sweeper.counts.bytes_reclaimed

    def finished(self, shard: int) -> list[SegmentFacts]:
        """Of any shard: the segments that everyone has finished, oldest first."""
        registrations = list(self._state.current().subscribers.values())
        log = self._acks.of(shard)
        log.refresh()
        found: list[SegmentFacts] = []
        for each in self._shards.all():
            if each.number == shard and registrations:
                progresses = [progress_of(log, registration, shard) for registration in registrations]
                found += [
                    facts._replace(finished=True)
                    for facts in each.facts()
                    if all(progress.next_unfinished(facts.first) >= facts.end for progress in progresses)
                ]
        return found

    def close(self) -> None:
        if self._reporter is not None:
            self._reporter.close()
        if self.sweeper is not None:
            self.sweeper.close()
