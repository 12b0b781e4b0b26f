"""Rebuild the checkpoints of a topic and of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.clock import Clock, Ids
from holdfast.errors import Corruption, HoldfastError, InvalidName
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.names import validate_slot
from holdfast.operate._aside import Aside
from holdfast.operate._repair_registry import rebuilt_registry
from holdfast.operate._survey import ShardSurvey
from holdfast.schema import widest
from holdfast.slots import OTAP_SLOTS, SlotTable
from holdfast.store.layout import STORE_CHECKPOINT, TOPIC_CHECKPOINT
from holdfast.store.registry import Registry
from holdfast.store.topic_state import TopicState, decode_schema, write_topic_checkpoint


def repair_topic(files: Files, folder: Path, surveys: Sequence[ShardSurvey], aside: Aside, clock: Clock) -> Registry:
    """Make the slot table name every slot that the shards use; who is registered then.

    Whoever calls holds the topic's lock.
    """
    used = _used(surveys)
    state = _state(files, folder)
    left = _left_over(files, folder) if state is None else _Left()
    known, merged, count = _read(state) if state is not None else left.knowledge
    unknown = sorted(set(used) - set(known.names.values()))
    if state is not None and not unknown:
        return state.registry
    for name in (TOPIC_CHECKPOINT, TOPIC_CHECKPOINT + TEMPORARY_SUFFIX):
        aside.copy(folder / name)
    table, guessed = _completed(known, unknown, surveys)
    schemas = {**{slot: widest(list(each.values())) for slot, each in used.items()}, **merged}
    schemas = {slot: schema for slot, schema in schemas.items() if slot in table.names.values()}
    if state is not None:
        registry = state.registry
    else:
        registry = rebuilt_registry(files, folder, left.registry, surveys, aside, clock)
    tails = [found.tail.schemas for found in surveys if found.tail is not None]
    write_topic_checkpoint(files, folder, table, schemas, max([count, *tails]) + 1, registry)
    named = ", ".join(f"{number}: {table.name(number)}" for number in sorted(used)) or "none"
    aside.did(f"rebuilt {folder / TOPIC_CHECKPOINT}; slots in use by number: {named}")
    if guessed:
        names = ", ".join(guessed)
        aside.did(f"the names of some slots are kept nowhere else; they are now called {names}: rename what reads them")
    return registry


def _used(surveys: Sequence[ShardSurvey]) -> dict[int, dict[bytes, pa.Schema]]:
    used: dict[int, dict[bytes, pa.Schema]] = {}
    for found in surveys:
        for slot, schemas in found.schemas.items():
            used.setdefault(slot, {}).update(schemas)
    return used


def _state(files: Files, folder: Path) -> TopicState | None:
    try:
        return TopicState(files, folder, note="")
    except (FileNotFoundError, Corruption):
        return None


def _read(state: TopicState) -> tuple[SlotTable, dict[int, pa.Schema], int]:
    return (
        state.slots,
        {state.slots.number(name): state.schema(name) for name in state.slots if _has(state, name)},
        state.schema_count,
    )


def _has(state: TopicState, name: str) -> bool:
    try:
        state.schema(name)
    except KeyError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Left:
    """What can be read although the checkpoint as a whole cannot; `registry` is `None` if that cannot."""

    slots: SlotTable = field(default_factory=SlotTable)
    merged: Mapping[int, pa.Schema] = field(default_factory=dict)
    count: int = 0
    registry: Registry | None = None

    @property
    def knowledge(self) -> tuple[SlotTable, dict[int, pa.Schema], int]:
        return self.slots, dict(self.merged), self.count


def _left_over(files: Files, folder: Path) -> _Left:
    """From the checkpoint itself, should only a part of it make no sense; or from a replacement that a crash kept from
    taking its place, if one is there and whole."""
    for name in (TOPIC_CHECKPOINT, TOPIC_CHECKPOINT + TEMPORARY_SUFFIX):
        try:
            document = read_checkpoint(files, folder / name)
            table = SlotTable.from_document(document["slots"])
            merged = {int(slot): decode_schema(text) for slot, text in document["schemas"].items()}
            return _Left(table, merged, int(document["schema_count"]), _registry(document))
        except (FileNotFoundError, HoldfastError, KeyError, TypeError, ValueError):
            continue
    return _Left()


def _registry(document: Mapping[str, Any]) -> Registry | None:
    try:
        return Registry.from_document(document["subscribers"]) if "subscribers" in document else Registry()
    except (HoldfastError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _completed(known: SlotTable, unknown: Sequence[int], surveys: Sequence[ShardSurvey]) -> tuple[SlotTable, list[str]]:
    """A table with all numbers in it, and those names that had to be made up.

    The manifest of a segment says for each bundle which signal it is: the name of its lowest slot. So many names can
    be had back from there.
    """
    if not unknown:
        return known, []
    signals = {number: name for found in surveys for number, name in found.signals.items()}
    if not len(known) and _is_otap(unknown, signals):
        return OTAP_SLOTS, []
    names = dict(known.names)
    guessed = []
    for number in unknown:
        name = signals.get(number, "")
        if not _usable(name) or name in names:
            name = f"slot-{number}"
            guessed.append(name)
        names[name] = number
    return SlotTable(names), guessed


def _is_otap(numbers: Sequence[int], signals: dict[int, str]) -> bool:
    """A topic's own numbers count up from 0, so high ones without 0 that agree with the fixed table are its own."""
    return (
        0 not in numbers
        and max(numbers) >= min(OTAP_SLOTS.names[name] for name in ("univariate_metrics", "logs", "spans"))
        and set(numbers) <= set(OTAP_SLOTS.names.values())
        and all(OTAP_SLOTS.signal([number]) == signal for number, signal in signals.items())
    )


def _usable(name: str) -> bool:
    try:
        validate_slot(name)
    except InvalidName:
        return False
    return True


def repair_store(files: Files, folder: Path, aside: Aside, ids: Ids) -> None:
    """Give a store whose checkpoint is damaged a new id; nothing else is in it."""
    path = folder / STORE_CHECKPOINT
    aside.copy(path)
    store_id = ids.random_bytes(16).hex()
    write_checkpoint(files, path, {"kind": "store", "id": store_id})
    aside.did(f"rebuilt {path} with the new id {store_id}; whoever remembers this store by its old id must be told")
