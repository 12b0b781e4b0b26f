"""The sections `buffer`, `namespaces` and `topics` of a pipeline: the store's settings, each mistake at its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.config._explain import build
from holdfast.config.node import NodeSettings
from holdfast.config.settings import BufferSettings, StoreSettings, _merge
from holdfast.config.yaml import Document, Keys
from holdfast.errors import InvalidName
from holdfast.names import validate_namespace, validate_topic

_KEY: Final = "acknowledgements"  # of the pipeline: the store itself has no use for it


@dataclass(frozen=True, slots=True)
class BufferSections:
    """The store's settings, and for each level whether data that is durable counts as delivered for its source."""

    store: StoreSettings
    acknowledgements: bool
    by_namespace: Mapping[str, bool]
    by_topic: Mapping[str, bool]

    def acknowledges(self, topic: str) -> bool:
        """Is a source of `topic` answered when its data is durable, or only when the sinks have it?"""
        namespace = topic.split("/", 1)[0]
        return self.by_topic.get(topic, self.by_namespace.get(namespace, self.acknowledgements))


class _Acknowledging(NodeSettings):
    acknowledgements: bool | None = None


def buffer_sections(document: Document) -> BufferSections:
    """What the three sections say; mistakes are noted in the document."""
    own, acknowledges = _split(document, ("buffer",))
    base = build(BufferSettings, own, document, ("buffer",)) or BufferSettings()
    namespaces, by_namespace = _overrides(document, "namespaces", base, validate_namespace, {})
    topics, by_topic = _overrides(document, "topics", base, validate_topic, namespaces)
    store = StoreSettings.model_construct(buffer=base, namespaces=namespaces, topics=topics)
    if not document.problems:  # checked again as a whole: no way in may differ from that of a plain store
        store = StoreSettings.of({"buffer": own, "namespaces": namespaces, "topics": topics})
    return BufferSections(store, acknowledges is not False, by_namespace, by_topic)


def _overrides(
    document: Document,
    section: str,
    base: BufferSettings,
    validate: Callable[[str], object],
    below: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Mapping[str, Any]], dict[str, bool]]:
    """What is set otherwise for each name, and which of them say something about acknowledgements."""
    settings: dict[str, Mapping[str, Any]] = {}
    acknowledging: dict[str, bool] = {}
    found = document.values.get(section)
    if found is not None and not isinstance(found, dict):
        document.add((section,), f"{document.shown((section,), found)} should be a mapping of names to settings")
    for name in found if isinstance(found, dict) else ():
        try:
            validate(name)
        except InvalidName as error:
            document.add((section, name), str(error))
        own, acknowledges = _split(document, (section, name))
        namespace = below.get(name.split("/", 1)[0], {})
        merged = _merge(_merge(base.model_dump(), namespace), own)
        if build(BufferSettings, merged, document, (section, name)) is not None:
            settings[name] = own
        if acknowledges is not None:
            acknowledging[name] = acknowledges
    return settings, acknowledging


def _split(document: Document, keys: Keys) -> tuple[dict[str, Any], bool | None]:
    """The store's part of a section, and the pipeline's."""
    found: Any = document.values
    for key in keys:
        found = found.get(key)
    if found is None:
        return {}, None
    if not isinstance(found, dict):
        document.add(keys, f"{document.shown(keys, found)} should be a mapping of settings")
        return {}, None
    mine = build(_Acknowledging, {key: found[key] for key in found if key == _KEY}, document, keys)
    rest = {key: value for key, value in found.items() if key != _KEY}
    return rest, None if mine is None else mine.acknowledgements
