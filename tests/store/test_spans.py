"""Spans: what one shard holds, run by run, in numbers that are known without reading rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.bundle import decode_attributes
from holdfast.errors import UnknownSlot, UnknownSubscriber
from holdfast.store import Span, StreamFacts
from holdfast.testing import SimulatedFiles
from store.storekit import TOPIC
from store.subkit import simulated

PLAIN = pa.record_batch({"id": pa.array([1, 2], pa.int64())})
WIDE = pa.record_batch({"id": pa.array([7], pa.int64()), "text": ["x"]})
OTHER = pa.record_batch({"span": ["s", "t", "u"]})
BUNDLES = [
    {"logs": PLAIN},
    {"logs": WIDE},
    {"traces": OTHER},
    {"logs": PLAIN, "traces": OTHER},
    {"logs": PLAIN.slice(0, 0)},
    {"logs": PLAIN},
]


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture(params=["open", "sealed", "two segments", "read by another"])
def topic(request: pytest.FixtureRequest, files: SimulatedFiles) -> Iterator[hf.Topic]:
    """The same bundles in memory, in one segment, in two, and in the log as another process reads it."""
    with simulated(files) as store:
        written = store.topic(TOPIC)
        for number, bundle in enumerate(BUNDLES):
            written.append(bundle, attributes={"n": number}).wait()
            if request.param == "two segments" and number == 2:
                written.seal()
        if request.param in ("sealed", "two segments"):
            written.seal()
        if request.param == "read by another":
            with simulated(files, seed=9, read_only=True) as reader:
                yield reader.topic(TOPIC)
        else:
            yield written


def spans(topic: hf.Topic, first: int = 0, end: int = 6) -> list[Span]:
    return list(topic.spans(0, first, end))


def joined(found: list[Span], values: str, slot: int) -> list[int]:
    return [int(value) for span in found for value in getattr(span, values)(slot)]


@pytest.mark.parametrize(("first", "end"), [(0, 6), (1, 4), (2, 3), (5, 6), (3, 99), (0, 1)])
def test_a_range_is_covered_exactly(topic: hf.Topic, first: int, end: int) -> None:
    """Spans follow each other from the first offset to the last, and never go beyond."""
    found = spans(topic, first, end)

    assert found[0].start == first
    assert found[-1].end == min(end, 6)
    assert all(before.end == after.start for before, after in pairwise(found))


@pytest.mark.parametrize(("first", "end"), [(6, 9), (3, 3), (4, 2)])
def test_empty_ranges(topic: hf.Topic, first: int, end: int) -> None:
    """Nothing there is no span, and so is a shard that is not there."""
    assert spans(topic, first, end) == []
    assert list(topic.spans(8, 0, 6)) == []


@pytest.mark.parametrize(("first", "end"), [(0, 6), (1, 5), (2, 3)])
def test_rows(topic: hf.Topic, first: int, end: int) -> None:
    """Rows are counted for each bundle; a bundle without the slot has none."""
    logs, traces = topic.slot_number("logs"), topic.slot_number("traces")

    assert joined(spans(topic, first, end), "rows", logs) == [2, 1, 0, 2, 0, 2][first:end]
    assert joined(spans(topic, first, end), "rows", traces) == [0, 0, 3, 3, 0, 0][first:end]
    assert joined(spans(topic, first, end), "rows", 17) == [0] * (end - first)


def test_sizes(topic: hf.Topic) -> None:
    """Bytes are counted where the slot is, and nowhere else."""
    logs = joined(spans(topic), "sizes", topic.slot_number("logs"))
    traces = joined(spans(topic), "sizes", topic.slot_number("traces"))

    assert [size > 0 for size in logs] == [True, True, False, True, True, True]
    assert [size > 0 for size in traces] == [False, False, True, True, False, False]
    assert logs[1:] == joined(spans(topic, 1), "sizes", topic.slot_number("logs"))


@pytest.mark.parametrize(
    ("first", "wanted"),
    [(0, {0: ["id"], 1: ["id", "text"]}), (1, {1: ["id", "text"], 3: ["id"]}), (2, {3: ["id"]}), (4, {4: ["id"]})],
)
def test_schemas(topic: hf.Topic, first: int, wanted: dict[int, list[str]]) -> None:
    """Each schema is told with the first bundle of the range that has it; a span may tell it anew."""
    found: dict[int, list[str]] = {}
    for span in spans(topic, first):
        for offset, schema in sorted(span.schemas(topic.slot_number("logs")), key=lambda each: each[0]):
            assert span.start <= offset < span.end
            if schema.names not in found.values():
                found[offset] = schema.names

    assert found == wanted


@pytest.mark.parametrize(("first", "end"), [(0, 6), (1, 5)])
def test_kinds(topic: hf.Topic, first: int, end: int) -> None:
    """Within a span, bundles of one kind have one schema, and each kind is another schema."""
    logs = topic.slot_number("logs")
    for span in spans(topic, first, end):
        kinds = span.kinds(logs)
        assert len(kinds) == span.end - span.start
        schemas = {kinds[offset - span.start]: batch.schema for offset, batch in span.chunks(logs, None)}
        assert all(batch.schema == schemas[kinds[offset - span.start]] for offset, batch in span.chunks(logs, None))
        assert len({schema.to_string() for schema in schemas.values()}) == len(schemas)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_chunks(topic: hf.Topic, first: int) -> None:
    """Batches come with the offset of their bundle, whole or with some columns."""
    logs = topic.slot_number("logs")
    whole = [each for span in spans(topic, first) for each in span.chunks(logs, None)]
    text = [each for span in spans(topic, first) for each in span.chunks(logs, ["text", "nope"])]

    wanted = [(0, PLAIN), (1, WIDE), (3, PLAIN), (4, PLAIN.slice(0, 0)), (5, PLAIN)]
    assert [offset for offset, _ in whole] == [offset for offset, _ in wanted if offset >= first]
    assert all(batch.equals(dict(wanted)[offset]) for offset, batch in whole)
    assert [(offset, batch.num_rows, batch.schema.names) for offset, batch in text] == [
        (offset, batch.num_rows, ["text"] if offset == 1 else []) for offset, batch in wanted if offset >= first
    ]


def test_attributes_and_times(topic: hf.Topic) -> None:
    """What belongs to bundles is told for each of the range, and for no other."""
    for first, end in ((0, 6), (2, 5)):
        found = spans(topic, first, end)
        attributes = [each for span in found for each in span.attributes()]
        times = [each for span in found for each in span.ingestion_times()]
        bundles = list(topic.bundles(first, end))

        assert len(attributes) == len(times) == end - first
        assert times == [bundle.ingestion_time_ns for bundle in bundles]
        assert [decode_attributes(each)["n"] for each in attributes] == list(range(first, end))


def test_streams_are_judged_by_their_statistics(files: SimulatedFiles) -> None:
    """A sealed stream is told with its schema, rows, null counts and bounds, and passed over if it is declined."""
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        for bundle in BUNDLES:
            topic.append(bundle).wait()
        topic.seal()
        told: list[StreamFacts] = []

        def keep(facts: StreamFacts) -> bool:
            told.append(facts)
            return "text" in facts.schema.names

        (span,) = topic.spans(0, 0, 6)
        kept = list(span.chunks(topic.slot_number("logs"), None, keep))

    assert [offset for offset, _ in kept] == [1]
    facts = {tuple(each.schema.names): each for each in told}
    assert len(told) == 2, "each stream is asked about once"
    assert (facts[("id",)].rows, list(facts[("id",)].null_counts)) == (6, [0])
    bounds = facts[("id",)].bounds
    assert bounds is not None
    assert bounds.to_pydict() == {"id": [1, 2]}


def test_what_is_not_sealed_is_never_passed_over(files: SimulatedFiles) -> None:
    """Nothing is known of an open segment: all of it comes."""
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        topic.append({"logs": PLAIN}).wait()
        (span,) = topic.spans(0, 0, 1)

        assert len(list(span.chunks(topic.slot_number("logs"), None, lambda facts: False))) == 1


def test_a_gap_where_something_was_deleted(files: SimulatedFiles) -> None:
    """Spans begin after what was deleted."""
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        for number in range(4):
            topic.append({"logs": PLAIN}).wait()
            if number == 1:
                topic.seal()
        topic.truncate(2)

        assert [(span.start, span.end) for span in topic.spans(0, 0, 4)] == [(2, 4)]
        assert topic.lost(0) == []
        assert topic.lost(5) == []


def test_numbers_are_plain(topic: hf.Topic) -> None:
    """Rows and sizes are 64-bit integers, so that sums of them do not overflow."""
    for span in spans(topic):
        for values in (span.rows(0), span.sizes(0)):
            assert values.dtype == np.int64
            assert len(values) == span.end - span.start


def test_names(topic: hf.Topic) -> None:
    """Unknown slots and subscribers are errors, not empty answers."""
    with pytest.raises(UnknownSlot):
        topic.slot_number("nope")
    with pytest.raises(UnknownSubscriber):
        topic.progress("nope", 0)


def test_many_small_bundles(tmp_path: Path) -> None:
    """Over many bundles and streams the numbers agree with the rows themselves."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        for number in range(200):
            columns = {"id": pa.array([number] * (number % 4), pa.int64())}
            if number % 3 == 0:
                columns["text"] = pa.array(["x"] * (number % 4))
            receipt = topic.append({"logs" if number % 5 else "traces": pa.record_batch(columns)})
        receipt.wait()
        topic.seal()
        slot = topic.slot_number("logs")
        for first, end in ((0, 200), (7, 31), (150, 151)):
            found = [each for span in topic.spans(0, first, end) for each in span.chunks(slot, None)]
            rows = joined(list(topic.spans(0, first, end)), "rows", slot)

            assert [offset for offset, _ in found] == [number for number in range(first, end) if number % 5]
            assert rows == [number % 4 if number % 5 else 0 for number in range(first, end)]
            assert [batch.num_rows for _, batch in found] == [rows[offset - first] for offset, _ in found]
