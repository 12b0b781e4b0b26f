"""A schema's fingerprint: BLAKE2b over a canonical form of everything that the schema says.

The walk goes over the Arrow C data interface, whose type strings and structure are a fixed ABI: unlike
`str(type)` they are the same in every version, they name every parameter of every type, and they show an
extension type as its storage plus the two `ARROW:extension:` keys, which is also how a process sees it that
has not registered the type.

Canonical form, with `len` an unsigned 32-bit little-endian number and `[...]` an item with its `len` before
it:

schema     = [metadata] fields
field      = [type] [name] flags(1 byte) [metadata] count(len) ([field] ...) [dictionary field, or nothing]
metadata   = ([key] [value] ...) sorted by key
flags      = 1 dictionary is ordered, 2 nullable, 4 map keys are sorted

One thing escapes it: an extension type directly inside a run-end encoded one, which pyarrow itself forgets on
reading where that type is not registered.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from holdfast.errors import InvalidBundle

FINGERPRINT_BYTES: Final = 16

_FLAGS: Final = 0b111
_EXTENSION_NAME: Final = b"ARROW:extension:name"
_EXTENSION_METADATA: Final = b"ARROW:extension:metadata"
# Every type string of the interface that says all there is to say about its type. One that is not here may
# keep something elsewhere, so it is refused: two schemas must never share a fingerprint.
_KNOWN_TYPE: Final = re.compile(
    rb"[nbcCsSiIlLefgzZuU]|v[zu]|w:\d+|d:\d+,-?\d+(?:,\d+)?"  # null, bool, numbers, binary, string, decimals
    rb"|td[Dm]|tt[smun]|ts[smun]:.*|tD[smun]|ti[MDn]"  # dates, times, timestamps, durations, intervals
    rb"|\+[lLsmr]|\+v[lL]|\+w:\d+|\+u[ds]:[\d,]*",  # lists, struct, map, run-end encoded, unions
    re.DOTALL,
)


class _ArrowSchema(ctypes.Structure):
    """`struct ArrowSchema` of the C data interface."""


_ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowSchema))),
    ("dictionary", ctypes.POINTER(_ArrowSchema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_capsule_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def fingerprint(schema: pa.Schema) -> bytes:
    """16 bytes that two schemas share exactly when they are equal in everything, metadata included.

    The order of metadata keys does not count; the order of fields does. `InvalidBundle` for a type that this
    version does not know.
    """
    if "\0" in schema.to_string(show_field_metadata=False, show_schema_metadata=False):
        # The interface ends its texts at the first NUL; what stands behind it would not be told apart.
        raise InvalidBundle("a field's name or a time zone has a NUL character in it; rename the column")
    capsule = schema.__arrow_c_schema__()  # owns what is walked below, so it has to outlive the walk
    exported = _ArrowSchema.from_address(_capsule_pointer(capsule, b"arrow_schema"))
    canonical = _item(_metadata(exported)) + _children(exported)
    del capsule
    return hashlib.blake2b(canonical, digest_size=FINGERPRINT_BYTES).digest()


def _field(field: Any) -> bytes:
    kind = field.format
    if _KNOWN_TYPE.fullmatch(kind) is None:
        raise InvalidBundle(
            f"column {_text(field.name)!r} has an Arrow type ({_text(kind)!r}) that this version of Holdfast "
            "does not know; cast it to another type before it is appended"
        )
    return b"".join((
        _item(kind.removesuffix(b",128") if kind.startswith(b"d:") else kind),  # 128 bits go without saying
        _item(field.name or b""),
        bytes((field.flags & _FLAGS,)),
        _item(_metadata(field)),
        _children(field),
        _item(_field(field.dictionary.contents) if field.dictionary else b""),
    ))  # fmt: skip


def _children(field: Any) -> bytes:
    count = field.n_children
    return _length(count) + b"".join(_item(_field(field.children[index].contents)) for index in range(count))


def _metadata(field: Any) -> bytes:
    pairs = list(_pairs(field.metadata)) if field.metadata else []
    keys = {key for key, _ in pairs}
    if _EXTENSION_NAME in keys and _EXTENSION_METADATA not in keys:
        pairs.append((_EXTENSION_METADATA, b""))  # a reader takes it as empty, and would write it back so
    return b"".join(_item(key) + _item(value) for key, value in sorted(pairs))


def _pairs(address: int) -> Iterable[tuple[bytes, bytes]]:
    """In the interface: a count, then for each key and each value its length and bytes, in native order."""

    def number() -> int:
        nonlocal address
        address += 4
        return int(struct.unpack("=i", ctypes.string_at(address - 4, 4))[0])

    def text() -> bytes:
        nonlocal address
        length = number()
        address += length
        return ctypes.string_at(address - length, length)

    for _ in range(number()):
        key = text()
        yield key, text()


def _item(data: bytes) -> bytes:
    return _length(len(data)) + data


def _length(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")
