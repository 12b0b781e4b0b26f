"""A store: a folder of topics."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import structlog

from holdfast.clock import Clock, Ids, SystemClock, SystemIds
from holdfast.config import Cap, StoreSettings
from holdfast.errors import Closed, Corruption, InvalidPosition, NotAStore, UnknownTopic
from holdfast.files import TEMPORARY_SUFFIX, Files, SystemFiles
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.names import validate_topic
from holdfast.retention import SegmentFacts
from holdfast.store._keeper import Keeper
from holdfast.store._listener import Listener
from holdfast.store._ownership import holds_shards
from holdfast.store._sealer import Sealer
from holdfast.store._topic import Topic
from holdfast.store.dead_letters import DEAD_SUFFIX
from holdfast.store.layout import MAX_SHARDS, STORE_CHECKPOINT, STORE_LOCK, TOPIC_CHECKPOINT, shard_number
from holdfast.store.topic_state import TopicState
from holdfast.wal import Progress

PROGRESS_SECONDS: Final = 2.0  # recovery that takes longer says how far it is
_log = structlog.get_logger("holdfast.store")


class Store:
    """Open one with `Store.open`; close it, or use it as a context manager."""

    def __init__(
        self,
        path: Path,
        store_id: str,
        settings: StoreSettings,
        *,
        read_only: bool,
        files: Files,
        clock: Clock,
        ids: Ids,
        progress: Callable[[str, int, int], None] | None,
    ) -> None:
        self.path, self.id, self.settings, self.read_only = path, store_id, settings, read_only
        self._files, self._clock, self._ids = files, clock, ids
        self._progress = progress
        self._note = f"process {os.getpid()} on {socket.gethostname()}"
        self._lock = threading.Lock()
        self._topics: dict[tuple[str, int | None], Topic] = {}
        self._closed = False
        self._keeper, self._listener = Keeper(clock), Listener(files)
        self._dead: Store | None = None  # for a read-only store's subscribers: writes dead letters and nothing else
        self._sealer = (
            None if read_only else Sealer(files, path, clock, lambda shard: shard.settings.retention.min_free_disk)
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        settings: StoreSettings | Mapping[str, Any] | None = None,
        read_only: bool = False,
        files: Files | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Store:
        """Open the store in folder `path`, made if it is missing or empty (unless `read_only`).

        `progress(shard, bytes_done, bytes_total)` is called while a shard is recovered; by default a line is logged
        when that takes long. `files`, `clock` and `ids` are for tests.
        """
        checked = StoreSettings.of(settings)
        files = SystemFiles() if files is None else files
        ids = SystemIds() if ids is None else ids
        folder = Path(path)
        store_id = _identify(files, folder, ids, create=not read_only)
        return cls(
            folder, store_id, checked, read_only=read_only, files=files,
            clock=SystemClock() if clock is None else clock, ids=ids, progress=progress,
        )  # fmt: skip

    def topic(self, name: str, *, shard: int | None = None) -> Topic:
        """The topic `namespace/name`, made if it is missing (unless read-only).

        `shard` insists on that shard for appending; by default the first free one is taken, or a new one made.
        """
        namespace, short = validate_topic(name)
        if shard is not None and (type(shard) is not int or not 0 <= shard < MAX_SHARDS):
            raise InvalidPosition(f"shard {shard!r} of {name}: a shard is a number from 0 to {MAX_SHARDS - 1}")
        with self._lock:
            if self._closed:
                raise Closed(f"the store {self.path} is closed; open it again")
            topic = self._topics.get((name, shard))
            if topic is None:
                topic = self._topics[name, shard] = self._open_topic(name, self.path / namespace / short, shard)
            return topic

    def _open_topic(self, name: str, folder: Path, shard: int | None) -> Topic:
        settings = self.settings.resolve(name)
        if self._files.exists(folder / TOPIC_CHECKPOINT):
            state = TopicState(self._files, folder, note=self._note)
        elif holds_shards(self._files, folder):
            raise Corruption(folder / TOPIC_CHECKPOINT, 0, "missing, although the topic has shards")
        elif self.read_only:
            raise UnknownTopic(f"{self.path} has no topic {name!r}; it has {', '.join(self.topics()) or 'none'}")
        else:
            state = TopicState.create(self._files, folder, slots=settings.slots, note=self._note)
        return Topic(
            name, folder, state, settings,
            files=self._files, clock=self._clock, ids=self._ids, sealer=self._sealer,
            keeper=self._keeper, listener=self._listener, caps=_caps(self.settings, name), neighbours=self,
            dead=lambda: self._dead_topic(name),
            note=self._note, shard=shard, progress=self._recovery_progress,
        )  # fmt: skip

    def _dead_topic(self, name: str) -> Topic:
        """Where what is rejected in topic `name` is kept: in a shard that this process owns, made if need be."""
        if not self.read_only:
            return self.topic(name + DEAD_SUFFIX)
        with self._lock:
            if self._closed:
                raise Closed(f"the store {self.path} is closed; open it again")
            if self._dead is None:
                self._dead = Store(
                    self.path, self.id, self.settings, read_only=False,
                    files=self._files, clock=self._clock, ids=self._ids, progress=self._progress,
                )  # fmt: skip
            return self._dead.topic(name + DEAD_SUFFIX)

    def finished(self, shard: Path) -> list[SegmentFacts]:
        """For the budget: what everyone has finished in a shard, oldest first."""
        topic, number = self._place(shard)
        return topic._finished_segments(number)

    def reclaim(self, shard: Path, wanted_bytes: int) -> int:
        """For the budget: make room in a shard that nobody holds; how many bytes it were."""
        topic, number = self._place(shard)
        return topic.adopt(number, wanted_bytes)

    def _place(self, shard: Path) -> tuple[Topic, int]:
        """The topic and the number of the shard in this folder."""
        number = shard_number(shard.name)
        if number is None:
            raise NotAStore(f"{shard} is no shard's folder")
        return self.topic(f"{shard.parent.parent.name}/{shard.parent.name}"), number

    def topics(self) -> list[str]:
        """The names of all topics."""
        found = []
        for namespace in self._files.list(self.path):
            if self._files.is_folder(self.path / namespace):
                found += [
                    f"{namespace}/{name}"
                    for name in self._files.list(self.path / namespace)
                    if self._files.exists(self.path / namespace / name / TOPIC_CHECKPOINT)
                ]
        return found

    def _recovery_progress(self, shard: str) -> Progress:
        if self._progress is not None:
            report = self._progress
            return lambda done, total: report(shard, done, total)
        next_line = self._clock.monotonic() + PROGRESS_SECONDS

        def log(done: int, total: int) -> None:
            nonlocal next_line
            if self._clock.monotonic() >= next_line:
                next_line = self._clock.monotonic() + PROGRESS_SECONDS
                _log.info("recovering", shard=shard, bytes=done, of=total)

        return log

    def close(self) -> None:
        """Make everything durable, seal it, and let go of the shards."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            topics = list(self._topics.values())
        problems: list[Exception] = []
        for topic in topics:
            try:
                topic.close()
            except Exception as problem:  # the others are closed all the same
                problems.append(problem)
        self._listener.close()
        self._keeper.close()
        if self._sealer is not None:
            self._sealer.close()
        if self._dead is not None:
            self._dead.close()
        if problems:
            raise problems[0]

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, read_only={self.read_only})"


