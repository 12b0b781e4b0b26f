"""The demo source: paced, bounded, answered; each row once whatever is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast import Store
from holdfast.errors import Backpressure, DiskFault, ShardFailed
from holdfast.files import SystemFiles
from holdfast.receivers._demo_progress import sent_blocks
from holdfast.receivers.demo import DemoReceiver, rows
from receivers.receiverkit import TOPIC, receiver, running, stop, stored
from sparkkit import environment
from store.storekit import until

WORKER = Path(__file__).with_name("demo_worker.py")


def finished(source: DemoReceiver) -> None:
    until(lambda: source.failure or source.statistics().finished)
    assert source.failure is None


def test_every_row_up_to_the_limit_is_stored_once(tmp_path: Path) -> None:
    """A limit that is no multiple of the block ends in a short block; bundles say which source they are of."""
    with Store.open(tmp_path / "data") as store:
        with running(store, tmp_path / "state", limit=1234) as source:
            finished(source)
            statistics = source.statistics()
        assert stored(store).to_batches() == [rows(0, 1234, 0)]
        assert {bundle.attributes["source"] for bundle in store.topic(TOPIC).bundles()} == {"demo"}
        assert (statistics.rows, statistics.bundles, statistics.unanswered) == (1234, 124, 0)
        assert statistics.answered == {"durable": 124}
        assert sent_blocks(SystemFiles(), tmp_path / "state", "demo", store.id) == set(range(124))


def test_a_finished_source_sends_nothing_more_after_a_restart(tmp_path: Path) -> None:
    """The checkpoint of the first run says that all is answered."""
    with Store.open(tmp_path / "data") as store:
        for _ in range(2):
            with running(store, tmp_path / "state", limit=100) as source:
                finished(source)
        assert source.statistics().bundles == 0


def test_workers_share_the_blocks(tmp_path: Path) -> None:
    """Each of several workers sends its own blocks, and together they send all."""
    with Store.open(tmp_path / "data") as store:
        for worker in range(3):
            with running(store, tmp_path / "state", worker=worker, workers=3, limit=1005) as source:
                finished(source)
            assert source.statistics().bundles == (34, 34, 33)[worker]
        assert stored(store).to_batches() == [rows(0, 1005, 0)]


def test_what_was_sent_after_the_checkpoint_is_sent_again_and_stored_once(tmp_path: Path) -> None:
    """With its checkpoint lost, as after a crash before the first one, every block is a repeat."""
    with Store.open(tmp_path / "data") as store:
        for state in ("one", "two"):
            with running(store, tmp_path / state, limit=500) as source:
                finished(source)
        assert source.statistics().bundles == 50
        assert stored(store).to_batches() == [rows(0, 500, 0)]


class Refusing:
    """A topic that refuses every append until told otherwise."""

    def __init__(self, topic: Any, problem: Callable[[], Exception], times: int) -> None:
        self._topic, self._problem, self._times = topic, problem, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)

    def append(self, *arguments: Any, **options: Any) -> Any:
        if self._times:
            self._times -= 1
            raise self._problem()
        return self._topic.append(*arguments, **options)


def test_backpressure_is_waited_out_and_counted(tmp_path: Path) -> None:
    """A full store holds the source up; nothing is skipped."""
    with Store.open(tmp_path / "data") as store:
        topic: Any = Refusing(store.topic(TOPIC), lambda: Backpressure("full", retry_after=0.001), 3)
        with running(store, tmp_path / "state", topic=topic, limit=100) as source:
            finished(source)
        assert source.statistics().waits == 3
        assert stored(store).to_batches() == [rows(0, 100, 0)]


def test_a_source_that_is_held_up_stops_at_once(tmp_path: Path) -> None:
    """Waiting for a store that takes nothing does not hold up the stop."""
    with Store.open(tmp_path / "data") as store:
        topic: Any = Refusing(store.topic(TOPIC), lambda: Backpressure("full", retry_after=3600), 10**9)
        source = receiver(store, tmp_path / "state", topic=topic)
        source.start()
        until(lambda: source.statistics().waits)
        stop(source)
        assert source.failure is None


def test_a_disk_fault_is_logged_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may go away by itself is no failure of the source."""
    monkeypatch.setattr("holdfast.receivers.demo.RETRY_SECONDS", 0.001)
    with Store.open(tmp_path / "data") as store, capture_logs() as logs:
        topic: Any = Refusing(store.topic(TOPIC), lambda: DiskFault("gone"), 1)
        with running(store, tmp_path / "state", topic=topic, limit=10) as source:
            finished(source)
    assert [line for line in logs if line["event"] == "source could not append; tried again"] == [
        {"event": "source could not append; tried again", "log_level": "warning", "source": "demo", "error": "gone"}
    ]


