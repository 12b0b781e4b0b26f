"""Sizes and durations as people write them: `32MB`, `60s`, `5%`."""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import InvalidSettings

# Decimal and binary multiples, both as their standards define them.
_BYTES: Final = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z%]*)\s*")


def _split(text: str, kind: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InvalidSettings(f"{text!r} is not a {kind}; write it like {example}")
    return float(match[1]), match[2]


def parse_bytes(value: int | str) -> int:
    """`"32MB"` is 32,000,000; `"32MiB"` is 33,554,432; a plain number is bytes."""
    if isinstance(value, int):
        number, unit = float(value), ""
        if value < 0:
            raise InvalidSettings(f"{value} is not a size: it is negative")
    else:
        number, unit = _split(value, "size", "32MB or 64MiB")
    try:
        return int(number * _BYTES[unit.upper()])
    except KeyError:
        raise InvalidSettings(
            f"{value!r}: unknown unit {unit!r}; sizes end in {', '.join(filter(None, _BYTES))}"
        ) from None


def parse_seconds(value: float | str) -> float:
    """`"250ms"` is 0.25; a plain number is seconds."""
    if not isinstance(value, str):
        if value < 0:
            raise InvalidSettings(f"{value} is not a duration: it is negative")
        return float(value)
    number, unit = _split(value, "duration", "25ms, 60s or 72h")
    if unit == "":
        return number
    try:
        return number * _SECONDS[unit]
    except KeyError:
        raise InvalidSettings(
            f"{value!r}: unknown unit {unit!r}; durations end in {', '.join(_SECONDS)}"
        ) from None


def format_bytes(count: float) -> str:
    """A size for people: three figures and a decimal unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
