"""The data of the benchmarks: five-column telemetry batches, the same for every contender and every run.

A row is about 74 bytes (three 8-byte numbers, a line of text of about 40 bytes, a severity), so a bundle of
1,000 rows is about 74 KB and one of 100 rows about 8 KB.
"""

import random
from dataclasses import dataclass

import pyarrow as pa

_SEVERITIES = ("INFO", "INFO", "INFO", "INFO", "WARN", "DEBUG", "ERROR")
_ROUTES = ("/cart", "/login", "/search", "/orders", "/health", "/items")
_START_NS = 1_700_000_000_000_000_000

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("body", pa.string()),
        ("value", pa.float64()),
        ("severity", pa.string()),
        ("trace", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Pool:
    """Distinct batches to draw from in turn, and the Arrow IPC bytes of each for those who store bytes."""

    rows: int
    batches: tuple[pa.RecordBatch, ...]
    payloads: tuple[bytes, ...]

    @property
    def payload_bytes(self) -> float:
        """The mean size of one bundle's Arrow bytes."""
        return sum(map(len, self.payloads)) / len(self.payloads)

    def batch(self, number: int) -> pa.RecordBatch:
        return self.batches[number % len(self.batches)]

    def payload(self, number: int) -> bytes:
        return self.payloads[number % len(self.payloads)]


def make_pool(rows: int, *, distinct: int = 64, seed: int = 7) -> Pool:
    """Makes `distinct` different batches of `rows` rows; equal arguments give equal batches."""
    batches = tuple(make_batch(rows, number, random.Random(f"{seed}/{number}")) for number in range(distinct))
    return Pool(rows, batches, tuple(batch.serialize().to_pybytes() for batch in batches))


def make_batch(rows: int, number: int, source: random.Random) -> pa.RecordBatch:
    first = number * rows
    bodies = [
        f"GET {source.choice(_ROUTES)} took {source.randrange(900)} ms on host-{source.randrange(40)} sent"
        for _ in range(rows)
    ]
    columns = [
        pa.array(range(_START_NS + first, _START_NS + first + rows), pa.int64()),
        pa.array(bodies, pa.string()),
        pa.array([source.random() for _ in range(rows)], pa.float64()),
        pa.array([source.choice(_SEVERITIES) for _ in range(rows)], pa.string()),
        pa.array([source.getrandbits(62) for _ in range(rows)], pa.int64()),
    ]
    return pa.record_batch(columns, schema=SCHEMA)
