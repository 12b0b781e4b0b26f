"""The supervisor over small processes: real signals, real kills, nothing left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast.pipeline.supervisor import FIRST_STARTS
from pipeline.runkit import Run
from store.storekit import until

BOTH = [[("pipeline", "good")], [("ingest-0", "good"), ("ingest-1", "good")]]


def ready(run: Run) -> None:
    for name in ("pipeline", "ingest-0", "ingest-1"):
        run.wait_for("process is ready", process=name)


def test_stages_start_in_order_and_stop_the_other_way_round(tmp_path: Path) -> None:
    """The first stage is ready before the second starts; the second has ended before the first is asked to stop."""
    with Run(tmp_path, BOTH) as run:
        ready(run)
        run.send(signal.SIGTERM)
        assert run.code() == 0
        notes = run.notes()
        assert notes[:2] == ["pipeline starting", "pipeline ready"]
        assert notes[-2:] == ["pipeline stopping", "pipeline stopped"]
        assert sorted(notes[2:-2]) == sorted(
            f"ingest-{worker} {what}" for worker in (0, 1) for what in ("starting", "ready", "stopping", "stopped")
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_way_to_ask_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, kill and a lost terminal are all a graceful stop."""
    with Run(tmp_path, [[("one", "good")]]) as run:
        run.wait_for("process is ready")
        run.send(number)
        assert run.code() == 0
        assert run.notes()[-1] == "one stopped"


def test_a_process_that_is_killed_is_started_again_and_others_go_on(tmp_path: Path) -> None:
    """Only the one that died starts anew; the restart is logged and shown."""
    with Run(tmp_path, BOTH) as run:
        ready(run)
        for attempt in (1, 2, 3):
            os.kill(run.pids("pipeline")[-1], signal.SIGKILL)
            run.wait_for("process is ready", times=attempt + 1, process="pipeline")
        line = run.wait_for("process ended; it is started again", process="pipeline")
        assert (line["exit_code"], line["level"]) == (-9, "warning")
        assert run.health()["parts"]["pipeline"]["restarts"] == 3
        assert run.notes("ingest-0") == ["ingest-0 starting", "ingest-0 ready"]
        run.send(signal.SIGTERM)
        assert run.code() == 0


@pytest.mark.parametrize(
    ("behaviour", "code", "text"), [("hurt", 78, "it is not right"), ("missing", 69, "install it")]
)
def test_what_cannot_be_mended_by_another_attempt_ends_the_run(
    tmp_path: Path, behaviour: str, code: int, text: str
) -> None:
    """Bad settings and missing software end the run with the process's own code; the others are stopped properly."""
    with Run(tmp_path, [[("pipeline", "good")], [("ingest-0", behaviour)]]) as run:
        assert run.code() == code
        assert run.notes("ingest-0") == ["ingest-0 starting", "ingest-0 stopping", "ingest-0 stopped"]
        assert run.notes()[-1] == "pipeline stopped"
        assert run.logged("the pipeline cannot run; stopping", why=f"ingest-0 cannot start: {text}", level="error")


def test_a_process_that_never_becomes_ready_is_given_up(tmp_path: Path) -> None:
    """After some attempts the run ends with 75, and the next stage was never started."""
    with Run(tmp_path, [[("pipeline", "weak")], [("ingest-0", "good")]]) as run:
        assert run.code() == 75
        assert run.notes("pipeline").count("pipeline starting") == FIRST_STARTS
        assert run.notes("ingest-0") == []


def test_what_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    """Past the deadline everything is killed; the code says that it was not a clean stop."""
    with Run(tmp_path, [[("pipeline", "good")], [("ingest-0", "deaf")]], stop=0.5) as run:
        run.wait_for("process is ready", process="ingest-0")
        run.send(signal.SIGTERM)
        assert run.code() == 75
        assert run.logged("not everything stopped in time; killed")


def test_a_second_ctrl_c_kills_at_once(tmp_path: Path) -> None:
    """The first asks, the second does not wait for an answer."""
    with Run(tmp_path, [[("pipeline", "deaf")]], stop=3600) as run:
        run.wait_for("process is ready")
        run.send(signal.SIGINT)
        until(lambda: run.notes()[-1] == "pipeline stopping")
        run.send(signal.SIGINT)
        assert run.code() == 130


def test_killing_the_supervisor_leaves_no_process(tmp_path: Path) -> None:
    """Without a supervisor its processes stop by themselves, also one that does not want to, and what they started."""
    stages = [[("one", "good"), ("two", "deaf")]]
    with Run(tmp_path, stages) as run:
        run.wait_for("process is ready", process="one")
        run.wait_for("process is ready", process="two")
        run.send(signal.SIGKILL)
        run.code()
        until(lambda: not run.alive())
        assert run.notes("one")[-2:] == ["one stopping", "one stopped"]


def test_what_a_killed_process_has_started_is_killed_with_it(tmp_path: Path) -> None:
    """A process's own children are of its group, and do not outlive it."""
    with Run(tmp_path, [[("pipeline", "parent")]]) as run:
        run.wait_for("process is ready")
        (child,) = run.pids("pipeline", "child")
        os.kill(run.pids("pipeline")[0], signal.SIGKILL)
        run.wait_for("process is ready", times=2)
        assert child not in run.alive()
        run.send(signal.SIGINT)
        run.wait_for("stopping")
        run.send(signal.SIGINT)
        assert run.code() == 130


def test_a_process_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    """One that does not answer for too long is as good as dead."""
    with Run(tmp_path, [[("one", "good")]], silence=1.0) as run:
        run.wait_for("process is ready")
        os.kill(run.pids("one")[0], signal.SIGSTOP)
        run.wait_for("process does not answer; killed", process="one")
        run.wait_for("process is ready", times=2)
        run.send(signal.SIGTERM)
        assert run.code() == 0


def test_a_process_that_does_not_become_ready_in_time_is_killed(tmp_path: Path) -> None:
    """A start that hangs counts as one that failed."""
    with Run(tmp_path, [[("one", "good")]], start=0.0) as run:
        assert run.code() == 75
        assert len(run.logged("process does not become ready; killed")) >= FIRST_STARTS


def test_health_is_the_worst_of_the_processes(tmp_path: Path) -> None:
    """One that is not well shows, with what it says of its parts; the others are ok."""
    with Run(tmp_path, [[("pipeline", "failing")], [("ingest-0", "good")]]) as run:
        until(lambda: run.health().get("status") == "failing")
        parts = run.health()["parts"]
        assert (parts["pipeline"]["status"], parts["pipeline"]["parts"]) == ("failing", {"part": {"status": "failing"}})
        until(lambda: run.health()["parts"]["ingest-0"]["status"] == "ok")
        run.send(signal.SIGTERM)
        assert run.code() == 0
