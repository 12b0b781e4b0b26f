"""Every setting of a store, with its default and the reason for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from holdfast.durability import Durability
from holdfast.errors import InvalidName, InvalidSettings
from holdfast.names import validate_namespace, validate_topic
from holdfast.units import parse_bytes, parse_seconds

MAX_BUNDLE_BYTES: Final = 1 << 30  # a frame is held in memory whole; beyond this, split the batch
DEAD_SUFFIX: Final = ".dead"  # a topic's dead letters are the topic of its name and this


def level_of(value: Durability | str) -> Durability:
    """A level by its name, or itself; only those that this store can reach."""
    try:
        level = Durability[value.upper()] if isinstance(value, str) else Durability(value)
    except (KeyError, ValueError):
        raise InvalidSettings(f"{value!r} is not a durability; use memory, os or fsync") from None
    if level is Durability.OBJECT:
        raise InvalidSettings("durability object needs a bucket, which this store does not have; use fsync")
    return level


def _share(value: Any) -> Any:
    if isinstance(value, str) and value.strip().endswith("%"):
        return float(value.strip()[:-1]) / 100
    return value


Size = Annotated[int, BeforeValidator(parse_bytes)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, lt=1)]
Level = Annotated[Durability, BeforeValidator(level_of)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SegmentSettings(_Settings):
    """When the open segment is sealed, and how."""

    target_size: Size = Field(32_000_000, ge=1)
    max_open_duration: Seconds = Field(60.0, gt=0)
    max_streams: int = Field(
        256, ge=1
    )  # distinct (slot, schema) pairs: each costs a directory entry and an Arrow footer
    compression: Literal["none", "lz4", "zstd"] = "none"
    max_dictionary_size: int = Field(65_536, ge=1)


class WalSettings(_Settings):
    """The write-ahead log: its bounds, and how long a sync may wait for company."""

    max_size: Size = Field(4_000_000_000, ge=1)
    file_size: Size = Field(64_000_000, ge=4096)
    flush_interval: Seconds = Field(0.0, ge=0, le=3600)
    max_pending: Size = Field(64_000_000, ge=1)  # bytes accepted but not yet synced

    @model_validator(mode="after")
    def _fits(self) -> WalSettings:
        if self.file_size > self.max_size:
            raise ValueError(f"wal.file_size ({self.file_size}) must not exceed wal.max_size ({self.max_size})")
        return self


class RetentionSettings(_Settings):
    """What may stay on disk, for how long, and what gives way (the order is drawn in `holdfast.retention`)."""

    size_cap: Size | None = Field(None, ge=1)  # of the level it is written at: `StoreSettings.caps` tells which
    min_free_disk: Share = 0.05
    size_cap_policy: Literal["backpressure", "drop_oldest"] = "backpressure"
    max_age: Seconds | None = Field(None, gt=0)
    age_by: Literal["ingestion", "event"] = "ingestion"
    expire_unfinished: bool = False  # nothing that somebody still needs is given up unless the operator says so
    max_segments: int = Field(100_000, ge=1)  # of a shard: one folder holds them, and every listing reads it
    steady_state_headroom: Size = Field(0, ge=0)  # bytes of finished segments that stay, the newest ones
    check_interval: Seconds = Field(300.0, gt=0)
    trash_age: Seconds | None = Field(None, gt=0)  # without it deletes are final


class SubscriberSettings(_Settings):
    """How bundles are delivered, and what becomes of a subscriber that does not finish."""

    window: int = Field(1_000, ge=1, le=1_000_000)  # bundles delivered and not yet answered
    max_retrying: int = Field(10_000, ge=1, le=1_000_000)  # bundles that wait for another attempt; then nothing new
    deadline: Seconds = Field(60.0, gt=0)  # from delivery to answer; silence counts as a transient nack
    max_attempts: int = Field(10, ge=1)  # failures that are not transient, then the bundle is dead-lettered
    retry_initial: Seconds = Field(0.5, gt=0)  # before the second attempt; doubles with each further one
    retry_max: Seconds = Field(60.0, gt=0)
    expire_after: Seconds | None = Field(None, gt=0)  # without a holder for so long, it is removed; default: never
    on_full: Literal["block", "drop"] = "block"

    @model_validator(mode="after")
    def _fits(self) -> SubscriberSettings:
        if self.retry_initial > self.retry_max:
            raise ValueError(f"retry_initial ({self.retry_initial}) must not exceed retry_max ({self.retry_max})")
        return self


class IdempotencySettings(_Settings):
    """How long a key of an idempotent append is remembered: as long as both allow (`holdfast.store.keys`)."""

    window: Seconds = Field(86_400.0, gt=0)
    max_keys: int = Field(1_000_000, ge=1)  # of a topic: each process that uses keys holds them all in memory


class BufferSettings(_Settings):
    """All settings of one topic."""

    durability: Level = Durability.FSYNC
    append_timeout: Seconds = Field(30.0, ge=0)  # how long an append waits for room
    slots: Literal["default", "otap"] = "default"
    segment: SegmentSettings = SegmentSettings()
    wal: WalSettings = WalSettings()
    retention: RetentionSettings = RetentionSettings()
    subscriber: SubscriberSettings = SubscriberSettings()
    idempotency: IdempotencySettings = IdempotencySettings()


@dataclass(frozen=True, slots=True)
class Cap:
    """A `size_cap` together with what it counts: everything below `folder`, which is relative to the store's."""

    level: Literal["store", "namespace", "topic"]
    folder: Path
    size: int

    @property
    def folders(self) -> tuple[Path, ...]:
        """A topic's cap counts its dead letters too, which are a topic of their own beside it."""
        if self.level != "topic":
            return (self.folder,)
        return self.folder, self.folder.with_name(self.folder.name + DEAD_SUFFIX)


