"""The stores that this process reads: opened once, since every task of a query comes here anew.

Following a log that grows is cheap only for a reader that stays. A process keeps a few, read-only, without threads
or locks; what another store left at the same path would have another id, and is opened in its place.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from holdfast.errors import NotAStore, UnknownSlot
from holdfast.store import Store, Topic

MAX_OPEN: Final = 8
_lock = threading.Lock()
_open: OrderedDict[str, Store] = OrderedDict()


def open_store(path: str, store_id: str | None = None) -> Store:
    """The store at `path`, read-only; raises `NotAStore` if it is not there, or is another one than `store_id`."""
    place = str(Path(path).absolute())
    found = Store.open(place, read_only=True)  # what is there now: a few small reads
    if store_id is not None and found.id != store_id:
        found.close()
        raise NotAStore(
            f"at {place} there is store {found.id}, but the query began with {store_id}: "
            "every process of a query must see the same folder at this path"
        )
    with _lock:
        kept = _open.get(place)
        if kept is not None and kept.id == found.id:
            _open.move_to_end(place)
            found.close()
            return kept
        if kept is not None:
            kept.close()
        _open[place] = found
        _open.move_to_end(place)
        while len(_open) > MAX_OPEN:
            _open.popitem(last=False)[1].close()
    return found


def open_topic(path: str, topic: str, store_id: str | None = None) -> Topic:
    """Raises `NotAStore` or `UnknownTopic`."""
    return open_store(path, store_id).topic(topic)


def slot_of(topic: Topic, slot: str | None) -> str:
    """The slot that is asked for, or the only one; raises `UnknownSlot`."""
    if slot is not None:
        topic.slot_number(slot)
        return slot
    slots = list(topic.slots())
    if len(slots) == 1:
        return slots[0]
    if not slots:
        raise UnknownSlot(f"nothing was appended to {topic.name} yet, so it has no slot; append to it first")
    raise UnknownSlot(f'{topic.name} has the slots {", ".join(slots)}: choose one with .option("slot", ...)')
