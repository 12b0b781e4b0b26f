"""The tables of the operating guide are complete, and say what the code says."""

from __future__ import annotations

import ast
import inspect
from types import NoneType
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo

from docs.documents import ROOT, code_in, table, text_of
from docs.models import allowed, fields, limits, value_at
from holdfast import errors
from holdfast.acks import MAX_ANSWERS, MAX_NOTED, ROTATE_BYTES, BatchStatus, Outcome
from holdfast.acks.format import MAX_BODY_BYTES, MAX_TEXT_BYTES
from holdfast.acks.records import MAX_ID_LENGTH
from holdfast.bundle import MAX_ATTRIBUTE_BYTES
from holdfast.config import BufferSettings, StoreSettings
from holdfast.config.settings import MAX_BUNDLE_BYTES
from holdfast.files._watch import POLL_SECONDS
from holdfast.metrics import METRICS
from holdfast.names import MAX_NAME_LENGTH
from holdfast.retention._request import REQUEST_SECONDS
from holdfast.slots import MAX_SLOTS
from holdfast.store._committer import RELAXED_SYNC_SECONDS
from holdfast.store._finalizers import MAX_BATCHES
from holdfast.store._outbox import FLUSH_COUNT, FLUSH_SECONDS
from holdfast.store._sealer import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS
from holdfast.store._sealing import MAX_UNSEALED_SEGMENTS
from holdfast.store._sweeper import GRANTS
from holdfast.store.dead_letters import MAX_REASON_LENGTH
from holdfast.store.key_format import MAX_KEY_BYTES
from holdfast.store.layout import MAX_SHARDS
from holdfast.store.registry import KEPT_REMOVALS
from holdfast.wal._log import MAX_SPARES
from holdfast.wal._repair import KEPT_COPIES

OPERATING = "docs/operating.md"


FIELDS = dict(fields(BufferSettings))


def _bounds(field: FieldInfo) -> str:
    """What a field allows, in the words of the table."""
    return f"{limits(field)}, or `null`" if NoneType in get_args(field.annotation) else allowed(field)


def test_every_setting_is_listed_once_in_order() -> None:
    """The table has the keys of the models, no others, in their order."""
    assert [code_in(row[0])[0] for row in table(OPERATING, "key in `buffer`")] == list(FIELDS)


@pytest.mark.parametrize("row", table(OPERATING, "key in `buffer`"), ids=lambda row: row[0].strip("`"))
def test_defaults_and_bounds_are_the_models(row: list[str]) -> None:
    """The default shown can be passed as it stands and means the model's default; the bounds are the model's."""
    (key,), (default,), shown = code_in(row[0]), code_in(row[1]), row[2]
    document: Any = None if default == "null" else default
    for part in reversed(["buffer", *key.split(".")]):
        document = {part: document}
    assert value_at(StoreSettings.of(document).buffer, key) == value_at(BufferSettings(), key)
    assert shown == _bounds(FIELDS[key])
    assert row[3]


def test_every_error_is_listed_with_its_exit_code() -> None:
    """The table has each class of the tree, in the order of errors.py, with its exit code."""
    kinds = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)]
    listed = [(code_in(row[0])[0], int(row[1])) for row in table(OPERATING, "error | exit")]
    assert listed == [(kind.__name__, kind.exit_code) for kind in kinds]


