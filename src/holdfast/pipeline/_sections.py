"""The sections `sources`, `transforms` and `sinks`: names, types, settings; each mistake noted at its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from holdfast.config._explain import build, nearest
from holdfast.config.node import NodeSettings
from holdfast.config.yaml import Document, quoted
from holdfast.errors import InvalidName
from holdfast.names import validate_subscriber

SECTIONS: Final = ("sources", "transforms", "sinks")
MAX_NAME: Final = 64
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
Settings = TypeVar("Settings", bound=NodeSettings)


def entries(document: Document, section: str) -> dict[str, Any]:
    """What stands in a section, as it is."""
    found = document.values.get(section)
    return found if isinstance(found, dict) else {}


def read_section(
    document: Document, section: str, kinds: Mapping[str, type[Settings]], context: Mapping[str, Any]
) -> dict[str, Settings]:
    """The settings of each entry that is right; whatever is wrong is noted."""
    found = document.values.get(section)
    if found is not None and not isinstance(found, dict):
        document.add((section,), f"{document.shown((section,), found)} should be a mapping of names to settings")
    made: dict[str, Settings] = {}
    for name, values in entries(document, section).items():
        check_name(document, (section, name), name, f"a name in {section}")
        settings = _read(document, section, name, values, kinds, context)
        if settings is not None:
            made[name] = settings
    return made


def check_name(document: Document, keys: tuple[str | int, ...], name: str, what: str) -> None:
    """Names are lower-case words: they become views of SQL, labels of metrics and parts of paths."""
    if _NAME.fullmatch(name) is None:
        document.add(
            keys, f"{quoted(name)} cannot be {what}; names are 1 to {MAX_NAME} of a-z, 0-9 and _, a letter first"
        )
        return
    try:
        validate_subscriber(name)
    except InvalidName as error:
        document.add(keys, str(error))


def _read(
    document: Document,
    section: str,
    name: str,
    values: Any,
    kinds: Mapping[str, type[Settings]],
    context: Mapping[str, Any],
) -> Settings | None:
    keys = (section, name)
    known = f"{section} are of the types {', '.join(sorted(kinds))}"
    if not isinstance(values, dict):
        document.add(keys, f"{document.shown(keys, values)} should be a mapping, like {{type: {min(kinds)}, ...}}")
        return None
    if "type" not in values:
        document.add((*keys, "type"), f"missing; {known}")
        return None
    kind = values["type"]
    model = kinds.get(kind) if isinstance(kind, str) else None
    if model is None:
        place = (*keys, "type")
        hint = nearest(kind, kinds) if isinstance(kind, str) and place not in document.hidden else ""
        document.add(place, f"{document.shown(place, kind)} is unknown{hint or ';'} {known}".replace("?;", "?"))
        return None
    return build(model, values, document, keys, context)
