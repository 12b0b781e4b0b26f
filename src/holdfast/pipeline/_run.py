"""One start of a sink's query: where it begins, and what becomes of each batch.

A batch goes through these steps. After a crash between any two of them nothing is lost and nothing doubled:

 1. Spark writes the batch's range into its log of offsets.
    Crash: nothing was written. The next query begins at the sink's position or the watermark, whichever is higher.
 2. Tasks write the rows where nobody reads them yet.
    Crash: they stay unread. As after 1.
 3. The sink makes rows and position (the end offset of each shard) durable in one commit.
    Crash: the position is above the watermark. The next query begins at the position, and acks what is below it.
 4. The range is acked in the ack log; rows that a transform left out are acked with the rest.
    Crash: the watermark is where the position is. The data may be gone; no query asks for it again.
 5. Spark writes the batch into its log of commits.
    Crash: as after 4.

A query without state gets a new Spark checkpoint each time it starts: position and watermark say where it begins, and
neither Spark's count of batches nor a checkpoint that was lost, rolled back or torn can matter. The floor, given to the
source, keeps every row below the position out of the plan.

A query with state (aggregates, deduplication, joins of streams) is another thing: its state is in Spark's checkpoint,
which is kept, made durable before each ack, and never begun anew by itself. Its steps 4 and 5 change places: a batch is
acked when Spark's log of commits holds it, and a batch that Spark replays runs again in full while the sink discards
what it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import metrics
from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import Corruption, DataLost, SinkFailed, SinkRefused
from holdfast.files import Files, remove_tree, sync_tree
from holdfast.pipeline._frames import Input, patience
from holdfast.pipeline._offset_log import ends_of, last_entry
from holdfast.sinks import Ranges, Sink, SinkSettings
from holdfast.sinks._job import run_job
from holdfast.spark._offsets import shard_key, split_key
from holdfast.spark.measure import Measure, measure
from holdfast.store import Drain, Store, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Place:
    """What a sink's query works with; `folder` is the sink's own, `topics` and `slots` are what it reads."""

    name: str
    settings: SinkSettings
    store: Store
    topics: Mapping[str, Topic]
    slots: Mapping[str, str]
    folder: Path
    files: Files
    clock: Clock
    ids: Ids


class Run:
    """From taking the position to losing the query."""

    def __init__(
        self,
        place: Place,
        sink: Sink,
        drains: Mapping[str, Drain],
        *,
        stateful: bool,
        succeeded: Callable[[], None],
    ) -> None:
        self._place, self._sink, self._drains, self.stateful = place, sink, drains, stateful
        self._succeeded = succeeded
        self.failure: Exception | None = None  # what ended the query, as it was before it went through Java
        self._writing: Deadline | None = None
        self._at: dict[str, int] = {}  # where the last batch ended
        self._floor: dict[str, int] = {}
        self._unacked: list[tuple[int, dict[str, tuple[int, int]]]] = []  # of a query with state: batch -> ranges
        self.checkpoint = place.folder / "state"

    @property
    def is_late(self) -> bool:
        """Has a batch outlasted its deadline?"""
        writing = self._writing
        return writing is not None and writing.passed()

    # -- where it begins ----------------------------------------------------------------------------------------------

    def prepare(self, *, accept_state_loss: bool) -> None:
        """Find out where to begin."""
        marks = {
            shard_key(topic, shard): offset
            for topic, drain in self._drains.items()
            for shard, offset in drain.positions().items()
        }
        position = self._sink.position()
        self._expect_known(position)
        if self.stateful:
            self._prepare_state(marks, position, accept_state_loss)
            return
        self._floor = {key: max(mark, position.get(key, 0)) for key, mark in marks.items()}
        self._at = dict(self._floor)
        self._ack({key: (marks[key], end) for key, end in self._floor.items() if marks[key] < end})
        folder = self._place.folder / "checkpoints"
        remove_tree(folder)
        self.checkpoint = folder / self._place.ids.random_bytes(8).hex()

    def _expect_known(self, position: Mapping[str, int]) -> None:
        """A sink cannot hold what the store never had: then one of the two was put back from an older copy."""
        for key, end in position.items():
            topic, shard = split_key(key)
            if topic not in self._drains:
                continue
            durable = {each.number: each.durable for each in self._place.topics[topic].shards()}
            if end > durable.get(shard, 0):
                why = (
                    f"the sink holds what is below {end}, the store ends at {durable.get(shard, 0)}: is it an old copy?"
                )
                raise DataLost(key, durable.get(shard, 0), end, why)

    def _prepare_state(self, marks: Mapping[str, int], position: Mapping[str, int], accept: bool) -> None:
        checkpoint, files = self.checkpoint, self._place.files
        files.make_folder(self._place.folder)
        last = last_entry(files, checkpoint, "offsets")
        begun = any(mark > self._first(key) for key, mark in marks.items()) or bool(position)
        if last is None and begun and not accept:
            raise SinkRefused(
                f"sink {self._place.name} keeps state, and its checkpoint {checkpoint} is missing although it has "
                "delivered before: put it back, or start once with --accept-state-loss to begin with an empty state"
            )
        if last is not None and accept and self._is_damaged(last):
            aside = checkpoint.with_name(f"{checkpoint.name}-{self._place.clock.now_ns()}")
            files.rename(checkpoint, aside)  # for whoever wants to look; it is used no more
            last = None
        if last is None:
            self._floor = {key: max(mark, position.get(key, 0)) for key, mark in marks.items()} if accept else {}
            self._at = {**marks, **self._floor}
            self._ack({key: (marks[key], end) for key, end in self._at.items() if marks[key] < end})
        else:
            committed = last_entry(files, checkpoint, "commits")
            before = last if committed == last else last - 1
            self._at = ends_of(files, checkpoint, before) if before >= 0 else dict(marks)
            if committed is not None:
                ends = ends_of(files, checkpoint, committed)
                self._ack({key: (marks.get(key, 0), end) for key, end in ends.items() if marks.get(key, 0) < end})

    def _is_damaged(self, last: int) -> bool:
        try:
            ends_of(self._place.files, self.checkpoint, last)
        except (Corruption, FileNotFoundError):
            return True
        return False

    def _first(self, key: str) -> int:
        topic, shard = split_key(key)
        return self._place.topics[topic].registration(self._place.name).start(shard)

    def options(self, each: Input) -> dict[str, str]:
        """For the reader of one topic."""
        floor = {
            str(shard): offset
            for key, offset in self._floor.items()
            for topic, shard in [split_key(key)]
            if topic == each.topic
        }
        return {
            "path": str(self._place.store.path.absolute()),
            "subscriber": self._place.name,
            "epoch": str(self._drains[each.topic].epoch),
            "floor": json.dumps(floor),
            "stateful": str(self.stateful).lower(),
            **patience(self._place.settings),
        }

    # -- a batch ------------------------------------------------------------------------------------------------------

    def batch(self, make: Callable[[], DataFrame], number: int) -> None:
        """Deliver batch `number`, of which `make` gives the rows. Called by Spark, in a thread of its own."""
        place = self._place
        try:
            ends = ends_of(place.files, self.checkpoint, number)
            ranges = {key: (self._begin(key), end) for key, end in ends.items() if self._begin(key) < end}
            if ranges:
                self._deliver(make(), number, ranges)
            elif self.stateful:
                self._pass_through(make())
        except Exception as problem:
            self.failure = problem
            # Short, and without what was behind it: Spark looks through all of the text with a regular expression
            # that overflows the stack of Java on a long one, and then forgets that the query has failed.
            raise RuntimeError(f"{type(problem).__name__} in batch {number}") from None
        finally:
            self._writing = None

    def _pass_through(self, frame: DataFrame) -> None:
        """A batch without a range, as the first may be: its plan must run, and has nothing to deliver."""
        with self._whole(frame, Deadline(self._place.settings.deadline, self._place.clock)) as rows:
            if not rows.isEmpty():
                raise SinkFailed(f"sink {self._place.name}: Spark gave rows for a batch that covers no offsets")

    def _deliver(self, frame: DataFrame, number: int, ranges: Mapping[str, tuple[int, int]]) -> None:
        place = self._place
        self._writing = deadline = Deadline(place.settings.deadline, place.clock)
        began = place.clock.monotonic()
        for drain in self._drains.values():
            drain.check()
        if self.stateful:  # a range that the sink has must not come back with another end
            self._sync("offsets")
        amount = self._amount(ranges)
        what = Ranges(place.store.id, place.name, ranges, amount.rows, amount.bytes)
        with self._whole(frame, deadline) as rows:
            result = self._sink.write(rows, what, deadline)
        if self.stateful:
            self._unacked.append((number, dict(ranges)))  # acked by `look`
        else:
            self._ack(ranges)
        self._at |= {key: end for key, (_, end) in ranges.items()}
        metrics.PIPELINE_BATCH_SECONDS.observe(place.clock.monotonic() - began, place.name)
        metrics.PIPELINE_ROWS.inc(place.name, by=result.rows)
        self._succeeded()

    @contextmanager
    def _whole(self, frame: DataFrame, deadline: Deadline) -> Iterator[DataFrame]:
        """The rows of a batch. Those of a query with state are made in full first, whatever the sink reads of them.

        Each task of the plan commits its part of the state. A sink that has the batch already runs none of them.
        """
        if not self.stateful:
            yield frame
            return
        kept = frame.persist()
        try:
            run_job(
                kept.sparkSession,
                deadline,
                f"state of {self._place.name}",
                lambda: kept.write.format("noop").mode("overwrite").save(),
            )
            yield kept
        finally:
            kept.unpersist()

    def _begin(self, key: str) -> int:
        """Where this batch begins in a shard; one that is new to the query begins at the watermark."""
        known = self._at.get(key)
        if known is None:
            topic, shard = split_key(key)
            known = self._at[key] = self._drains[topic].progress(shard).watermark
        return known

    def _amount(self, ranges: Mapping[str, tuple[int, int]]) -> Measure:
        rows = size = 0
        for topic in self._drains:
            own = {split_key(key)[1]: each for key, each in ranges.items() if split_key(key)[0] == topic}
            found = measure(self._place.topics[topic], self._place.slots[topic], own)
            rows, size = rows + found.rows, size + found.bytes
        return Measure(rows, size)

    def _ack(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        for topic, drain in self._drains.items():
            own = {split_key(key)[1]: each for key, each in ranges.items() if split_key(key)[0] == topic}
            if own:
                drain.ack(own)

    def look(self) -> None:
        """Now and then, beside the query."""
        for drain in self._drains.values():
            drain.check()
        if self._unacked:
            self._ack_committed()

    def _sync(self, log: str = ".") -> None:
        """Make the checkpoint durable, or a log of it, and its name: Spark does neither."""
        sync_tree(self.checkpoint / log)
        for folder in (self.checkpoint, self._place.folder):
            self._place.files.sync_folder(folder)

    def _ack_committed(self) -> None:
        """A batch of a query with state is acked once Spark holds it for committed, durably."""
        committed = last_entry(self._place.files, self.checkpoint, "commits")
        if committed is None or committed < self._unacked[0][0]:
            return
        self._sync()
        while self._unacked and self._unacked[0][0] <= committed:
            self._ack(self._unacked.pop(0)[1])
