"""The half of a pipeline that receives: the receivers of its sources, and the store that they append to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import InputError
from holdfast.files import Files
from holdfast.health import Health, HealthServer, Status
from holdfast.pipeline.topology import Source, Topology
from holdfast.receivers import SOURCES, Context, Receiver
from holdfast.store import Store


def receives(topology: Topology) -> bool:
    """Does any source have a receiver? Of a `topic` somebody else is the writer."""
    return any(_maker(source) is not None for source in topology.sources.values())


class Ingest:
    """One of `workers` processes that receive, each with shards of its own; `worker` counts from 0.

    A source is answered when its data is durable, or, where the buffer does not acknowledge, by the sinks.
    """

    def __init__(
        self, topology: Topology, worker: int = 0, workers: int = 1, *,
        files: Files, clock: Clock, ids: Ids, port: int = 0,
    ) -> None:  # fmt: skip
        if not 0 <= worker < workers:
            raise InputError(f"worker {worker} of {workers}: workers are counted from 0 to {workers - 1}")
        if not receives(topology):
            raise InputError(f"{topology.file} has no source that receives anything: there is nothing to ingest")
        self._topology, self._worker, self._workers = topology, worker, workers
        self._files, self._clock, self._ids, self._port = files, clock, ids, port
        self._store: Store | None = None
        self._server: HealthServer | None = None
        self._receivers: dict[str, Receiver] = {}
        self._status = Status.STARTING

    def start(self) -> str:
        """Open the store and begin to receive; the address of `/metrics` and `/healthz`."""
        self._server = HealthServer(self.health, port=self._port, clock=self._clock)
        topology = self._topology
        self._store = Store.open(
            topology.store, settings=topology.store_settings, files=self._files, clock=self._clock, ids=self._ids
        )
        for source in topology.sources.values():
            make = _maker(source)
            if make is not None:
                self._receivers[source.name] = make(source.settings, self._context(source, self._store))
        for receiver in self._receivers.values():
            receiver.start()
        self._status = Status.OK
        return self._server.address

    def _context(self, source: Source, store: Store) -> Context:
        return Context(
            source=source.name,
            topic=store.topic(source.topic),
            store_id=store.id,
            state=self._topology.state / "sources",
            worker=self._worker,
            workers=self._workers,
            acknowledgements=source.buffer_acknowledges or not source.acknowledgements,
            files=self._files,
            clock=self._clock,
            ids=self._ids,
        )

    def check(self) -> None:
        """Raises why a receiver failed: the process starts anew rather than go on without it."""
        for receiver in self._receivers.values():
            if receiver.failure is not None:
                raise receiver.failure

    def health(self) -> Health:
        """How every receiver is."""
        parts: dict[str, dict[str, Any]] = {}
        for name, receiver in self._receivers.copy().items():
            now = receiver.statistics()
            failure = receiver.failure
            parts[name] = {
                "status": str(self._status if failure is None else Status.FAILING),
                "rows": now.rows,
                "bundles": now.bundles,
                "answered": dict(now.answered),
                "unanswered": now.unanswered,
                "waits": now.waits,
                "finished": now.finished,
            }
            if failure is not None:
                parts[name]["error"] = str(failure)
        failing = any(part["status"] == Status.FAILING for part in parts.values())
        return Health(Status.FAILING if failing else self._status, parts)

    def stop(self, deadline: Deadline) -> None:
        """Accept nothing more; on return all that was accepted is durable, and the shards are free.

        Each step is gone through, whatever happens in the others; raises the first thing that went wrong.
        """
        self._status = Status.STOPPING
        steps: list[Callable[[], None]] = [
            *(_stopper(receiver, deadline) for receiver in self._receivers.values()),
            *([self._store.close] if self._store is not None else []),
            *([self._server.close] if self._server is not None else []),
        ]
        problems: list[Exception] = []
        for step in steps:
            try:
                step()
            except Exception as problem:  # raised below
                problems.append(problem)
        if problems:
            raise problems[0]


def _maker(source: Source) -> Callable[[Any, Context], Receiver] | None:
    return SOURCES[source.settings.type].make


def _stopper(receiver: Receiver, deadline: Deadline) -> Callable[[], None]:
    return lambda: receiver.stop(deadline)
