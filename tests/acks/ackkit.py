"""An ack log on a simulated disk, and records made short."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.acks import (
    AckLog,
    AckState,
    AnswerRecord,
    BatchId,
    BatchRecord,
    BatchStatus,
    Change,
    Outcome,
    OutcomeRecord,
)
from holdfast.acks.format import file_name
from holdfast.files import Files
from holdfast.testing import FakeClock, SimulatedFiles

SHARD = Path("/shard")
FOLDER = SHARD / "acks"
SHARD_ID = bytes(range(16))
ACK, REJECTED, DROPPED, NACK, FAILED = Outcome


def disk() -> SimulatedFiles:
    """With a shard that has an ack log."""
    files = SimulatedFiles()
    files.make_folder(SHARD)
    AckLog.create(files, SHARD, SHARD_ID)
    return files


def open_log(files: Files, folder: Path = SHARD, **options: Any) -> AckLog:
    return AckLog(files, folder, SHARD_ID, clock=FakeClock(), **options)


def read(files: Files) -> tuple[AckLog, Change]:
    """A fresh log that has read everything, alone."""
    log = open_log(files)
    with log.exclusive() as change:
        return log, change


def rotate(log: AckLog, keep: Iterable[int] | None = None) -> None:
    with log.exclusive():
        log.rotate(log.state.progress.keys() if keep is None else set(keep))


def offsets(subscriber: int, *numbers: int, outcome: Outcome = ACK, reason: str = "") -> OutcomeRecord:
    return OutcomeRecord.of_offsets(subscriber, outcome, numbers, reason=reason)


def ranges(subscriber: int, *pairs: tuple[int, int], outcome: Outcome = ACK) -> OutcomeRecord:
    return OutcomeRecord.of_ranges(subscriber, outcome, pairs)


def batch_id(number: int) -> BatchId:
    return BatchId("source", "run", str(number))


def batch(number: int, *pairs: tuple[int, int]) -> BatchRecord:
    return BatchRecord(batch_id(number), pairs)


def answer(number: int, status: BatchStatus = BatchStatus.DELIVERED) -> AnswerRecord:
    return AnswerRecord(batch_id(number), status)


def path(number: int) -> Path:
    return FOLDER / file_name(number)


def write(files: Files, where: Path, data: bytes) -> None:
    """Give a file other bytes, or make it."""
    if files.exists(where):
        files.unlink(where)
    file = files.create(where)
    file.append([data])
    file.close()


def finals(state: AckState, subscriber: int, upto: int = 64) -> dict[int, Outcome]:
    """Every final offset below `upto`, with its outcome."""
    progress = state.of(subscriber)
    return {
        offset: outcome
        for offset in range(upto)
        if progress.is_final(offset) and (outcome := progress.worst(offset, offset + 1)) is not None
    }


def content(state: AckState) -> dict[str, Any]:
    """All that a state says, as plain values; subscribers of whom nothing is known are left out."""
    document = state.to_document(state.progress.keys())
    document["progress"] = {
        number: {**each, "noted": sorted(each["noted"])}
        for number, each in document["progress"].items()
        if any(each.values())
    }
    return document
