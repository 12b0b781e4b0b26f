"""Metrics: which there are, and that they add up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from holdfast import metrics
from holdfast.metrics import METRICS, Counter, Gauge, Histogram, Metric, Reporter, Sample


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process count too: begin with nothing, and leave what was there."""
    monkeypatch.setattr(metrics, "_reporters", [])
    for metric in METRICS.values():
        begun = {} if metric.labels or not isinstance(metric, Counter) else {(): 0}
        monkeypatch.setattr(metric, "_values", begun)


COUNTERS = {
    "holdfast_append_bundles_total": ("topic",),
    "holdfast_append_bytes_total": ("topic",),
    "holdfast_dead_letters_total": ("topic", "subscriber"),
    "holdfast_deadline_misses_total": ("topic", "subscriber"),
    "holdfast_delivered_bundles_total": ("topic", "subscriber"),
    "holdfast_delivered_bytes_total": ("topic", "subscriber"),
    "holdfast_finalized_batches_total": ("topic", "status"),
    "holdfast_gc_evictions_total": ("topic", "reason"),
    "holdfast_ingest_throttle_total": ("topic",),
    "holdfast_outcomes_total": ("topic", "subscriber", "outcome"),
    "holdfast_repeated_appends_total": ("topic",),
    "holdfast_reporter_errors_total": (),
    "holdfast_retention_bytes_reclaimed_total": ("topic",),
    "holdfast_retention_errors_total": ("topic",),
    "holdfast_retention_files_deleted_total": ("topic",),
    "holdfast_retention_size_emergency_total": ("topic",),
    "holdfast_retries_total": ("topic", "subscriber"),
    "holdfast_segment_dropped_total": ("topic",),
    "holdfast_subscriber_dropped_bundles_total": ("topic", "subscriber"),
    "holdfast_subscribers_removed_total": ("topic", "reason"),
    "holdfast_ingest_answers_total": ("source", "status"),
    "holdfast_ingest_bundles_total": ("source",),
    "holdfast_ingest_rows_total": ("source",),
    "holdfast_ingest_waits_total": ("source",),
    "holdfast_process_restarts_total": ("process",),
    "holdfast_pipeline_rows_total": ("sink",),
    "holdfast_pipeline_restarts_total": ("sink", "reason"),
}
GAUGES = {
    "holdfast_ack_log_bytes": ("topic", "shard"),
    "holdfast_ack_log_records": ("topic", "shard"),
    "holdfast_gap_set_size": ("topic", "shard", "subscriber"),
    "holdfast_lag_bundles": ("topic", "subscriber"),
    "holdfast_lag_seconds": ("topic", "subscriber"),
    "holdfast_open_segment_bytes": ("topic", "shard"),
    "holdfast_pinned_bytes": ("topic", "subscriber"),
    "holdfast_pinned_since_seconds": ("topic", "subscriber"),
    "holdfast_retention_last_run_timestamp": ("topic",),
    "holdfast_shard_bytes": ("topic", "shard"),
    "holdfast_shard_cap_fraction": ("topic", "shard"),
    "holdfast_total_disk_usage_bytes": ("topic",),
    "holdfast_wal_bytes": ("topic", "shard"),
    "holdfast_ingest_unanswered_bundles": ("source",),
    "holdfast_process_up": ("process",),
    "holdfast_pipeline_lag_bundles": ("sink",),
    "holdfast_pipeline_healthy": ("sink",),
}
HISTOGRAMS = {"holdfast_sync_seconds": ("topic",), "holdfast_pipeline_batch_seconds": ("sink",)}

T = "prod/logs"


@pytest.fixture(autouse=True)
def leave_nothing_behind() -> Iterator[None]:
    """Each test's series are of topics of its own, and go with it."""
    yield
    for topic in (T, "other/topic", 'odd/"name"\\\n'):
        metrics.forget(topic)


def page() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample that `render` shows."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def shown(name: str, **labels: str) -> float | None:
    return page().get((name, frozenset(labels.items())))


