"""Is the graph sound? Names, inputs, cycles, parts that lead nowhere; every mistake is noted.

It is drawn from what stands in the file, not from settings: a node with a wrong setting still has its place in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from holdfast.config._explain import nearest
from holdfast.config.yaml import Document, Keys, quoted
from holdfast.pipeline._sections import SECTIONS, check_name, entries
from holdfast.pipeline.transforms import OTHER

_YES: Final = frozenset(("true", "yes", "on", "y", "t", "1"))  # what settings take for true


@dataclass(slots=True)
class Vertex:
    """A node by the place it is written at, what it draws from, and what can be drawn from it."""

    name: str
    keys: Keys
    inputs: list[tuple[Keys, str]]
    outputs: list[str] = field(default_factory=list)
    is_route: bool = False

    @property
    def section(self) -> str:
        return str(self.keys[0])


@dataclass(slots=True)
class Graph:
    """All vertices by name, and whose output each input is."""

    vertices: dict[str, Vertex]
    owners: dict[str, str]

    def before(self, vertex: Vertex) -> Iterator[str]:
        """The vertices that this one draws from; those that are not there are left out."""
        for _, name in vertex.inputs:
            if name in self.owners:
                yield self.owners[name]

    def upstream(self, name: str) -> dict[str, None]:
        """`name` and everything that reaches it, in the order in which it was found."""
        found = {name: None}
        waiting = [name]
        while waiting:
            for each in self.before(self.vertices[waiting.pop()]):
                if each not in found:
                    found[each] = None
                    waiting.append(each)
        return found

    def order(self, name: str) -> list[str]:
        """`name` and everything that reaches it, each after what it draws from."""
        needed = self.upstream(name)
        return list(TopologicalSorter({each: list(self.before(self.vertices[each])) for each in needed}).static_order())


def read_graph(document: Document) -> Graph:
    """The graph of a file; doubled names are noted."""
    graph = Graph({}, {})
    for section in SECTIONS:
        for name, values in entries(document, section).items():
            vertex = _vertex(document, section, name, values if isinstance(values, dict) else {})
            if name in graph.vertices:
                first = graph.vertices[name]
                document.add(
                    vertex.keys,
                    f"the name is taken by {first.section}.{name} on line {document.line(first.keys)}; "
                    "sources, transforms and sinks all need names of their own",
                )
                continue
            graph.vertices[name] = vertex
            graph.owners.update(dict.fromkeys(vertex.outputs, name))
    return graph


def check_graph(document: Document, graph: Graph) -> None:
    """Note everything that is wrong with it."""
    for section, example in (
        ("sources", "{type: demo, topic: demo/rows}"),
        ("sinks", "{type: console, inputs: [...]}"),
    ):
        if not entries(document, section) and not isinstance(document.values.get(section), list | str):
            document.add((section,), f"there are none; a pipeline needs one at least, like {example}")
    for vertex in graph.vertices.values():
        _check_inputs(document, graph, vertex)
    circling = check_cycles(document, graph, {})
    _check_reach(document, graph, circling)


def check_cycles(document: Document, graph: Graph, further: Mapping[str, list[str]]) -> set[str]:
    """Note each circle; `further` are more vertices that one draws from. What is on one, or draws from one."""
    edges = {name: [*graph.before(vertex), *further.get(name, ())] for name, vertex in graph.vertices.items()}
    circling: set[str] = set()
    while True:
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][:-1]
        else:
            return circling
        first = min(range(len(circle)), key=lambda index: document.line(graph.vertices[circle[index]].keys))
        circle = circle[first:] + circle[:first]
        way = " -> ".join(quoted(name) for name in (*circle, circle[0]))
        document.add((*graph.vertices[circle[0]].keys, "inputs"), f"data would go round in a circle: {way}")
        circling.update(circle)
        edges = {name: [each for each in before if each not in circling] for name, before in edges.items()}


def _vertex(document: Document, section: str, name: str, values: Mapping[str, Any]) -> Vertex:
    keys: Keys = (section, name)
    given = values.get("inputs") if section != "sources" else None
    inputs = [
        ((*keys, "inputs", index), each)
        for index, each in enumerate(given if isinstance(given, list) else ())
        if isinstance(each, str)
    ]
    if section == "sinks":
        return Vertex(name, keys, inputs)
    if section == "transforms" and values.get("type") == "route":
        return Vertex(name, keys, inputs, _route_outputs(document, keys, values), is_route=True)
    return Vertex(name, keys, inputs, [name])


def _route_outputs(document: Document, keys: Keys, values: Mapping[str, Any]) -> list[str]:
    outputs = values.get("outputs")
    names = list(outputs) if isinstance(outputs, dict) else []
    for output in names:
        check_name(document, (*keys, "outputs", output), output, "the name of an output")
    if str(values.get("other")).lower() in _YES and OTHER not in names:
        names.append(OTHER)
    return [f"{keys[-1]}.{output}" for output in names]


def _check_inputs(document: Document, graph: Graph, vertex: Vertex) -> None:
    seen: set[str] = set()
    for keys, name in vertex.inputs:
        shown = document.shown(keys, name)
        if name in seen:
            document.add(keys, f"{shown} is listed twice: its rows would come twice")
        elif name not in graph.owners:
            document.add(keys, _unknown(document, graph, keys, name, shown))
        seen.add(name)


def _unknown(document: Document, graph: Graph, keys: Keys, name: str, shown: str) -> str:
    found = graph.vertices.get(name)
    if found is not None and found.is_route:
        outputs = ", ".join(map(quoted, found.outputs)) or "none yet"
        return f"{shown} is a route; name one of its outputs: {outputs}"
    if found is not None:
        return f"{shown} is a sink; only sources and transforms can be inputs"
    hint = "" if keys in document.hidden else nearest(name, graph.owners)
    return f"there is no source or transform {shown}{hint}"


def _check_reach(document: Document, graph: Graph, circling: set[str]) -> None:
    """What no sink draws from does nothing, which is hardly what was meant."""
    used: set[str] = set()
    waiting = [vertex for vertex in graph.vertices.values() if vertex.section == "sinks"]
    reached = {vertex.name for vertex in waiting}
    while waiting:
        vertex = waiting.pop()
        used.update(name for _, name in vertex.inputs)
        for name in graph.before(vertex):
            if name not in reached:
                reached.add(name)
                waiting.append(graph.vertices[name])
    for name, vertex in graph.vertices.items():
        if name not in reached and name not in circling:
            document.add(vertex.keys, f"no sink draws from this {vertex.section[:-1]}; name it in the inputs of one")
        elif vertex.is_route and name in reached:
            for output in vertex.outputs:
                if output not in used:
                    document.add(
                        _place_of(document, vertex, output),
                        f"nothing draws from {quoted(output)}: its rows would be lost",
                    )


def _place_of(document: Document, vertex: Vertex, output: str) -> Keys:
    """Where a route's output is written: in its outputs, or as `other`."""
    short = output.removeprefix(f"{vertex.name}.")
    place = (*vertex.keys, "outputs", short)
    return place if place in document.lines else (*vertex.keys, short)
