"""A pipeline as its file says: where the store is, its settings, and the graph of sources, transforms and sinks.

The file is checked as a whole before anything starts: `load` raises one `InvalidPipeline` with every mistake in it.
What only Spark can tell (SQL, columns) is checked in `holdfast.pipeline._check_sql`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.config import StoreSettings
from holdfast.config._buffer import buffer_sections
from holdfast.config._compose import MAX_BYTES
from holdfast.config._explain import build
from holdfast.config.node import FOLDER
from holdfast.config.yaml import Document, read
from holdfast.errors import InputError
from holdfast.pipeline._graph import Graph, check_graph, read_graph
from holdfast.pipeline._nodes import Sink, Source, Transform
from holdfast.pipeline._places import check_folders, check_topics
from holdfast.pipeline._sections import read_section
from holdfast.pipeline._settings import IngestSettings, PipelineSettings, SparkSettings, StorePlace
from holdfast.pipeline.transforms import TRANSFORMS
from holdfast.receivers import SOURCES
from holdfast.sinks._settings import SINK_SETTINGS

STATE_SUFFIX: Final = ".pipeline"


@dataclass(frozen=True, repr=False)
class Topology:
    """A pipeline that can be run.

    store       the folder of the store
    state       the folder of the pipeline's own files: positions of sinks, checkpoints of stateful queries
    acknowledgements       do sources wait for an answer, unless they say otherwise?
    buffer_acknowledges    is the answer given when data is durable, unless a topic or namespace says otherwise?
    document    the file it was read from: lines of keys, and what may be printed
    """

    file: str
    store: Path
    store_settings: StoreSettings
    state: Path
    acknowledgements: bool
    buffer_acknowledges: bool
    ingest: IngestSettings
    spark: SparkSettings
    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    sinks: Mapping[str, Sink]
    document: Document
    graph: Graph

    def sources_of(self, sink: str) -> list[Source]:
        """The sources whose rows reach a sink, in the order of the file."""
        self._known(sink)
        reached = self.graph.upstream(sink)
        return [source for name, source in self.sources.items() if name in reached]

    def plan(self, sink: str) -> list[Transform]:
        """The transforms on the way to a sink, each after those that it draws from."""
        self._known(sink)
        return [self.transforms[name] for name in self.graph.order(sink) if name in self.transforms]

    def topics(self) -> tuple[str, ...]:
        """The topics that sources keep their data in, sorted."""
        return tuple(sorted({source.topic for source in self.sources.values()}))

    def _known(self, sink: str) -> None:
        if sink not in self.sinks:
            raise InputError(f"there is no sink {sink!r} in {self.file}; there are {', '.join(self.sinks)}")

    def __repr__(self) -> str:
        """Names only: settings may hold what nobody should read in a log."""
        names = (f"{part}={list(getattr(self, part))}" for part in ("sources", "transforms", "sinks"))
        return f"Topology({self.file!r}, {', '.join(names)})"


def load(source: Path | str, environ: Mapping[str, str] | None = None, *, folder: Path | None = None) -> Topology:
    """The pipeline in a file (a `Path`) or in a text (a `str`); raises `InvalidPipeline` with every mistake.

    Relative paths are relative to the file's folder; those of a text to `folder`, or where the process is.
    `environ` is what `${...}` is taken from: by default the process's own environment.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            content: bytes | str = file.read(MAX_BYTES + 1)
        name, base = str(source), source.parent
    else:
        content, name, base = source, "pipeline", Path()
    document = read(content, name, os.environ if environ is None else environ)
    return _topology(document, (folder or base).absolute())


def _topology(document: Document, folder: Path) -> Topology:
    context = {FOLDER: folder}
    top = build(PipelineSettings, document.values, document, (), context)
    buffer = buffer_sections(document)
    sources = read_section(document, "sources", {name: kind.settings for name, kind in SOURCES.items()}, context)
    transforms = read_section(document, "transforms", TRANSFORMS, context)
    sinks = read_section(document, "sinks", SINK_SETTINGS, context)
    graph = read_graph(document)
    check_graph(document, graph)
    # A mistake elsewhere at the top level is no reason not to compare the folders.
    given = document.values.get("store")
    place = None if given is None else build(StorePlace, given, document, ("store",), context)
    store = None if place is None else place.path
    state = top.state if top is not None and top.state is not None else store and _beside(store)
    check_folders(document, store, state, sinks)
    check_topics(document, graph, sources, sinks, store)
    document.refuse()
    if top is None or store is None or state is None:
        raise InputError(f"{document.file}: the top level is not right, and no mistake was found")
    return Topology(
        file=document.file,
        store=store,
        store_settings=buffer.store,
        state=state,
        acknowledgements=top.acknowledgements,
        buffer_acknowledges=buffer.acknowledgements,
        ingest=top.ingest,
        spark=top.spark,
        sources=MappingProxyType(
            {
                name: Source(
                    name,
                    settings,
                    top.acknowledgements if settings.acknowledgements is None else settings.acknowledgements,
                    buffer.acknowledges(settings.topic),
                )
                for name, settings in sources.items()
            }
        ),
        transforms=MappingProxyType({name: Transform(name, settings) for name, settings in transforms.items()}),
        sinks=MappingProxyType({name: Sink(name, settings) for name, settings in sinks.items()}),
        document=document,
        graph=graph,
    )


def _beside(store: Path) -> Path:
    return store.with_name(store.name + STATE_SUFFIX)


__all__ = ["STATE_SUFFIX", "Sink", "Source", "Topology", "Transform", "load"]
