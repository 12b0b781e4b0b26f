"""What docs/spark.md says of the data source is what it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from docs.documents import block, blocks, code_in, table, text_of
from holdfast.receivers._types import parse_type
from holdfast.spark import acknowledge
from holdfast.spark._conform import GOOD_BYTES, GOOD_ROWS
from holdfast.spark._options import METADATA, OPTIONS, Options
from holdfast.spark._predicate import parse
from holdfast.spark._writers import BUNDLE_BYTES, BUNDLE_ROWS, STALE_NS
from holdfast.spark.source import _METADATA_TYPES
from holdfast.spark.types import _SIMPLE, struct_of
from holdfast.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = "docs/spark.md"
# Where the settings of an option go by another name than it has.
FIELDS = {
    "startingOffset": "start", "endingOffset": "end", "maxBytesPerTrigger": "max_bytes",
    "maxRowsPerTrigger": "max_rows", "minBytesPerTrigger": "min_bytes", "maxTriggerDelay": "max_delay",
    "partitionBytes": "partition_bytes", "failOnDataLoss": "fail_on_data_loss", "leaveOut": "leave_out",
}  # fmt: skip
NEEDED = {"path": "data", "topic": "prod/logs", "maxTriggerDelay": "0s"}


class _Tagged(pa.ExtensionType):
    """An extension type over a plain one."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __hash__(self) -> int:
        return hash(self.extension_name)


# Types that nobody declares in a file, so that they have no text of their own there.
OTHERS = {
    "string_view": pa.string_view(),
    "binary_view": pa.binary_view(),
    "list_view": pa.list_view(pa.int64()),
    "fixed_size_list": pa.list_(pa.int64(), 3),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "run_end_encoded": pa.run_end_encoded(pa.int32(), pa.string()),
    "extension": _Tagged(),
}


def _arrow(name: str) -> pa.DataType:
    return OTHERS[name] if name in OTHERS else parse_type(name)


def test_every_option_is_listed() -> None:
    """The table has each option, no others, in order."""
    assert [code_in(row[0])[0] for row in table(SPARK, "option")] == list(OPTIONS)


@pytest.mark.parametrize("row", table(SPARK, "option"), ids=lambda row: row[0].strip("`"))
def test_defaults_of_options_are_the_real_ones(row: list[str]) -> None:
    """A default that is shown means what leaving the option out means; without one there is nothing."""
    (name,), kind, default = code_in(row[0]), row[1], row[2]
    assert kind in {"all", "read", "batch", "stream", "write", "runner"}
    field = FIELDS.get(name, name)
    without = Options.of(NEEDED)
    if default == "required":
        assert name in {"path", "topic"}
    elif code_in(default):
        assert getattr(Options.of({**NEEDED, name: code_in(default)[0]}), field) == getattr(without, field)
    else:
        assert getattr(without, field) in (None, ())
    assert row[3]


@pytest.mark.parametrize("row", table(SPARK, "Arrow type"), ids=lambda row: row[0])
def test_types_are_the_real_ones(row: list[str]) -> None:
    """Each Arrow type of a row becomes the Spark type at its place, or the only one there."""
    arrow, spark = code_in(row[0]), code_in(row[1])
    expected = spark if len(spark) > 1 else spark * len(arrow)
    found = [struct_of(pa.schema([("c", _arrow(name))]), "table")[0].dataType.simpleString() for name in arrow]
    assert found == expected


def test_every_simple_type_is_listed() -> None:
    """The table leaves none of the plain types out."""
    listed = {_arrow(name) for row in table(SPARK, "Arrow type") for name in code_in(row[0])}
    assert set(_SIMPLE) <= listed


def test_metadata_columns_are_listed_with_their_types() -> None:
    """The table has each metadata column, in order, with its type."""
    listed = [(code_in(row[0])[0], code_in(row[1])[0]) for row in table(SPARK, "metadata column")]
    assert listed == [(name, _METADATA_TYPES[name].simpleString()) for name in METADATA]


def test_the_filter_of_the_example_is_understood() -> None:
    """The conditions shown can be parsed over columns of these types."""
    columns = {
        "level": pa.string(), "ms": pa.float64(), "code": pa.int64(), "host": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    found = parse(block(SPARK, "text", "filter"), pa.schema(list(columns.items())))
    assert [each.column for each in found] == list(columns)


def test_blocks_run_in_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks labelled `spark` run one after the other, in an empty folder, with a session."""
    listeners: list[Any] = []

    def noted(session: SparkSession) -> None:
        listeners.append(acknowledge(session))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("holdfast.spark.acknowledge", noted)
    names: dict[str, Any] = {"spark": spark}
    try:
        for number, found in enumerate(blocks(SPARK, "python", "spark")):
            # The session was started elsewhere, and its processes work there.
            text = re.sub(r'"(data|checkpoints/\w+)"', rf'"{tmp_path}/\1"', found.text)
            exec(compile(text, f"{SPARK}, block {number}", "exec"), names)
    finally:
        for listener in listeners:  # the session is everybody's
            spark.streams.removeListener(listener)
    with Store.open(tmp_path / "data", read_only=True) as store:
        assert store.topic("prod/logs").progress("reports", 0).watermark == 1


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("about 32,768 rows or 16 MB. - **Pausing", (GOOD_ROWS, GOOD_BYTES) == (32_768, 16_000_000)),
        ("bundles of about 65,536 rows or 16 MB", (BUNDLE_ROWS, BUNDLE_BYTES) == (65_536, 16_000_000)),
        ("more than 7 days later", STALE_NS == 7 * 86_400 * 10**9),
    ],
)
def test_figures_are_those_of_the_code(text: str, figure: bool) -> None:
    """A figure in the document is the constant in the code."""
    assert text in " ".join(text_of(SPARK).split())
    assert figure
