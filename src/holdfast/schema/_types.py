"""The common type of two types that hold no others: numbers, texts, times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

_UNITS: Final = ("s", "ms", "us", "ns")  # from coarse to fine
_SIGNED: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED: Final = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
# How many decimal digits the values of an integer type need, by bits: 2**63 has 19, 2**64 has 20.
_SIGNED_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
_UNSIGNED_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_STRINGS: Final = frozenset((pa.string().id, pa.large_string().id, pa.string_view().id))
_BINARIES: Final = frozenset((pa.binary().id, pa.large_binary().id, pa.binary_view().id, pa.binary(1).id))
_DECIMALS: Final = (
    (32, 9, pa.decimal32),
    (64, 18, pa.decimal64),
    (128, 38, pa.decimal128),
    (256, 76, pa.decimal256),
)


def common_scalar(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The narrowest type for the values of both; `None` if there is none, or if they are not of one family.

    `float64` stands for any mix of integers and floating-point numbers, although it rounds integers above
    2**53.
    """
    if first == second:
        return first
    for family, common in _FAMILIES:
        if family(first) and family(second):
            return common(first, second)
    return None


def index_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The integer type that counts further: indices and run ends are never negative."""
    return max(first, second, key=lambda kind: (kind.bit_width, pa.types.is_unsigned_integer(kind)))


def _common_integer(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    unsigned = [pa.types.is_unsigned_integer(kind) for kind in (first, second)]
    widest = max(first.bit_width, second.bit_width)
    if unsigned[0] == unsigned[1]:
        return (_UNSIGNED if unsigned[0] else _SIGNED)[widest]
    below = (first if unsigned[0] else second).bit_width
    bits = max(widest, below * 2)  # a sign needs a bit more than the unsigned one has
    return _SIGNED[bits] if bits <= 64 else pa.decimal128(_UNSIGNED_DIGITS[64], 0)


def _common_decimal(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    digits = [_digits(kind) for kind in (first, second)]
    scale = max(scale for _, scale in digits)
    precision = max(whole for whole, _ in digits) + scale
    least_bits = max(kind.bit_width for kind in (first, second) if pa.types.is_decimal(kind))
    for bits, most, make in _DECIMALS:
        if bits >= least_bits and precision <= most:
            return make(precision, scale)
    return None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Digits before the point, and the scale, of a decimal or integer type."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    table = _UNSIGNED_DIGITS if pa.types.is_unsigned_integer(kind) else _SIGNED_DIGITS
    return table[kind.bit_width], 0


def _common_number(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    floating = [pa.types.is_floating(kind) for kind in (first, second)]
    if all(floating):
        return max(first, second, key=lambda kind: kind.bit_width)
    if any(floating):
        return pa.float64()
    if pa.types.is_integer(first) and pa.types.is_integer(second):
        return _common_integer(first, second)
    return _common_decimal(first, second)


def _common_binary(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    fixed = [pa.types.is_fixed_size_binary(kind) for kind in (first, second)]
    if all(fixed):
        return pa.binary()
    if any(fixed):
        return second if fixed[0] else first
    return pa.large_binary()


def _common_time_of_day(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    unit = _finer(first, second)
    return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)


def _common_timestamp(first: pa.TimestampType, second: pa.TimestampType) -> pa.DataType | None:
    return pa.timestamp(_finer(first, second), first.tz) if first.tz == second.tz else None


def _finer(first: pa.DataType, second: pa.DataType) -> str:
    return max((str(first.unit), str(second.unit)), key=_UNITS.index)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_string(kind: pa.DataType) -> bool:
    return kind.id in _STRINGS


def _is_binary(kind: pa.DataType) -> bool:
    return kind.id in _BINARIES


_FAMILIES: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], pa.DataType | None]], ...]
] = (
    (_is_number, _common_number),
    (_is_string, lambda _first, _second: pa.large_string()),
    (_is_binary, _common_binary),
    (pa.types.is_date, lambda _first, _second: pa.date64()),
    (pa.types.is_time, _common_time_of_day),
    (pa.types.is_timestamp, _common_timestamp),
    (pa.types.is_duration, lambda first, second: pa.duration(_finer(first, second))),
)
