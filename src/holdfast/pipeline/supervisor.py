"""`holdfast run`: starts the processes of a pipeline in order, starts anew what dies, and stops them in order.

Stages start one after the other: the first must be ready once before the next is started. For a pipeline that is Spark,
which registers every sink as a subscriber, and then those that receive. They stop the other way round: nothing more is
received, then Spark drains what is there, all within one deadline.

    WAITING ──────> STARTING ──────> READY ──────> ENDED          (stopping)
       ^  its time     │  ready line   │  asked to stop, and gone
       └───────────────┴───────────────┘
            it ended by itself: backoff

A process that ends is started again, for ever, once it has been ready; before that, `FIRST_STARTS` times. Whatever the
processes of one stage do, those of the others go on. If the supervisor itself is killed, they end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import structlog

from holdfast.clock import Clock, Deadline, Ids
from holdfast.health import Health, HealthServer, Status
from holdfast.metrics import PROCESS_RESTARTS, PROCESS_UP
from holdfast.pipeline._backoff import Backoff
from holdfast.pipeline._process import Process, Program, holdfast_program
from holdfast.pipeline._watch import Watch

OK: Final = 0
USAGE: Final = 64  # sysexits.h
GAVE_UP: Final = 75
BAD_CONFIG: Final = 78
INTERRUPTED: Final = 130
FIRST_STARTS: Final = 5  # of a process that was never ready: then it is not going to be
TICK_SECONDS: Final = 0.1  # signals and the end of a process wake the supervisor at once; the rest it sees so often
_log = structlog.get_logger("holdfast.supervisor")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the supervisor waits for what, in seconds."""

    stop: float = 60.0  # for everything to end, once asked
    start: float = 300.0  # for a process to say that it is ready: recovery of a large store takes its time
    silence: float = 120.0  # without any answer, before a process that runs is killed
    steady: float = 30.0  # ready for so long, a process is trusted again: its backoff starts over
    first_retry: float = 0.5
    last_retry: float = 30.0


class State(Enum):
    """Where a process is on its way; only `Supervisor._move` changes it."""

    WAITING = auto()  # to be started, when it is time and its stage's turn
    STARTING = auto()
    READY = auto()
    ENDED = auto()  # for good


class _Member:
    """A program of a stage, and the process that runs it now, if any."""

    def __init__(self, program: Program, stage: int, patience: Patience, ids: Ids) -> None:
        self.program, self.stage = program, stage
        self.backoff = Backoff(patience.first_retry, patience.last_retry, ids)
        self.state = State.WAITING
        self.since = 0.0  # in this state
        self.start_at = 0.0
        self.process: Process | None = None
        self.address: str | None = None
        self.restarts = 0
        self.was_ready = self.asked = False
        self.exit_code: int | None = None
        self.error: str | None = None


