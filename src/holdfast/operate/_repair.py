"""Repair a store, topic or shard: lock, check, mend, check again."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.clock import Clock, Ids
from holdfast.errors import Corruption, InputError, UnknownSlot
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.operate._aside import DAMAGED, Aside
from holdfast.operate._check import check, check_shard, registry
from holdfast.operate._check_beside import listed
from holdfast.operate._findings import Finding, Repair, Severity
from holdfast.operate._kinds import Kind, shard_folders, topic_folders
from holdfast.operate._progress import Work
from holdfast.operate._repair_acks import repair_acks
from holdfast.operate._repair_leases import repair_leases
from holdfast.operate._repair_shard import Signal, repair_shard
from holdfast.operate._repair_topic import repair_store, repair_topic
from holdfast.operate._survey import ShardSurvey
from holdfast.slots import SlotTable
from holdfast.store.keys import FOLDER as KEYS
from holdfast.store.layout import STORE_CHECKPOINT, TOPIC_CHECKPOINT, TOPIC_LOCK
from holdfast.store.lease import SUBSCRIBERS
from holdfast.store.recovery import lock_shard
from holdfast.store.registry import Registry
from holdfast.store.topic_state import TopicState

# In the store's own folder every plain name could be a namespace's.
STORE_DAMAGED: Final = f".{DAMAGED}"


def repair(files: Files, path: Path, kind: Kind, work: Work, *, clock: Clock, ids: Ids) -> Repair:
    """Mend all damage below `path`; every shard there is locked first, so that nothing is begun in vain."""
    if not kind.is_folder:
        raise InputError(
            f"{path} is a single file: a repair needs all of its shard; give the shard's folder, or the store's"
        )
    topics = {Kind.STORE: lambda: topic_folders(files, path), Kind.TOPIC: lambda: [path]}
    folders = topics[kind]() if kind in topics else []
    shards = [shard for topic in folders for shard in shard_folders(files, topic)] or [path] * (kind is Kind.SHARD)
    note = f"fsck, process {os.getpid()} on {socket.gethostname()}"
    with ExitStack() as locks:
        for shard in shards:
            locks.callback(lock_shard(files, shard, note=note).release)
        before = check(files, path, kind, work)
        actions: list[str] = []
        if kind is Kind.STORE:
            actions += _repair_store(files, path, before, ids)
        for topic in folders:
            actions += _repair_topic(files, topic, note, work, clock, ids)
        if kind is Kind.SHARD:
            known = registry(files, path.parent)
            actions += _repair_shards(files, path.parent, [check_shard(files, path, work)], known, clock, ids)
    return Repair(tuple(before), tuple(actions))


def _repair_store(files: Files, path: Path, findings: Iterable[Finding], ids: Ids) -> list[str]:
    aside = Aside(files, path, STORE_DAMAGED)
    checkpoint = path / STORE_CHECKPOINT
    if any(each.severity is Severity.DAMAGE and each.path == str(checkpoint) for each in findings):
        repair_store(files, path, aside, ids)
    _remove_temporary(files, path, aside)
    return aside.actions


def _repair_topic(files: Files, topic: Path, note: str, work: Work, clock: Clock, ids: Ids) -> list[str]:
    aside = Aside(files, topic)
    checked = [check_shard(files, shard, work) for shard in shard_folders(files, topic)]
    lock = files.lock(topic / TOPIC_LOCK, note=note, wait=True)
    try:
        surveys = [found for found, _ in checked]
        known = repair_topic(files, topic, surveys, aside, clock)
        repair_leases(files, topic, known, surveys, aside)
        for place in (topic, topic / SUBSCRIBERS, topic / KEYS):
            _remove_temporary(files, place, aside)
    finally:
        lock.release()
    return aside.actions + _repair_shards(files, topic, checked, known, clock, ids)


def _repair_shards(
    files: Files,
    topic: Path,
    checked: Iterable[tuple[ShardSurvey, list[Finding]]],
    known: Registry | None,
    clock: Clock,
    ids: Ids,
) -> list[str]:
    schemas, table = _topic_knowledge(files, topic)
    actions: list[str] = []
    for found, findings in checked:
        aside = Aside(files, found.folder)
        repair_shard(files, found, findings, aside, clock=clock, ids=ids, schemas=schemas, signal=_signal(table, found))
        repair_acks(files, found, known, aside, clock)
        actions += aside.actions
    return actions


def _topic_knowledge(files: Files, topic: Path) -> tuple[list[pa.Schema], SlotTable]:
    """Merged schemas and slot table; a shard can be repaired without, if need be."""
    if not files.exists(topic / TOPIC_CHECKPOINT):
        return [], SlotTable()
    try:
        state = TopicState(files, topic, note="")
    except Corruption:
        return [], SlotTable()
    schemas = []
    for name in state.slots:
        try:
            schemas.append(state.schema(name))
        except KeyError:  # a slot that holds nothing yet
            continue
    return schemas, state.slots


def _signal(table: SlotTable, found: ShardSurvey) -> Signal:
    def signal(numbers: Iterable[int]) -> str:
        present = sorted(numbers)
        try:
            return table.signal(present)
        except UnknownSlot:
            return found.signals.get(present[0], f"slot-{present[0]}")

    return signal


def _remove_temporary(files: Files, folder: Path, aside: Aside) -> None:
    for name in listed(files, folder):
        if name.endswith(TEMPORARY_SUFFIX):
            aside.remove(folder / name)
