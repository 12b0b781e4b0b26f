"""Hypothesis strategies for every Arrow type that IPC can write, and the comparison that goes with them.

Hypothesis draws the shape: types, names, nullability, metadata, row counts. The values come from a random generator
seeded by one drawn number, which is far quicker; any array may be a slice of a longer one, at every level of nesting.
"""

from __future__ import annotations

import ctypes
import struct
from decimal import Decimal
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from holdfast.schema import fingerprint
from holdfast.schema._fingerprint import _ArrowSchema

MAX_DEPTH = 3
MAX_ROWS = 12


class Celsius(pa.ExtensionType):
    """An extension type over any storage, registered while the tests run."""

    def __init__(self, storage: pa.DataType, scale: str = "air") -> None:
        self.scale = scale
        super().__init__(storage, "holdfast.test.celsius")

    def __eq__(self, other: object) -> bool:  # pyarrow's own looks at the storage only
        return isinstance(other, Celsius) and (self.storage_type, self.scale) == (other.storage_type, other.scale)

    def __hash__(self) -> int:
        return hash((self.storage_type, self.scale))

    def __arrow_ext_serialize__(self) -> bytes:
        return self.scale.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls(storage_type, serialized.decode())


pa.register_extension_type(Celsius(pa.float64()))


@ctypes.CFUNCTYPE(None, ctypes.POINTER(_ArrowSchema))
def _release(schema: Any) -> None:
    schema.contents.release = None


def imported_type(code: bytes) -> pa.DataType:
    """A type by its code in the C data interface, for those that pyarrow has no function for."""
    schema = _ArrowSchema(format=code, name=b"", flags=2, release=ctypes.cast(_release, ctypes.c_void_p))
    return pa.DataType._import_from_c(ctypes.addressof(schema))


# Of these two pyarrow knows the types but can make no arrays.
MONTHS = imported_type(b"tiM")
DAY_TIME = imported_type(b"tiD")

UNITS = ("s", "ms", "us", "ns")
INTEGERS = tuple(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = (pa.float16(), pa.float32(), pa.float64())
TEXTS = (
    pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(0), pa.binary(5),
)  # fmt: skip
TIMES = (
    pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "Europe/Berlin", "+05:30")),
    *(pa.duration(unit) for unit in UNITS),
    pa.month_day_nano_interval(),
)  # fmt: skip
DECIMALS = (
    pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal128(38, 10), pa.decimal128(5, -2), pa.decimal256(76, 38),
)  # fmt: skip
LEAVES = (pa.null(), pa.bool_(), *INTEGERS, *FLOATS, *DECIMALS, *TEXTS, *TIMES)
LEAF_EXTENSIONS = (
    pa.uuid(), pa.json_(), pa.json_(pa.large_string()), pa.bool8(),
    pa.opaque(pa.int32(), "kind", "vendor"), pa.fixed_shape_tensor(pa.float32(), [2, 2], dim_names=["y", "x"]),
)  # fmt: skip

names = st.text("abcdeé_ 木", max_size=6)
metadata = st.none() | st.dictionaries(st.binary(max_size=6), st.binary(max_size=6), min_size=1, max_size=2)


@st.composite
def fields(draw: st.DrawFn, kinds: st.SearchStrategy[pa.DataType], name: str | None = None) -> pa.Field:
    kind = draw(kinds)
    nullable = _all_null(kind) or draw(st.booleans())
    return pa.field(draw(names) if name is None else name, kind, nullable=nullable, metadata=draw(metadata))


def _all_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


@cache
def types(depth: int = MAX_DEPTH) -> st.SearchStrategy[pa.DataType]:
    """Any storable type with at most `depth` levels of nesting."""
    leaves = st.sampled_from((*LEAVES, *LEAF_EXTENSIONS))
    if depth <= 0:
        return leaves
    return st.one_of(leaves, _dictionaries(depth - 1), _nested(depth - 1))


