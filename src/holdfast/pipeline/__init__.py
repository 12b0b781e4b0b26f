"""A pipeline: from its file to running queries.

topology.py        `load`: the file as a graph of sources, transforms and sinks, checked as a whole; `Topology`
transforms.py      filter, sql, route: their settings, and what they do to frames
_nodes.py          the nodes of the graph
_settings.py       settings beside the nodes; _sections.py reads those of the nodes
_graph.py          names, inputs, cycles, parts that lead nowhere; _places.py: folders, topics, slots
_check_sql.py      conditions and queries tried in Spark; _plan.py: what kind of query; _spark_error.py: in one line
_shown.py          all settings as they may be printed; _drawing.py: the graph as text

runner.py          `Runner`: one streaming query for each sink
_query.py          one sink: its subscriber, its query, its failures
_run.py            one start of a query, and what becomes of each batch (the gaps, numbered)
_frames.py         from the topology to frames; _columns.py: which columns a query needs; _known.py: those there are
_offset_log.py     the range of a batch, from Spark's log

supervisor.py      `holdfast run`: processes, started in order, kept alive, stopped in order
_process.py        one of them, from outside; _child.py: from inside; _watch.py: is it well; _backoff.py
ingest.py          the process that receives
driver.py          the process that runs Spark
"""

from holdfast.pipeline.topology import Sink, Source, Topology, Transform, load

__all__ = ["Sink", "Source", "Topology", "Transform", "load"]
