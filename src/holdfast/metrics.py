"""Everything that Holdfast counts and measures, for Prometheus; the list is at the end.

What happens now and then is counted where it happens: `GC_EVICTIONS.inc("prod/logs", "size")`. What happens for
each bundle costs nothing here: a component that keeps statistics of its own has a `Reporter`, which is asked
when somebody looks. What several of them say of one series adds up, and what a closed one counted stays counted.

`render()` is the page to serve. `REGISTRY` holds these metrics and no others; it is made, and the client library
loaded, when one of the two is first used.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import structlog

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

    REGISTRY: CollectorRegistry

Labels: TypeAlias = tuple[str, ...]

_metrics: Final[dict[str, Metric]] = {}
_reporters: Final[list[Reporter]] = []
_mutex: Final = threading.RLock()  # guards both, and all values; never held while a reporter is asked

METRICS: Final[Mapping[str, Metric]] = MappingProxyType(_metrics)


class Metric:
    """A name, with a value for each series: a combination of labels that was seen."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name, self.text, self.labels = name, text, labels
        self._values: dict[Labels, Any] = {}
        _metrics[name] = self

    def check(self, labels: Labels) -> None:
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {', '.join(self.labels) or 'none'}; found {labels}")

    def matches(self, series: Labels, labels: Mapping[str, str]) -> bool:
        """Whether this series has all these labels."""
        return labels.items() <= dict(zip(self.labels, series, strict=True)).items()

    def copy_values(self) -> dict[Labels, Any]:
        return dict(self._values)

    def forget(self, labels: Mapping[str, str]) -> None:
        with _mutex:
            self._values = {key: value for key, value in self._values.items() if not self.matches(key, labels)}


class Counter(Metric):
    """How often something has happened in this process; never goes back."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, text, *labels)
        if not labels:
            self._values[()] = 0  # the only series: that nothing happened yet can be told

    def inc(self, *labels: str, by: float = 1) -> None:
        self.check(labels)
        if by < 0:
            raise ValueError(f"{self.name} only rises; found {by}")
        with _mutex:
            self._values[labels] = self._values.get(labels, 0) + by


class Gauge(Metric):
    """How much there is now. `merge` makes one value of what several reporters say."""

    def __init__(self, name: str, text: str, *labels: str, merge: Callable[[Iterable[float]], float] = sum) -> None:
        super().__init__(name, text, *labels)
        self.merge = merge

    def set(self, value: float, *labels: str) -> None:
        self.check(labels)
        with _mutex:
            self._values[labels] = value


class Histogram(Metric):
    """How values are spread: how many are at most the first of `bounds`, more than that but at most the second, ..."""

    def __init__(self, name: str, text: str, *labels: str, bounds: tuple[float, ...]) -> None:
        super().__init__(name, text, *labels)
        self.bounds = bounds

    def observe(self, value: float, *labels: str) -> None:
        self.check(labels)
        with _mutex:
            counts, total = self._values.get(labels) or ([0] * (len(self.bounds) + 1), 0.0)
            counts[bisect_left(self.bounds, value)] += 1
            self._values[labels] = counts, total + value

    def copy_values(self) -> dict[Labels, Any]:
        return {series: (list(counts), total) for series, (counts, total) in self._values.items()}


class Sample(NamedTuple):
    """What a reporter says of one series; the labels in the metric's order."""

    metric: Counter | Gauge
    value: float
    labels: Labels


class Reporter:
    """Is asked for samples, by `report()`, whenever somebody looks: in any thread, from now until `close`.

    Several samples of one series are merged. A counter that is lower than it was, or missing, stays as it was. If
    `report` fails, its counters stay, its gauges are missing, and the failure is logged and counted.
    """

    def __init__(self, report: Callable[[], Iterable[Sample]]) -> None:
        self._report = report
        self._counted: dict[tuple[Counter, Labels], float] = {}
        with _mutex:
            _reporters.append(self)

    def close(self) -> None:
        """Ask for the last time. The gauges go; what was counted is added to the counts of the process."""
        if self not in _reporters:
            return
        self.samples()
        with _mutex:
            if self in _reporters:
                _reporters.remove(self)
                for (counter, labels), value in self._counted.items():
                    counter.inc(*labels, by=value)

    def samples(self) -> list[Sample]:
        """What it reports now."""
        counted: defaultdict[tuple[Counter, Labels], float] = defaultdict(float)
        gauges: list[Sample] = []
        try:
            for sample in self._report():
                sample.metric.check(sample.labels)
                if isinstance(sample.metric, Counter):
                    counted[sample.metric, sample.labels] += sample.value
                else:
                    gauges.append(sample)
        except Exception:  # whatever it is, it must not hide what the others report
            structlog.get_logger().exception("a component's metrics are missing", component=repr(self._report))
            REPORTER_ERRORS.inc()
            counted.clear()
            gauges.clear()
        with _mutex:
            for series, value in counted.items():
                self._counted[series] = max(value, self._counted.get(series, 0))
            return gauges + [Sample(counter, value, labels) for (counter, labels), value in self._counted.items()]

    def forget(self, labels: Mapping[str, str]) -> None:
        with _mutex:
            for counter, series in list(self._counted):
                if counter.matches(series, labels):
                    del self._counted[counter, series]


