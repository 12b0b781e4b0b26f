"""Where a pipeline delivers: one file a sink.

_sink.py            what a sink is: `Sink`, `Ranges`, `SinkIdentity`, `WriteResult`
_settings.py        the settings of every sink
_kinds.py           SINKS: every type of sink, with its settings and how to make one

delta.py            a Delta table; _delta_log.py makes its log durable
parquet.py          a folder of Parquet files
console.py          standard output
holdfast.py         another topic

_stage.py           Arrow files written by the tasks of a Spark job
_write_files.py     Parquet files written by the tasks of a Spark job
_folder_writer.py   what one task does; _partitions.py, _statistics.py
_schema.py          the columns of a table and of a batch
_map_arrow.py       a function over the batches of a frame, without pandas
_job.py             a Spark job that ends by its deadline
_local.py           syncs of what others wrote; locks

Nothing here imports pyspark or deltalake before a sink is opened.
"""

from holdfast.sinks._kinds import SINKS, SinkKind
from holdfast.sinks._settings import (
    SINK_SETTINGS,
    ConsoleSettings,
    DeltaSettings,
    HoldfastSinkSettings,
    ParquetSettings,
    SinkSettings,
)
from holdfast.sinks._sink import Ranges, Sink, SinkIdentity, WriteResult
from holdfast.sinks.console import ConsoleSink
from holdfast.sinks.delta import DeltaSink
from holdfast.sinks.holdfast import HoldfastSink
from holdfast.sinks.parquet import ParquetSink

__all__ = [
    "SINKS",
    "SINK_SETTINGS",
    "ConsoleSettings",
    "ConsoleSink",
    "DeltaSettings",
    "DeltaSink",
    "HoldfastSink",
    "HoldfastSinkSettings",
    "ParquetSettings",
    "ParquetSink",
    "Ranges",
    "Sink",
    "SinkIdentity",
    "SinkKind",
    "SinkSettings",
    "WriteResult",
]
