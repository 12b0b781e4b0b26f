"""Run by a test in a process of its own: a batch read and a stream on a session with separate executors.

Prints a line of JSON: what each had, and by how many executors it was read.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from holdfast.spark import acknowledge, session
from sparkkit import environment


def executors(found: DataFrame) -> list[str]:
    """Where the tasks ran."""

    def where(rows: object) -> list[str]:
        del rows
        return [os.environ.get("SPARK_EXECUTOR_ID", "") or os.getcwd()]

    return sorted(set(found.rdd.mapPartitions(where).collect()))


def main(path: str, work: str) -> None:
    python = environment()
    spark: SparkSession = session(
        "cluster test",
        "local-cluster[2,1,1024]",
        {
            "spark.executorEnv.PYTHONPATH": python["PYTHONPATH"],
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": work,
            "spark.sql.warehouse.dir": work,
        },
    )
    options = {"path": path, "topic": "prod/logs"}
    found = spark.read.format("holdfast").options(**options, partitionBytes="1", metadata="_shard").load()
    batch = sorted([row["_shard"], row["id"]] for row in found.collect())

    acknowledge(spark)
    streamed: list[list[int]] = []

    def take(frame: DataFrame, number: int) -> None:
        del number
        rows: list[Row] = frame.collect()
        streamed.append(sorted(row["id"] for row in rows))

    stream = spark.readStream.format("holdfast").options(**options, subscriber="lake", maxRowsPerTrigger="40").load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", f"{work}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    (spark.range(10, numPartitions=2).write.format("holdfast")
        .options(path=path, topic="prod/copy", slot="logs").mode("append").save())  # fmt: skip
    sys.stdout.write(json.dumps({"batch": batch, "stream": streamed, "places": executors(found)}) + "\n")
    spark.stop()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1], sys.argv[2])