def test_every_metric_that_operators_rely_on() -> None:
    """Names, kinds and labels are these: dashboards and alarms are built on them."""

    def of_kind(kind: type[Metric]) -> dict[str, tuple[str, ...]]:
        return {name: metric.labels for name, metric in METRICS.items() if type(metric) is kind}

    assert of_kind(Counter) == COUNTERS
    assert of_kind(Gauge) == GAUGES
    assert of_kind(Histogram) == HISTOGRAMS
    assert len(METRICS) == len(COUNTERS) + len(GAUGES) + len(HISTOGRAMS)


def test_page_shows_every_metric() -> None:
    """The page parses; it has each metric with its kind, its labels and a text, and nothing that is not ours."""
    for metric in METRICS.values():
        labels = [T if label == "topic" else f"a {label}" for label in metric.labels]
        if isinstance(metric, Counter):
            metric.inc(*labels)
        elif isinstance(metric, Gauge):
            metric.set(7, *labels)
        elif isinstance(metric, Histogram):
            metric.observe(0.3, *labels)
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    assert set(families) == {name.removesuffix("_total") for name in METRICS}
    for name, metric in METRICS.items():
        family = families[name.removesuffix("_total")]
        assert family.type == type(metric).__name__.lower()
        assert family.documentation == metric.text != ""
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
    metrics.forget_subscriber(T, "a subscriber")


def test_counts_add_up() -> None:
    """A counter counts by one or by more, for each series apart."""
    metrics.GC_EVICTIONS.inc(T, "size")
    metrics.GC_EVICTIONS.inc(T, "size", by=2)
    metrics.GC_EVICTIONS.inc(T, "age")
    assert shown("holdfast_gc_evictions_total", topic=T, reason="size") == 3
    assert shown("holdfast_gc_evictions_total", topic=T, reason="age") == 1


def test_wrong_use_is_told() -> None:
    """A missing label, a label too many and a count that would go back are refused, and nothing is counted."""
    with pytest.raises(ValueError, match=r"holdfast_gc_evictions_total has the labels topic, reason; found \('x',\)"):
        metrics.GC_EVICTIONS.inc("x")
    with pytest.raises(ValueError, match="holdfast_wal_bytes has the labels topic, shard"):
        metrics.WAL_BYTES.set(1, T, "shard-0000", "more")
    with pytest.raises(ValueError, match="holdfast_sync_seconds has the labels topic"):
        metrics.SYNC_SECONDS.observe(1)
    with pytest.raises(ValueError, match="holdfast_append_bytes_total only rises; found -1"):
        metrics.APPEND_BYTES.inc(T, by=-1)
    assert not [series for series in page() if ("topic", T) in series[1]]


def test_histogram_counts_values_up_to_each_bound() -> None:
    """A value counts for each bound that it does not exceed, and all of them for the last, which is endless."""
    for seconds in (0.0001, 0.0009, 0.001, 0.5, 60.0):
        metrics.SYNC_SECONDS.observe(seconds, T)
    name = "holdfast_sync_seconds"
    assert [shown(f"{name}_bucket", topic=T, le=le) for le in ("0.0001", "0.0005", "0.001", "0.5", "10.0", "+Inf")] == [
        1.0, 1.0, 3.0, 4.0, 4.0, 5.0,
    ]  # fmt: skip
    assert shown(f"{name}_count", topic=T) == 5
    assert shown(f"{name}_sum", topic=T) == pytest.approx(60.502)


def test_labels_of_any_characters_are_shown() -> None:
    """What a label says comes back from the page unchanged."""
    topic = 'odd/"name"\\\n'
    metrics.RETENTION_ERRORS.inc(topic)
    assert shown("holdfast_retention_errors_total", topic=topic) == 1


