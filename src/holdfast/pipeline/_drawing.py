"""The graph as text, from the sources down to the sinks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from holdfast.pipeline.topology import Topology


def draw(topology: Topology) -> list[str]:
    """One line for each node below what it draws from; one that was drawn before is only named."""
    takers = _takers(topology)
    lines: list[str] = []
    drawn: set[str] = set()
    for source in topology.sources:
        # Each entry: the name, what stands before it, and what stands before those below it.
        waiting = [(source, "", "")]
        while waiting:
            name, before, indent = waiting.pop()
            again = name in drawn and bool(takers[name])
            lines.append(f"{before}{_title(topology, name)}{' (see above)' if again else ''}")
            if again:
                continue
            drawn.add(name)
            below = takers[name]
            for index in reversed(range(len(below))):
                last = index == len(below) - 1
                waiting.append(
                    (below[index], indent + ("└── " if last else "├── "), indent + ("    " if last else "│   "))
                )
    return lines


def to_document(topology: Topology) -> dict[str, Any]:
    """The graph for programs."""
    return {
        "file": topology.file,
        "nodes": [
            {"name": name, "kind": kind, "type": settings.type, "inputs": list(getattr(settings, "inputs", ()))}
            for name, kind, settings in _all(topology)
        ],
        "edges": [
            {"from": each, "to": name}
            for name, _, settings in _all(topology)
            for each in getattr(settings, "inputs", ())
        ],
        "topics": list(topology.topics()),
    }


def _all(topology: Topology) -> Iterator[tuple[str, str, Any]]:
    for kind, nodes in (("source", topology.sources), ("transform", topology.transforms), ("sink", topology.sinks)):
        for name, node in nodes.items():
            yield name, kind, node.settings


def _takers(topology: Topology) -> dict[str, list[str]]:
    """What draws from each node; a route's outputs stand between it and theirs."""
    takers: dict[str, list[str]] = defaultdict(list)
    for node in topology.transforms.values():
        if node.outputs != (node.name,):
            takers[node.name].extend(node.outputs)
    for name, _, settings in _all(topology):
        for each in getattr(settings, "inputs", ()):
            takers[each].append(name)
    return takers


def _title(topology: Topology, name: str) -> str:
    document = topology.document
    if name in topology.sources:
        source = topology.sources[name]
        topic = document.hidden.get(("sources", name, "topic"), source.topic)
        slot = document.hidden.get(("sources", name, "slot"), source.slot)
        return f"{name} ({source.settings.type}, topic {topic}, slot {slot})"
    if name in topology.transforms:
        return f"{name} ({topology.transforms[name].settings.type})"
    if name in topology.sinks:
        return f"{name} ({topology.sinks[name].settings.type})"
    return name
