"""Spark over a store, beside Spark's own Parquet scan and a source that reads from memory, measured in the same run.

make bench-spark, or: python bench/on_spark.py [--quick] [--rounds N] [--output json] [--folder FOLDER]
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from _harness import scratch_folder
from _report import Section, as_json, as_text, parse_options
from _spark_latency import latency_section
from _spark_reading import durability_section, reading_section, small_section
from _spark_writing import delta_section
from holdfast.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 2_000_000


def main() -> None:
    options = parse_options(__doc__)
    rounds = 1 if options.quick else options.rounds
    rows = _ROWS // 50 if options.quick else _ROWS
    spark = _session()
    parts: list[Callable[[Path], Section]] = [
        lambda folder: reading_section(spark, rows, rounds, folder),
        lambda folder: small_section(spark, rows, rounds, folder),
        lambda folder: durability_section(spark, rows, rounds, folder),
        lambda folder: delta_section(spark, rows, rounds, folder),
        lambda folder: latency_section(spark, *((20, 2.0) if options.quick else (500, 20.0)), folder),
    ]
    sections = []
    with scratch_folder(options.folder) as folder:
        for number, part in enumerate(parts):
            own = folder / f"part-{number}"
            own.mkdir()
            sections.append(part(own))
            shutil.rmtree(own)
    spark.stop()
    print(as_json(sections) if options.output == "json" else as_text(sections))


def _session() -> SparkSession:
    """Workers find the modules here by the path; nobody else's settings are read."""
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return session("bench", f"local[{os.cpu_count()}]", {"spark.driver.memory": "2g", "spark.scheduler.mode": "FAIR"})


if __name__ == "__main__":
    main()
