"""Do two parts of a pipeline get in each other's way: in a folder, a topic or a slot? Every mistake is noted."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.config.yaml import Document, Keys, quoted
from holdfast.pipeline._graph import Graph, check_cycles
from holdfast.receivers._settings import SourceSettings, TopicSettings
from holdfast.sinks._settings import FileSinkSettings, HoldfastSinkSettings, SinkSettings

Sources = Mapping[str, SourceSettings]
Sinks = Mapping[str, SinkSettings]


def check_folders(document: Document, store: Path | None, state: Path | None, sinks: Sinks) -> None:
    """No two of the store, the pipeline's state and the sinks' folders may be one, or one inside another."""
    folders: list[tuple[str, Keys, Path | None]] = [
        ("the store", ("store", "path"), store),
        ("the pipeline's state", ("state",), state),
    ]
    for name, settings in sinks.items():
        if isinstance(settings, FileSinkSettings):
            folders.append((f"sink {quoted(name)}", ("sinks", name, "path"), settings.path))
    folders += [(f"the store of sink {quoted(name)}", keys, path) for name, keys, path in _other_stores(store, sinks)]
    owners: dict[Path, str] = {}
    for owner, keys, path in folders:
        if path is not None:
            _check_folder(document, _real(path), keys, owners)
            owners.setdefault(_real(path), owner)


def check_topics(document: Document, graph: Graph, sources: Sources, sinks: Sinks, store: Path | None) -> None:
    """Each row has one source, each sink reads one slot of a topic, and no sink feeds itself."""
    _check_sources(document, sources)
    for name in sinks:
        if name in graph.vertices:
            _check_slots(document, graph, sources, name)
    _check_loops(document, graph, sources, sinks, store)


def _real(path: Path) -> Path:
    """The same folder under whatever name; it need not be there."""
    return Path(os.path.realpath(path))


def _other_stores(store: Path | None, sinks: Sinks) -> Iterator[tuple[str, Keys, Path]]:
    """Each store that sinks persist into beside the pipeline's own, once: they may share it."""
    seen = {None if store is None else _real(store)}
    for name, settings in sinks.items():
        if isinstance(settings, HoldfastSinkSettings) and settings.store is not None:
            if _real(settings.store) not in seen:
                yield name, ("sinks", name, "store"), settings.store
            seen.add(_real(settings.store))


def _check_folder(document: Document, path: Path, keys: Keys, owners: Mapping[Path, str]) -> None:
    for folder in (path, *path.parents):
        if folder in owners:
            where = "the same folder as that of" if folder == path else "inside the folder of"
            document.add(keys, f"{where} {owners[folder]}; each needs a folder of its own")
            return
    for folder, other in owners.items():
        if path in folder.parents:
            document.add(keys, f"{other} has its folder inside this one; each needs a folder of its own")
            return


def _check_sources(document: Document, sources: Sources) -> None:
    """A source that takes every bundle of a topic cannot share the slot."""
    by_slot: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, settings in sources.items():
        by_slot[settings.topic, settings.slot].append(name)
    for (topic, slot), names in by_slot.items():
        readers = [(name, settings) for name in names if isinstance(settings := sources[name], TopicSettings)]
        seen: dict[str, str] = {name: name for name in names if not isinstance(sources[name], TopicSettings)}
        for name, settings in readers:
            others = ", ".join(quoted(each) for each in names if each != name)
            place = f"slot {quoted(slot)} of topic {quoted(topic)}"
            if settings.source is None and others:
                document.add(
                    ("sources", name),
                    f"takes every row in {place}, also those of {others}; say whose with `source: <name>`",
                )
            elif settings.source is not None and settings.source in seen:
                twin = quoted(seen[settings.source])
                document.add(("sources", name, "source"), f"takes the same rows in {place} as {twin}")
            elif settings.source is not None:
                seen[settings.source] = name


def _check_slots(document: Document, graph: Graph, sources: Sources, sink: str) -> None:
    slots: dict[str, dict[str, str]] = defaultdict(dict)
    for name in graph.upstream(sink):
        if name in sources:
            slots[sources[name].topic].setdefault(sources[name].slot, name)
    for topic, found in slots.items():
        if len(found) > 1:
            each = ", ".join(f"{quoted(slot)} (source {quoted(name)})" for slot, name in sorted(found.items()))
            document.add(
                ("sinks", sink, "inputs"),
                f"draws from more than one slot of topic {quoted(topic)}: {each}; "
                "a sink reads one slot of a topic: make it a sink for each",
            )


def _check_loops(document: Document, graph: Graph, sources: Sources, sinks: Sinks, store: Path | None) -> None:
    """A sink that persists into a topic feeds the sources that take its rows from there."""
    further: dict[str, list[str]] = defaultdict(list)
    for sink, settings in sinks.items():
        if not isinstance(settings, HoldfastSinkSettings) or not _is_own(settings, store):
            continue
        for name, source in sources.items():
            if isinstance(source, TopicSettings) and source.topic == settings.topic and source.source in {None, sink}:
                further[name].append(sink)
    if further:
        check_cycles(document, graph, further)


def _is_own(settings: HoldfastSinkSettings, store: Path | None) -> bool:
    """Does this sink write into the pipeline's own store?"""
    return settings.store is None or (store is not None and _real(settings.store) == _real(store))
