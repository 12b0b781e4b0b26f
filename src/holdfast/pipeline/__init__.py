"""A pipeline: from its file to running queries.

topology.py        `load`: the file as a graph of sources, transforms and sinks, checked as a whole; `Topology`
transforms.py      filter, sql, route: their settings, and what they do to frames
_nodes.py          the nodes of the graph
_settings.py       settings beside the nodes; _sections.py reads those of the nodes
_graph.py          names, inputs, cycles, parts that lead nowhere; _places.py: folders, topics, slots
_check_sql.py      conditions and queries tried in Spark; _plan.py: what kind of query; _spark_error.py: in one line
_shown.py          all settings as they may be printed; _drawing.py: the graph as text
"""

from holdfast.pipeline.topology import Sink, Source, Topology, Transform, load

__all__ = ["Sink", "Source", "Topology", "Transform", "load"]
