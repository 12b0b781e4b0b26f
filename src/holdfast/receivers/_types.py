"""Arrow types as people write them: `int64`, `timestamp[us, UTC]`, `list<string>`, `struct<a: int64, b: string>`.

What `str` gives for a type is understood too, so a schema can be copied from `holdfast topics`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from holdfast.errors import InvalidSettings

MAX_DEPTH: Final = 16
_HEAD: Final = re.compile(r"([a-z][a-z0-9_]*)(?:([<\[(])(.*)([>\])]))?", re.DOTALL)
_PAIRS: Final = {"<": ">", "[": "]", "(": ")"}
_UNITS: Final = ("s", "ms", "us", "ns")
_SIMPLE: Final[dict[str, pa.DataType]] = {
    **{str(kind): kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float16": pa.float16(),
    "halffloat": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "null": pa.null(),
    "string": pa.string(),
    "binary": pa.binary(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "date64": pa.date64(),
}
_DECIMALS: Final[dict[str, Callable[[int, int], pa.DataType]]] = {
    "decimal": pa.decimal128,
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
}


def parse_type(text: str) -> pa.DataType:
    """The type that `text` names; `InvalidSettings` if there is none."""
    try:
        return _parse(text, MAX_DEPTH)
    except (ValueError, pa.ArrowException, OverflowError):
        shown = text if len(text) <= 80 else text[:80] + "..."
        raise InvalidSettings(
            f"{shown!r} is not an Arrow type; write it like int64, string, timestamp[us, UTC], decimal128(10, 2), "
            "list<string>, map<string, int64> or struct<name: string, size: int64>"
        ) from None


def _parse(text: str, depth: int) -> pa.DataType:
    match = _HEAD.fullmatch(text.strip())
    if match is None or depth == 0:
        raise ValueError(text)
    name, opened, inner, closed = match.groups()
    if opened is None:
        return _SIMPLE[name] if name in _SIMPLE else _fail(text)
    if _PAIRS[opened] != closed:
        raise ValueError(text)
    parts = _split(inner)
    if opened == "<":
        return _nested(name, parts, depth - 1)
    return _with_parameters(name + opened, parts)


def _with_parameters(name: str, parts: list[str]) -> pa.DataType:
    match name, parts:
        case "timestamp[", [unit]:
            return pa.timestamp(_unit(unit))
        case "timestamp[", [unit, zone]:
            return pa.timestamp(_unit(unit), zone.removeprefix("tz="))
        case "duration[", [unit]:
            return pa.duration(_unit(unit))
        case "time32[", [unit]:
            return pa.time32(_unit(unit))
        case "time64[", [unit]:
            return pa.time64(_unit(unit))
        case "date32[", ["day"]:
            return pa.date32()
        case "date64[", ["ms"]:
            return pa.date64()
        case "fixed_size_binary[", [size]:
            return pa.binary(_number(size))
    if name.endswith("(") and name[:-1] in _DECIMALS and len(parts) in {1, 2}:
        return _DECIMALS[name[:-1]](*([*map(_number, parts), 0][:2]))
    return _fail(name)


def _nested(name: str, parts: list[str], depth: int) -> pa.DataType:
    match name, parts:
        case "list", [item]:
            return pa.list_(_parse(item.removeprefix("item:"), depth))
        case "large_list", [item]:
            return pa.large_list(_parse(item.removeprefix("item:"), depth))
        case "map", [key, value]:
            return pa.map_(_parse(key, depth), _parse(value, depth))
        case "struct", [_, *_]:
            fields = [part.partition(":") for part in parts]
            if all(field.strip() and colon for field, colon, _ in fields):
                return pa.struct([(field.strip(), _parse(kind, depth)) for field, _, kind in fields])
    return _fail(name)


def _split(text: str) -> list[str]:
    """At the commas that stand in no inner brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<[(") - (character in ">])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _unit(text: str) -> str:
    return text if text in _UNITS else _fail(text)


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else _fail(text)


def _fail(text: str) -> pa.DataType:
    raise ValueError(text)
