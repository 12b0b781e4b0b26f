"""Dead letters written to files that other programs read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from holdfast.errors import InputError
from holdfast.files import Files, SystemFiles, WritableFile
from holdfast.operate._letters import Letters, PlacedLetter, letter_document
from holdfast.operate._subscribers import Where
from holdfast.store import Store, Topic

Document = dict[str, Any]
LETTER_COLUMN: Final = "holdfast.letter"  # says of each row which letter it is of


class _Target:
    """A file that is being written, as Arrow's writers and JSON want it; never one that was there before."""

    def __init__(self, files: Files, path: Path) -> None:
        self.path, self.rows, self.size = path, 0, 0
        try:
            self._file: WritableFile = files.create(path)
        except FileExistsError:
            raise InputError(f"{path} is there already; nothing is overwritten: choose another name") from None
        self.closed = False

    def write(self, data: Any) -> int:
        written = self._file.append([data])
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Everything was written when `write` returned."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.sync()
            self._file.close()


class _Tables:
    """A file for each slot, of its widest schema, with the letter's id in front of each row."""

    def __init__(self, dead: Topic, open_target: Callable[[str], _Target], suffix: str) -> None:
        self._dead, self._open, self._suffix = dead, open_target, suffix
        self._writers: dict[str, tuple[pa.Schema, Any, _Target]] = {}

    def add(self, found: PlacedLetter) -> None:
        for slot, batch in found.letter.original().slots.items():
            try:
                schema, writer, target = self._writers.get(slot) or self._begin(slot)
                writer.write_batch(_fitted(batch, schema, found.id))
            except (pa.ArrowException, OverflowError) as problem:
                raise InputError(
                    f"slot {slot!r} of dead letter {found.id} cannot be written as {self._suffix}: {problem}; "
                    "export it as .jsonl"
                ) from None
            target.rows += batch.num_rows

    def _begin(self, slot: str) -> tuple[pa.Schema, Any, _Target]:
        schema = pa.schema([pa.field(LETTER_COLUMN, pa.string()), *self._dead.schema(slot)])
        target = self._open(slot)
        make = pq.ParquetWriter if self._suffix == ".parquet" else ipc.new_file
        self._writers[slot] = schema, make(target, schema), target
        return self._writers[slot]

    def close(self) -> None:
        for _, writer, _ in self._writers.values():
            writer.close()


class _Lines:
    """One file, a line of JSON for each letter with everything that is in it."""

    def __init__(self, target: _Target) -> None:
        self._target = target

    def add(self, found: PlacedLetter) -> None:
        line = json.dumps(letter_document(found), ensure_ascii=False, separators=(",", ":"))
        self._target.write(f"{line}\n".encode())
        self._target.rows += 1

    def close(self) -> None:
        """Lines stand as soon as they are written."""


def export_letters(
    path: Where,
    topic: str,
    which: Sequence[str],
    to: Where,
    *,
    subscriber: str | None = None,
    files: Files | None = None,
) -> Document:
    """Write dead letters (`which`: ids, or "all") to `to`; nothing that is there is overwritten.

    By its ending: `.jsonl` is one file, a line for each letter. `.parquet` and `.arrow` hold one table each, so there
    is a file for each slot: `letters.parquet` becomes `letters.logs.parquet`, `letters.attrs.parquet` and so on.
    """
    files = SystemFiles() if files is None else files
    target = Path(to)
    if target.suffix not in {".jsonl", ".parquet", ".arrow"}:
        raise InputError(f"{target} ends in {target.suffix!r}; it has to end in .jsonl, .parquet or .arrow")
    made: list[_Target] = []

    def open_target(place: Path) -> _Target:
        made.append(_Target(files, place))
        return made[-1]

    with Store.open(path, read_only=True, files=files) as store, ExitStack() as undo:
        letters = Letters(store, topic, files)
        chosen = letters.chosen(which, subscriber)
        undo.callback(lambda: _take_back(files, made))
        count = 0
        if letters.dead is not None:
            writer = _writer(letters.dead, target, open_target)
            undo.callback(lambda: _abandon(writer))
            for found in chosen:
                writer.add(found)
                count += 1
            writer.close()
        for each in made:
            each.close()
        undo.pop_all()
    written = [{"path": str(each.path), "rows": each.rows, "bytes": each.size} for each in made]
    return {"path": str(Path(path)), "topic": topic, "letters": count, "written": written}


def _writer(dead: Topic, target: Path, open_target: Callable[[Path], _Target]) -> _Lines | _Tables:
    if target.suffix == ".jsonl":
        return _Lines(open_target(target))
    return _Tables(dead, lambda slot: open_target(target.with_suffix(f".{slot}{target.suffix}")), target.suffix)


def _abandon(writer: _Lines | _Tables) -> None:
    """While its files are open still: a writer that is left open writes its last bytes when it is collected."""
    with suppress(OSError, pa.ArrowException):  # the error that led here is the one to tell
        writer.close()


def _take_back(files: Files, made: Sequence[_Target]) -> None:
    """What is not complete must not be taken for an export."""
    for each in made:
        with suppress(OSError):  # the error that led here is the one to tell
            each.close()
            files.unlink(each.path)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, letter: str) -> pa.RecordBatch:
    """The batch in the widest schema of its slot; columns that it lacks are null."""
    columns = [pa.repeat(letter, batch.num_rows)]
    taken: Counter[str] = Counter()
    for field in list(schema)[1:]:
        same = batch.schema.get_all_field_indices(field.name)
        number = taken[field.name]
        taken[field.name] += 1
        present = number < len(same)
        columns.append(batch.column(same[number]).cast(field.type) if present else pa.nulls(batch.num_rows, field.type))
    return pa.record_batch(columns, schema=schema)
