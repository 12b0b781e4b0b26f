"""Repair of outcomes, leases and registrations: it errs towards delivering again, and keeps copies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.acks.format import FILE_HEADER_BYTES
from holdfast.files.checkpoint import encode_checkpoint, read_checkpoint, write_checkpoint
from holdfast.operate import FsckReport, Severity, fsck, subscribers
from holdfast.store.topic_state import TopicState
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles, crash_states, flip_bit
from operate.acked_store import (
    ACK_CHECKPOINT,
    ACKS,
    FOLDER,
    LEASE,
    TOPIC_CHECKPOINT,
    UNFINISHED,
    opened,
    put,
    unfinished,
)
from operate.crashed_store import BUNDLES, SHARD, STORE, TOPIC, all_files, bundle
from operate.test_operate_acks import finish_beyond

EVERYTHING = list(range(BUNDLES))


def repaired(files: SimulatedFiles) -> FsckReport:
    """Repair, and insist that nothing but notes is left."""
    report = fsck(STORE, repair=True, files=files, clock=FakeClock(), ids=SequenceIds(5))
    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []
    return report


def actions(report: FsckReport) -> tuple[str, ...]:
    assert report.repair is not None
    return report.repair.actions


def same_number(files: SimulatedFiles) -> None:
    """The checkpoint is whole, and yet what it says of subscribers makes no sense."""
    document = read_checkpoint(files, TOPIC_CHECKPOINT)
    document["subscribers"]["registered"]["lake"]["number"] = 2
    write_checkpoint(files, TOPIC_CHECKPOINT, document)


def left_over(files: SimulatedFiles) -> None:
    """The checkpoint is damaged, and a whole replacement stands beside it."""
    document = read_checkpoint(files, TOPIC_CHECKPOINT)
    put(files, TOPIC_CHECKPOINT.with_name("topic.checkpoint.tmp"), encode_checkpoint(document))
    flip_bit(files, TOPIC_CHECKPOINT, 8 * 30)


Harm = Callable[[SimulatedFiles], None]
CASES: dict[str, tuple[Harm, list[int], list[int]]] = {
    "a record in the middle": (
        lambda files: flip_bit(files, ACKS, 8 * (FILE_HEADER_BYTES + 40)),
        [4, 10, 11, 12, 13, 15, 16, 17],
        UNFINISHED["alerts"],
    ),
    "the last record": (
        lambda files: flip_bit(files, ACKS, 8 * files.size(ACKS) - 3),
        [4, 14, 15, 16, 17],
        UNFINISHED["alerts"],
    ),
    "the header of an ack file": (lambda files: flip_bit(files, ACKS, 8 * 20), *UNFINISHED.values()),
    "acks.checkpoint": (
        lambda files: flip_bit(files, ACK_CHECKPOINT, 8 * 100),
        [*range(10), 15, 16, 17],
        EVERYTHING,
    ),
    "no acks.checkpoint": (lambda files: files.unlink(ACK_CHECKPOINT), [*range(10), 15, 16, 17], EVERYTHING),
    "no ack file": (lambda files: files.unlink(ACKS), [4, *range(10, 18)], UNFINISHED["alerts"]),
    "a lease": (lambda files: flip_bit(files, LEASE, 8 * 40), *UNFINISHED.values()),
    "registrations": (same_number, *UNFINISHED.values()),
    "topic.checkpoint": (lambda files: flip_bit(files, TOPIC_CHECKPOINT, 8 * 30), *UNFINISHED.values()),
    "no topic.checkpoint": (lambda files: files.unlink(TOPIC_CHECKPOINT), *UNFINISHED.values()),
    "topic.checkpoint, with a replacement": (left_over, *UNFINISHED.values()),
}


@pytest.mark.parametrize("case", CASES)
def test_repair_has_delivered_again_what_cannot_be_read(acked: SimulatedFiles, case: str) -> None:
    """Afterwards exactly those bundles are delivered again whose outcomes are gone; nothing is skipped."""
    harm, lake, alerts = CASES[case]
    harm(acked)
    repaired(acked)
    assert (unfinished(acked, "lake"), unfinished(acked, "alerts")) == (lake, alerts)


@pytest.mark.parametrize("case", CASES)
def test_every_changed_file_beside_the_data_is_kept(acked: SimulatedFiles, case: str) -> None:
    """Whatever a repair changes or removes is found again, byte for byte, in a folder of copies."""
    CASES[case][0](acked)
    before = all_files(acked, STORE)
    repaired(acked)
    after = all_files(acked, STORE)
    copies = [content for path, content in after.items() if "damaged" in str(path)]
    for path, content in before.items():
        if not path.name.lower().endswith("lock") and after.get(path) != content:
            assert content in copies, path


def test_a_repair_of_the_ack_log_says_where_each_subscriber_is(acked: SimulatedFiles) -> None:
    """Copies first, then what was rebuilt."""
    flip_bit(acked, ACKS, 8 * (FILE_HEADER_BYTES + 40))
    assert actions(repaired(acked)) == (
        f"kept a copy of {ACKS} as {SHARD}/damaged/0001-{ACKS.name}",
        f"kept a copy of {ACK_CHECKPOINT} as {SHARD}/damaged/0001-acks.checkpoint",
        f"rebuilt the ack log of {SHARD} from what can be read; watermarks now: lake at 4, alerts at 0; "
        "what is not on record any more is delivered again",
    )


def test_what_was_deleted_is_not_waited_for(acked: SimulatedFiles) -> None:
    """A subscriber whose outcomes are gone goes on at the first bundle that is still there, and drops no more."""
    with opened(acked, 5) as store:
        store.topic(TOPIC).truncate(6)
    flip_bit(acked, ACK_CHECKPOINT, 8 * 100)
    repaired(acked)
    lake = subscribers(STORE, TOPIC, files=acked)["subscribers"][1]
    # The truncation brought all outcomes into the checkpoint: with it they are gone.
    assert (lake["name"], lake["watermark"], lake["shards"][0]["dropped"]) == ("lake", {"0": 6}, 0)
    assert unfinished(acked, "lake") == list(range(6, 18))


def test_numbers_go_on_above_all_outcomes(acked: SimulatedFiles) -> None:
    """What is appended after the repair is delivered."""
    finish_beyond(acked)
    assert actions(repaired(acked))[-1] == f"numbering in {SHARD} goes on at offset 41, where lake goes on"
    with opened(acked, 5) as store:
        receipt = store.topic(TOPIC).append(bundle(100))
        receipt.wait()
        assert receipt.offset == 41
    assert unfinished(acked, "lake") == [*UNFINISHED["lake"], 41]


def test_the_epoch_of_a_rebuilt_lease_goes_on(acked: SimulatedFiles) -> None:
    """By the outcomes, and by the files of earlier holders, none of whom comes back under the same epoch."""
    flip_bit(acked, LEASE, 8 * 40)
    acked.unlink(LEASE.with_name("lake-1.held"))
    report = repaired(acked)
    assert f"rebuilt {LEASE}: nobody holds lake, and its next epoch is 2" in actions(report)
    put(acked, LEASE.with_name("lake-7.held"), b"")
    flip_bit(acked, LEASE, 8 * 40)
    repaired(acked)
    with opened(acked, 5) as store, store.topic(TOPIC).subscribe("lake"):
        assert read_checkpoint(acked, LEASE)["epoch"] == 8


def test_the_damaged_lease_of_a_removed_subscriber_goes(acked: SimulatedFiles) -> None:
    """Nobody needs it."""
    gone = LEASE.with_name("gone.lease")
    put(acked, gone, b"nonsense")
    assert f"removed {gone}" in actions(repaired(acked))
    assert fsck(STORE, files=acked).findings == ()


def test_subscribers_come_back_by_their_leases(acked: SimulatedFiles) -> None:
    """Names and numbers are kept; what only the checkpoint knew has to be given anew, and the repair says so."""
    flip_bit(acked, TOPIC_CHECKPOINT, 8 * 30)
    said = actions(repaired(acked))
    for name, number in (("lake", 1), ("alerts", 2)):
        assert (
            f"registered {name} (number {number}) again, by its lease: it gets everything but what its outcomes "
            "finish; subscribe with on_full, expire_after and authoritative to set these anew"
        ) in said
    registry = TopicState(acked, FOLDER, note="").registry
    assert (registry.next_number, registry.subscribers["alerts"].on_full) == (3, "block")


def test_registrations_that_can_be_read_are_kept_as_they_were(acked: SimulatedFiles) -> None:
    """From a left-over replacement of the checkpoint: settings, removals and all."""
    before = TopicState(acked, FOLDER, note="").registry
    left_over(acked)
    assert "kept the registrations of alerts, lake" in actions(repaired(acked))
    assert TopicState(acked, FOLDER, note="").registry == before


def test_subscribers_known_by_number_alone_have_to_subscribe_again(acked: SimulatedFiles) -> None:
    """No number that stands in an ack log is given to another subscriber."""
    flip_bit(acked, TOPIC_CHECKPOINT, 8 * 30)
    acked.unlink(LEASE)
    acked.unlink(LEASE.with_name("alerts.lease"))
    assert (
        "subscribers known by number alone (1, 2) are not registered any more: those that are still there have to "
        "subscribe again, and begin anew; numbers go on at 3"
    ) in actions(repaired(acked))
    with opened(acked, 5) as store, store.topic(TOPIC).subscribe("lake") as lake:
        assert len(lake.take(1000, timeout=0)) == BUNDLES
        assert store.topic(TOPIC).subscribers()["lake"].registration.number == 3


def check_crashes(files: SimulatedFiles, case: str, every: int) -> None:
    harm, *expected = CASES[case]
    harm(files)
    files = files.kill()
    for path in all_files(files, STORE):  # the damaged state itself is durable
        handle = files.open(path)
        handle.sync()
        handle.close()
    for folder in {parent for path in all_files(files, STORE) for parent in path.parents}:
        if folder.is_relative_to(STORE):
            files.sync_folder(folder)
    files.clear_journal()
    repaired(files)
    for number, state in enumerate(crash_states(files)):
        if number % every == 0:
            repaired(state.files)
            for name, delivered in zip(("lake", "alerts"), expected, strict=True):
                assert set(unfinished(state.files, name)) >= set(delivered), state


CRASHED = ["acks.checkpoint", "a lease", "topic.checkpoint"]


@pytest.mark.parametrize("case", CRASHED)
def test_a_crash_during_the_repair_of_outcomes(acked: SimulatedFiles, case: str) -> None:
    """A repair that was cut off can be run again, and still nothing is skipped."""
    check_crashes(acked, case, 9)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_every_step_of_the_repair_of_outcomes(acked: SimulatedFiles, case: str) -> None:
    """The same at every step, for every kind of damage."""
    check_crashes(acked, case, 1)