def test_reporters_add_up() -> None:
    """What two open stores, two samples of one, and the process itself say of one series is one number."""
    metrics.APPEND_BUNDLES.inc(T, by=1000)
    one = Reporter(lambda: [Sample(metrics.APPEND_BUNDLES, 1, (T,)), Sample(metrics.APPEND_BUNDLES, 10, (T,))])
    two = Reporter(
        lambda: [Sample(metrics.APPEND_BUNDLES, 100, (T,)), Sample(metrics.APPEND_BUNDLES, 5, ("other/topic",))]
    )
    assert shown("holdfast_append_bundles_total", topic=T) == 1111
    assert shown("holdfast_append_bundles_total", topic="other/topic") == 5
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("gauge", "labels", "expected"),
    [(metrics.WAL_BYTES, {"topic": T, "shard": "0"}, 6), (metrics.LAG_SECONDS, {"topic": T, "subscriber": "s"}, 3)],
)
def test_gauges_of_several_reporters_are_merged(gauge: Gauge, labels: dict[str, str], expected: float) -> None:
    """Amounts are added; of ages and parts the largest is shown."""
    series = tuple(labels.values())
    reporters = [Reporter(lambda value=value: [Sample(gauge, value, series)]) for value in (1, 3, 2)]
    assert shown(gauge.name, **labels) == expected
    for reporter in reporters:
        reporter.close()
    assert shown(gauge.name, **labels) is None


def test_reporter_is_asked_when_somebody_looks_and_not_before() -> None:
    """A page shows what is so at that moment."""
    asked = 0

    def report() -> Iterator[Sample]:
        nonlocal asked
        asked += 1
        yield Sample(metrics.OPEN_SEGMENT_BYTES, asked, (T, "0"))

    reporter = Reporter(report)
    assert asked == 0
    assert [shown("holdfast_open_segment_bytes", topic=T, shard="0") for _ in range(3)] == [1, 2, 3]
    reporter.close()


def test_closed_reporter_leaves_its_counts() -> None:
    """Closing takes the last numbers along; nothing goes back, and a reopened store counts on from there."""
    bundles = 5
    one = Reporter(lambda: [Sample(metrics.APPEND_BUNDLES, bundles, (T,)), Sample(metrics.WAL_BYTES, 9, (T, "0"))])
    assert shown("holdfast_append_bundles_total", topic=T) == 5
    bundles = 8
    one.close()
    one.close()
    assert shown("holdfast_append_bundles_total", topic=T) == 8
    assert shown("holdfast_wal_bytes", topic=T, shard="0") is None
    two = Reporter(lambda: [Sample(metrics.APPEND_BUNDLES, 2, (T,))])
    assert shown("holdfast_append_bundles_total", topic=T) == 10
    two.close()
    assert shown("holdfast_append_bundles_total", topic=T) == 10


def test_count_that_a_reporter_takes_back_stays() -> None:
    """A component that starts its statistics anew, or has no more of them, does not make a counter go back."""
    said = [Sample(metrics.RETRIES, 5, (T, "s"))]
    reporter = Reporter(lambda: said)
    assert shown("holdfast_retries_total", topic=T, subscriber="s") == 5
    said = [Sample(metrics.RETRIES, 2, (T, "s"))]
    assert shown("holdfast_retries_total", topic=T, subscriber="s") == 5
    said = []
    assert shown("holdfast_retries_total", topic=T, subscriber="s") == 5
    reporter.close()
    assert shown("holdfast_retries_total", topic=T, subscriber="s") == 5


