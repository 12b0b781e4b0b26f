"""Rows for the benchmarks on Spark: like those of `_data`, but no two lines of text are the same.

Text that repeats would be a handful of dictionary entries in a Parquet file, and nothing to read.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from _data import SCHEMA, Pool

_START_NS = 1_700_000_000_000_000_000
_ROUTES = np.array(["/cart", "/login", "/search", "/orders", "/health", "/items"])
_SEVERITIES = np.array(["INFO", "INFO", "INFO", "INFO", "WARN", "DEBUG", "ERROR"])


@cache
def all_rows(count: int) -> pa.RecordBatch:
    """The first `count` rows; about 84 bytes each in Arrow."""
    dice = np.random.default_rng(7)
    numbers = np.arange(count)
    routes, severities = pa.array(_ROUTES), pa.array(_SEVERITIES)
    body = pc.binary_join_element_wise(
        routes.take(pa.array(dice.integers(0, len(_ROUTES), count))),
        pa.array(dice.integers(10**9, 10**10, count)).cast(pa.string()),
        pa.array(numbers + 10**7).cast(pa.string()),
        "took ms",
        " ",
    )
    columns = [
        pa.array(_START_NS + numbers * 1_000_000),
        body,
        pa.array(dice.random(count)),
        severities.take(pa.array(dice.integers(0, len(_SEVERITIES), count))),
        pa.array(dice.integers(0, 2**62, count)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def pool_of(rows: int, count: int) -> Pool:
    """`count` rows as bundles of `rows`, each of them another."""
    whole = all_rows(count)
    batches = tuple(
        pa.Table.from_batches([whole.slice(first, rows)]).combine_chunks().to_batches()[0]
        for first in range(0, count, rows)
    )
    return Pool(rows, batches, ())