@cache
def _dictionaries(depth: int) -> st.SearchStrategy[pa.DataType]:
    # IPC cannot carry dictionaries whose values are directly dictionaries or extension types.
    plain = st.sampled_from(LEAVES) if depth <= 0 else st.sampled_from(LEAVES) | _containers(depth - 1)
    return st.builds(pa.dictionary, st.sampled_from(INTEGERS), plain, ordered=st.booleans())


@cache
def _nested(depth: int) -> st.SearchStrategy[pa.DataType]:
    extensions = st.builds(Celsius, types(depth).filter(_not_extension), st.sampled_from(["air", "sea"]))
    return _containers(depth) | extensions


def _not_extension(kind: pa.DataType) -> bool:
    return not isinstance(kind, pa.BaseExtensionType)


@cache
def _containers(depth: int) -> st.SearchStrategy[pa.DataType]:
    inner = types(depth)
    items = fields(inner)
    run_ends = st.sampled_from([pa.int16(), pa.int32(), pa.int64()])
    values = inner.filter(lambda kind: not pa.types.is_run_end_encoded(kind))
    members = st.lists(fields(inner), min_size=1, max_size=3)
    keys = inner.filter(lambda kind: not _all_null(kind))  # pyarrow ends the process over a null key
    return st.one_of(
        *(items.map(make) for make in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)),
        st.builds(pa.list_, items, st.integers(0, 3)),
        st.builds(
            lambda key, item, keys_sorted: pa.map_(pa.field("key", key, nullable=False), item, keys_sorted),
            keys, fields(inner, "value"), st.booleans(),
        ),
        st.lists(items, max_size=3).map(pa.struct),
        st.builds(_union, members, st.sampled_from(["sparse", "dense"]), st.integers(0, 100)),
        st.builds(pa.run_end_encoded, run_ends, values),
    )  # fmt: skip


def _union(members: list[pa.Field], mode: str, first_code: int) -> pa.DataType:
    return pa.union(members, mode, type_codes=[first_code + 2 * index for index in range(len(members))])


@cache
def schemas(depth: int = MAX_DEPTH, max_fields: int = 4) -> st.SearchStrategy[pa.Schema]:
    """Any storable schema: also without columns, and with several columns of one name."""
    return st.builds(pa.schema, st.lists(fields(types(depth)), max_size=max_fields), metadata=metadata)


@st.composite
def batches(draw: st.DrawFn, schema: pa.Schema | None = None, max_rows: int = MAX_ROWS) -> pa.RecordBatch:
    """Any batch, of this schema if one is given: zero rows, nulls and slices included."""
    if schema is None:
        schema = draw(schemas())
    rows, before, after = draw(st.integers(0, max_rows)), draw(st.integers(0, 3)), draw(st.integers(0, 3))
    random = Random(draw(st.integers(0, 2**32 - 1)))
    total = before + rows + after
    if len(schema) == 0:
        whole = pa.RecordBatch.from_struct_array(pa.array([{}] * total, pa.struct([])))
        whole = whole.replace_schema_metadata(schema.metadata)
    else:
        arrays = [make_array(field.type, total, random, field.nullable) for field in schema]
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return whole.slice(before, rows)


def make_array(kind: pa.DataType, length: int, random: Random, nullable: bool = True) -> pa.Array:
    """Random values of any type here; sometimes a slice of a longer array."""
    if random.random() < 0.3:
        before, after = random.randrange(4), random.randrange(4)
        return _make(kind, before + length + after, random, nullable).slice(before, length)
    return _make(kind, length, random, nullable)


