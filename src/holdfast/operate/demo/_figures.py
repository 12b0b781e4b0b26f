"""How the demonstration stands while it runs, from the processes' metrics and the store, opened for reading."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clock import Clock
from holdfast.metrics import PIPELINE_ROWS
from holdfast.operate.demo._plan import SOURCE, TABLES, TOPIC, DemoPlan
from holdfast.operate.demo._run import Metrics, read_metrics
from holdfast.store import Store

DRIVER: Final = "pipeline"  # the names that the supervisor gives
INGEST: Final = "ingest-0"
RATE_SECONDS: Final = 5.0  # rates are taken over so long


@dataclass(frozen=True, slots=True)
class SinkFigures:
    """A sink: what it is doing, the rows it has taken as far as drivers told, the source's rows that it has acked.

    A driver that is killed takes its last count with it; what is acked is in the store.
    """

    name: str
    state: str = "starting"
    rows: int = 0
    rows_per_second: float = 0.0
    acked: int = 0
    lag: int = 0  # rows of the source that are durable and not acked


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """All of it at one moment. Rows are counted by whole bundles; the comparison at the end counts each."""

    doing: str
    seconds: float  # since the start
    wanted: int  # rows
    generated: int = 0
    rows_per_second: float = 0.0
    finished: bool = False  # the source has sent all, and all of it is durable
    sinks: tuple[SinkFigures, ...] = ()
    disk_bytes: int = 0
    restarts: Mapping[str, int] | None = None
    kills: int = 0

    @property
    def drained(self) -> bool:
        """Has every sink acked all that was generated?"""
        return self.finished and bool(self.sinks) and all(sink.lag == 0 for sink in self.sinks)


class Meter:
    """Looks at what `health` tells, at the metrics of the driver, and at the store, once it is there."""

    def __init__(self, plan: DemoPlan, clock: Clock, metrics: Callable[[str], Metrics] = read_metrics) -> None:
        self._plan, self._clock, self._read = plan, clock, metrics
        self._began = clock.monotonic()
        self._store: Store | None = None
        self._counted: dict[str, dict[int, int]] = defaultdict(dict)  # sink -> driver's pid -> rows that it counted
        self._past: deque[tuple[float, dict[str, int]]] = deque()
        self._finished = False

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def look(self, health: Mapping[str, Mapping[str, Any]], kills: int = 0) -> DemoFigures:
        """The figures now; `health` is what the supervisor says of each process."""
        plan, driver = self._plan, health.get(DRIVER, {})
        self._finished |= bool(health.get(INGEST, {}).get("parts", {}).get(SOURCE, {}).get("finished"))
        delivered = self._delivered(driver)
        generated, acked, disk_bytes = self._stored(driver)
        rates = self._rates({"": generated, **delivered})
        sinks = tuple(
            SinkFigures(
                table.name,
                str(driver.get("parts", {}).get(table.name, {}).get("state", "down")),
                delivered[table.name], rates[table.name],
                acked.get(table.name, 0), max(0, generated - acked.get(table.name, 0)),
            )
            for table in TABLES
        )  # fmt: skip
        doing = self._doing(generated)
        return DemoFigures(
            doing, self._clock.monotonic() - self._began, plan.rows, generated, rates[""], self._finished, sinks,
            disk_bytes, {name: int(part["restarts"]) for name, part in health.items()}, kills,
        )  # fmt: skip

    def _doing(self, generated: int) -> str:
        if self._finished:
            return "all rows are generated; the sinks finish"
        if self._store is None:
            return "Spark starts"
        return "rows flow" if generated else "the source starts"

    def _delivered(self, driver: Mapping[str, Any]) -> dict[str, int]:
        """Rows by sink, added up over the drivers so far; what one counted just before it was killed is not known."""
        address, pid = driver.get("address"), driver.get("pid")
        if address is not None and pid is not None:
            found = self._read(address)
            for table in TABLES:
                if (PIPELINE_ROWS.name, table.name) in found:
                    self._counted[table.name][pid] = int(found[PIPELINE_ROWS.name, table.name])
        return {table.name: sum(self._counted[table.name].values()) for table in TABLES}

    def _stored(self, driver: Mapping[str, Any]) -> tuple[int, dict[str, int], int]:
        """Rows that are durable, rows that each sink has acked, and the bytes of it all."""
        if self._store is None:
            if driver.get("address") is None:
                return 0, {}, 0
            self._store = Store.open(self._plan.store, read_only=True)  # a driver that was ready has made it
        topic = self._store.topic(TOPIC)
        shards = topic.shards()
        acked = {
            table.name: sum(topic.progress(table.name, shard.number).watermark for shard in shards) for table in TABLES
        }
        durable = sum(shard.durable for shard in shards)
        disk_bytes = sum(usage.total_bytes for usage in topic.usages().values())
        return self._in_rows(durable), {name: self._in_rows(each) for name, each in acked.items()}, disk_bytes

    def _in_rows(self, bundles: int) -> int:
        return min(self._plan.rows, bundles * self._plan.rows_per_bundle)

    def _rates(self, counts: dict[str, int]) -> dict[str, float]:
        """Each count's rise in a second, over the last few."""
        now = self._clock.monotonic()
        self._past.append((now, counts))
        while now - self._past[0][0] > RATE_SECONDS:
            self._past.popleft()
        then, before = self._past[0]
        return {name: (count - before[name]) / (now - then) if now > then else 0.0 for name, count in counts.items()}