def forget(topic: str) -> None:
    """Drop every series of a topic that is gone. What a reporter still reports comes back."""
    _forget({"topic": topic})


def forget_subscriber(topic: str, subscriber: str) -> None:
    """Drop every series of a subscriber that was removed. What a reporter still reports comes back."""
    _forget({"topic": topic, "subscriber": subscriber})


def _forget(labels: Mapping[str, str]) -> None:
    with _mutex:
        for metric in _metrics.values():
            metric.forget(labels)
        for reporter in _reporters:
            reporter.forget(labels)


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    from prometheus_client import generate_latest

    return generate_latest(_registry())


class _Collector:
    """What the client library asks."""

    def describe(self) -> Iterator[Family]:
        return (_family(metric, {}) for metric in _metrics.values())

    def collect(self) -> Iterator[Family]:
        with _mutex:  # at one moment: what a reporter counted is with it, or, once it is closed, with the process
            values = {metric: metric.copy_values() for metric in _metrics.values()}
            reporters = list(_reporters)
        reported: defaultdict[tuple[Counter | Gauge, Labels], list[float]] = defaultdict(list)
        for reporter in reporters:
            for metric, value, labels in reporter.samples():
                reported[metric, labels].append(value)
        for (metric, labels), found in reported.items():
            if labels in values[metric]:
                found.append(values[metric][labels])
            values[metric][labels] = metric.merge(found) if isinstance(metric, Gauge) else sum(found)
        return (_family(metric, of_metric) for metric, of_metric in values.items())