def _make(kind: pa.DataType, length: int, random: Random, nullable: bool) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _make(kind.storage_type, length, random, nullable))
    if pa.types.is_null(kind):
        return pa.nulls(length)
    if pa.types.is_dictionary(kind):
        return _make_dictionary(kind, length, random, nullable)
    if pa.types.is_run_end_encoded(kind):
        return _make_run_ends(kind, length, random, nullable)
    if pa.types.is_union(kind):
        return _make_union(kind, length, random)
    missing = [nullable and random.random() < 0.2 for _ in range(length)]
    if pa.types.is_struct(kind):
        children = [make_array(field.type, length, random, field.nullable) for field in kind]
        return pa.Array.from_buffers(kind, length, [_bitmap(missing)], children=children)
    if pa.types.is_fixed_size_list(kind):
        values = make_array(kind.value_type, length * kind.list_size, random, kind.value_field.nullable)
        return pa.Array.from_buffers(kind, length, [_bitmap(missing)], children=[values])
    if kind.num_fields:
        return _make_list(kind, length, random, missing)
    return _make_leaf(kind, missing, random)


def _make_dictionary(kind: pa.DictionaryType, length: int, random: Random, nullable: bool) -> pa.Array:
    dictionary = make_array(kind.value_type, random.randrange(1, 5), random)
    indices = [None if nullable and random.random() < 0.2 else random.randrange(len(dictionary)) for _ in range(length)]
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind.index_type), dictionary, ordered=kind.ordered)


def _make_run_ends(kind: pa.RunEndEncodedType, length: int, random: Random, nullable: bool) -> pa.Array:
    ends = sorted({*(random.randrange(1, length + 1) for _ in range(3)), length}) if length else []
    values = make_array(kind.value_type, len(ends), random, nullable)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind.run_end_type), values, type=kind)


def _make_union(kind: pa.UnionType, length: int, random: Random) -> pa.Array:
    members = [random.randrange(kind.num_fields) for _ in range(length)]
    codes = pa.py_buffer(bytes(kind.type_codes[member] for member in members))
    if kind.mode == "sparse":
        children = [make_array(field.type, length, random, field.nullable) for field in kind]
        return pa.Array.from_buffers(kind, length, [None, codes], children=children)
    offsets = [members[:index].count(member) for index, member in enumerate(members)]
    # A child may be longer than the union needs.
    sizes = [members.count(index) + random.randrange(3) for index in range(kind.num_fields)]
    children = [make_array(field.type, size, random, field.nullable) for field, size in zip(kind, sizes, strict=True)]
    return pa.Array.from_buffers(kind, length, [None, codes, _ints("i", offsets)], children=children)


def _make_list(kind: pa.DataType, length: int, random: Random, missing: list[bool]) -> pa.Array:
    """Lists, large lists, their views, and maps."""
    sizes = [random.randrange(4) for _ in range(length)]
    starts = [sum(sizes[:index]) for index in range(length + 1)]
    large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    code = "q" if large else "i"
    item = kind.field(0)
    values = make_array(item.type, starts[-1], random, item.nullable)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        # The rows of a view may stand in any order and share their values.
        shared = [random.randrange(starts[-1] - size + 1) for size in sizes]
        buffers = [_bitmap(missing), _ints(code, shared), _ints(code, sizes)]
    else:
        buffers = [_bitmap(missing), _ints(code, starts)]
    return pa.Array.from_buffers(kind, length, buffers, children=[values])


def _make_leaf(kind: pa.DataType, missing: list[bool], random: Random) -> pa.Array:
    if kind in TEXTS:
        values: list[Any] = [_text(kind, random) for _ in missing]
    elif pa.types.is_decimal(kind):
        digits = random.randrange(1, min(kind.precision, 28) + 1)
        values = [Decimal(random.randrange(10**digits)).scaleb(-kind.scale) for _ in missing]
    elif pa.types.is_boolean(kind):
        values = [random.random() < 0.5 for _ in missing]
    else:
        return _make_fixed(kind, missing, random)
    return pa.array([None if none else value for none, value in zip(missing, values, strict=True)], kind)


def _text(kind: pa.DataType, random: Random) -> str | bytes:
    if pa.types.is_fixed_size_binary(kind):
        return random.randbytes(kind.byte_width)
    size = random.choice([0, 1, 3, 12, 13, 40])  # views keep up to 12 bytes in place
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        return "".join(random.choice("xyzäö木") for _ in range(size))
    return random.randbytes(size)


