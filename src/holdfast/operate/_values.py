"""Values as JSON can carry them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(nanoseconds: int) -> str:
    """Nanoseconds since 1970 as ISO 8601, none of them lost; a plain number where no calendar reaches."""
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    except OverflowError:
        return str(nanoseconds)


def event_time(span: tuple[int, int] | None) -> list[str] | None:
    return None if span is None else [moment(span[0]), moment(span[1])]


def value(thing: Any) -> Any:
    """What JSON has stays as it is; bytes become hexadecimal, everything else its text."""
    if isinstance(thing, pa.Scalar):
        try:
            thing = thing.as_py()
        except (ValueError, OverflowError):  # a time beyond Python's calendar, or finer than its clock
            return str(thing)
    match thing:
        case None | bool() | int() | str():
            return thing
        case float():
            return thing if math.isfinite(thing) else str(thing)
        case bytes():
            return thing.hex()
        case Mapping():
            return {str(key): value(each) for key, each in thing.items()}
        case list() | tuple():
            return [value(each) for each in thing]
    return str(thing)


def schema_document(schema: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
