"""Who is subscribed to a topic: part of `topic.checkpoint`, changed only under the topic's lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from holdfast.errors import UnknownSubscriber
from holdfast.names import validate_subscriber

KEPT_REMOVALS: Final = 100  # the last removals stay on record
OnFull = Literal["block", "drop"]


@dataclass(frozen=True, slots=True)
class Registration:
    """A subscriber, and from where on each shard is its business; a shard that is not named, from its beginning.

    `number` is what the ack logs know it by: never given to another subscriber of the topic, also after a removal.
    """

    name: str
    number: int
    since_ns: int
    starts: Mapping[int, int] = field(default_factory=dict)
    authoritative: bool = False
    on_full: OnFull = "block"
    paused: bool = False
    expire_after: float | None = None  # seconds without a holder, then it is removed
    absent_since_ns: int | None = None  # first seen without a holder; only while it can expire

    def start(self, shard: int) -> int:
        return self.starts.get(shard, 0)

    def to_document(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "since_ns": self.since_ns,
            "starts": {str(shard): offset for shard, offset in sorted(self.starts.items())},
            "authoritative": self.authoritative,
            "on_full": self.on_full,
            "paused": self.paused,
            "expire_after": self.expire_after,
            "absent_since_ns": self.absent_since_ns,
        }

    @classmethod
    def from_document(cls, name: str, document: Mapping[str, Any]) -> Registration:
        """Raises `KeyError`, `TypeError`, `ValueError` for what is none."""
        if document["on_full"] not in ("block", "drop"):
            raise ValueError(f"on_full is {document['on_full']!r}, expected block or drop")
        expire, absent = document["expire_after"], document["absent_since_ns"]
        return cls(
            validate_subscriber(name),
            int(document["number"]),
            int(document["since_ns"]),
            {int(shard): int(offset) for shard, offset in document["starts"].items()},
            bool(document["authoritative"]),
            document["on_full"],
            bool(document["paused"]),
            None if expire is None else float(expire),
            None if absent is None else int(absent),
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """A subscriber that is no more: what it had not finished is no longer kept for it."""

    name: str
    number: int
    time_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class Registry:
    """All subscribers of a topic, and the last ones that were removed."""

    subscribers: Mapping[str, Registration] = field(default_factory=lambda: MappingProxyType({}))
    next_number: int = 1
    removals: tuple[Removal, ...] = ()

    def __bool__(self) -> bool:
        """Was there ever a subscriber?"""
        return self.next_number > 1

    def get(self, name: str) -> Registration:
        try:
            return self.subscribers[name]
        except KeyError:
            known = ", ".join(sorted(self.subscribers)) or "none"
            raise UnknownSubscriber(f"there is no subscriber {name!r}; there are: {known}") from None

    def numbered(self, number: int) -> Registration | None:
        return next((each for each in self.subscribers.values() if each.number == number), None)

    @property
    def numbers(self) -> set[int]:
        return {each.number for each in self.subscribers.values()}

    @property
    def deciding(self) -> list[Registration]:
        """Those whose outcomes answer a source: the authoritative ones, or all if none is."""
        everyone = list(self.subscribers.values())
        return [each for each in everyone if each.authoritative] or everyone

    def with_one(self, registration: Registration) -> Registry:
        """`registration` added, or in place of the one of its name."""
        subscribers = {**self.subscribers, registration.name: registration}
        return replace(self, subscribers=subscribers, next_number=max(self.next_number, registration.number + 1))

    def without(self, name: str, time_ns: int, why: str) -> Registry:
        gone = self.get(name)
        removals = (*self.removals, Removal(name, gone.number, time_ns, why))[-KEPT_REMOVALS:]
        subscribers = {key: value for key, value in self.subscribers.items() if key != name}
        return replace(self, subscribers=subscribers, removals=removals)

    def to_document(self) -> dict[str, Any]:
        return {
            "next_number": self.next_number,
            "registered": {name: each.to_document() for name, each in sorted(self.subscribers.items())},
            "removals": [[each.name, each.number, each.time_ns, each.why] for each in self.removals],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Registry:
        """Raises `KeyError`, `TypeError`, `ValueError` for what is none."""
        subscribers = {name: Registration.from_document(name, each) for name, each in document["registered"].items()}
        next_number = int(document["next_number"])
        numbers = [each.number for each in subscribers.values()]
        if len(set(numbers)) < len(numbers) or any(not 0 < number < next_number for number in numbers):
            raise ValueError(f"subscribers have the numbers {numbers}, the next one is {next_number}")
        removals = tuple(
            Removal(str(name), int(number), int(time_ns), str(why))
            for name, number, time_ns, why in document["removals"]
        )
        return cls(subscribers, next_number, removals)
