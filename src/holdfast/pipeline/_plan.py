"""What kind of query is this? Told from Spark's analysed plan, before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Operators that remember something from one batch to the next; nothing else does.
_STATEFUL: Final = frozenset(
    (
        "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Except", "Intersect",
        "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "GlobalLimit", "LocalLimit", "Offset", "Sort",
        "TransformWithState", "TransformWithStateInPandas", "TransformWithStateInPySpark", "Window",
    )
)  # fmt: skip
_LIMITS: Final = frozenset(("GlobalLimit", "LocalLimit", "Offset", "Tail"))


def is_stateful(frame: DataFrame) -> bool:
    """Does a query over this frame keep state: aggregates, deduplication, joins of streams?

    In a streaming frame only what happens to streams counts; in a batch frame everything does.
    """
    streaming = frame.isStreaming
    for node in _nodes(frame):
        name = node.nodeName()
        if name in _STATEFUL and (not streaming or node.isStreaming()):
            return True
        if name == "Join" and (not streaming or all(side.isStreaming() for side in _each(node.children()))):
            return True
    return False


def unsupported(frame: DataFrame) -> str | None:
    """What no streaming query can do although it can be written; Spark's own checks raise its own error."""
    if any(node.nodeName() in _LIMITS and node.isStreaming() for node in _nodes(frame)):
        return "LIMIT and OFFSET have no meaning over rows that never end; leave them out"
    jvm: Any = frame.sparkSession._jvm
    append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(_analysed(frame), append)
    return None


def topics_read(frame: DataFrame) -> list[str]:
    """The topics that a streaming frame reads, one for each place in which it does."""
    leaves = _each(_analysed(frame).collectLeaves())
    return [str(leaf.extraOptions().get("topic")) for leaf in leaves if leaf.nodeName().startswith("StreamingRelation")]


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _nodes(frame: DataFrame) -> Iterator[Any]:
    waiting = [_analysed(frame)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(_each(node.children()))
        waiting.extend(_each(node.subqueries()))


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
