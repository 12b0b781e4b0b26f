"""All settings of a pipeline, defaults included, as they may be printed: without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from holdfast.config.node import MASK
from holdfast.config.yaml import Document, Keys
from holdfast.durability import Durability
from holdfast.pipeline.topology import STATE_SUFFIX, Topology

# Keys of Spark settings whose values Spark itself hides, and those of cloud storage.
_SECRET: Final = re.compile(r"secret|passw|token|credential|(access|account)[.\-_]?key", re.IGNORECASE)


def shown(topology: Topology) -> dict[str, Any]:
    """What holds for this pipeline; a value that came through `${...}` is shown by the names of its variables."""
    document = topology.document
    store = _value(topology.store, document, ("store", "path"))
    state = _value(topology.state, document, ("state",))
    if document.values.get("state") is None and ("store", "path") in document.hidden:
        state = f"{store}{STATE_SUFFIX}"
    return {
        "store": {"path": store},
        "acknowledgements": _value(topology.acknowledgements, document, ("acknowledgements",)),
        "state": state,
        "ingest": _value(topology.ingest, document, ("ingest",)),
        "spark": _value(topology.spark, document, ("spark",)),
        "buffer": {
            "acknowledgements": _value(topology.buffer_acknowledges, document, ("buffer", "acknowledgements")),
            **_value(topology.store_settings.buffer, document, ("buffer",)),
        },
        "namespaces": _value(document.values.get("namespaces") or {}, document, ("namespaces",)),
        "topics": _value(document.values.get("topics") or {}, document, ("topics",)),
        "sources": {
            name: {
                **_value(source.settings, document, ("sources", name)),
                "acknowledgements": _value(source.acknowledgements, document, ("sources", name, "acknowledgements")),
            }
            for name, source in topology.sources.items()
        },
        "transforms": {
            name: _value(node.settings, document, ("transforms", name)) for name, node in topology.transforms.items()
        },
        "sinks": {name: _value(sink.settings, document, ("sinks", name)) for name, sink in topology.sinks.items()},
    }


def _value(value: Any, document: Document, keys: Keys) -> Any:
    if keys in document.hidden:
        return document.hidden[keys]
    match value:
        case BaseModel():
            fields = type(value).model_fields
            names = {name: field.alias or name for name, field in fields.items()}
            return {key: _value(getattr(value, name), document, (*keys, key)) for name, key in names.items()}
        case Mapping():
            return {
                key: MASK if keys == ("spark", "conf") and _SECRET.search(key) else _value(each, document, (*keys, key))
                for key, each in value.items()
            }
        case list() | tuple():
            return [_value(each, document, (*keys, index)) for index, each in enumerate(value)]
        case SecretStr():
            return MASK
        case Path() | Durability():
            return str(value)
    return value
