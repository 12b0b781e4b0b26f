"""What lies beside a topic's data: leases, idempotency keys, trash, claims on the budget and requests for room."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corruption, HoldfastError, NewerVersion
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.files.checkpoint import read_checkpoint
from holdfast.operate._findings import Finding
from holdfast.operate._judge import damage, note, warning
from holdfast.operate._progress import Work
from holdfast.operate._segment_look import look_at_segment
from holdfast.operate._survey import IN_TRASH
from holdfast.retention import CLAIM, REQUEST, TRASH, decode_claim
from holdfast.segment import parse_segment_name
from holdfast.store.key_format import DAMAGED_SUFFIX, HEADER_BYTES, Damage, KeyFileHeader, generation_of, read_records
from holdfast.store.keys import FOLDER as KEYS
from holdfast.store.keys import OPENING
from holdfast.store.layout import LOCK
from holdfast.store.lease import SUBSCRIBERS
from holdfast.store.registry import Registry
from holdfast.store.segments import SegmentName

LEASE: Final = ".lease"
HELD: Final = re.compile(r"(.+)-(\d+)\.held")
_LEASE_REPAIR: Final = (
    "run `holdfast fsck --repair` on the topic; it keeps a copy, and epochs go on above all that were seen"
)
_OURS: Final = "nothing: whoever uses it next writes it anew"


def lease_document(files: Files, path: Path) -> dict[str, Any]:
    """The document in a lease; raises `Corruption` or `NewerVersion`."""
    document = read_checkpoint(files, path)
    if document.get("kind") != "lease" or not all(isinstance(document.get(key), int) for key in ("epoch", "number")):
        raise Corruption(path, 20, "not a subscriber's lease")
    return document


def check_leases(files: Files, topic: Path, names: list[str], registry: Registry | None, work: Work) -> list[Finding]:
    """The leases in `names`, which were listed before the registry was read: a removal takes the registration first."""
    findings = []
    for name in names:
        path = topic / SUBSCRIBERS / name
        if not name.endswith(LEASE):
            if not name.endswith(TEMPORARY_SUFFIX) and HELD.fullmatch(name) is None:
                findings.append(warning(path, None, "not a file of Holdfast's", "move it elsewhere"))
            continue
        try:
            lease_document(files, path)
            work.did(name, files.size(path))
        except FileNotFoundError:
            continue
        except Corruption as problem:
            what = f"{problem.what}: nobody can take the subscriber {name.removesuffix(LEASE)}, or see who holds it"
            findings.append(damage(path, problem.position, what, _LEASE_REPAIR))
        except NewerVersion as problem:
            findings.append(damage(path, None, str(problem), "upgrade Holdfast"))
        if registry is not None and name.removesuffix(LEASE) not in registry.subscribers:
            findings.append(note(path, None, "the lease of a subscriber that is not registered: left by a removal"))
    return findings


def listed(files: Files, folder: Path) -> list[str]:
    """The names in a folder; none if there is no such folder."""
    with contextlib.suppress(FileNotFoundError):
        return files.list(folder)
    return []


# -- idempotency keys ---------------------------------------------------------------------------------------------


def check_keys(files: Files, topic: Path, work: Work) -> list[Finding]:
    """Every record of the key log. Whoever next uses a key mends damage there, so it is a warning and no more."""
    findings: list[Finding] = []
    names = listed(files, topic / KEYS)
    newest = max((generation for name in names if (generation := generation_of(name)) is not None), default=None)
    for name in names:
        path = topic / KEYS / name
        generation = generation_of(name)
        if generation is None:
            if name not in {LOCK, OPENING} and not name.endswith((TEMPORARY_SUFFIX, DAMAGED_SUFFIX)):
                findings.append(warning(path, None, "not a file of Holdfast's", "move it elsewhere"))
            continue
        with contextlib.suppress(FileNotFoundError):  # switched away just now
            data = files.read(path)
            work.did(name, len(data))
            if generation != newest:
                findings.append(note(path, None, "an older generation of keys: a switch was not finished", _OURS))
            else:
                findings += check_key_file(data, path)
    return findings


def check_key_file(data: bytes, path: Path) -> Iterator[Finding]:
    """What is damaged in one file of keys, and what that means."""
    forgets = "keys in it are forgotten, so that a repeat of their append is stored a second time"
    advice = "nothing: the next append with a key sets the file aside and goes on in another"
    try:
        KeyFileHeader.decode(data, path)
    except Corruption as problem:
        yield warning(path, problem.position, f"{problem.what}: {forgets}", advice)
    except NewerVersion as problem:
        yield damage(path, None, str(problem), "upgrade Holdfast")
        return
    for found in read_records(data[HEADER_BYTES:]):
        if not isinstance(found, Damage):
            continue
        position = HEADER_BYTES + found.start
        if found.tail:
            what = (
                f"{found.end - found.start} bytes that are no record at the end: being written now, or left by a crash"
            )
            yield note(path, position, what, advice)
        else:
            what = f"{found.end - found.start} bytes that are no record: {forgets}"
            yield warning(path, position, what, advice)


# -- in a shard ---------------------------------------------------------------------------------------------------


def check_beside(files: Files, shard: Path, work: Work) -> list[Finding]:
    """Trash, and what workers tell each other about the budget."""
    return [*_trash(files, shard, work), *check_claim(files, shard / CLAIM, work), *_request(files, shard, work)]


def _trash(files: Files, shard: Path, work: Work) -> Iterator[Finding]:
    for name in listed(files, shard / TRASH):
        match = IN_TRASH.fullmatch(name)
        parsed = None if match is None else parse_segment_name(match[1])
        if parsed is None:
            continue
        path = shard / TRASH / name
        with contextlib.suppress(FileNotFoundError):  # emptied just now
            look = look_at_segment(files, path, SegmentName(*parsed))
            work.did(name, look.size)
            for each in look.damage:
                what = f"{each.what}; it is in the trash, so nothing is missing"
                yield warning(path, each.position, what, "nothing: it goes when the trash is emptied")


def check_claim(files: Files, path: Path, work: Work) -> Iterator[Finding]:
    """A claim is overwritten in place and never synced: a crash may leave anything."""
    with contextlib.suppress(FileNotFoundError):
        data = files.read(path)
        work.did(path.name, len(data))
        if data and decode_claim(data) is None:
            yield note(path, 0, "the claim is not whole; it counts as nothing promised", _OURS)


def _request(files: Files, shard: Path, work: Work) -> Iterator[Finding]:
    path = shard / REQUEST
    try:
        read_checkpoint(files, path)
        work.did(path.name, files.size(path))
    except FileNotFoundError:  # none, or just answered
        return
    except HoldfastError as problem:
        what = f"{getattr(problem, 'what', problem)}: whoever asked for room asks again"
        yield note(path, 0, what, "nothing: the next writer takes it away")
