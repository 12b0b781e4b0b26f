"""The dead letters of a topic: what its subscribers rejected, found by place, shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdfast.acks import Progress
from holdfast.errors import InputError, InvalidBundle, UnknownTopic
from holdfast.files import Files, SystemFiles
from holdfast.names import validate_subscriber, validate_topic
from holdfast.operate._subscribers import Where, registry_of
from holdfast.operate._values import moment, value
from holdfast.store import Store, Topic
from holdfast.store.dead_letters import DEAD_SUFFIX, DeadLetter

Document = dict[str, Any]
REPLAY: Final = "replay"  # the subscriber of a dead-letter topic that stands for "was replayed"
ALL: Final = "all"
FIRST_ROWS: Final = 10  # of each slot, when a letter is shown
_ID: Final = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class PlacedLetter:
    """A dead letter and where it is kept."""

    shard: int
    offset: int
    letter: DeadLetter
    replayed: bool

    @property
    def id(self) -> str:
        return f"{self.shard}/{self.offset}"


class Letters:
    """The dead letters of one topic of an open store."""

    def __init__(self, store: Store, topic: str, files: Files) -> None:
        """Raises `UnknownTopic` for one that is not there; one without dead letters is empty."""
        validate_topic(topic)
        if topic.endswith(DEAD_SUFFIX):
            raise InputError(
                f"{topic} holds dead letters; name the topic they are of: {topic.removesuffix(DEAD_SUFFIX)}"
            )
        known = store.topics()
        if topic not in known:  # it is not made by asking for its dead letters
            raise UnknownTopic(f"{store.path} has no topic {topic!r}; it has {', '.join(known) or 'none'}")
        self.topic, self.name = topic, topic + DEAD_SUFFIX
        self.dead: Topic | None = store.topic(self.name) if self.name in known else None
        self._files, self._path = files, store.path

    def all(self, subscriber: str | None = None) -> Iterator[PlacedLetter]:
        """Every letter in the order of shards and offsets; of one subscriber, if given."""
        if subscriber is not None:
            validate_subscriber(subscriber)
        if self.dead is not None:
            yield from self._between(self.dead, None, None, subscriber)

    def one(self, identity: str) -> PlacedLetter:
        """The letter with this id; raises `InputError` if it is not there."""
        match = _ID.fullmatch(identity)
        if match is None:
            raise InputError(
                f"{identity!r} is no dead letter's id: that is shard/offset, as `dead-letters list` shows it"
            )
        shard, offset = int(match[1]), int(match[2])
        if self.dead is not None:
            positions = self.dead.positions()
            end = {number: offset + 1 if number == shard else 0 for number in positions}
            if shard in positions:
                for found in self._between(self.dead, {shard: offset}, end, None):
                    return found
        raise InputError(f"there is no dead letter {identity} in {self.name}: it was deleted, or never was")

    def chosen(self, which: Sequence[str], subscriber: str | None = None) -> Iterator[PlacedLetter]:
        """Those with these ids, or all; of one subscriber, if given."""
        if not which or (ALL in which and len(which) > 1):
            raise InputError(f"say which dead letters: ids as `dead-letters list` shows them, or {ALL}")
        if ALL in which:
            return self.all(subscriber)
        found: Iterable[PlacedLetter] = map(self.one, dict.fromkeys(which))
        return (each for each in found if subscriber in {None, each.letter.subscriber})

    def _between(self, dead: Topic, start: Any, end: Any, subscriber: str | None) -> Iterator[PlacedLetter]:
        progress = self._progress(dead)
        for bundle in dead.bundles(start, end):
            if bundle.shard is None or bundle.offset is None:
                continue
            try:
                letter = DeadLetter.from_bundle(bundle)
            except InvalidBundle:  # somebody appended it by hand
                continue
            if subscriber in {None, letter.subscriber}:
                done = progress.get(bundle.shard)
                replayed = done is not None and done.is_final(bundle.offset)
                yield PlacedLetter(bundle.shard, bundle.offset, letter, replayed)

    def _progress(self, dead: Topic) -> dict[int, Progress]:
        """What was replayed, by shard."""
        registration = registry_of(self._files, self._path, self.name).subscribers.get(REPLAY)
        if registration is None:
            return {}
        logs = {shard: dead.acks(shard) for shard in dead.positions()}
        for log in logs.values():
            log.refresh()
        return {shard: log.progress(registration.number) for shard, log in logs.items()}


# -- shown --------------------------------------------------------------------------------------------------------


def dead_letters(
    path: Where, topic: str, *, subscriber: str | None = None, limit: int | None = None, files: Files | None = None
) -> Document:
    """What the subscribers of a topic rejected, oldest first; at most `limit` letters."""
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit}: ask for one dead letter at least")
    files = SystemFiles() if files is None else files
    with Store.open(path, read_only=True, files=files) as store:
        letters = Letters(store, topic, files)
        found = letters.all(subscriber)
        listed = [_summary(each) for each in islice(found, limit)]
        more = next(found, None) is not None
        return {"path": str(Path(path)), "topic": topic, "kept_in": letters.name, "letters": listed, "more": more}


def dead_letter(path: Where, topic: str, identity: str, *, files: Files | None = None) -> Document:
    """One letter with its attributes and first rows."""
    files = SystemFiles() if files is None else files
    with Store.open(path, read_only=True, files=files) as store:
        found = Letters(store, topic, files).one(identity)
        original = found.letter.original()
        slots = {
            name: {"rows": batch.num_rows, "first": rows_of(batch, FIRST_ROWS)}
            for name, batch in original.slots.items()
        }
        rejected = None if found.letter.rows is None else {"slot": found.letter.slot, "rows": list(found.letter.rows)}
        return {
            "path": str(Path(path)),
            **_summary(found),
            "only": rejected,
            "attributes": value(original.attributes),
            "slots": slots,
        }


def _summary(found: PlacedLetter) -> Document:
    letter = found.letter
    return {
        "id": found.id,
        "subscriber": letter.subscriber,
        "topic": letter.topic,
        "shard": letter.shard,
        "offset": letter.offset,
        "rows": sum(batch.num_rows for batch in letter.bundle.slots.values()),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "time": moment(letter.time_ns),
        "replayed": found.replayed,
    }


def letter_document(found: PlacedLetter) -> Document:
    """All of a letter, every row included."""
    original = found.letter.original()
    slots = {name: rows_of(batch, batch.num_rows) for name, batch in original.slots.items()}
    return {**_summary(found), "attributes": value(original.attributes), "slots": slots}


def rows_of(batch: Any, count: int) -> list[Document]:
    """The first rows of a batch as JSON values."""
    columns = list(zip(batch.schema.names, batch.columns, strict=True))
    return [{name: value(column[row]) for name, column in columns} for row in range(min(count, batch.num_rows))]
