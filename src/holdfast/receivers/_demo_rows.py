"""The rows of the demo source: everything in a row follows from its sequence number and the seed."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.receivers._settings import DEMO_SCHEMA

START_US: Final = 1_735_689_600_000_000  # 2025-01-01: row n is n milliseconds later
# Picked by seven bits of the hash: of 128 rows about 8 are errors.
LEVELS: Final = pa.array(["DEBUG"] * 32 + ["INFO"] * 72 + ["WARN"] * 16 + ["ERROR"] * 8)
SERVICES: Final = pa.array(["auth", "billing", "cart", "catalog", "gateway", "mail", "orders", "search"])  # three bits
_GOLDEN: Final = 0x9E3779B97F4A7C15  # odd, without pattern in its bits: splitmix64's step
_MIX: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_U64: Final = pa.uint64()


def rows(first: int, count: int, seed: int) -> pa.RecordBatch:
    """Rows `first` up to `first + count`: the same for the same arguments, always."""
    seq = pa.array(range(first, first + count), pa.int64())
    spread = _hash(seq, seed)
    service = SERVICES.take(_bits(spread, 7, 3))
    columns = [
        seq,
        pc.add(pc.multiply(seq, 1000), START_US).cast(DEMO_SCHEMA.field("ts").type),
        LEVELS.take(_bits(spread, 0, 7)),
        service,
        pc.divide(_bits(spread, 10, 16).cast(pa.float64()), 64.0),  # 0 to 1024, exact in binary
        pc.binary_join_element_wise("request ", seq.cast(pa.string()), " to ", service, ""),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEMO_SCHEMA)


def _hash(seq: pa.Array, seed: int) -> pa.Array:
    """splitmix64 of the number and the seed; arithmetic modulo 2**64."""
    start = pa.scalar((seed * _MIX[0] + _GOLDEN) % 2**64, _U64)
    value = pc.add(pc.multiply(seq.cast(_U64), pa.scalar(_GOLDEN, _U64)), start)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        value = pc.multiply(_fold(value, shift), pa.scalar(factor, _U64))
    return _fold(value, 31)


def _fold(value: pa.Array, shift: int) -> pa.Array:
    return pc.bit_wise_xor(value, pc.shift_right(value, pa.scalar(shift, _U64)))


def _bits(value: pa.Array, shift: int, count: int) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(value, pa.scalar(shift, _U64)), pa.scalar(2**count - 1, _U64))
