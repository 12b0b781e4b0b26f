"""The WAL of a shard that is being opened: which bundles count, what was torn, what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.encoded import EncodedBundle
from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.wal._log import LogFile
from holdfast.wal._scan import WalScan
from holdfast.wal.format import FILE_HEADER_BYTES, FileHeader, WalName, list_wal

Progress = Callable[[int, int], None]  # bytes done, bytes in all
Range = tuple[int, int]  # of offsets, the end not included


@dataclass(frozen=True, slots=True)
class TornTail:
    """What a crash left behind the last whole record; position 0 means that not even the file header is whole."""

    path: Path
    position: int
    reason: str


@dataclass(slots=True)
class Replay:
    """What the WAL holds from an offset on."""

    bundles: list[EncodedBundle] = field(default_factory=list)
    durable: int = 0  # below this everything is known to have been synced
    end: int = 0  # one above the last bundle that counts
    highest: int = 0  # one above the highest offset seen anywhere, also in records that do not count
    next_segment_seq: int = 0
    next_generation: int = 0
    log_files: list[LogFile] = field(default_factory=list)
    torn: list[TornTail] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)  # offsets whose append failed: they hold nothing, and never will


@dataclass(slots=True)
class _File:
    name: WalName
    path: Path
    data: Any
    header: FileHeader | None
    problem: Corruption | None
    limit: int | None = None  # from here on, a later generation counts
    spare: bool = False  # an old file under a new name that was not written to yet, or a new one under an old name


def replay(
    files: Files,
    folder: Path,
    shard_id: bytes,
    *,
    start: int,
    tail_durable: int = 0,
    lost: Sequence[Range] = (),
    progress: Progress | None = None,
) -> Replay:
    """Read the WAL from offset `start` on (everything below is covered by segments or was trimmed).

    Raises `Corruption` for what is bad or missing below a synced mark; a torn tail is only reported. Changes nothing.
    """
    names = list_wal(files, folder)
    opened = [_open(files, folder, name, shard_id, names) for name in names]
    result = Replay(durable=max(start, tail_durable), end=start, highest=start)
    _limit(opened)
    for file in opened:
        result.next_generation = max(result.next_generation, file.name.generation + 1)
        if file.header is not None:
            result.durable = max(result.durable, file.header.supersedes)
            result.next_segment_seq = max(result.next_segment_seq, file.header.next_segment_seq)
            if file.header.supersedes < file.header.first_offset:
                result.lost.append((file.header.supersedes, file.header.first_offset))
    result.lost += lost
    scans = _scan(opened, start, result, progress)
    for file in opened:
        _take(file, scans.get(file.name), result)
    if result.end < result.durable and not _covered(result.end, result.durable, result.lost):
        at = opened[-1] if opened else None
        raise Corruption(
            folder if at is None else at.path,
            0 if at is None else len(memoryview(at.data)),
            f"the WAL ends at offset {result.end}, yet everything up to {result.durable - 1} was durable",
        )
    result.highest = max(result.highest, result.end, result.durable)
    return result


def _open(files: Files, folder: Path, name: WalName, shard_id: bytes, names: Sequence[WalName]) -> _File:
    path = folder / str(name)
    data = files.map(path)
    try:
        header = FileHeader.decode(data, path)
    except Corruption as problem:
        return _File(name, path, data, None, problem)
    if header.shard_id != shard_id:
        raise Corruption(path, 16, f"belongs to shard {header.shard_id.hex()}, not to this one ({shard_id.hex()})")
    if (header.generation, header.first_offset) != name:
        what = f"by its header this is generation {header.generation} from offset {header.first_offset} on"
        spare = header.generation < name.generation or WalName(header.generation, header.first_offset) in names
        return _File(name, path, data, None, Corruption(path, 32, what), spare=spare)
    return _File(name, path, data, header, None)


def _limit(opened: list[_File]) -> None:
    limit: int | None = None
    for file in reversed(opened):
        file.limit = limit
        if file.header is not None:
            limit = file.header.supersedes if limit is None else min(limit, file.header.supersedes)


def _scan(
    opened: list[_File], start: int, result: Replay, progress: Progress | None
) -> dict[WalName, tuple[WalScan, list[EncodedBundle]]]:
    total = sum(len(memoryview(file.data)) for file in opened)
    done = 0
    scans = {}
    for file in opened:
        if file.header is not None and (file.limit is None or file.limit > start):
            scan = WalScan(file.path, file.header)
            bundles = scan.advance(file.data, file.limit)
            if scan.end is not None:
                scan.look_beyond(file.data)
            result.durable = max(result.durable, scan.synced)
            result.highest = max(result.highest, scan.highest_offset + 1)
            result.next_segment_seq = max(result.next_segment_seq, scan.next_segment_seq)
            scans[file.name] = (scan, bundles)
        done += len(memoryview(file.data))
        if progress is not None:
            progress(done, total)
    return scans


def _take(file: _File, scanned: tuple[WalScan, list[EncodedBundle]] | None, result: Replay) -> None:
    """Add the bundles of one file that count, in the order of generations."""
    first = file.name.first_offset
    size = len(memoryview(file.data))
    if file.problem is not None:
        needed = result.durable if file.limit is None else file.limit
        if not file.spare and first < min(needed, result.durable) and not _covered(first, needed, result.lost):
            raise file.problem
        if not file.spare:
            result.torn.append(TornTail(file.path, 0, file.problem.what))
        result.log_files.append(LogFile(file.name, first, size))
        return
    if scanned is None:
        result.log_files.append(LogFile(file.name, max(first, min(file.limit or first, result.end)), size))
        return
    scan, bundles = scanned
    end = scan.offset
    result.log_files.append(LogFile(file.name, end, size))
    if end > result.end:
        if first > result.end and not _covered(result.end, first, result.lost):
            raise Corruption(
                file.path,
                FILE_HEADER_BYTES,
                f"offsets {result.end} to {first - 1} are missing before this file",
            )
        lost = result.lost
        result.bundles += [
            bundle
            for bundle in bundles
            if bundle.offset >= result.end and not (lost and _covered(bundle.offset, bundle.offset + 1, lost))
        ]  # a bundle whose append failed may have reached the disk all the same; its caller was told otherwise
        result.end = end
    stop = scan.end
    if stop is None or stop.bad is None:
        return
    needed = result.durable if file.limit is None else file.limit
    if stop.offset < result.durable and result.end < needed and not _covered(result.end, needed, result.lost):
        raise Corruption(file.path, stop.position, f"{stop.bad}, yet offset {stop.offset} was durable")
    result.torn.append(TornTail(file.path, stop.position, stop.bad))


def _covered(first: int, end: int, lost: Sequence[Range]) -> bool:
    """Do the lost ranges, taken together, hold all of first..end?"""
    for start, stop in sorted(lost):
        if start <= first < stop:
            first = stop
    return first >= end
