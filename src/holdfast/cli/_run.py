"""run, ingest, pipeline: a pipeline as processes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Annotated, TextIO, cast

import structlog
from cyclopts import Parameter

from holdfast.clock import SystemClock, SystemIds
from holdfast.errors import InputError
from holdfast.files import SystemFiles
from holdfast.pipeline import load
from holdfast.units import parse_seconds

File = Annotated[Path, Parameter(help="The pipeline's file.")]
Master = Annotated[
    str | None, Parameter(help="The Spark to run on, instead of the one in the file: local[4], yarn, ...")
]
Conf = Annotated[
    list[str] | None,
    Parameter(negative=(), help="A setting of Spark, as key=value; goes before those in the file. May be repeated."),
]
Port = Annotated[int, Parameter(help="Where /metrics and /healthz are served, on loopback; 0 takes any free port.")]
StopTimeout = Annotated[str, Parameter(help="How long a stop may take; what has not ended by then is killed.")]
DrainTimeout = Annotated[
    str | None, Parameter(help="How long sinks may take to finish what is there; by default a part of --stop-timeout.")
]
AcceptStateLoss = Annotated[
    bool, Parameter(negative=(), help="Start stateful queries whose checkpoint is lost, from nothing.")
]
ReadyFd = Annotated[int | None, Parameter(show=False)]  # for `holdfast run`: where to say that it is ready


def run(
    file: File, /, *, master: Master = None, conf: Conf = None, metrics_port: Port = 0,
    stop_timeout: StopTimeout = "60s", drain: bool = True, drain_timeout: DrainTimeout = None,
    accept_state_loss: AcceptStateLoss = False,
) -> int:  # fmt: skip
    """Run a pipeline on this machine: Spark and the processes that receive, started anew when they die.

    Ctrl-C stops it: nothing more is received, the sinks get what is there, Spark ends. A second Ctrl-C kills it;
    whatever was accepted is in the store, and the next run goes on from there.

    Parameters
    ----------
    drain
        On stopping, wait until the sinks have everything that was received; otherwise the store keeps it.
    """
    from holdfast.pipeline.ingest import receives
    from holdfast.pipeline.supervisor import Patience, Supervisor, holdfast_program

    _log_to_stderr()
    topology = load(file)
    _expect_spark()
    seconds = parse_seconds(stop_timeout)
    options = [*(["--master", master] if master is not None else []), *_conf_arguments(conf)]
    options += ["--drain" if drain else "--no-drain", "--stop-timeout", stop_timeout]
    if drain_timeout is not None:
        parse_seconds(drain_timeout)
        options += ["--drain-timeout", drain_timeout]
    if accept_state_loss:
        options.append("--accept-state-loss")
    stages = [[holdfast_program("pipeline", "pipeline", str(file), *options)]]
    if receives(topology):
        workers = range(topology.ingest.workers)
        ingest = ["ingest", str(file), "--stop-timeout", stop_timeout, "--worker"]
        stages.append([holdfast_program(f"ingest-{each}", *ingest, f"{each}/{len(workers)}") for each in workers])
    supervisor = Supervisor(
        stages, clock=SystemClock(), ids=SystemIds(), patience=Patience(stop=seconds), port=metrics_port
    )
    return supervisor.run()


def ingest(
    file: File, /, *, worker: str = "0/1", metrics_port: Port = 0, stop_timeout: StopTimeout = "60s",
    ready_fd: ReadyFd = None,
) -> int:  # fmt: skip
    """Receive only: the sources of a pipeline, into its store.

    Parameters
    ----------
    worker
        Which one of how many, counted from 0: 0/2 and 1/2 share the work of a source, and may be on two machines.
    """
    from holdfast.pipeline._child import serve
    from holdfast.pipeline.ingest import Ingest

    _log_to_stderr()
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", worker)
    if match is None:
        raise InputError(f"--worker {worker}: write which one of how many, counted from 0, like 0/2")
    clock = SystemClock()
    part = Ingest(
        load(file), int(match[1]), int(match[2]),
        files=SystemFiles(), clock=clock, ids=SystemIds(), port=metrics_port,
    )  # fmt: skip
    serve(part, ready_fd=ready_fd, stop_seconds=parse_seconds(stop_timeout), clock=clock)
    return 0


def pipeline(
    file: File, /, *, master: Master = None, conf: Conf = None, metrics_port: Port = 0,
    stop_timeout: StopTimeout = "60s", drain: bool = False, drain_timeout: DrainTimeout = None,
    accept_state_loss: AcceptStateLoss = False,
    ready_fd: ReadyFd = None,
) -> int:  # fmt: skip
    """Deliver only: the queries of a pipeline, on Spark, from its store into its sinks.

    Parameters
    ----------
    drain
        On stopping, wait until the sinks have everything that is in the store.
    """
    from holdfast.pipeline._child import serve
    from holdfast.pipeline.driver import Driver

    _log_to_stderr()
    clock = SystemClock()
    part = Driver(
        load(file), master=master, conf=_conf(conf), accept_state_loss=accept_state_loss, drain=drain,
        drain_seconds=None if drain_timeout is None else parse_seconds(drain_timeout),
        files=SystemFiles(), clock=clock, ids=SystemIds(), port=metrics_port,
    )  # fmt: skip
    serve(part, ready_fd=ready_fd, stop_seconds=parse_seconds(stop_timeout), clock=clock)
    return 0


def _expect_spark() -> None:
    """Raises `Missing` before anything is started."""
    from holdfast.spark import check_java

    check_java(os.environ)


def _conf(settings: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise InputError(f"--conf {setting}: write it as key=value, like spark.executor.memory=2g")
        found[key] = value
    return found


def _conf_arguments(settings: list[str] | None) -> list[str]:
    return [word for key, value in _conf(settings).items() for word in ("--conf", f"{key}={value}")]


def _log_to_stderr() -> None:
    """Standard output is for rows: the console sink writes there."""
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Unbreakable())))


class _Unbreakable(io.TextIOBase):
    """Standard error, or nothing when nobody reads it any more: a pipeline does not fail for want of a reader."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