class Supervisor:
    """`run` it once, in the main thread; its exit code is that of the program.

    0 stopped as asked, 64 or 78 a process says that the pipeline is not right, 69 something is not installed, 75 gave
    up (a process never became ready, or did not stop in time), 130 the second Ctrl-C.
    """

    def __init__(
        self, stages: Sequence[Sequence[Program]], *, clock: Clock, ids: Ids, patience: Patience | None = None,
        port: int = 0,
    ) -> None:  # fmt: skip
        self._clock, self._port = clock, port
        self._patience = patience or Patience()
        self._members = [_Member(each, stage, self._patience, ids) for stage, row in enumerate(stages) for each in row]
        self._signals = 0
        self._deadline: Deadline | None = None  # while stopping
        self._stopping_stage = len(stages) - 1
        self._code = OK
        self._mutex = threading.Lock()  # between `health`, asked by the server's threads, and `_move`
        self._wakeup = -1  # readable when a signal has come
        self._watch = Watch(self._addresses, clock)
        self.address: str | None = None

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Until everything has ended; the exit code."""
        with self._woken_by_signals(), HealthServer(self.health, port=self._port, clock=self._clock) as server:
            self.address = server.address
            _log.info("serving metrics and health", address=server.address)
            self._watch.start()
            try:
                while any(member.state is not State.ENDED for member in self._members):
                    self._step()
                    self._rest()
            finally:
                self._kill_all()  # nothing, unless something went wrong here
                self._watch.close()
        return self._code

    def _step(self) -> None:
        if self._signals and self._deadline is None:
            self._stop(OK, "asked to")
        if self._deadline is not None and self._give_up_stopping():
            return
        for member in self._members:
            self._look(member)
        if self._deadline is None:
            for member in self._members:
                if member.state is State.WAITING and self._may_start(member):
                    self._start(member)
        else:
            self._stop_next()

    def _rest(self) -> None:
        """Until a signal comes, also that of a process that has ended, or it is time to look again."""
        if select.select([self._wakeup], [], [], TICK_SECONDS)[0]:
            os.read(self._wakeup, 4096)

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Iterator[None]:
        """SIGTERM, SIGINT and a lost terminal ask for a stop; any signal, and any end of a process, ends a rest."""
        ours, theirs = os.pipe()
        for end in (ours, theirs):
            os.set_blocking(end, False)
        self._wakeup = ours

        def count(_number: int, _frame: Any) -> None:
            self._signals += 1

        wanted = {signal.SIGTERM: count, signal.SIGINT: count, signal.SIGCHLD: lambda *_: None}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            wanted[signal.SIGHUP] = count
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        woken = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(ours)
            os.close(theirs)

    # -- one process --------------------------------------------------------------------------------------------

    def _move(self, member: _Member, state: State) -> None:
        with self._mutex:
            member.state, member.since = state, self._clock.monotonic()
            if state in (State.WAITING, State.ENDED):
                member.process = member.address = None

    def _may_start(self, member: _Member) -> bool:
        earlier = (each.was_ready for each in self._members if each.stage < member.stage)
        return self._clock.monotonic() >= member.start_at and all(earlier)

    def _start(self, member: _Member) -> None:
        member.process = Process(member.program, self._clock)
        self._move(member, State.STARTING)
        _log.info("process started", process=member.program.name, pid=member.process.pid)

    def _look(self, member: _Member) -> None:
        """Do what follows from what a process has done, or not done."""
        process = member.process
        if process is None:
            return
        process.listen()
        if member.state is State.STARTING and process.ready is not None and "address" in process.ready:
            member.address, member.was_ready, member.error = str(process.ready["address"]), True, None
            self._move(member, State.READY)
            _log.info("process is ready", process=member.program.name, address=member.address)
        code = process.ended()
        if code is not None:
            self._ended(member, process, code)
        elif self._deadline is None:
            self._judge(member, process)
        PROCESS_UP.set(int(self._status(member) is Status.OK), member.program.name)

    def _judge(self, member: _Member, process: Process) -> None:
        """A process that does not start, or does not answer, is killed; one that does is trusted again."""
        age = self._clock.monotonic() - member.since
        if member.state is State.STARTING and age > self._patience.start:
            _log.warning("process does not become ready; killed", process=member.program.name, seconds=round(age))
            process.kill()
        if member.state is State.READY:
            if age > self._patience.steady:
                member.backoff.reset()
            if (silent := self._watch.silent(member.program.name)) > self._patience.silence:
                _log.warning("process does not answer; killed", process=member.program.name, seconds=round(silent))
                process.kill()

    def _ended(self, member: _Member, process: Process, code: int) -> None:
        name, said = member.program.name, process.ready or {}
        ready = member.state is State.READY
        member.exit_code = code
        if not ready and "error" in said:
            member.error = str(said["error"])
        if self._deadline is not None:
            if code != OK and self._code == OK:
                self._code = GAVE_UP  # it should have stopped, and died
            _log.info("process stopped", process=name, exit_code=code)
            self._move(member, State.ENDED)
            return
        if not ready and (said.get("final") is True or code in (USAGE, BAD_CONFIG)):
            self._move(member, State.ENDED)
            self._stop(
                code if code > 0 else int(said.get("exit_code", GAVE_UP)), f"{name} cannot start: {member.error}"
            )
            return
        wait = member.backoff.after_failure()
        if not member.was_ready and member.backoff.failures >= FIRST_STARTS:
            self._move(member, State.ENDED)
            self._stop(GAVE_UP, f"{name} did not become ready in {FIRST_STARTS} attempts: {member.error}")
            return
        member.restarts += 1
        PROCESS_RESTARTS.inc(name)
        _log.warning(
            "process ended; it is started again", process=name, exit_code=code, in_seconds=round(wait, 2),
            error=member.error,
        )  # fmt: skip
        member.start_at = self._clock.monotonic() + wait
        self._move(member, State.WAITING)

    # -- stopping -----------------------------------------------------------------------------------------------

    def _stop(self, code: int, why: str) -> None:
        """From now on nothing is started, and all is stopped, the last stage first."""
        if self._deadline is None:
            self._code = code
            self._deadline = Deadline(self._patience.stop, self._clock)
            if code == OK:
                _log.info("stopping", why=why, seconds=self._patience.stop)
            else:
                _log.error("the pipeline cannot run; stopping", why=why, exit_code=code)

    def _stop_next(self) -> None:
        """Ask the processes of the stage whose turn it is; once they are gone, those of the stage before it."""
        for member in self._members:
            if member.state is State.WAITING:
                self._move(member, State.ENDED)
        while self._stopping_stage >= 0:
            left = [
                each for each in self._members if each.stage == self._stopping_stage and each.state is not State.ENDED
            ]
            for member in left:
                if not member.asked and member.process is not None and self._deadline is not None:
                    member.asked = True
                    # The later a stage stops the more is left for it: the last one has all but what killing takes.
                    remaining = self._deadline.remaining() or 0.0
                    member.process.ask_to_stop(remaining * 0.9 / (self._stopping_stage + 1))
            if left:
                return
            self._stopping_stage -= 1

    def _give_up_stopping(self) -> bool:
        """At the second request, or past the deadline: all are killed, and that is the end."""
        if self._deadline is None:
            return False
        if self._signals > 1:
            _log.warning("asked again: everything is killed")
            self._code = INTERRUPTED
        elif self._deadline.passed():
            _log.warning("not everything stopped in time; killed", seconds=self._patience.stop)
            self._code = self._code or GAVE_UP
        else:
            return False
        self._kill_all()
        return True

    def _kill_all(self) -> None:
        for member in self._members:
            if member.process is not None:
                member.process.kill()
            self._move(member, State.ENDED)

    # -- how it is ----------------------------------------------------------------------------------------------

    def _addresses(self) -> dict[str, str]:
        with self._mutex:
            return {each.program.name: each.address for each in self._members if each.address is not None}

    def _status(self, member: _Member) -> Status:
        if self._deadline is not None:
            return Status.STOPPING
        if member.state is State.READY:
            said = self._watch.health(member.program.name).get("status", Status.STARTING)
            return Status(said)
        return Status.FAILING if member.restarts else Status.STARTING

    def health(self) -> Health:
        """Of all processes together: the worst of theirs."""
        parts: dict[str, dict[str, Any]] = {}
        for member in self._members:
            name = member.program.name
            parts[name] = {
                "status": str(self._status(member)),
                "address": member.address,
                "pid": None if member.process is None else member.process.pid,
                "restarts": member.restarts,
                "parts": self._watch.health(name).get("parts", {}),
            }
            if member.error is not None:
                parts[name]["error"] = member.error
        found = {part["status"] for part in parts.values()}
        worst = next((each for each in (Status.STOPPING, Status.FAILING, Status.STARTING) if each in found), Status.OK)
        return Health(worst, parts)


__all__ = ["Patience", "Program", "State", "Supervisor", "holdfast_program"]