def _log_calls() -> set[tuple[str, str]]:
    """Level and line of each call of a logger in the package."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="_log"), attr=level), args=[ast.Constant(value=str(line)), *_]
                ):
                    found.add((level, line))
                case ast.Call(func=ast.Attribute(attr="_later"), args=[ast.Constant(value=str(line)), *_]):
                    found.add(("warning", line))
                case ast.Call(
                    func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="get_logger")), attr="exception"),
                    args=[ast.Constant(value=str(line)), *_],
                ):
                    found.add(("error", line))
    return found


def test_every_log_line_is_listed() -> None:
    """The table has each line that the store logs, with its level, and no others."""
    rows = table(OPERATING, "level | line")
    assert len(rows) == len(_log_calls())
    assert {(row[0], code_in(row[1])[0]) for row in rows} == _log_calls()


def test_every_metric_is_listed_with_its_labels() -> None:
    """The table has each metric, no others, in the order of their definition, with its labels."""
    rows = table(OPERATING, "metric | labels")
    listed = [(code_in(row[0])[0], tuple(code_in(row[1]))) for row in rows]
    assert listed == [(metric.name, metric.labels) for metric in METRICS.values()]
    assert all(len(row) == 4 and all(row) for row in rows)


def test_statuses_are_listed_from_best_to_worst() -> None:
    """The table of statuses has each one, in the order in which the worst is found."""
    rows = table("docs/concepts.md", "status, from best to worst")
    assert [code_in(row[0])[0] for row in rows] == list(BatchStatus)


def test_outcomes_are_listed_with_their_numbers() -> None:
    """The table of outcomes has each one as it stands in the ack log, and says which are final."""
    rows = table("docs/formats.md", "outcome |")
    listed = [(int(number), code_in(name)[0], final == "yes") for number, name, final in rows]
    assert listed == [(outcome.value, outcome.name.lower(), outcome.is_final) for outcome in Outcome]


@pytest.mark.parametrize(
    ("document", "text", "figure"),
    [
        ("guarantees", "1 GiB of encoded payload", MAX_BUNDLE_BYTES == 1 << 30),
        ("guarantees", "64 KiB encoded as MessagePack", MAX_ATTRIBUTE_BYTES == 64 << 10),
        ("guarantees", "| slots of a topic | 65,535;", MAX_SLOTS == 65_535),
        ("guarantees", "| shards of a topic | 10,000 |", MAX_SHARDS == 10_000),
        ("guarantees", "| names | 1 to 128 of", MAX_NAME_LENGTH == 128),
        ("guarantees", "are synced within 0.1 s", RELAXED_SYNC_SECONDS == 0.1),
        ("guarantees", "after 0.2 s up\n  to every 30 s", (FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS) == (0.2, 30.0)),
        ("guarantees", "until three full segments wait", MAX_UNSEALED_SEGMENTS == 3),
        ("guarantees", "within about 5 ms, with 512 others", (FLUSH_SECONDS, FLUSH_COUNT) == (0.005, 512)),
        ("guarantees", "| an idempotency key | 1 to 256 bytes |", MAX_KEY_BYTES == 256),
        ("guarantees", "| 1 to 128 characters each |", MAX_ID_LENGTH == 128),
        ("guarantees", "| 10,000 of a topic in a process;", MAX_BATCHES == 10_000),
        ("guarantees", "The last 10,000 answers of a shard", MAX_ANSWERS == 10_000),
        ("guarantees", "of 100,000 unfinished offsets", MAX_NOTED == 100_000),
        ("guarantees", "1,024 bytes in the ack log, 1,024 char", (MAX_TEXT_BYTES, MAX_REASON_LENGTH) == (1024, 1024)),
        ("guarantees", "looking every 5 ms", POLL_SECONDS == 0.005),
        ("concepts", "in steps of two segments", GRANTS == 2),
        ("formats", "more than 8 MB would have to be replayed", ROTATE_BYTES == 8_000_000),
        ("formats", "at most 1 MiB; the body", MAX_BODY_BYTES == 1 << 20),
        ("formats", "`removals` are the last 100", KEPT_REMOVALS == 100),
        ("formats", "after 5 s it\nhas expired", REQUEST_SECONDS == 5.0),
        ("operating", "the last 100 removals", KEPT_REMOVALS == 100),
        ("operating", "up to two WAL files per shard", MAX_SPARES == 2),
        ("operating", "at most 8 copies", KEPT_COPIES == 8),
    ],
)
def test_figures_are_those_of_the_code(document: str, text: str, figure: bool) -> None:
    """A figure in a document is the constant in the code."""
    assert text in text_of(f"docs/{document}.md")
    assert figure