class StoreSettings(_Settings):
    """Defaults for every topic, and what namespaces and topics set otherwise, key by key."""

    buffer: BufferSettings = BufferSettings()
    namespaces: Mapping[str, Mapping[str, Any]] = {}
    topics: Mapping[str, Mapping[str, Any]] = {}

    @model_validator(mode="after")
    def _all_resolve(self) -> StoreSettings:
        """Bad values are refused at start, all of them at once, not when a topic is first used."""
        problems = []
        for check, names, layers in (
            (validate_namespace, self.namespaces, lambda name: (self.namespaces[name],)),
            (
                validate_topic,
                self.topics,
                lambda name: (self.namespaces.get(name.split("/")[0], {}), self.topics[name]),
            ),
        ):
            for name in names:
                try:
                    check(name)
                    self._resolved(*layers(name))
                except InvalidName as error:
                    problems.append(str(error))
                except ValidationError as error:
                    kind = "namespaces" if names is self.namespaces else "topics"
                    problems.append(_explain(error, f"{kind}.{name}"))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def of(cls, value: StoreSettings | Mapping[str, Any] | None) -> StoreSettings:
        """Settings from what a caller passed; raises `InvalidSettings` that lists every bad key."""
        if isinstance(value, StoreSettings):
            return value
        try:
            return cls.model_validate({} if value is None else value)
        except ValidationError as error:
            raise InvalidSettings(_explain(error, "")) from None

    def resolve(self, topic: str) -> BufferSettings:
        """What holds for `topic`: its own settings, then its namespace's, then the store's."""
        namespace = topic.split("/", 1)[0]
        return self._resolved(self.namespaces.get(namespace, {}), self.topics.get(topic, {}))

    def caps(self, topic: str) -> tuple[Cap, ...]:
        """The caps that `topic` is under, the widest first.

        A cap holds where it is written and is not handed down: the store's counts the whole store once, however many
        topics there are, and a topic that sets its own stays under the store's as well.
        """
        namespace, name = topic.split("/", 1)
        levels: tuple[tuple[Literal["store", "namespace", "topic"], Path, int | None], ...] = (
            ("store", Path(), self.buffer.retention.size_cap),
            ("namespace", Path(namespace), _own_size_cap(self.namespaces.get(namespace, {}))),
            ("topic", Path(namespace, name), _own_size_cap(self.topics.get(topic, {}))),
        )
        return tuple(Cap(level, folder, size) for level, folder, size in levels if size is not None)

    def _resolved(self, *overrides: Mapping[str, Any]) -> BufferSettings:
        merged: Mapping[str, Any] = self.buffer.model_dump()
        for override in overrides:
            merged = _merge(merged, override)
        return BufferSettings.model_validate(merged) if any(overrides) else self.buffer


def _own_size_cap(override: Mapping[str, Any]) -> int | None:
    """What a namespace or topic itself says; it was checked with all the rest when the settings were made."""
    own = override.get("retention")
    return RetentionSettings.model_validate(own).size_cap if own is not None else None


def _merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in override.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _explain(error: ValidationError, where: str) -> str:
    lines = []
    for problem in error.errors():
        path = ".".join(str(part) for part in (*filter(None, [where]), *problem["loc"]))
        text = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{path}: {text}" if path else text)
    return "; ".join(lines)
