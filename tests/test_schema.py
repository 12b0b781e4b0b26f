"""Schemas: fingerprints, what can be stored, and the widest of many."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from arrow_strategies import DAY_TIME, MONTHS, Celsius, assert_same, batches, schemas
from holdfast.errors import InvalidBundle
from holdfast.schema import CONFLICTING_TYPES, check_storable, empty_batch, fingerprint, widest


def one(kind: pa.DataType, **options: object) -> pa.Schema:
    return pa.schema([pa.field("x", kind, **options)])


I32 = pa.int32()
ITEM = pa.field("item", I32, nullable=False, metadata={"unit": "m"})

GOLDEN = {
    "no columns": (pa.schema([]), "c804ce198ec337e3dc762bdd1a09aece"),
    "int32": (one(I32), "e946b6c10888d8009cb4b2cd640c9546"),
    "not null": (one(I32, nullable=False), "96ad45da2efb27204e56151969e58e75"),
    "field metadata": (one(I32, metadata={"b": "2", "a": "1"}), "e0b7ed252a6334f4ac9a10d4ca8c769f"),
    "schema metadata": (pa.schema([("x", I32)], metadata={"b": "2", "a": "1"}), "a6f44b11c27004fb9676a5f3e794d22d"),
    "two columns": (pa.schema([("x", I32), ("y", pa.string())]), "d974cb18b4f5ce89e9ac11f4fa9d14a6"),
    "two columns, other order": (pa.schema([("y", pa.string()), ("x", I32)]), "97acf4611c0e60fa24eb7056aaa7831b"),
    "numbers": (
        pa.schema(
            [
                (str(kind), kind)
                for kind in (pa.null(), pa.bool_(), pa.uint8(), pa.float16(), pa.float32(), pa.float64())
            ]
        ),
        "cd8efcf4742781a35fa8b2f3c40a1dc7",
    ),
    "decimals": (
        pa.schema(
            [
                (name, kind)
                for name, kind in zip(
                    "abcd",
                    (pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, -2)),
                    strict=True,
                )
            ]
        ),
        "4c56d52fbd5b6d1635709097ceec85e7",
    ),
    "texts": (
        pa.schema(
            [
                (str(kind), kind)
                for kind in (
                    pa.string(),
                    pa.large_string(),
                    pa.string_view(),
                    pa.binary(),
                    pa.large_binary(),
                    pa.binary_view(),
                    pa.binary(16),
                )
            ]
        ),
        "6a1a2cfb6da50a65b82647e583a97a52",
    ),
    "timestamp": (one(pa.timestamp("ns")), "531f2fd39191c1498515cdba5d16430e"),
    "timestamp in UTC": (one(pa.timestamp("ns", "UTC")), "3198e81c52502084326cfcc035b9275e"),
    "timestamp in Berlin": (one(pa.timestamp("ns", "Europe/Berlin")), "b447092efa893dd208e981530b820def"),
    "times": (
        pa.schema(
            [
                (str(kind), kind)
                for kind in (pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.duration("us"))
            ]
        ),
        "4cf33376b72c355de203554a82042e41",
    ),
    "intervals": (
        pa.schema([("a", MONTHS), ("b", DAY_TIME), ("c", pa.month_day_nano_interval())]),
        "6c0d86efaba9ac1f8cb9f0c2d1a2ef5c",
    ),
    "list": (one(pa.list_(I32)), "5e665bc761526b015d78678862bebd3b"),
    "list of items with metadata": (one(pa.list_(ITEM)), "4efd651fdb3100f5b7dccd90d72c5f5f"),
    "lists": (
        pa.schema(
            [
                ("a", pa.large_list(ITEM)),
                ("b", pa.list_view(ITEM)),
                ("c", pa.large_list_view(ITEM)),
                ("d", pa.list_(ITEM, 3)),
            ]
        ),
        "9b9f812b9ad3abf79c7bc80f6bcbb2cd",
    ),
    "map": (one(pa.map_(pa.string(), I32)), "93f97e6b7ca8dffd0dd60032d0f22ff9"),
    "map with sorted keys": (one(pa.map_(pa.string(), I32, keys_sorted=True)), "2f5c8f898f133dcb9ee93faa95b319af"),
    "struct": (one(pa.struct([ITEM, pa.field("y", pa.struct([]))])), "a97335bb6272cbaacb4baeb04bdad90d"),
    "sparse union": (
        one(pa.sparse_union([pa.field("a", I32), pa.field("b", pa.string())])),
        "c55ded4ea81d8473671a1d3dcb513656",
    ),
    "dense union": (
        one(pa.dense_union([pa.field("a", I32), pa.field("b", pa.string())])),
        "d4cd4d41b6f3e14f0957a7df4403385c",
    ),
    "dense union with codes": (
        one(pa.dense_union([pa.field("a", I32), pa.field("b", pa.string())], [3, 7])),
        "0aeffa10b535c7421841ad42157a67fa",
    ),
    "dictionary": (one(pa.dictionary(pa.int8(), pa.string())), "16f9b2708cf63c9d3ac0f52912467241"),
    "ordered dictionary": (
        one(pa.dictionary(pa.int8(), pa.string(), ordered=True)),
        "f9b76d845eb3c737b5c85adc0b76ca52",
    ),
    "dictionary of structs": (one(pa.dictionary(pa.uint64(), pa.struct([ITEM]))), "c91116ab267e4abf68687ebb4926427f"),
    "run-end encoded": (one(pa.run_end_encoded(pa.int16(), pa.string())), "bf69818b52a4beb60b1ff9023740d5a0"),
    "extension": (one(Celsius(pa.float64(), "sea")), "ee4eae6b4813ed6cb015195338f659c1"),
    "uuid": (one(pa.uuid()), "3c22cc44dc04b6d1ec03b4c60b4a84fe"),
    "other extensions": (
        pa.schema(
            [
                ("a", pa.json_()),
                ("b", pa.bool8()),
                ("c", pa.opaque(I32, "kind", "vendor")),
                ("d", pa.fixed_shape_tensor(I32, [2, 2])),
            ]
        ),
        "5f3af079f533e8a40dced2f8b14efeb6",
    ),
}


@pytest.mark.parametrize(("schema", "expected"), [(s, e) for s, e in GOLDEN.values()], ids=list(GOLDEN))
def test_golden_fingerprints(schema: pa.Schema, expected: str) -> None:
    """Fingerprints are part of the format on disk: they never change."""
    assert fingerprint(schema).hex() == expected


def test_every_golden_schema_has_a_fingerprint_of_its_own() -> None:
    """Schemas that differ in one parameter only are told apart."""
    assert len({expected for _, expected in GOLDEN.values()}) == len(GOLDEN)


def test_fingerprints_are_the_same_in_another_process() -> None:
    """Nothing of this process, such as its hash seed, goes into a fingerprint."""
    program = (
        "import test_schema\n"
        "for schema, _ in test_schema.GOLDEN.values():\n"
        "    print(test_schema.fingerprint(schema).hex())\n"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert run.stdout.split() == [expected for _, expected in GOLDEN.values()]


@given(schemas(), schemas())
def test_schemas_share_a_fingerprint_only_if_they_are_equal(first: pa.Schema, second: pa.Schema) -> None:
    """A fingerprint survives storing the schema, and differs between schemas that differ in anything."""
    assert fingerprint(ipc.read_schema(first.serialize())) == fingerprint(first)
    if not first.equals(second, check_metadata=True):
        assert fingerprint(first) != fingerprint(second)


def test_names_inside_a_dictionary_count() -> None:
    """A fingerprint sees more than pyarrow's comparison, which does not look at names inside a dictionary."""
    first, second = (one(pa.dictionary(pa.int8(), pa.list_(pa.field(name, I32)))) for name in "ab")
    assert first.equals(second, check_metadata=True)
    assert fingerprint(first) != fingerprint(second)