def _make_fixed(kind: pa.DataType, missing: list[bool], random: Random) -> pa.Array:
    """Numbers and times: any bits will do, but for times of day, dates in milliseconds and NaN."""
    width = kind.bit_width // 8
    if pa.types.is_time(kind):
        ticks = 86_400 * 1000 ** UNITS.index(kind.unit)
        data = b"".join(random.randrange(ticks).to_bytes(width, "little") for _ in missing)
    elif pa.types.is_date64(kind):
        data = b"".join(
            (86_400_000 * random.randrange(-9999, 9999)).to_bytes(8, "little", signed=True) for _ in missing
        )
    elif pa.types.is_floating(kind):
        code = {2: "e", 4: "f", 8: "d"}[width]
        data = b"".join(struct.pack(f"<{code}", random.choice([0.0, -0.5, random.randrange(2000)])) for _ in missing)
    else:
        data = random.randbytes(width * len(missing))
    return pa.Array.from_buffers(kind, len(missing), [_bitmap(missing), pa.py_buffer(data)])


def _bitmap(missing: list[bool]) -> pa.Buffer | None:
    if not any(missing):
        return None
    bits = sum(1 << index for index, none in enumerate(missing) if not none)
    return pa.py_buffer(bits.to_bytes((len(missing) + 7) // 8, "little"))


def _ints(code: str, values: list[int]) -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"<{len(values)}{code}", *values))


def assert_same(batch: pa.RecordBatch, other: pa.RecordBatch) -> None:
    """Both hold the same rows under the same schema, metadata included; a dictionary may be in another order."""
    assert other.schema.equals(batch.schema, check_metadata=True), f"{other.schema}\n\nis not\n\n{batch.schema}"
    assert fingerprint(other.schema) == fingerprint(batch.schema), "names or metadata inside a dictionary differ"
    assert other.num_rows == batch.num_rows
    other.validate(full=True)
    if not other.equals(batch):
        for field, ours, theirs in zip(batch.schema, batch.columns, other.columns, strict=True):
            assert plain(theirs) == plain(ours), f"column {field}"


def plain(array: pa.Array) -> list[Any]:
    """The values of any array as Python objects, dictionaries and run ends resolved, numbers as their bits."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(kind):
        values = plain(array.dictionary)
        return [None if index is None else values[index] for index in array.indices.to_pylist()]
    if pa.types.is_union(kind):
        children = {code: plain(array.field(index)) for index, code in enumerate(kind.type_codes)}
        places = array.offsets.to_pylist() if kind.mode == "dense" else range(len(array))
        codes = array.type_codes.to_pylist()
        return [(code, children[code][place]) for code, place in zip(codes, places, strict=True)]
    if pa.types.is_run_end_encoded(kind):
        values, ends = plain(array.values), array.run_ends.to_pylist()
        rows = range(array.offset, array.offset + len(array))
        return [next(value for value, end in zip(values, ends, strict=True) if row < end) for row in rows]
    if pa.types.is_struct(kind):
        columns = [plain(array.field(index)) for index in range(kind.num_fields)]
        valid = array.is_valid().to_pylist()
        return [tuple(column[row] for column in columns) if valid[row] else None for row in range(len(array))]
    if kind.num_fields:
        values = plain(array.values)
        valid = array.is_valid().to_pylist()
        return [values[start:end] if ok else None for ok, (start, end) in zip(valid, _spans(array), strict=True)]
    if not (kind in TEXTS or pa.types.is_decimal(kind) or kind in (pa.null(), pa.bool_())):
        array = array.view(
            {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64(), 8: pa.uint8(), 128: pa.binary(16)}[kind.bit_width]
        )
    return array.to_pylist()


def _spans(array: pa.Array) -> list[tuple[int, int]]:
    """Where each row of a list begins and ends among its values."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        return [(row * size, (row + 1) * size) for row in range(array.offset, array.offset + len(array))]
    offsets = array.offsets.to_pylist()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return [(start, start + size) for start, size in zip(offsets, array.sizes.to_pylist(), strict=True)]
    return list(pairwise(offsets))
