"""Sizes and durations as people write them: `32MB`, `60s`, `5%`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
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


def _split(text: object, kind: str, example: str) -> tuple[Decimal, str]:
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidSettings(f"{text!r} is not a {kind}; write it like {example}")
    return Decimal(match[1]), match[2]


def parse_bytes(value: int | str) -> int:
    """`"32MB"` is 32,000,000; `"32MiB"` is 33,554,432; a plain number is bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise InvalidSettings(f"{value} is not a size: it is negative")
        return value
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
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
            raise InvalidSettings(f"{value!r} is not a duration; write it like 25ms, 60s or 72h")
        if value < 0:
            raise InvalidSettings(f"{value} is not a duration: it is negative")
        return float(value)
    number, unit = _split(value, "duration", "25ms, 60s or 72h")
    if unit == "":
        return float(number)
    try:
        return float(number) * _SECONDS[unit]
    except KeyError:
        raise InvalidSettings(f"{value!r}: unknown unit {unit!r}; durations end in {', '.join(_SECONDS)}") from None


def format_bytes(count: float) -> str:
    """A size for people: three figures and a decimal unit."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("KB", "MB", "GB", "TB"):
        count /= 1000
        if abs(count) < 999.5 or unit == "TB":
            break
    return f"{count:.0f} {unit}" if abs(count) >= 99.95 else f"{count:.3g} {unit}"
