"""A bundle: the unit that is appended, delivered and acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pyarrow as pa

from holdfast.errors import InvalidBundle
from holdfast.schema import empty_batch
from holdfast.units import format_bytes

MAX_ATTRIBUTE_BYTES: Final = 64 * 1024  # encoded; headers and ids fit many times over, payloads belong in slots

_MAX_ATTRIBUTE_DEPTH: Final = 32
_INT64: Final = range(-(2**63), 2**63)
_MSGPACK_INT: Final = range(-(2**63), 2**64)


class RecordBundle:
    """Named slots, each one `RecordBatch`, with a few attributes; immutable.

    `offset`, `shard` and `ingestion_time_ns` are `None` until the bundle has been stored: they say where it
    stands, not what it is, and do not count for equality. Batches are compared as Arrow does: dictionaries by
    their order, too, and NaN equals nothing.
    """

    __slots__ = ("_attributes", "_event_time", "_ingestion_time_ns", "_offset", "_shard", "_slots")

    def __init__(
        self,
        slots: Mapping[str, pa.RecordBatch | pa.Table],
        attributes: Mapping[str, Any] | None = None,
        *,
        event_time: tuple[int, int] | None = None,
        ingestion_time_ns: int | None = None,
        offset: int | None = None,
        shard: int | None = None,
    ) -> None:
        """`event_time` is the inclusive range in nanoseconds since 1970; a `Table` becomes one batch."""
        if not isinstance(slots, Mapping):
            raise InvalidBundle(f"a bundle is made of a mapping of slot name to RecordBatch, not of {_named(slots)}")
        if not slots:
            raise InvalidBundle("a bundle needs at least one slot; the mapping is empty")
        batches = dict(slots)
        for name, value in batches.items():
            if type(value) is not pa.RecordBatch or type(name) is not str:
                batches[name] = _as_batch(name, value)
        self._slots: dict[str, pa.RecordBatch] = batches
        self._attributes: dict[str, Any] = _checked_attributes(attributes) if attributes is not None else {}
        self._event_time = None if event_time is None else _checked_range(event_time)
        self._ingestion_time_ns = ingestion_time_ns
        self._offset = offset
        self._shard = shard

    @classmethod
    def stored(
        cls,
        slots: dict[str, pa.RecordBatch],
        attributes: dict[str, Any],
        event_time: tuple[int, int] | None,
        ingestion_time_ns: int,
        offset: int,
        shard: int,
    ) -> RecordBundle:
        """A bundle that comes from a store: its parts were checked when it went in, and are not copied.

        It may have no slots: those that a reader asked for need not be in every bundle.
        """
        bundle = cls.__new__(cls)
        bundle._slots, bundle._attributes, bundle._event_time = slots, attributes, event_time
        bundle._ingestion_time_ns, bundle._offset, bundle._shard = ingestion_time_ns, offset, shard
        return bundle

    @classmethod
    def of(
        cls,
        value: RecordBundle | Mapping[str, pa.RecordBatch | pa.Table],
        attributes: Mapping[str, Any] | None = None,
    ) -> RecordBundle:
        """`value` as a bundle: a bundle is itself, or one with `attributes` laid over its own."""
        if not isinstance(value, RecordBundle):
            return cls(value, attributes)
        if not attributes:
            return value
        return cls(
            value._slots,
            {**value._attributes, **attributes},
            event_time=value._event_time,
            ingestion_time_ns=value._ingestion_time_ns,
            offset=value._offset,
            shard=value._shard,
        )

    @property
    def slots(self) -> Mapping[str, pa.RecordBatch]:
        return MappingProxyType(self._slots)

    @property
    def attributes(self) -> Mapping[str, Any]:
        return MappingProxyType(self._attributes)

    @property
    def event_time(self) -> tuple[int, int] | None:
        return self._event_time

    @property
    def ingestion_time_ns(self) -> int | None:
        return self._ingestion_time_ns

    @property
    def offset(self) -> int | None:
        return self._offset

    @property
    def shard(self) -> int | None:
        return self._shard

    @property
    def rows(self) -> int:
        """Rows of all slots together."""
        return sum(batch.num_rows for batch in self._slots.values())

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take in memory: of a slice, only what it shows."""
        return sum(batch.nbytes for batch in self._slots.values())

    def __getitem__(self, slot: str) -> pa.RecordBatch:
        try:
            return self._slots[slot]
        except KeyError:
            raise KeyError(f"no slot {slot!r} in this bundle; it has {', '.join(self._slots)}") from None

    def __contains__(self, slot: object) -> bool:
        return slot in self._slots

    def __iter__(self) -> Iterator[str]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordBundle):
            return NotImplemented
        return (
            self._slots.keys() == other._slots.keys()
            and self._event_time == other._event_time
            and self._attributes == other._attributes
            and all(batch.equals(other._slots[name], check_metadata=True) for name, batch in self._slots.items())
        )

    __hash__ = None  # type: ignore[assignment]  # equal bundles would have to hash all their rows

    def __repr__(self) -> str:
        parts = [f"{name}: {batch.num_rows} rows" for name, batch in self._slots.items()]
        parts.append(format_bytes(self.nbytes))
        if self._attributes:
            parts.append(f"attributes {', '.join(self._attributes)}")
        if self._offset is not None:
            parts.append(f"offset {self._offset}" + ("" if self._shard is None else f" of shard {self._shard}"))
        return f"<RecordBundle {'; '.join(parts)}>"