def test_the_order_of_metadata_does_not_count() -> None:
    """Two mappings with the same entries are the same metadata; empty metadata is none."""
    forth, back = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert fingerprint(pa.schema([pa.field("x", I32, metadata=forth)], metadata=back)) == fingerprint(
        pa.schema([pa.field("x", I32, metadata=back)], metadata=forth)
    )
    assert fingerprint(one(I32, metadata={}).with_metadata({})) == fingerprint(one(I32))


def test_an_extension_type_counts_the_same_where_it_is_not_registered() -> None:
    """A process that sees only storage and keys, at any depth, computes the fingerprint of one that knows the type."""
    kind = Celsius(pa.float64(), "sea")
    schema = pa.schema(
        [
            pa.field("a", kind, metadata={"k": "v"}),
            ("b", pa.list_(kind)),
            ("c", pa.struct([("d", pa.map_(kind, kind))])),
        ]
    )
    expected, stored = fingerprint(schema), schema.serialize()
    pa.unregister_extension_type(kind.extension_name)
    try:
        unknown = ipc.read_schema(stored)
    finally:
        pa.register_extension_type(Celsius(pa.float64()))
    assert unknown.field("a").type == pa.float64()
    assert fingerprint(unknown) == expected
    assert fingerprint(pa.schema([pa.field("a", Celsius(pa.float64(), "air"))])) != fingerprint(one(kind))


