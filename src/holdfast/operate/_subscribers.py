"""The subscribers of a topic: how far each one is and what it holds back; pausing, resuming, removing them.

All of it works beside running writers: nothing here takes a shard.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.files import Files, SystemFiles
from holdfast.names import validate_topic
from holdfast.operate._values import moment
from holdfast.store import Store, Topic
from holdfast.store.registry import Registry, Removal
from holdfast.store.topic_state import TopicState
from holdfast.store.views import SubscriberView
from holdfast.units import format_bytes

Document = dict[str, Any]
Where = str | os.PathLike[str]


@contextmanager
def reading(path: Where, topic: str, files: Files | None, clock: Clock | None = None) -> Iterator[Topic]:
    """The topic, opened beside whoever writes it."""
    validate_topic(topic)
    with Store.open(path, read_only=True, files=files, clock=clock) as store:
        yield store.topic(topic)


def registry_of(files: Files, path: Path, topic: str) -> Registry:
    """Who is registered, and who was removed."""
    return TopicState(files, path / topic, note="").registry


# -- looking ------------------------------------------------------------------------------------------------------


def subscribers(path: Where, topic: str, *, files: Files | None = None, clock: Clock | None = None) -> Document:
    """Every subscriber of a topic, and the last ones that were removed."""
    files = SystemFiles() if files is None else files
    with reading(path, topic, files, clock) as opened:
        found = [subscriber_document(view) for view in opened.subscribers().values()]
    removals = registry_of(files, Path(path), topic).removals
    return {
        "path": os.fspath(path),
        "topic": topic,
        "subscribers": found,
        "removals": [removal_document(each) for each in removals],
    }


def subscriber(
    path: Where, topic: str, name: str, *, files: Files | None = None, clock: Clock | None = None
) -> Document:
    """One subscriber, shard by shard; raises `UnknownSubscriber`."""
    files = SystemFiles() if files is None else files
    with reading(path, topic, files, clock) as opened:
        found = _one(opened, files, Path(path), name)
    return {"path": os.fspath(path), "topic": topic, **found}


def _one(opened: Topic, files: Files, path: Path, name: str) -> Document:
    registry_of(files, path, opened.name).get(name)
    return subscriber_document(opened.subscribers()[name])


def subscriber_document(view: SubscriberView) -> Document:
    """How far a subscriber is, as JSON values."""
    registration = view.registration
    shards = [
        {
            "shard": f"shard-{number:04d}",
            "start": registration.start(number),
            "watermark": shard.watermark,
            "durable": shard.durable,
            "lag_bundles": shard.lag,
            "gaps": shard.gaps,
            "finished_above": shard.finished_above,
            "rejected": shard.rejected,
            "dropped": shard.dropped,
            "oldest": None if shard.oldest_ns is None else moment(shard.oldest_ns),
            "pinned_bytes": shard.pinned_bytes,
        }
        for number, shard in sorted(view.shards.items())
    ]
    since = view.pinned_since_ns
    return {
        "name": registration.name,
        "number": registration.number,
        "state": "paused" if registration.paused else "absent" if view.holder is None else "active",
        "holder": view.holder,
        "registered": moment(registration.since_ns),
        "watermark": {str(number): shard.watermark for number, shard in sorted(view.shards.items())},
        "gaps": sum(shard.gaps for shard in view.shards.values()),
        "lag_bundles": view.lag_bundles,
        "lag_seconds": round(view.lag_seconds, 3),
        "pinned_bytes": view.pinned_bytes,
        "pinned_since": None if since is None or not view.pinned_bytes else moment(since),
        "on_full": registration.on_full,
        "authoritative": registration.authoritative,
        "expire_after": registration.expire_after,
        "shards": shards,
    }


def removal_document(removal: Removal) -> Document:
    return {"name": removal.name, "number": removal.number, "time": moment(removal.time_ns), "why": removal.why}


def pin_line(document: Document) -> str | None:
    """Who pins how many bytes since when; `None` if this subscriber pins none."""
    if not document["pinned_bytes"]:
        return None
    held = "held by nobody" if document["holder"] is None else f"held by {document['holder']}"
    state = "paused, " if document["state"] == "paused" else ""
    return (
        f"{document['name']} pins {format_bytes(document['pinned_bytes'])} since {document['pinned_since']} "
        f"({document['lag_bundles']} bundles unfinished; {state}{held}; on_full: {document['on_full']})"
    )


# -- changing -----------------------------------------------------------------------------------------------------


def pause_subscriber(path: Where, topic: str, name: str, *, files: Files | None = None) -> Document:
    """Deliver nothing more to it, whoever holds it, until it is resumed."""
    return _set_paused(path, topic, name, files, paused=True)


def resume_subscriber(path: Where, topic: str, name: str, *, files: Files | None = None) -> Document:
    """Deliver to it again."""
    return _set_paused(path, topic, name, files, paused=False)


def _set_paused(path: Where, topic: str, name: str, files: Files | None, *, paused: bool) -> Document:
    files = SystemFiles() if files is None else files
    with reading(path, topic, files) as opened:
        before = _one(opened, files, Path(path), name)
        (opened.pause if paused else opened.resume)(name)
        after = _one(opened, files, Path(path), name)
    changed = (before["state"] == "paused") != paused
    return {"path": os.fspath(path), "topic": topic, "changed": changed, **after}


def remove_subscriber(path: Where, topic: str, name: str, *, files: Files | None = None) -> Document:
    """Forget it: whoever holds it is fenced, and nothing is kept for it any more. As it was before."""
    files = SystemFiles() if files is None else files
    with reading(path, topic, files) as opened:
        before = _one(opened, files, Path(path), name)
        opened.remove(name)
    return {"path": os.fspath(path), "topic": topic, **before}
