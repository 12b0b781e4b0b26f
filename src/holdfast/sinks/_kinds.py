"""Every type of sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.clock import Clock, Ids
from holdfast.files import Files
from holdfast.sinks._settings import SINK_SETTINGS, SinkSettings
from holdfast.sinks._sink import Sink
from holdfast.sinks.console import ConsoleSink
from holdfast.sinks.delta import DeltaSink
from holdfast.sinks.holdfast import HoldfastSink
from holdfast.sinks.parquet import ParquetSink


class SinkKind(NamedTuple):
    """A type of sink: its settings, and how one is made of them."""

    settings: type[SinkSettings]
    make: Callable[[Any, Files, Clock, Ids], Sink]


_MAKERS: Final[dict[str, Callable[[Any, Files, Clock, Ids], Sink]]] = {
    "console": ConsoleSink,
    "delta": DeltaSink,
    "holdfast": HoldfastSink,
    "parquet": ParquetSink,
}
SINKS: Final = {name: SinkKind(settings, _MAKERS[name]) for name, settings in SINK_SETTINGS.items()}