def test_missing_extension_metadata_is_empty_extension_metadata() -> None:
    """Writers that leave the key out mean the same type as those that write it empty."""
    name = {"ARROW:extension:name": "nobody.knows"}
    assert fingerprint(one(I32, metadata=name)) == fingerprint(
        one(I32, metadata={**name, "ARROW:extension:metadata": ""})
    )


def test_a_name_that_cannot_be_told_apart_has_no_fingerprint() -> None:
    """Names with a NUL are refused rather than cut at it."""
    for schema in (pa.schema([("a\0b", I32)]), one(pa.list_(pa.field("a\0", I32)))):
        with pytest.raises(InvalidBundle, match="NUL"):
            fingerprint(schema)


def test_a_type_that_is_not_known_has_no_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type of the future is refused, also inside another, rather than hashed without some parameter."""
    monkeypatch.setattr("holdfast.schema._fingerprint._KNOWN_TYPE", re.compile(rb"i|\+l"))
    fingerprint(one(pa.list_(I32)))
    with pytest.raises(InvalidBundle, match=r"^column 'deep' has an Arrow type \('g'\) that this version"):
        fingerprint(one(pa.list_(pa.field("deep", pa.float64()))))


class Unregistered(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int32(), "holdfast.test.unregistered")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Unregistered:
        return cls()


def lists(depth: int) -> pa.DataType:
    kind = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


NOT_STORABLE = {
    "dictionary of dictionaries": (
        pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.string())),
        "values to a plain",
    ),
    "dictionary of extensions": (pa.dictionary(pa.int8(), Celsius(I32)), "values to a plain"),
    "dictionary of uuids": (pa.dictionary(pa.int8(), pa.uuid()), "Arrow IPC cannot carry it"),
    "inside a list": (pa.list_(pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.string()))), "gives it back as"),
    "map with names of its own": (pa.map_(pa.field("k", pa.string(), nullable=False), I32), "named key and value"),
    "the same inside a dictionary": (
        pa.dictionary(pa.int8(), pa.list_(pa.map_(pa.field("k", pa.string(), nullable=False), I32))),
        "values to a plain",
    ),
    "unregistered extension": (Unregistered(), "register_extension_type"),
    "64 levels": (lists(64), "recursion depth"),
    "200 levels": (lists(200), "Arrow IPC cannot carry it"),
    "interval of months": (MONTHS, "no arrays of this type"),
    "interval of days": (pa.list_(DAY_TIME), "no arrays of this type"),
}


@pytest.mark.parametrize(("kind", "text"), NOT_STORABLE.values(), ids=list(NOT_STORABLE))
def test_what_ipc_does_not_bring_back_is_refused(kind: pa.DataType, text: str) -> None:
    """The error names the column and says what to do."""
    with pytest.raises(InvalidBundle, match=f"^column 1 'x' of type .* cannot be stored: .*{text}"):
        check_storable(pa.schema([("fine", pa.int8()), ("x", kind)]))


def test_extension_keys_beside_another_type_are_refused() -> None:
    """Keys that make a reader see another type than was appended are found."""
    by_hand = {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""}
    with pytest.raises(InvalidBundle, match=r"gives it back as extension<arrow\.uuid>"):
        check_storable(one(pa.binary(16), metadata=by_hand))
    with pytest.raises(InvalidBundle, match="Invalid storage type"):
        check_storable(one(I32, metadata=by_hand))


@given(schemas())
def test_everything_else_can_be_stored(schema: pa.Schema) -> None:
    """No schema that IPC can carry is refused."""
    check_storable(schema)


def test_63_levels_can_be_stored() -> None:
    """The limit is where IPC has it."""
    check_storable(one(lists(63)))


@given(schemas())
def test_an_empty_batch_can_be_had_of_any_schema(schema: pa.Schema) -> None:
    """Zero rows, valid, with the very schema."""
    batch = empty_batch(schema)
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.schema.equals(schema, check_metadata=True)


def wider(*kinds: pa.DataType) -> pa.Field:
    return widest(one(kind) for kind in kinds).field("x")


DEC = pa.decimal128
WIDENED = [
    (pa.int8(), pa.int32(), pa.int32()),
    (pa.uint8(), pa.uint16(), pa.uint16()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.uint8(), pa.int32(), pa.int32()),
    (pa.uint32(), pa.int8(), pa.int64()),
    (pa.uint64(), pa.int64(), DEC(20, 0)),
    (pa.int8(), pa.float32(), pa.float64()),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.int64(), DEC(5, 2), DEC(21, 2)),
    (pa.uint64(), pa.decimal32(9, 9), DEC(29, 9)),
    (DEC(10, 2), DEC(8, 5), DEC(13, 5)),
    (pa.decimal32(9, 0), pa.decimal32(9, 9), pa.decimal64(18, 9)),
    (DEC(38, 0), DEC(38, 38), pa.decimal256(76, 38)),
    (DEC(5, -2), DEC(5, 0), DEC(7, 0)),
    (DEC(10, 2), pa.float32(), pa.float64()),
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.string(), pa.string_view(), pa.large_string()),
    (pa.binary(), pa.binary_view(), pa.large_binary()),
    (pa.binary(4), pa.binary(5), pa.binary()),
    (pa.binary(4), pa.binary_view(), pa.binary_view()),
    (pa.date32(), pa.date64(), pa.date64()),
    (pa.time32("s"), pa.time32("ms"), pa.time32("ms")),
    (pa.time32("ms"), pa.time64("us"), pa.time64("us")),
    (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    (pa.duration("s"), pa.duration("ms"), pa.duration("ms")),
    (pa.null(), pa.struct([("a", I32)]), pa.struct([("a", I32)])),
    (pa.dictionary(pa.int8(), I32), pa.dictionary(pa.uint16(), I32), pa.dictionary(pa.uint16(), I32)),
    (pa.dictionary(pa.int8(), I32), pa.dictionary(pa.uint8(), I32), pa.dictionary(pa.uint8(), I32)),
    (pa.dictionary(pa.int8(), I32, True), pa.dictionary(pa.int8(), pa.int64()), pa.dictionary(pa.int8(), pa.int64())),
    (pa.dictionary(pa.int8(), pa.string()), pa.large_string(), pa.large_string()),
    (pa.run_end_encoded(pa.int16(), pa.int8()), pa.run_end_encoded(I32, I32), pa.run_end_encoded(I32, I32)),
    (pa.run_end_encoded(pa.int16(), pa.int8()), I32, I32),
    (pa.list_(pa.int8()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.large_list(pa.int8())),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
    (pa.list_(pa.int8(), 2), pa.list_(I32, 2), pa.list_(I32, 2)),
    (pa.list_(pa.int8(), 2), pa.list_view(pa.int8()), pa.list_view(pa.int8())),
    (pa.list_view(pa.int8()), pa.list_(pa.int8()), pa.large_list(pa.int8())),
    (pa.large_list_view(pa.int8()), pa.large_list_view(I32), pa.large_list_view(I32)),
    (pa.map_(pa.string(), I32), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    (pa.map_(pa.string(), I32, True), pa.map_(pa.large_string(), I32), pa.map_(pa.large_string(), I32)),
    (
        pa.struct([("a", pa.int8()), pa.field("b", I32, nullable=False)]),
        pa.struct([("c", pa.string()), ("a", I32)]),
        pa.struct([("a", I32), ("b", I32), ("c", pa.string())]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "expected"), WIDENED, ids=str)
def test_types_widen(first: pa.DataType, second: pa.DataType, expected: pa.DataType) -> None:
    """The common type is the same from either side, and holds the values of both."""
    field = wider(first, second)
    assert field.type.equals(expected, check_metadata=True)
    assert CONFLICTING_TYPES not in (field.metadata or {})
    back = wider(second, first).type
    if pa.types.is_struct(expected):
        assert {(member.name, str(member.type)) for member in back} == {(m.name, str(m.type)) for m in expected}
    else:
        assert back == expected


CONFLICTS = [
    (I32, pa.string()),
    (pa.bool_(), pa.int8()),
    (pa.string(), pa.binary()),
    (pa.timestamp("s", "UTC"), pa.timestamp("s")),
    (pa.timestamp("s"), pa.date32()),
    (pa.decimal256(76, 0), pa.decimal256(76, 76)),
    (pa.struct([]), pa.list_(I32)),
    (pa.map_(pa.string(), I32), pa.map_(I32, I32)),
    (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), I32)),
    (pa.uuid(), pa.binary(16)),
    (Celsius(I32), Celsius(I32, "sea")),
    (pa.dense_union([pa.field("a", I32)]), pa.sparse_union([pa.field("a", I32)])),
]


@pytest.mark.parametrize(("first", "second"), CONFLICTS, ids=str)
def test_types_without_a_common_type(first: pa.DataType, second: pa.DataType) -> None:
    """The first type stays, and the field lists the others, each once."""
    field = wider(first, second, first, second)
    assert field.type == first
    assert json.loads(field.metadata[CONFLICTING_TYPES]) == [str(second)]


def test_conflicts_inside_nested_types_are_recorded_where_they_are() -> None:
    """A struct or list whose inner types disagree still merges all the rest."""
    field = wider(
        pa.struct([("a", I32), ("b", pa.list_(I32))]), pa.struct([("a", pa.string()), ("b", pa.list_(pa.bool_()))])
    )
    assert field.metadata is None
    inner, item = field.type.field("a"), field.type.field("b").type.value_field
    assert json.loads(inner.metadata[CONFLICTING_TYPES]) == ["string"]
    assert json.loads(item.metadata[CONFLICTING_TYPES]) == ["bool"]


def test_extension_types_that_are_not_registered_are_not_mixed() -> None:
    """Fields of equal storage but other extension names are in conflict."""
    schemas_ = [one(I32, metadata={"ARROW:extension:name": name}) for name in ("a", "b")]
    field = widest(schemas_).field("x")
    assert field.metadata[b"ARROW:extension:name"] == b"a"
    assert json.loads(field.metadata[CONFLICTING_TYPES]) == ["int32"]


def test_columns_in_order_of_first_appearance_and_nullable_where_absent() -> None:
    """A column that some schema lacks can be null; one that all have stays as it was."""
    a, b, c = (pa.field(name, I32, nullable=False) for name in "abc")
    result = widest([pa.schema([b, a]), pa.schema([a, c]), pa.schema([a])])
    assert result.names == ["b", "a", "c"]
    assert [field.nullable for field in result] == [True, False, True]
    assert widest([pa.schema([a]), pa.schema([a.with_nullable(True)])]).field("a").nullable
    assert widest([pa.schema([a]), pa.schema([a.with_type(pa.null())])]).field("a").nullable


def test_metadata_of_the_first_that_has_it() -> None:
    """For fields and schema, each key keeps the value that was seen first."""
    first = pa.schema([pa.field("x", I32, metadata={"a": "1"})], metadata={"s": "1"})
    second = pa.schema([pa.field("x", I32, metadata={"a": "2", "b": "2"})], metadata={"s": "2", "t": "2"})
    result = widest([first, second])
    assert result.metadata == {b"s": b"1", b"t": b"2"}
    assert result.field("x").metadata == {b"a": b"1", b"b": b"2"}


def test_columns_of_one_name_are_matched_in_turn() -> None:
    """The second column of a name meets the second one of that name."""
    first = pa.schema([("x", pa.int8()), ("x", pa.string())])
    second = pa.schema([("x", I32), ("x", pa.large_string()), ("x", pa.bool_())])
    assert widest([first, second]).types == [I32, pa.large_string(), pa.bool_()]


def test_widest_of_none_and_of_one() -> None:
    """No schemas make an empty one; one schema is its own widest."""
    assert widest([]) == pa.schema([])
    schema = one(I32, nullable=False, metadata={"a": "b"})
    assert widest([schema]).equals(schema, check_metadata=True)


def test_a_foreign_value_under_the_key_is_replaced() -> None:
    """Metadata that is not ours does not stop the widening."""
    for foreign in (b"not json", b"3", b"[3]"):
        field = widest([one(I32, metadata={CONFLICTING_TYPES: foreign}), one(pa.string())]).field("x")
        assert json.loads(field.metadata[CONFLICTING_TYPES]) == ["string"]


@given(st.lists(schemas(depth=2), min_size=2, max_size=4))
def test_widest_never_raises_and_can_be_done_step_by_step(many: list[pa.Schema]) -> None:
    """Any schemas have a widest; it is stable, storable, and the same when the schemas come one at a time."""
    result = widest(many)
    check_storable(result)
    assert widest([result, *many]).equals(result, check_metadata=True)
    assert widest([widest(many[:-1]), many[-1]]).equals(result, check_metadata=True)
    assert {field.name for schema in many for field in schema} == set(result.names)


@settings(deadline=None)
@given(st.data())
def test_the_batches_of_the_strategies_are_valid(data: st.DataObject) -> None:
    """What other tests draw from here is sound, also for a schema that is given."""
    schema = data.draw(schemas())
    batch = data.draw(batches(schema))
    batch.validate(full=True)
    assert batch.schema.equals(schema, check_metadata=True)
    assert_same(batch, batch)