def test_an_error_that_does_not_go_away_ends_the_source(tmp_path: Path) -> None:
    """A shard that failed has to be opened again: the source says so and stops."""
    with Store.open(tmp_path / "data") as store:
        topic: Any = Refusing(store.topic(TOPIC), lambda: ShardFailed("broken"), 10**9)
        with running(store, tmp_path / "state", topic=topic) as source:
            until(lambda: source.failure)
        assert isinstance(source.failure, ShardFailed)


def test_without_acknowledgements_it_waits_for_the_sinks(tmp_path: Path) -> None:
    """Blocks are answered when the subscriber has acked them, not before; the checkpoint waits too."""
    with Store.open(tmp_path / "data") as store:
        subscriber = store.topic(TOPIC).subscribe("lake")
        with running(store, tmp_path / "state", acknowledgements=False, limit=205) as source:
            until(lambda: source.failure or source.statistics().bundles == 21)
            assert source.statistics().unanswered == 21
            for _ in range(21):
                for delivery in subscriber.take(1, timeout=30):
                    delivery.ack()
            finished(source)
        assert source.statistics().answered == {"delivered": 21}
        subscriber.close()


def test_a_batch_that_was_not_delivered_is_told(tmp_path: Path) -> None:
    """Rejected bundles are counted and logged, and the source goes on."""
    with Store.open(tmp_path / "data") as store, capture_logs() as logs:
        subscriber = store.topic(TOPIC).subscribe("lake")
        with running(store, tmp_path / "state", acknowledgements=False, limit=10) as source:
            subscriber.take(1, timeout=30)[0].reject("no")
            finished(source)
        subscriber.close()
    assert source.statistics().answered == {"rejected": 1}
    (line,) = (line for line in logs if line["event"] == "batch of a source was not delivered")
    assert line == {
        "event": "batch of a source was not delivered", "log_level": "warning",
        "source": "demo", "status": "rejected", "first": 0, "last": 0,
    }  # fmt: skip


def test_batches_that_were_not_answered_are_found_by_the_next_run(tmp_path: Path) -> None:
    """What the topic has on record is not sent again; it is answered in the run after."""
    with Store.open(tmp_path / "data") as store:
        subscriber = store.topic(TOPIC).subscribe("lake")
        with running(store, tmp_path / "state", acknowledgements=False, limit=200) as source:
            until(lambda: source.failure or source.statistics().bundles == 20)
            until(lambda: len(store.topic(TOPIC).acks(0).state.batches) == 2)
        assert source.statistics().answered == {}
        with running(store, tmp_path / "state", acknowledgements=False, limit=200) as again:
            for _ in range(20):
                for delivery in subscriber.take(1, timeout=30):
                    delivery.ack()
            finished(again)
        assert (again.statistics().bundles, again.statistics().answered) == (0, {"delivered": 20})
        assert stored(store).num_rows == 200
        subscriber.close()


@pytest.mark.parametrize("acknowledgements", ["yes", "no"])
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path, acknowledgements: str) -> None:
    """A source that is killed again and again ends with each of its rows stored once, as it should be."""
    command = [sys.executable, str(WORKER), str(tmp_path / "data"), str(tmp_path / "state"), "8000"]
    for rate in ("2000", "3000", "1000000"):
        process = subprocess.Popen(
            [*command, rate, acknowledgements], stdout=subprocess.PIPE, text=True, env=environment()
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "sending\n"
            if rate != "1000000":
                process.send_signal(signal.SIGKILL)
            else:
                assert process.stdout.readline() == "finished\n"
        assert process.returncode == (-signal.SIGKILL if rate != "1000000" else 0)
    with Store.open(tmp_path / "data", read_only=True) as store:
        assert stored(store).to_batches() == [rows(0, 8000, 0)]
