"""The subscribers of a topic: registering, pausing and removing them, and what this process delivers to its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import structlog
from pydantic import ValidationError

from holdfast import metrics
from holdfast.acks import AckLog, Outcome, OutcomeRecord, Progress
from holdfast.bundle import RecordBundle, decode_attributes
from holdfast.clock import Clock, Ids
from holdfast.config import SubscriberSettings
from holdfast.config.settings import DEAD_SUFFIX
from holdfast.errors import Fenced, HoldfastError, InvalidPosition, InvalidSettings
from holdfast.files import Files
from holdfast.metrics import Reporter
from holdfast.names import validate_subscriber
from holdfast.store import lease
from holdfast.store._delivery import Delivery, Rows
from holdfast.store._drain import Drain, ack_ranges
from holdfast.store._keeper import Keeper
from holdfast.store._lane import Lane, Readable
from holdfast.store._listener import Listener
from holdfast.store._ownership import list_shards
from holdfast.store._span import PlacedBundle
from holdfast.store._subscriber import Subscriber
from holdfast.store._subscriber_report import report_subscriber
from holdfast.store.layout import ACKS_LOCK, LOCK, TOPIC_CHECKPOINT, shard_folder
from holdfast.store.lease import SUBSCRIBERS, Lease
from holdfast.store.registry import Registration, Registry
from holdfast.store.reserved import TO
from holdfast.store.shard_checkpoint import Range, ShardCheckpoint
from holdfast.store.topic_state import TopicState

Start = Literal["earliest", "latest"] | int | Mapping[int, int]
_log = structlog.get_logger("holdfast.store")


class Shards(Protocol):
    """What subscriptions ask of their topic."""

    @property
    def name(self) -> str: ...

    def shards(self) -> Sequence[Readable]: ...

    def acks(self, shard: int) -> AckLog: ...

    def bundle_of(self, placed: PlacedBundle, shard: int) -> RecordBundle: ...

    def dead_letter(
        self,
        registration: Registration,
        delivery: Delivery,
        attempts: int,
        reason: str,
        rows: Rows | None,
    ) -> None: ...

    def mapping(self, position: int | Mapping[int, int]) -> dict[int, int]: ...

    def acks_written(self, shard: int) -> None: ...

    def subscribers_changed(self) -> None: ...


class Subscriptions:
    """One for each open topic of a process."""

    def __init__(
        self,
        topic: Shards,
        folder: Path,
        state: TopicState,
        defaults: SubscriberSettings,
        *,
        files: Files,
        clock: Clock,
        ids: Ids,
        keeper: Keeper,
        listener: Listener,
        note: str,
    ) -> None:
        self._topic, self._folder, self._state, self._defaults = topic, folder, state, defaults
        self.bundle_of = topic.bundle_of  # called for each delivery
        self._files, self._clock, self._ids = files, clock, ids
        self._keeper, self._listener, self._note = keeper, listener, note
        self._mutex = threading.Lock()
        self._open: list[Subscriber] = []
        self._watched: set[Path] = set()
        self._known = b""

    @property
    def name(self) -> str:
        return self._topic.name

    # -- registering --------------------------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        start: Start,
        *,
        takeover: bool,
        authoritative: bool | None,
        overrides: Mapping[str, Any],
    ) -> Subscriber:
        """Register `name` unless it is, take its lease, and be ready to deliver."""
        registration, held, settings = self._hold(name, start, takeover, authoritative, overrides)
        subscriber = Subscriber(
            self, registration, held, settings, clock=self._clock, ids=self._ids, keeper=self._keeper
        )
        topic = self.name
        subscriber.reporter = Reporter(lambda: report_subscriber(topic, name, subscriber.statistics()))
        with self._mutex:
            self._open.append(subscriber)
            first = len(self._open) == 1
        if first:
            self._listener.add(self._heard)
            self._watch(self._folder)
            self._watch(self._folder / SUBSCRIBERS)
        self._topic.subscribers_changed()
        return subscriber

    def drain(
        self,
        name: str,
        start: Start,
        *,
        takeover: bool,
        authoritative: bool | None,
        overrides: Mapping[str, Any],
    ) -> Drain:
        """As `subscribe`, for one that reads by offset."""
        registration, held, _ = self._hold(name, start, takeover, authoritative, overrides)
        self._topic.subscribers_changed()
        return Drain(self._topic, registration, held)

    def register(
        self, name: str, start: Start, *, authoritative: bool | None, overrides: Mapping[str, Any]
    ) -> Registration:
        """The registration of `name`, made now unless it is there; nobody becomes its holder by this."""
        validate_subscriber(name)
        settings = _settings(self._defaults, overrides)
        known = self._state.current().subscribers.get(name)
        if known is not None and replace(known, **_options(settings, authoritative, overrides, known)) == known:
            return known
        with self._state.changing() as write:
            registration = self._registered(name, start, settings, authoritative, overrides, write)
        self._topic.subscribers_changed()
        return registration

    def _registered(
        self,
        name: str,
        start: Start,
        settings: SubscriberSettings,
        authoritative: bool | None,
        overrides: Mapping[str, Any],
        write: Callable[[Registry], None],
    ) -> Registration:
        registry = self._state.registry
        known = registry.subscribers.get(name)
        asked = _options(settings, authoritative, overrides, known)
        if known is None:
            return self._register(name, start, registry, asked, write)
        registration = replace(known, **asked)
        if registration != known:
            write(registry.with_one(registration))
        return registration

    def acknowledge(self, name: str, ranges: Mapping[int, Range], *, sync: bool) -> None:
        """Without a lease: refused while somebody holds it."""
        registration = self._state.current().get(name)

        def unheld() -> None:
            holder = self.holder(name)
            if holder is not None:
                raise Fenced(
                    f"subscriber {name!r} is held by {holder}: what is unfinished is delivered there; "
                    "let a query of its own have a subscriber of its own"
                )

        ack_ranges(self._topic, registration, ranges, sync=sync, guard=unheld)

    def _hold(
        self,
        name: str,
        start: Start,
        takeover: bool,
        authoritative: bool | None,
        overrides: Mapping[str, Any],
    ) -> tuple[Registration, Lease, SubscriberSettings]:
        """Register `name` unless it is, and be its holder.

        1. Under the topic's lock, and under every ack log's, so that nothing is being deleted meanwhile: write down
           from where on each shard is this subscriber's business, synced. A crash now: it is registered, nobody
           holds it, and what it was promised is kept.
        2. Take the lease.
        """
        validate_subscriber(name)
        settings = _settings(self._defaults, overrides)
        with self._state.changing() as write:
            registration = self._registered(name, start, settings, authoritative, overrides, write)
            barriers = [shard_folder(self._folder, shard.number) / ACKS_LOCK for shard in self._topic.shards()]
            held = Lease.take(
                self._files, self._folder, registration, note=self._note, takeover=takeover, barriers=barriers
            )
        return registration, held, settings

    def _register(
        self, name: str, start: Start, registry: Registry, asked: dict[str, Any], write: Callable[[Registry], None]
    ) -> Registration:
        with ExitStack() as locks:
            shards = self._topic.shards()
            for shard in shards:
                folder = shard_folder(self._folder, shard.number)
                AckLog.create(self._files, folder, ShardCheckpoint.read(self._files, folder).shard_id)
                locks.enter_context(self._topic.acks(shard.number).exclusive())
            starts = self._starts(start, shards)
            self._excuse(registry.next_number, shards)
            registration = Registration(name, registry.next_number, self._clock.now_ns(), starts, **asked)
            write(registry.with_one(registration))
        _log.info("subscriber registered", topic=self.name, subscriber=name, starts=starts)
        return registration

    def _excuse(self, number: int, shards: Sequence[Readable]) -> None:
        """What was deleted in the middle of a shard before it registered is none of its business either."""
        for shard in shards:
            folder = shard_folder(self._folder, shard.number)
            deleted = ShardCheckpoint.read(self._files, folder).deleted
            if deleted:
                record = OutcomeRecord.of_ranges(number, Outcome.ACK, deleted)
                self._topic.acks(shard.number).append([record], sync=True)

    def _starts(self, start: Start, shards: Sequence[Readable]) -> dict[int, int]:
        trimmed = {
            shard.number: ShardCheckpoint.read(self._files, shard_folder(self._folder, shard.number)).trimmed
            for shard in shards
        }
        if start == "earliest":
            return trimmed
        if start == "latest":
            return {shard.number: shard.durable for shard in shards}
        is_offset = isinstance(start, int) and not isinstance(start, bool) and start >= 0
        if not is_offset and not isinstance(start, Mapping):
            raise InvalidPosition(f"start is {start!r}; use earliest, latest, an offset, or {{shard: offset}}")
        if is_offset and start and not shards:
            raise InvalidPosition(f"start is {start}, but {self.name} has no shard yet; use earliest")
        asked = self._topic.mapping(start)
        for shard in shards:
            if asked.get(shard.number, 0) > shard.durable:
                raise InvalidPosition(
                    f"start is {asked[shard.number]} in shard {shard.number} of {self.name}, which ends at "
                    f"{shard.durable}; use latest"
                )
        return {number: max(first, asked.get(number, 0)) for number, first in trimmed.items()}

    def change(self, name: str, **values: Any) -> Registration:
        """Write down other values of a registration: `paused`, for one."""
        with self._state.changing() as write:
            registration = replace(self._state.registry.get(name), **values)
            write(self._state.registry.with_one(registration))
        self._look_again()
        return registration

    def remove(self, name: str, why: str, *, kind: str = "request") -> Registration:
        """The subscriber is no more: its holder is fenced, and nothing is kept for it. On record in the checkpoint."""
        with self._state.changing() as write:
            registration = self._state.registry.get(name)
            lease.forget(self._files, self._folder, name)
            write(self._state.registry.without(name, self._clock.now_ns(), why))
        _log.warning("subscriber removed", topic=self.name, subscriber=name, why=why)
        metrics.SUBSCRIBERS_REMOVED.inc(self.name, kind)
        self._look_again()
        self._topic.subscribers_changed()
        return registration

    def registry(self) -> Registry:
        return self._state.current()

    def holder(self, name: str) -> str | None:
        return lease.holder(self._files, self._folder, name)

    # -- for the subscribers of this process --------------------------------------------------------------------

    def registration(self, name: str) -> Registration:
        return self._state.current().get(name)

    def lanes(self, registration: Registration, known: dict[int, Lane]) -> dict[int, Lane]:
        """One for each shard; those that are known go on, perhaps with another reader for their shard."""
        lanes: dict[int, Lane] = {}
        for shard in self._topic.shards():
            lane = known.get(shard.number)
            if lane is None:
                acks = self._topic.acks(shard.number)
                acks.refresh()
                lane = Lane(shard, acks, registration.number, registration.start(shard.number))
            lane.shard = shard
            lanes[shard.number] = lane
            self._watch(shard_folder(self._folder, shard.number) / LOCK)
        return lanes

    def is_for(self, registration: Registration, placed: PlacedBundle) -> bool:
        """Is the bundle addressed to everyone, or to this subscriber? A replayed dead letter has one addressee."""
        attributes = placed.attributes
        if not attributes or TO.encode() not in bytes(attributes):
            return True
        return bool(decode_attributes(attributes).get(TO, registration.number) == registration.number)

    def dead_letter(
        self,
        registration: Registration,
        delivery: Delivery,
        attempts: int,
        reason: str,
        rows: Rows | None,
    ) -> None:
        self._topic.dead_letter(registration, delivery, attempts, reason, rows)

    @property
    def keeps_dead_letters(self) -> bool:
        """Not for what is rejected in a topic of dead letters: there is no further one."""
        return not self.name.endswith(DEAD_SUFFIX)

    def acks_written(self, shard: int) -> None:
        self._topic.acks_written(shard)

    def left(self, subscriber: Subscriber) -> None:
        if subscriber.reporter is not None:
            subscriber.reporter.close()
        with self._mutex:
            self._open = [each for each in self._open if each is not subscriber]
            last = not self._open
            watched, self._watched = (self._watched, set()) if last else (set(), self._watched)
        if last:
            self._listener.remove(self._heard)
            for path in watched:
                self._listener.unwatch(path)

    @property
    def open(self) -> list[Subscriber]:
        return list(self._open)

    def nudge(self) -> None:
        """A shard has more to read."""
        for subscriber in self._open:
            subscriber.nudge()

    def shards_changed(self) -> None:
        """This process took a shard, made one, or let one go."""
        for subscriber in self._open:
            subscriber.look_again()

    _look_again = shards_changed

    def delivering(self, shard: int) -> Iterator[int]:
        """The offsets of a shard that are in hand right now: exactly here; elsewhere, where each holder stands."""
        here = {subscriber.name: subscriber for subscriber in self._open}
        for subscriber in here.values():
            yield from subscriber.delivering(shard)
        for name, registration in self._state.registry.subscribers.items():
            if name not in here and self.holder(name) is not None:
                yield progress_of(self._topic.acks(shard), registration, shard).watermark

    def _heard(self) -> None:
        """Another process did something to the topic."""
        names = self._files.list(self._folder)
        for name in names:
            if name.startswith("shard-"):
                lock = self._folder / name / LOCK
                if lock not in self._watched:
                    self._watch(self._folder / name)  # until it is whole
                    self._watch(lock)
        names += self._files.list(self._folder / SUBSCRIBERS)  # a lease that is taken over has another file here
        names += map(str, list_shards(self._files, self._folder))  # a folder may be there before it is a shard
        known = self._files.read(self._folder / TOPIC_CHECKPOINT) + "/".join(names).encode()
        if known != self._known:
            self._known = known
            self.shards_changed()
        else:
            self.nudge()

    def _watch(self, path: Path) -> None:
        with self._mutex:
            if path not in self._watched and self._listener.watch(path):
                self._watched.add(path)

    def close(self) -> None:
        """Close them all, and raise the first problem; one that was fenced is another's by now, and no problem."""
        problems: list[HoldfastError] = []
        for subscriber in self.open:
            try:
                subscriber.close()
            except Fenced as fenced:
                _log.warning("subscriber ended", subscriber=subscriber.name, error=str(fenced))
            except HoldfastError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]


def progress_of(acks: AckLog, registration: Registration, shard: int) -> Progress:
    """How far a subscriber is in a shard, by what the ack log has read so far."""
    progress = acks.progress(registration.number)
    progress.begin(registration.start(shard))
    return progress


def _settings(defaults: SubscriberSettings, overrides: Mapping[str, Any]) -> SubscriberSettings:
    try:
        return SubscriberSettings.model_validate({**defaults.model_dump(), **overrides})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise InvalidSettings(f"subscriber: {'; '.join(lines)}") from None


def _options(
    settings: SubscriberSettings,
    authoritative: bool | None,
    overrides: Mapping[str, Any],
    known: Registration | None,
) -> dict[str, Any]:
    """What of a call is kept in the registration: everything the first time, later only what was asked for."""
    options: dict[str, Any] = {"absent_since_ns": None}
    if authoritative is not None:
        options["authoritative"] = authoritative
    for key in ("on_full", "expire_after"):
        if known is None or key in overrides:
            options[key] = getattr(settings, key)
    return options
