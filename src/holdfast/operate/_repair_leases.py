"""Repair leases, and find subscribers by them. Whoever calls holds the topic's lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.acks.format import FOLDER, file_name, list_acks
from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.files.checkpoint import write_checkpoint
from holdfast.operate._ack_look import look_at_acks
from holdfast.operate._aside import Aside
from holdfast.operate._check_beside import HELD, LEASE, lease_document, listed
from holdfast.operate._survey import ShardSurvey
from holdfast.store.lease import SUBSCRIBERS
from holdfast.store.registry import Registration, Registry


def repair_leases(files: Files, topic: Path, registry: Registry, surveys: Sequence[ShardSurvey], aside: Aside) -> None:
    """Replace each damaged lease by one that nobody holds, with an epoch that is not below any that was seen."""
    for path in _leases(files, topic):
        try:
            lease_document(files, path)
            continue
        except Corruption:
            name = path.name.removesuffix(LEASE)
        registration = registry.subscribers.get(name)
        if registration is None:
            aside.remove(path)
            continue
        aside.copy(path)
        epoch = max(_held_epochs(files, topic, name) + _acked_epochs(files, surveys, registration.number), default=0)
        write_checkpoint(files, path, {"kind": "lease", "number": registration.number, "epoch": epoch, "holder": ""})
        aside.did(f"rebuilt {path}: nobody holds {name}, and its next epoch is {epoch + 1}")


def registrations_by_lease(files: Files, topic: Path) -> list[Registration]:
    """Subscribers that have a lease that can be read, with what can be told of them: name and number."""
    found: dict[int, Registration] = {}
    for path in _leases(files, topic):
        try:
            document = lease_document(files, path)
        except Corruption:
            continue
        found.setdefault(document["number"], Registration(path.name.removesuffix(LEASE), document["number"], 0))
    return sorted(found.values(), key=lambda each: each.number)


def _leases(files: Files, topic: Path) -> list[Path]:
    return [topic / SUBSCRIBERS / name for name in listed(files, topic / SUBSCRIBERS) if name.endswith(LEASE)]


def _held_epochs(files: Files, topic: Path, name: str) -> list[int]:
    matches = map(HELD.fullmatch, listed(files, topic / SUBSCRIBERS))
    return [int(match[2]) for match in matches if match is not None and match[1] == name]


def _acked_epochs(files: Files, surveys: Sequence[ShardSurvey], number: int) -> list[int]:
    epochs = []
    for found in surveys:
        folder = found.folder / FOLDER
        for each in list_acks(files, folder):
            path = folder / file_name(each)
            entries = look_at_acks(files.read(path), path).entries
            epochs += [entry.epoch for entry in entries if entry.subscriber == number and not entry.batch]
    return epochs