def _family(metric: Metric, values: Mapping[Labels, Any]) -> Family:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if isinstance(metric, Histogram):
        spread = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
        names = [*map(str, metric.bounds), "+Inf"]
        for labels, (counts, total) in values.items():
            spread.add_metric(labels, list(zip(names, accumulate(counts), strict=True)), total)
        return spread
    kind = CounterMetricFamily if isinstance(metric, Counter) else GaugeMetricFamily
    family = kind(metric.name, metric.text, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    with _mutex:
        registry: CollectorRegistry | None = globals().get("REGISTRY")
        if registry is None:
            registry = globals()["REGISTRY"] = CollectorRegistry()
            registry.register(_Collector())
        return registry


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "REGISTRY":
            return _registry()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# -- appending ---------------------------------------------------------------------------------------------------

APPEND_BUNDLES: Final = Counter("holdfast_append_bundles_total", "Bundles appended.", "topic")
APPEND_BYTES: Final = Counter("holdfast_append_bytes_total", "Payload bytes appended.", "topic")
REPEATED_APPENDS: Final = Counter(
    "holdfast_repeated_appends_total",
    "Appends answered with an earlier receipt: their idempotency key was known.",
    "topic",
)
INGEST_THROTTLE: Final = Counter(
    "holdfast_ingest_throttle_total", "Appends refused because a bound was reached.", "topic"
)
SYNC_SECONDS: Final = Histogram(
    "holdfast_sync_seconds",
    "How long the disk took to make a group of appends durable.",
    "topic",
    bounds=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
WAL_BYTES: Final = Gauge("holdfast_wal_bytes", "Bytes of WAL files.", "topic", "shard")
OPEN_SEGMENT_BYTES: Final = Gauge(
    "holdfast_open_segment_bytes", "Payload bytes that wait to be sealed into a segment.", "topic", "shard"
)

# -- delivering --------------------------------------------------------------------------------------------------

DELIVERED_BUNDLES: Final = Counter(
    "holdfast_delivered_bundles_total", "Bundles handed to a subscriber, repeats included.", "topic", "subscriber"
)
DELIVERED_BYTES: Final = Counter(
    "holdfast_delivered_bytes_total", "Payload bytes handed to a subscriber, repeats included.", "topic", "subscriber"
)
OUTCOMES: Final = Counter(
    "holdfast_outcomes_total", "Outcomes recorded, each for one bundle.", "topic", "subscriber", "outcome"
)
RETRIES: Final = Counter("holdfast_retries_total", "Bundles handed out once more.", "topic", "subscriber")
DEADLINE_MISSES: Final = Counter(
    "holdfast_deadline_misses_total",
    "Deliveries without an answer by their deadline; they count as nack.",
    "topic",
    "subscriber",
)
DEAD_LETTERS: Final = Counter(
    "holdfast_dead_letters_total", "Bundles set aside as dead letters.", "topic", "subscriber"
)
LAG_BUNDLES: Final = Gauge(
    "holdfast_lag_bundles", "Durable bundles that have no final outcome yet.", "topic", "subscriber"
)
LAG_SECONDS: Final = Gauge(
    "holdfast_lag_seconds", "Age of the oldest bundle without a final outcome.", "topic", "subscriber", merge=max
)
FINALIZED_BATCHES: Final = Counter(
    "holdfast_finalized_batches_total", "Sources' batches answered, by the answer.", "topic", "status"
)
SUBSCRIBERS_REMOVED: Final = Counter("holdfast_subscribers_removed_total", "Subscribers removed.", "topic", "reason")

# -- the ack log -------------------------------------------------------------------------------------------------

ACK_LOG_BYTES: Final = Gauge("holdfast_ack_log_bytes", "Bytes of ack log files.", "topic", "shard")
ACK_LOG_RECORDS: Final = Gauge(
    "holdfast_ack_log_records", "Records in the ack log since its checkpoint.", "topic", "shard"
)
GAP_SET_SIZE: Final = Gauge(
    "holdfast_gap_set_size", "Runs of final outcomes above the watermark.", "topic", "shard", "subscriber"
)

# -- retention ---------------------------------------------------------------------------------------------------

GC_EVICTIONS: Final = Counter("holdfast_gc_evictions_total", "Segments deleted, by reason.", "topic", "reason")
RETENTION_SIZE_EMERGENCY: Final = Counter(
    "holdfast_retention_size_emergency_total",
    "Times that a size cap was reached and unfinished data given up.",
    "topic",
)
SUBSCRIBER_DROPPED_BUNDLES: Final = Counter(
    "holdfast_subscriber_dropped_bundles_total",
    "Bundles given up before the subscriber finished them.",
    "topic",
    "subscriber",
)
SEGMENT_DROPPED: Final = Counter(
    "holdfast_segment_dropped_total", "Segments of which a bundle was given up, each once.", "topic"
)
RETENTION_FILES_DELETED: Final = Counter("holdfast_retention_files_deleted_total", "Files deleted.", "topic")
RETENTION_BYTES_RECLAIMED: Final = Counter(
    "holdfast_retention_bytes_reclaimed_total", "Bytes of deleted files.", "topic"
)
RETENTION_ERRORS: Final = Counter(
    "holdfast_retention_errors_total", "Deletions that failed; each is tried again.", "topic"
)
RETENTION_LAST_RUN: Final = Gauge(
    "holdfast_retention_last_run_timestamp", "When the last sweep began, in Unix seconds.", "topic", merge=max
)
TOTAL_DISK_USAGE: Final = Gauge("holdfast_total_disk_usage_bytes", "Bytes of all files of the topic.", "topic")
SHARD_BYTES: Final = Gauge("holdfast_shard_bytes", "Bytes of all files of the shard.", "topic", "shard")
SHARD_CAP_FRACTION: Final = Gauge(
    "holdfast_shard_cap_fraction", "Bytes of the shard as a part of what it may have.", "topic", "shard", merge=max
)
PINNED_BYTES: Final = Gauge(
    "holdfast_pinned_bytes", "Bytes of files kept because the subscriber has not finished them.", "topic", "subscriber"
)
PINNED_SINCE: Final = Gauge(
    "holdfast_pinned_since_seconds",
    "For how long the oldest of these files has been kept for the subscriber.",
    "topic",
    "subscriber",
    merge=max,
)

# -- sources and processes ---------------------------------------------------------------------------------------

INGEST_ROWS: Final = Counter("holdfast_ingest_rows_total", "Rows that a source has appended.", "source")
INGEST_BUNDLES: Final = Counter(
    "holdfast_ingest_bundles_total", "Bundles that a source has appended, repeats included.", "source"
)
INGEST_ANSWERS: Final = Counter(
    "holdfast_ingest_answers_total", "Bundles for which a source was answered, by the answer.", "source", "status"
)
INGEST_WAITS: Final = Counter(
    "holdfast_ingest_waits_total", "Times that a source had to wait before it tried to append again.", "source"
)
INGEST_UNANSWERED: Final = Gauge(
    "holdfast_ingest_unanswered_bundles", "Bundles for which a source waits for its answer.", "source"
)
PROCESS_UP: Final = Gauge(
    "holdfast_process_up", "Whether a supervised process runs and says that it is healthy: 1 or 0.", "process"
)
PROCESS_RESTARTS: Final = Counter(
    "holdfast_process_restarts_total",
    "Times that a supervised process ended by itself and was started again.",
    "process",
)

# -- queries -----------------------------------------------------------------------------------------------------

PIPELINE_ROWS: Final = Counter("holdfast_pipeline_rows_total", "Rows that a sink has taken.", "sink")
PIPELINE_BATCH_SECONDS: Final = Histogram(
    "holdfast_pipeline_batch_seconds",
    "From a batch's hand-over to the sink until it is acked.",
    "sink",
    bounds=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
PIPELINE_RESTARTS: Final = Counter(
    "holdfast_pipeline_restarts_total", "Times that a sink's query was started again, by the reason.", "sink", "reason"
)
PIPELINE_LAG: Final = Gauge(
    "holdfast_pipeline_lag_bundles", "Bundles that are durable and that the sink has not delivered.", "sink"
)
PIPELINE_HEALTHY: Final = Gauge("holdfast_pipeline_healthy", "Whether the sink is well: 1 or 0.", "sink")

# -- this page ---------------------------------------------------------------------------------------------------

REPORTER_ERRORS: Final = Counter(
    "holdfast_reporter_errors_total", "Times that a component could not report its metrics."
)
