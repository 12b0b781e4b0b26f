"""What a user may say to `format("holdfast")`, checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import InvalidPosition, InvalidSettings
from holdfast.names import validate_subscriber, validate_topic
from holdfast.units import parse_bytes, parse_seconds

METADATA: Final = ("_shard", "_offset", "_ingestion_time", "_source")
MAX_BYTES: Final = 256_000_000  # of one micro-batch
PARTITION_BYTES: Final = 128_000_000  # of one task: it takes Spark some 40 ms to start one in Python
OPTIONS: Final = (
    "path", "topic", "slot", "subscriber", "columns", "leaveOut", "metadata", "filter", "pushdown", "sources",
    "startingOffset", "endingOffset", "maxBytesPerTrigger", "maxRowsPerTrigger", "minBytesPerTrigger",
    "maxTriggerDelay", "partitionBytes", "failOnDataLoss", "stateful", "floor", "epoch",
    "durability", "source",
)  # fmt: skip

SPARKS_OWN: Final = ("checkpointlocation",)  # of a streaming write: Spark hands it over with the rest


@dataclass(frozen=True)
class Options:
    """Plain values: they travel to every process that plans or reads."""

    path: str
    topic: str
    slot: str | None = None
    subscriber: str | None = None
    columns: tuple[str, ...] | None = None
    leave_out: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    filter: str | None = None
    pushdown: bool = False
    sources: tuple[str, ...] | None = None
    start: str | int | dict[int, int] = "earliest"
    end: int | dict[int, int] | None = None
    max_bytes: int = MAX_BYTES
    max_rows: int | None = None
    min_bytes: int = 0
    max_delay: float = 0.0
    partition_bytes: int = PARTITION_BYTES
    fail_on_data_loss: bool = True
    stateful: bool = False
    floor: dict[int, int] | None = None
    epoch: int | None = None  # of the runner's lease: it acks, this source does not
    durability: str | None = None
    source: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Raises `InvalidSettings` for anything unknown or unusable."""
        known = {name.lower(): name for name in OPTIONS}
        values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in SPARKS_OWN:
                continue
            if name.lower() not in known:
                close = difflib.get_close_matches(name.lower(), known, 1)
                hint = f"; did you mean {known[close[0]]}?" if close else f"; there are {', '.join(OPTIONS)}"
                raise InvalidSettings(f"holdfast has no option {name!r}{hint}")
            values[known[name.lower()]] = value
        for name in ("path", "topic"):
            if not values.get(name):
                raise InvalidSettings(f'option {name} is missing: .option("{name}", ...)')
        validate_topic(values["topic"])
        if "minBytesPerTrigger" in values and "maxTriggerDelay" not in values:
            raise InvalidSettings("option minBytesPerTrigger needs maxTriggerDelay: how long a smaller batch may wait")
        subscriber = values.get("subscriber")
        if subscriber is not None:
            validate_subscriber(subscriber)
        return cls(
            path=values["path"],
            topic=values["topic"],
            slot=values.get("slot"),
            subscriber=subscriber,
            columns=_names(values.get("columns")),
            leave_out=_names(values.get("leaveOut")) or (),
            metadata=_metadata(values.get("metadata")),
            filter=values.get("filter"),
            pushdown=_flag(values, "pushdown", default=False),
            sources=_names(values.get("sources")),
            start=_position(values.get("startingOffset", "earliest"), "startingOffset"),
            end=_end(values, "endingOffset"),
            max_bytes=_size(values, "maxBytesPerTrigger", MAX_BYTES),
            max_rows=_count(values, "maxRowsPerTrigger"),
            min_bytes=_size(values, "minBytesPerTrigger", 0, least=0),
            max_delay=_seconds(values, "maxTriggerDelay"),
            partition_bytes=_size(values, "partitionBytes", PARTITION_BYTES),
            fail_on_data_loss=_flag(values, "failOnDataLoss", default=True),
            stateful=_flag(values, "stateful", default=False),
            floor=_floor(values),
            epoch=_count(values, "epoch"),
            durability=values.get("durability"),
            source=values.get("source"),
        )


def _names(text: str | None) -> tuple[str, ...] | None:
    """A list of names: separated by commas, or in JSON where a name has a comma in it."""
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as problem:
            raise InvalidSettings(f"{text!r} is no list of names in JSON: {problem}") from None
        if not all(isinstance(name, str) for name in names):
            raise InvalidSettings(f"{text!r}: every name in a list is a text")
        return tuple(names)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _metadata(text: str | None) -> tuple[str, ...]:
    if text is None or text.strip().lower() == "false":
        return ()
    names = METADATA if text.strip().lower() == "true" else _names(text) or ()
    for name in names:
        if name not in METADATA:
            raise InvalidSettings(f"metadata: there is no {name!r}; there are {', '.join(METADATA)}")
    return names


def _position(text: str, option: str) -> str | int | dict[int, int]:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    return position_of(text, option, "earliest, latest")


def _end(values: Mapping[str, str], option: str) -> int | dict[int, int] | None:
    text = values.get(option, "latest")
    return None if text.lower() == "latest" else position_of(text, option, "latest")


def _floor(values: Mapping[str, str]) -> dict[int, int] | None:
    """Of the runner: always by shard."""
    found = position_of(values["floor"], "floor", "nothing") if "floor" in values else None
    return {0: found} if isinstance(found, int) else found


def position_of(text: str, option: str, words: str) -> int | dict[int, int]:
    """A position as text: a number where there is one shard, or JSON, shard -> offset."""
    try:
        value: Any = json.loads(text)
        mapping = {0: value} if isinstance(value, int) else {int(key): offset for key, offset in value.items()}
    except (ValueError, AttributeError):
        value, mapping = None, {0: -1}
    if any(not isinstance(offset, int) or isinstance(offset, bool) or offset < 0 for offset in mapping.values()):
        raise InvalidPosition(
            f'option {option} is {text!r}; use {words}, an offset, or JSON: {{"<shard>": <offset>, ...}}'
        )
    return value if isinstance(value, int) else mapping


def _size(values: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    if name not in values:
        return default
    try:
        size = parse_bytes(values[name])
    except ValueError as problem:
        raise InvalidSettings(f"option {name}: {problem}") from None
    if size < least:
        raise InvalidSettings(f"option {name} is {values[name]}; it must be {least} or more")
    return size


def _seconds(values: Mapping[str, str], name: str) -> float:
    try:
        return parse_seconds(values[name]) if name in values else 0.0
    except ValueError as problem:
        raise InvalidSettings(f"option {name}: {problem}") from None


def _count(values: Mapping[str, str], name: str) -> int | None:
    if name not in values:
        return None
    if not values[name].isdecimal() or int(values[name]) < 1:
        raise InvalidSettings(f"option {name} is {values[name]!r}; it must be a whole number, 1 or more")
    return int(values[name])


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidSettings(f"option {name} is {text!r}; use true or false")
    return text == "true"
