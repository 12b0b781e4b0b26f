"""Rows by the values of some columns, and the folders that they go to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa

Values = tuple[str | None, ...]  # of the partition columns, as texts

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"  # what readers of such folders take for null
_NAME_BYTES: Final = 255  # of one name in a folder, on every filesystem of note
_SPECIAL: Final = re.compile(r"[^A-Za-z0-9_. \-\u0080-\U0010ffff]")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")


def split(batch: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of a batch, without the partition columns, for each of their values."""
    rest = batch.drop_columns(list(partition_by)) if partition_by else batch
    if not partition_by:
        yield (), rest
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in partition_by:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        # Numbered anew after each column, so that the numbers stay below the count of rows times that of values.
        mixed = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(mixed, return_inverse=True)[1].reshape(-1)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    keys = [batch.column(name) for name in partition_by]
    for first, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = order[first:end]
        values = tuple(_text(column[int(rows[0])].as_py()) for column in keys)
        whole = len(rows) == batch.num_rows
        yield values, rest if whole else rest.take(pa.array(rows))


def _text(value: Any) -> str | None:
    """A partition value as a table's log has it. An empty text is null there, as it is in a folder's name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None or value == "" else str(value)


def hive_folder(partition_by: Sequence[str], values: Values) -> str:
    """`day=2024-05-01/city=New York`: readers get the values back from it.

    Raises `ValueError` for a value that is too long for a folder's name.
    """
    parts = []
    for name, value in zip(partition_by, values, strict=True):
        part = f"{_escaped(name)}={NULL_FOLDER if value is None else _escaped(value)}"
        if len(part.encode()) > _NAME_BYTES:
            raise ValueError(
                f"partition column {name!r} has a value of {len(value or '')} characters, which is too long for the "
                f"name of a folder: {(value or '')[:40]!r}...; partition by something shorter"
            )
        parts.append(part)
    return "/".join(parts)


def _escaped(text: str) -> str:
    """Only what a name cannot have, or readers split names at: Spark takes an escape for a character of its own."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def plain_folder(partition_by: Sequence[str], values: Values) -> str:
    """A folder for people to read, in letters that no reader of a table's log has to decode; several may share it."""
    return "/".join(
        f"{_plain(name)}={NULL_FOLDER if value is None else _plain(value)}"
        for name, value in zip(partition_by, values, strict=True)
    )


def _plain(text: str) -> str:
    plain = _UNSAFE.sub("_", text)
    if plain == text and len(text) <= 64:
        return text
    return f"{plain[:48]}-{blake2b(text.encode(), digest_size=4).hexdigest()}"