def test_failing_reporter_does_not_hide_the_others() -> None:
    """Its counters stay, its gauges are missing, the failure is counted and logged, and the rest is shown."""
    broken = False

    def report() -> Iterator[Sample]:
        yield Sample(metrics.APPEND_BYTES, 5, (T,))
        yield Sample(metrics.WAL_BYTES, 5, (T, "0"))
        if broken:
            raise OSError("the disk is gone")

    failing, sound = Reporter(report), Reporter(lambda: [Sample(metrics.WAL_BYTES, 1, (T, "1"))])
    wrong = Reporter(lambda: [Sample(metrics.WAL_BYTES, 1, (T,))] if broken else [])
    page()
    errors = shown("holdfast_reporter_errors_total")
    assert errors is not None
    broken = True
    with structlog.testing.capture_logs() as logs:
        assert shown("holdfast_append_bytes_total", topic=T) == 5
        assert shown("holdfast_wal_bytes", topic=T, shard="0") is None
        assert shown("holdfast_wal_bytes", topic=T, shard="1") == 1
        failing.close()
        wrong.close()
    assert {(entry["log_level"], entry["event"]) for entry in logs} == {("error", "a component's metrics are missing")}
    assert shown("holdfast_append_bytes_total", topic=T) == 5
    assert shown("holdfast_reporter_errors_total") == errors + 8
    sound.close()


def test_forgotten_topic_and_subscriber_are_gone() -> None:
    """What is forgotten is shown no more, wherever it was counted; what a neighbour counted is."""
    reporter = Reporter(lambda: said)
    said = [
        Sample(metrics.RETRIES, 1, (T, "gone")),
        Sample(metrics.RETRIES, 1, (T, "stays")),
        Sample(metrics.APPEND_BUNDLES, 1, ("other/topic",)),
    ]
    metrics.LAG_BUNDLES.set(1, T, "gone")
    metrics.SYNC_SECONDS.observe(1, T)
    page()
    said = []
    metrics.forget_subscriber(T, "gone")
    assert shown("holdfast_retries_total", topic=T, subscriber="gone") is None
    assert shown("holdfast_lag_bundles", topic=T, subscriber="gone") is None
    assert shown("holdfast_retries_total", topic=T, subscriber="stays") == 1
    assert shown("holdfast_sync_seconds_count", topic=T) == 1
    metrics.forget(T)
    assert [series for series in page() if ("topic", T) in series[1]] == []
    assert shown("holdfast_append_bundles_total", topic="other/topic") == 1
    reporter.close()


def test_nothing_is_counted_twice_when_a_reporter_closes_during_a_look() -> None:
    """Whoever looks while a store closes sees its count once."""
    reporter: Reporter

    def close_meanwhile() -> list[Sample]:
        if not closing.is_set():
            closing.set()
            thread = threading.Thread(target=reporter.close)
            thread.start()
            thread.join(60)
        return []

    closing = threading.Event()
    first = Reporter(close_meanwhile)
    reporter = Reporter(lambda: [Sample(metrics.APPEND_BUNDLES, 5, (T,))])
    assert shown("holdfast_append_bundles_total", topic=T) == 5
    assert closing.is_set()
    assert shown("holdfast_append_bundles_total", topic=T) == 5
    first.close()


def test_threads_count_together() -> None:
    """No count is lost when many threads count at once."""

    def count() -> None:
        for _ in range(1000):
            metrics.INGEST_THROTTLE.inc(T)
            metrics.SYNC_SECONDS.observe(0.01, T)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shown("holdfast_ingest_throttle_total", topic=T) == 8000
    assert shown("holdfast_sync_seconds_count", topic=T) == 8000


def test_registry_is_one_and_ours() -> None:
    """`REGISTRY` can be given to any server of metrics; it is the same each time."""
    assert isinstance(metrics.REGISTRY, CollectorRegistry)
    assert metrics.REGISTRY is metrics.REGISTRY
    assert {family.name for family in metrics.REGISTRY.collect()} == {name.removesuffix("_total") for name in METRICS}
    with pytest.raises(AttributeError, match="has no attribute 'REGISTER'"):
        getattr(metrics, "REGISTER")  # noqa: B009


def test_client_library_is_loaded_when_needed() -> None:
    """Counting costs no import of the client library and of the web server in it; a page does."""
    code = (
        "import sys; from holdfast import metrics; metrics.RETENTION_ERRORS.inc('a/b')\n"
        "print('prometheus_client' in sys.modules); metrics.render(); print('prometheus_client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False", "True"]
