"""The WAL files of a shard as they are: which bundles each one holds, and where and why it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.encoded import EncodedBundle, decode_slot
from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.operate._progress import Work
from holdfast.schema import fingerprint
from holdfast.wal import FileHeader, WalName, WalScan, list_wal


@dataclass(slots=True)
class WalLook:
    """One WAL file. `limit` is the offset from which on later generations count instead of this one."""

    name: WalName
    path: Path
    data: Any
    header: FileHeader | None = None
    problem: Corruption | None = None  # with the header; then there is no scan
    spare: bool = False  # taken for a new file, but not yet written to: what it holds is of old
    scan: WalScan | None = None
    bundles: list[EncodedBundle] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # the checksums are right, and yet it makes no sense
    limit: int | None = None

    @property
    def size(self) -> int:
        return len(memoryview(self.data))

    @property
    def counted(self) -> list[EncodedBundle]:
        """The bundles that no later generation supersedes."""
        limit = self.limit
        return self.bundles if limit is None else [each for each in self.bundles if each.offset < limit]

    @property
    def bad(self) -> str | None:
        """Why the scan stopped, unless it came to the end of what was written."""
        return None if self.scan is None or self.scan.end is None else self.scan.end.bad


def look_at_wal(files: Files, folder: Path, work: Work) -> list[WalLook]:
    """Every WAL file of a shard, oldest first.

    A writer may retire files meanwhile, and write over them under another name: what is gone from the folder after
    we have read it is left out, for segments hold all of it by then. Raises `FileNotFoundError` if a file goes before
    it is mapped; then the caller begins anew.
    """
    looks = [WalLook(name, folder / str(name), files.map(folder / str(name))) for name in list_wal(files, folder)]
    for look in looks:
        work.expect(look.size)
    for look in looks:
        look_into(look)
        work.did(look.path.name, look.size)
    still_there = set(list_wal(files, folder))
    looks = [look for look in looks if look.name in still_there]
    limit_by_generation(looks)
    return looks


def look_into(look: WalLook) -> None:
    """Scan one file, and decode what it holds.

    A writer may be adding records. Marks behind the end of a scan say that the record there was durable, so it was
    whole by the time that we saw the mark: then the scan goes on, as long as that gets it any further.
    """
    try:
        header = FileHeader.decode(look.data, look.path)
    except Corruption as problem:
        look.problem = problem
        return
    if (header.generation, header.first_offset) != look.name:
        what = f"by its header this is generation {header.generation} from offset {header.first_offset} on"
        look.problem = Corruption(look.path, 32, what)
        look.spare = header.generation < look.name.generation
        return
    look.header = header
    look.scan = scan = WalScan(look.path, header)
    before = -1
    while before < scan.position:
        before = scan.position
        look.bundles += scan.advance(look.data)
        scan.look_beyond(look.data)
        if look.bad is None or scan.offset >= scan.synced:
            break
    look.faults = faults_of(look.bundles)


def limit_by_generation(looks: Sequence[WalLook]) -> None:
    limit: int | None = None
    for look in reversed(looks):
        look.limit = limit
        if look.header is not None:
            limit = look.header.supersedes if limit is None else min(limit, look.header.supersedes)


def faults_of(bundles: Sequence[EncodedBundle]) -> list[str]:
    """What is wrong with bundles whose checksums are right: schemas, rows, numbering."""
    faults: list[str] = []
    checked: set[bytes] = set()
    before: EncodedBundle | None = None
    for bundle in bundles:
        if before is not None and not _follows(before, bundle):
            faults.append(
                f"offset {bundle.offset} is number {bundle.bundle_index} of segment {bundle.segment_seq}, after "
                f"number {before.bundle_index} of segment {before.segment_seq}"
            )
        before = bundle
        for slot in bundle.slots:
            if slot.fingerprint not in checked:
                checked.add(slot.fingerprint)
                found = fingerprint(slot.schema)
                if found != slot.fingerprint:
                    faults.append(f"schema {slot.fingerprint.hex()} has the fingerprint {found.hex()}")
            try:
                rows = decode_slot(slot.kind, slot.data, slot.schema).num_rows
            except (pa.ArrowException, OSError, StopIteration) as error:
                faults.append(f"offset {bundle.offset}, slot {slot.slot}, cannot be decoded: {error}")
            else:
                if rows != slot.rows:
                    faults.append(
                        f"offset {bundle.offset}, slot {slot.slot}, has {rows} rows, its record says {slot.rows}"
                    )
    return faults


def _follows(before: EncodedBundle, bundle: EncodedBundle) -> bool:
    if bundle.segment_seq == before.segment_seq:
        return bundle.bundle_index == before.bundle_index + 1
    return bundle.segment_seq > before.segment_seq and bundle.bundle_index == 0