def encode_attributes(attributes: Mapping[str, Any], limit: int = MAX_ATTRIBUTE_BYTES) -> bytes:
    """`attributes` as a MessagePack map, at most `limit` bytes; none at all is no bytes."""
    if not attributes:
        return b""
    try:
        data = msgspec.msgpack.encode(dict(attributes))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidBundle(f"attributes cannot be encoded: {error}") from error
    if len(data) > limit:
        raise InvalidBundle(f"attributes take {len(data)} bytes, allowed are {limit}; use a slot for them")
    return data


def decode_attributes(data: bytes | memoryview) -> dict[str, Any]:
    """What `encode_attributes` was given, with lists for tuples."""
    if not len(data):
        return {}
    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidBundle(f"attributes are not a MessagePack map with texts as keys: {error}") from error


def _as_batch(name: object, value: object) -> pa.RecordBatch:
    if not isinstance(name, str):
        raise InvalidBundle(f"a slot's name is a text, not {_named(name)}")
    if isinstance(value, pa.RecordBatch):
        return value
    if not isinstance(value, pa.Table):
        raise InvalidBundle(f"slot {name!r} holds {_named(value)}; expected a pyarrow RecordBatch or Table")
    try:
        batches = value.combine_chunks().to_batches()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
        raise InvalidBundle(
            f"slot {name!r}: this Table does not fit one batch ({error}); append its batches one by one"
        ) from error
    if len(batches) > 1:
        raise InvalidBundle(
            f"slot {name!r}: this Table does not fit one batch but {len(batches)}; append them one by one"
        )
    return batches[0] if batches else empty_batch(value.schema)


def _checked_range(event_time: tuple[int, int]) -> tuple[int, int]:
    match event_time:
        case (int(first), int(last)) if first in _INT64 and last in _INT64 and first <= last:
            return first, last
    raise InvalidBundle(
        f"event_time is {event_time!r}; expected (first, last), nanoseconds as 64-bit integers, first <= last"
    )


def _checked_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(attributes, Mapping):
        raise InvalidBundle(f"attributes are a mapping of name to value, not {_named(attributes)}")
    return {key: _checked(key, value, (), 1) for key, value in attributes.items()}


def _checked(key: object, value: Any, path: tuple[str, ...], depth: int) -> Any:
    """A copy of `value` that shares nothing with it that could change, or `InvalidBundle` with its place."""
    if type(key) is not str:
        raise InvalidBundle(f"attribute {'.'.join((*path, repr(key)))}: a name is a text, not {_named(key)}")
    kind = type(value)
    if value is None or kind in {str, bool, float, bytes} or (kind is int and value in _MSGPACK_INT):
        return value
    path = (*path, key)
    if depth > _MAX_ATTRIBUTE_DEPTH:
        raise InvalidBundle(f"attribute {path[0]} nests deeper than {_MAX_ATTRIBUTE_DEPTH} levels")
    if kind in {list, tuple}:
        return [_checked(str(index), item, path, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {name: _checked(name, item, path, depth + 1) for name, item in value.items()}
    found = "an integer of more than 64 bits" if kind is int else _named(value)
    raise InvalidBundle(
        f"attribute {'.'.join(path)} is {found}; allowed: None, bool, int of 64 bits, float, str, bytes, "
        "lists of these, and mappings with texts as keys"
    )


def _named(value: object) -> str:
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