def _caps(settings: StoreSettings, topic: str) -> tuple[Cap, ...]:
    """What a topic is under. Dead letters keep only to a cap of their own: they may settle what fills another."""
    caps = settings.caps(topic)
    return tuple(cap for cap in caps if cap.level == "topic") if topic.endswith(DEAD_SUFFIX) else caps


def _identify(files: Files, folder: Path, ids: Ids, *, create: bool) -> str:
    """The store's id; makes a store in an empty or missing folder if allowed."""
    checkpoint = folder / STORE_CHECKPOINT
    if files.exists(folder) and not files.is_folder(folder):
        raise NotAStore(f"{folder} is a file; a store is a folder")
    if not create:
        if not files.exists(checkpoint):
            raise NotAStore(
                f"there is no store at {folder}: no {STORE_CHECKPOINT} in it; "
                "check the path, or open it for writing once"
            )
        return _read_id(files, checkpoint)
    files.make_folder(folder)
    present = files.list(folder)
    if STORE_CHECKPOINT not in present and any(
        name != STORE_LOCK and not name.endswith(TEMPORARY_SUFFIX) for name in present
    ):
        raise NotAStore(
            f"{folder} holds other things ({', '.join(present[:3])}) and no {STORE_CHECKPOINT}: "
            "not a store; choose an empty or a new folder"
        )
    lock = files.lock(folder / STORE_LOCK, note="", wait=True)  # another process may be making it too
    try:
        store_id = _read_id(files, checkpoint) if files.exists(checkpoint) else ids.random_bytes(16).hex()
        # Written anew each time: whoever wrote it before may have been killed before it was durable.
        write_checkpoint(files, checkpoint, {"kind": "store", "id": store_id})
    finally:
        lock.release()
    return store_id


def _read_id(files: Files, checkpoint: Path) -> str:
    document = read_checkpoint(files, checkpoint)
    if document.get("kind") != "store" or not isinstance(document.get("id"), str):
        raise Corruption(checkpoint, 20, "not a store's checkpoint")
    return str(document["id"])
