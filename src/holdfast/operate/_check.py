"""Check a store, topic, shard or single file; nothing is changed and nothing is locked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corruption, HoldfastError, NewerVersion
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.files.checkpoint import read_checkpoint
from holdfast.operate._ack_look import look_at_acks
from holdfast.operate._check_beside import check_beside, check_claim, check_key_file, check_keys, check_leases, listed
from holdfast.operate._findings import Finding, Severity
from holdfast.operate._judge import BACKUP, REPAIR, damage, judge, note, warning
from holdfast.operate._judge_acks import ACK_REPAIR, AGAIN, judge_acks
from holdfast.operate._kinds import Kind, shard_folders, topic_folders
from holdfast.operate._overlap import disagreements
from holdfast.operate._progress import Work
from holdfast.operate._segment_look import look_at_segment
from holdfast.operate._survey import Seen, ShardSurvey, survey
from holdfast.operate._wal_look import WalLook, look_into
from holdfast.segment import parse_segment_name
from holdfast.store.keys import FOLDER as KEYS
from holdfast.store.layout import STORE_CHECKPOINT, TOPIC_CHECKPOINT
from holdfast.store.lease import SUBSCRIBERS
from holdfast.store.registry import Registry
from holdfast.store.segments import SegmentName
from holdfast.store.topic_state import TopicState
from holdfast.wal import FileHeader, WalName, read_tail
from holdfast.wal.format import FILE_HEADER_BYTES
from holdfast.wal.tail import TAIL_BYTES, check_tail

CONFIRMATIONS: Final = 2  # damage in a shard is believed when it is seen again: a writer may be at work in it


def check(files: Files, path: Path, kind: Kind, work: Work) -> list[Finding]:
    """All findings about what is at `path`."""
    match kind:
        case Kind.STORE:
            return _store(files, path, work)
        case Kind.TOPIC:
            return _topic(files, path, work)
        case Kind.SHARD:
            known = registry(files, path.parent)
            found, findings = check_shard(files, path, work)
            if files.exists(path.parent / TOPIC_CHECKPOINT):
                findings += _slots(files, path.parent, [found])
            return [*findings, *judge_acks(found, known), *check_beside(files, path, work)]
        case Kind.SEGMENT:
            return _segment(files, path, work)
        case Kind.WAL:
            return _wal(files, path, work)
        case Kind.TAIL:
            return _tail(files, path, work)
        case Kind.CHECKPOINT:
            return _checkpoint(files, path, work)
        case Kind.ACKS:
            return _acks(files, path, work)
        case Kind.KEYS:
            data = files.read(path)
            work.did(path.name, len(data))
            return list(check_key_file(data, path))
        case Kind.CLAIM:
            return list(check_claim(files, path, work))


def _store(files: Files, path: Path, work: Work) -> list[Finding]:
    findings = _store_checkpoint(files, path, work)
    for topic in topic_folders(files, path):
        findings += _topic(files, topic, work)
    return findings + _temporary(files, path)


def _store_checkpoint(files: Files, path: Path, work: Work) -> list[Finding]:
    file = path / STORE_CHECKPOINT
    advice = f"{BACKUP}; else run `holdfast fsck --repair` on the store: it gives it a new id"
    try:
        document = read_checkpoint(files, file)
    except FileNotFoundError:
        return [damage(file, None, "it is missing: the store cannot be opened", advice)]
    except (Corruption, NewerVersion) as problem:
        return [_small(file, problem, advice)]
    work.did(file.name, files.size(file))
    if document.get("kind") != "store" or not isinstance(document.get("id"), str):
        return [damage(file, 20, "not a store's checkpoint", advice)]
    return []


def _topic(files: Files, folder: Path, work: Work) -> list[Finding]:
    leases = listed(files, folder / SUBSCRIBERS)
    known = registry(files, folder)  # before the shards: nobody is registered to start behind what was durable then
    checked = [check_shard(files, shard, work) for shard in shard_folders(files, folder)]
    findings: list[Finding] = []
    for found, about in checked:
        findings += [*about, *judge_acks(found, known), *check_beside(files, found.folder, work)]
    findings += _slots(files, folder, [found for found, _ in checked])
    if files.exists(folder / TOPIC_CHECKPOINT):
        work.did(TOPIC_CHECKPOINT, files.size(folder / TOPIC_CHECKPOINT))
    findings += check_leases(files, folder, leases, registry(files, folder), work)
    findings += check_keys(files, folder, work)
    for place in (folder, folder / SUBSCRIBERS, folder / KEYS):
        findings += _temporary(files, place)
    return findings


def registry(files: Files, topic: Path) -> Registry | None:
    """Who is registered; `None` if that cannot be read."""
    try:
        return TopicState(files, topic, note="").registry
    except (FileNotFoundError, Corruption, NewerVersion):
        return None


def check_shard(files: Files, folder: Path, work: Work) -> tuple[ShardSurvey, list[Finding]]:
    """A survey of the shard and what is to be said about it."""
    seen: Seen = {}
    for _ in range(CONFIRMATIONS):
        found = survey(files, folder, work, seen)
        findings = [*judge(found), *disagreements(files, found)]
        if all(finding.severity is Severity.NOTE for finding in findings) and not found.acks.damage:
            break
    return found, findings


def _slots(files: Files, topic: Path, surveys: Iterable[ShardSurvey]) -> list[Finding]:
    """The topic's checkpoint, read after the shards: a slot is in it before the first bundle that has it."""
    path = topic / TOPIC_CHECKPOINT
    advice = f"{BACKUP}; else run `holdfast fsck --repair` on the topic: it rebuilds the slot table from the shards"
    try:
        known = TopicState(files, topic, note="").slots
    except FileNotFoundError:
        return [damage(path, None, "it is missing: the topic cannot be opened", advice)]
    except (Corruption, NewerVersion) as problem:
        return [_small(path, problem, advice)]
    unknown = sorted({slot for found in surveys for slot in found.schemas} - set(known.names.values()))
    if unknown:
        what = f"bundles have slots {', '.join(map(str, unknown))}, which the slot table does not name"
        return [damage(path, None, what, advice)]
    return []


