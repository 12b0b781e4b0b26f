"""A sink inside a streaming query, where it is called by Spark's own thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sinkkit import KEY, delta, identity, ranges, soon

from holdfast.errors import SinkTimeout


def test_a_deadline_inside_of_foreach_batch(spark: Any, tmp_path: Path) -> None:
    """A batch is cancelled at its deadline without ending the query, which takes the next batch, and can be stopped."""
    sink = delta(tmp_path / "t")
    sink.open(spark, identity())
    seen: list[Any] = []

    def deliver(frame: Any, number: int) -> None:
        if number == 0:
            endless = frame.sparkSession.range(0, 2**62, 1, 1).where("id * 3 % 7 = 8")
            try:
                sink.write(endless, ranges(0, 1), soon(0.3))
            except SinkTimeout as problem:
                seen.append(problem)
        seen.append(sink.write(frame.select("value"), ranges(number, number + 1), soon()).rows)

    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = stream.writeStream.foreachBatch(deliver).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        while len(seen) < 3 and query.exception() is None:
            query.awaitTermination(0.2)
    finally:
        query.stop()
    assert query.exception() is None
    assert isinstance(seen[0], SinkTimeout)
    assert seen[1:3] == [5, 5]
    assert sink.position()[KEY] >= 2
