"""Spark's `mapInArrow` without pandas, which it asks for and never uses.

`DataFrame.mapInArrow` makes its function known through `pandas_udf`, which looks for pandas before it looks at anything
else. The two steps behind that look are made here; they are Spark's own, and the tests of every sink go through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """What `function` makes of the batches of each partition; it is pickled, and runs in a worker process."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]  # not in its stubs
    from pyspark.util import PythonEvalType

    known = vectorized_udf(function, returnType=schema, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = known(*[frame[name] for name in map(_quoted, frame.columns)])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _quoted(name: str) -> str:
    """A column's name that is taken as it is, with dots and backticks."""
    return f"`{name.replace('`', '``')}`"