def _small(path: Path, problem: HoldfastError, advice: str) -> Finding:
    if isinstance(problem, Corruption):
        return damage(path, problem.position, problem.what, advice)
    return damage(path, None, str(problem), "upgrade Holdfast")


def _temporary(files: Files, folder: Path) -> list[Finding]:
    return [
        note(folder / name, None, "a temporary file: being written now, or left by a crash")
        for name in listed(files, folder)
        if name.endswith(TEMPORARY_SUFFIX)
    ]


# -- single files -------------------------------------------------------------------------------------------------


def _segment(files: Files, path: Path, work: Work) -> list[Finding]:
    parsed = parse_segment_name(path.name)
    name = SegmentName(*parsed) if parsed is not None else _name_inside(files, path)
    look = look_at_segment(files, path, name)
    work.did(path.name, look.size)
    return [damage(path, each.position, each.what) for each in look.damage]


def _name_inside(files: Files, path: Path) -> SegmentName:
    """For a copy under another name."""
    head = files.read(path, 16, 16)
    return SegmentName(int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little"))


def _wal_name_inside(files: Files, path: Path) -> WalName:
    try:
        header = FileHeader.decode(files.read(path, 0, FILE_HEADER_BYTES), path)
    except (Corruption, NewerVersion):  # told by the check itself
        return WalName(0, 0)
    return WalName(header.generation, header.first_offset)


def _wal(files: Files, path: Path, work: Work) -> list[Finding]:
    data: Any = files.map(path)
    look = WalLook(WalName.parse(path.name) or _wal_name_inside(files, path), path, data)
    look_into(look)
    work.did(path.name, look.size)
    if look.problem is not None:
        return [damage(path, look.problem.position, look.problem.what)]
    findings = [damage(path, None, fault) for fault in look.faults]
    if look.scan is not None and look.scan.end is not None and look.scan.end.bad is not None:
        end = look.scan.end
        if end.offset < look.scan.synced:
            findings.append(damage(path, end.position, f"{look.bad}, yet offset {end.offset} was durable"))
        else:
            what = f"{look.bad}; by this file alone it is a torn tail (normal after a crash)"
            findings.append(warning(path, end.position, what, "check the whole shard: its tail says what was durable"))
    return findings


def _tail(files: Files, path: Path, work: Work) -> list[Finding]:
    data = files.read(path)
    work.did(path.name, len(data))
    try:
        problems = check_tail(data[:TAIL_BYTES], path)
        read_tail(files, path)
    except (Corruption, NewerVersion) as problem:
        return [_small(path, problem, "open the store for writing, or " + REPAIR)]
    if len(data) != TAIL_BYTES:
        problems.append(f"it has {len(data)} bytes, expected {TAIL_BYTES}")
    return [
        warning(
            path, None, f"{problem}; the other slot counts", "nothing: a crash may leave that, the next write mends it"
        )
        for problem in problems
    ]


def _checkpoint(files: Files, path: Path, work: Work) -> list[Finding]:
    try:
        read_checkpoint(files, path)
    except (Corruption, NewerVersion) as problem:
        return [_small(path, problem, f"{BACKUP}; else {REPAIR}")]
    work.did(path.name, files.size(path))
    return []


def _acks(files: Files, path: Path, work: Work) -> list[Finding]:
    """By this file alone: which shard it is of, and whether it is the one that counts, the shard says."""
    data = files.read(path)
    work.did(path.name, len(data))
    try:
        look = look_at_acks(data, path)
    except NewerVersion as problem:
        return [_small(path, problem, "")]
    findings = [damage(path, at, f"{what} ({size} bytes): {AGAIN}", ACK_REPAIR) for at, size, what in look.damage]
    if look.torn is not None:
        findings.append(
            note(path, look.torn, "a record is cut short at the end: being written now, or left by a crash")
        )
    return findings
