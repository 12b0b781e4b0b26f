"""The columns that sources have brought so far, from the store itself."""

from __future__ import annotations

import pyarrow as pa

from holdfast.errors import NotAStore, UnknownSlot, UnknownTopic
from holdfast.pipeline.topology import Topology
from holdfast.store import Store


def known_schemas(topology: Topology) -> dict[str, pa.Schema]:
    """The schema of each source's slot, by the source's name; a source without data yet is left out.

    Looks beside whoever writes the store, and makes nothing.
    """
    if not topology.store.exists():
        return {}
    found: dict[str, pa.Schema] = {}
    try:
        with Store.open(topology.store, read_only=True) as store:
            for name, source in topology.sources.items():
                try:
                    found[name] = store.topic(source.topic).schema(source.slot)
                except (UnknownTopic, UnknownSlot):
                    continue
    except NotAStore:
        if any(topology.store.iterdir()):
            raise
    return found
