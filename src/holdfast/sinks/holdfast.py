"""Another topic, of the pipeline's store or of another one: a batch becomes one bundle.

The position is in `sink.checkpoint`, in the sink's folder of the pipeline. One batch, where 2 to 4 happen under a lock:

1. Executors write the rows into Arrow files in that folder and sync them.    A crash leaves files that nobody needs;
                                       the next start removes them.
2. Write down the intent, synced: these files, as one bundle, under this key, and then that position.
                                       A crash from here on: the next start goes on with step 3, from the same files.
3. Append the bundle under its key, and wait until it is durable. If it was appended before, that stores nothing.
4. Write down the position, and no intent. Then remove the files.

So a batch is stored once, if the next start comes within the topic's `idempotency.window` (a day, by default) and
before `idempotency.max_keys` other keys have: later the key is forgotten, and a batch that was between steps 3 and 4 is
stored a second time.

A batch without rows changes nothing, so the position may lag: what is read again has no rows again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.clock import Clock, Deadline, Ids
from holdfast.config.settings import MAX_BUNDLE_BYTES
from holdfast.errors import Closed, InputError, SinkFailed, SinkMoved, SinkRefused, SinkTimeout, WaitTimeout
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.sinks._local import explained, locked
from holdfast.sinks._schema import arrow_schema
from holdfast.sinks._settings import HoldfastSinkSettings
from holdfast.sinks._sink import Ranges, SinkIdentity, WriteResult, held
from holdfast.sinks._stage import Staged, StagePlan, read_staged, stage
from holdfast.store import Store, Topic
from holdfast.units import format_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT: Final = "sink.checkpoint"
LOCK: Final = "sink.lock"
STAGED: Final = "staged"


@dataclass(frozen=True)
class Intent:
    """A bundle that is about to be appended, or was."""

    key: str
    ends: Mapping[str, int]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """What `sink.checkpoint` holds; `target` is the store and topic that it is about."""

    target: str
    store_id: str
    position: Mapping[str, int] = field(default_factory=dict)
    intent: Intent | None = None

    @classmethod
    def read(cls, files: Files, path: Path, fresh: Progress) -> Progress:
        """What is at `path`, or `fresh` if nothing is, or if it is about another store or topic."""
        try:
            document = read_checkpoint(files, path)
        except FileNotFoundError:
            return fresh
        if (document["target"], document["store_id"]) != (fresh.target, fresh.store_id):
            return fresh
        found = document["intent"]
        intent = None if found is None else Intent(found["key"], found["ends"], tuple(found["files"]))
        return replace(fresh, position=document["position"], intent=intent)

    def write(self, files: Files, path: Path) -> None:
        write_checkpoint(files, path, asdict(self))


class HoldfastSink:
    """Made by the runner, for one sink of a pipeline."""

    exactly_once = True

    def __init__(self, settings: HoldfastSinkSettings, files: Files, clock: Clock, ids: Ids) -> None:
        self._settings, self._files, self._clock, self._ids = settings, files, clock, ids
        self._name = f"the topic {settings.topic}"
        self._identity: SinkIdentity | None = None
        self._store: Store | None = None

    # -- Sink -----------------------------------------------------------------------------------------------------

    def open(self, spark: SparkSession, identity: SinkIdentity) -> None:  # noqa: ARG002 (a frame knows its session)
        path = self._settings.store or identity.store
        if path is None:
            raise SinkRefused(f"{self._name}: no store was named, neither by the sink nor by the pipeline")
        own = self._settings.store is None
        with explained(self._name):
            self._files.make_folder(identity.state / STAGED)
            self._store = Store.open(
                path, settings=identity.settings if own else None, files=self._files, clock=self._clock, ids=self._ids
            )
        self._identity = identity

    def position(self) -> dict[str, int]:
        return dict(sorted(self._settled(Deadline(self._settings.deadline, self._clock)).position.items()))

    def write(self, frame: DataFrame, ranges: Ranges, deadline: Deadline) -> WriteResult:
        """Deliver a batch, by the steps of the module's docstring."""
        identity = self._opened()
        with explained(self._name):
            before = self._read()
        if before.intent is not None or held(before.position, ranges, self._name):
            before = self._settled(deadline)
            if held(before.position, ranges, self._name):
                return WriteResult(0, 0, repeated=True)
        schema = arrow_schema(frame.schema, self._name)
        prefix = f"{identity.subscriber}-{self._ids.random_bytes(8).hex()}"
        plan = StagePlan(str(self._folder / STAGED), prefix, schema.serialize().to_pybytes())
        staged = stage(frame, plan, deadline)
        if not staged:
            return WriteResult(0, 0)
        self._refuse_large(staged)
        intent = Intent(_key(ranges), ranges.ends, tuple(file.path for file in staged))
        with self._commits():
            there = all(self._files.exists(self._folder / STAGED / file.path) for file in staged)
            if self._read() != before or not there:
                raise SinkMoved(f"{self._name} was written to by somebody else meanwhile; nothing was written")
            before = replace(before, intent=intent)
            before.write(self._files, self._checkpoint)
            self._append(before, intent, deadline)
            self._clear()
        return WriteResult(sum(file.rows for file in staged), 1)

    def close(self) -> None:
        store, self._store, self._identity = self._store, None, None
        if store is not None:
            store.close()

    # -- the topic ------------------------------------------------------------------------------------------------

    def _settled(self, deadline: Deadline) -> Progress:
        """Bring to an end what somebody began, here or in an earlier life; how far that is, and that is durable."""
        with self._commits():
            progress = self._read()
            # Whoever wrote it may have been killed, or refused by the disk, before its name was durable; what is told
            # from it must be.
            if progress.position or progress.intent is not None:
                progress.write(self._files, self._checkpoint)
            if progress.intent is not None:
                progress = self._append(progress, progress.intent, deadline)
            self._clear()
            return progress

    def _append(self, progress: Progress, intent: Intent, deadline: Deadline) -> Progress:
        """Steps 3 and 4."""
        paths = [self._folder / STAGED / name for name in intent.files]
        lost = [str(path) for path in paths if not self._files.exists(path)]
        if lost:
            raise SinkFailed(
                f"{self._name}: {lost[0]} is gone, with rows of a batch that may not have been appended; bring it "
                f"back, or remove {self._checkpoint} to deliver from the subscriber's watermark on"
            )
        table = read_staged(self._files, paths)
        try:
            receipt = self._topic.append(
                {self._settings.slot: table},
                durability="fsync",
                timeout=deadline.remaining(),
                attributes={"source": self._opened().subscriber},
                idempotency_key=intent.key,
            )
            receipt.wait(timeout=deadline.remaining())
        except WaitTimeout as problem:
            raise SinkTimeout(f"{self._name}: {problem}") from problem
        except InputError as problem:
            replace(progress, intent=None).write(self._files, self._checkpoint)  # it will never be taken
            raise SinkRefused(f"{self._name} does not take this: {problem}") from problem
        after = replace(progress, position={**progress.position, **intent.ends}, intent=None)
        after.write(self._files, self._checkpoint)
        return after

    def _refuse_large(self, staged: list[Staged]) -> None:
        size = sum(file.bytes for file in staged)
        if size >= MAX_BUNDLE_BYTES:
            raise SinkRefused(
                f"{self._name}: this batch has {format_bytes(size)}, and a bundle at most "
                f"{format_bytes(MAX_BUNDLE_BYTES)}; lower the sink's max_batch_bytes"
            )

    def _clear(self) -> None:
        """Remove staged files: no intent names any."""
        for name in self._files.list(self._folder / STAGED):
            with suppress(FileNotFoundError):
                self._files.unlink(self._folder / STAGED / name)

    def _read(self) -> Progress:
        target = f"{self._opened_store().id}/{self._settings.topic}"
        return Progress.read(self._files, self._checkpoint, Progress(target, self._opened().store_id))

    def _opened(self) -> SinkIdentity:
        if self._identity is None:
            raise Closed(f"the sink of {self._name} is not open; open it")
        return self._identity

    def _opened_store(self) -> Store:
        if self._store is None:
            raise Closed(f"the sink of {self._name} is not open; open it")
        return self._store

    @property
    def _topic(self) -> Topic:
        return self._opened_store().topic(self._settings.topic)

    @property
    def _folder(self) -> Path:
        return self._opened().state

    @property
    def _checkpoint(self) -> Path:
        return self._folder / CHECKPOINT

    @contextmanager
    def _commits(self) -> Iterator[None]:
        with explained(self._name), locked(self._files, self._folder / LOCK, self._name):
            yield


def _key(ranges: Ranges) -> str:
    """The same for the same batch, also after the sink's own folder was lost."""
    text = json.dumps(sorted(ranges.ranges.items()))
    return f"{ranges.store_id}/{ranges.subscriber}/{blake2b(text.encode(), digest_size=16).hexdigest()}"
