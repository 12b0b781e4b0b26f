"""What a check finds in the ack log and beside a topic's data, and what it means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.acks import AckLog, Outcome, OutcomeRecord
from holdfast.acks.format import FILE_HEADER_BYTES
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.operate import Finding, Severity, fsck
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.testing import FakeClock, SimulatedFiles, flip_bit
from operate.acked_store import ACK_CHECKPOINT, ACKS, FOLDER, KEYS, LEASE, TOPIC_CHECKPOINT, opened, put
from operate.crashed_store import BUNDLES, SHARD, STORE, TOPIC, all_files, segment_paths

ACK_REPAIR = (
    "run `holdfast fsck --repair` on the shard; it keeps a copy, and goes on from the outcomes that can be read"
)
RECORD = 12 + 24 + 4 * 8  # of four offsets


def only(files: SimulatedFiles, path: Path = STORE) -> Finding:
    """The one finding of a check."""
    (finding,) = fsck(path, files=files).findings
    return finding


def test_a_store_with_subscribers_has_no_findings(acked: SimulatedFiles) -> None:
    """Ack logs, leases, keys and dead letters of a sound store give no finding, and each file is looked at."""
    report = fsck(STORE, files=acked)
    assert report.findings == ()
    checked = [path for path in all_files(acked, STORE) if not path.name.lower().endswith(("lock", "opening", ".held"))]
    assert report.files_checked == len(checked)


@pytest.mark.parametrize("path", [ACKS, ACK_CHECKPOINT, LEASE, KEYS, TOPIC_CHECKPOINT], ids=lambda path: path.name)
def test_a_flipped_bit_beside_the_data_is_found(acked: SimulatedFiles, path: Path) -> None:
    """One inverted bit anywhere in them is seen."""
    missed = []
    bits = acked.size(path) * 8
    for bit in range(0, bits, bits // 40 | 1):
        flip_bit(acked, path, bit)
        if not fsck(FOLDER, files=acked).findings:
            missed.append(bit)
        flip_bit(acked, path, bit)
    assert missed == []


def test_a_damaged_record_of_outcomes_means_delivering_again(acked: SimulatedFiles) -> None:
    """Place and size of the damage are told, and that nothing is skipped because of it."""
    flip_bit(acked, ACKS, 8 * (FILE_HEADER_BYTES + 40))
    assert only(acked) == Finding(
        Severity.DAMAGE,
        str(ACKS),
        FILE_HEADER_BYTES,
        f"a record that is not whole ({RECORD} bytes): what was recorded there is delivered again; nothing is skipped",
        ACK_REPAIR,
    )
    assert only(acked, ACKS).what.startswith(
        f"no whole record begins here ({RECORD} bytes): what was recorded there is"
    )


def test_a_damaged_ack_checkpoint_means_delivering_again(acked: SimulatedFiles) -> None:
    """What it recorded is delivered again."""
    flip_bit(acked, ACK_CHECKPOINT, 8 * 100)
    finding = only(acked)
    assert (finding.severity, finding.path) == (Severity.DAMAGE, str(ACK_CHECKPOINT))
    assert finding.what.endswith(": what the checkpoint recorded is delivered again; nothing is skipped")
    assert finding.advice == ACK_REPAIR


def test_a_missing_ack_file_is_damage(acked: SimulatedFiles) -> None:
    """The checkpoint says which file follows it."""
    acked.unlink(ACKS)
    finding = only(acked)
    assert (finding.severity, finding.path) == (Severity.DAMAGE, str(ACKS))
    assert finding.what == "missing: ack file 1: what was recorded there is delivered again; nothing is skipped"


def test_a_record_cut_short_at_the_end_is_a_note(acked: SimulatedFiles) -> None:
    """A crash may leave that, and so may a look while it is being written."""
    data = acked.read(ACKS)
    put(acked, ACKS, data + data[FILE_HEADER_BYTES : FILE_HEADER_BYTES + 20])
    finding = only(acked)
    assert (finding.severity, finding.position) == (Severity.NOTE, len(data))
    assert finding.what == "a record is cut short at the end: being written now, or left by a crash"
    assert only(acked, ACKS).severity is Severity.NOTE


def test_a_record_that_a_crash_cut_short_before_others_is_a_note(acked: SimulatedFiles) -> None:
    """After the crash others wrote on behind it: that is no damage."""
    data = acked.read(ACKS)
    first = data[FILE_HEADER_BYTES : FILE_HEADER_BYTES + RECORD]
    put(acked, ACKS, data[:FILE_HEADER_BYTES] + first[:30] + data[FILE_HEADER_BYTES:])
    finding = only(acked)
    assert (finding.severity, finding.position) == (Severity.NOTE, FILE_HEADER_BYTES)
    assert finding.what == ("30 bytes of a record that a crash cut short: what it was to record is delivered again")


def test_outcomes_of_a_removed_subscriber_are_fine(acked: SimulatedFiles) -> None:
    """Numbers that are registered no more may stand in an ack log for a while, whatever they finished."""
    shard_id = ShardCheckpoint.read(acked, SHARD).shard_id
    log = AckLog(acked, SHARD, shard_id, clock=FakeClock())
    log.append([OutcomeRecord.of_offsets(3, Outcome.ACK, [BUNDLES + 100])])
    log.close()
    assert fsck(STORE, files=acked).findings == ()


def test_outcomes_beyond_the_end_of_the_shard_are_damage(acked: SimulatedFiles) -> None:
    """New bundles would come at offsets that count as finished, and never be delivered."""
    finish_beyond(acked)
    finding = only(acked)
    assert finding == Finding(
        Severity.DAMAGE,
        str(SHARD / "acks"),
        None,
        f"subscriber lake is done with offset 40, yet the shard ends before {BUNDLES}: "
        "bundles that come there would never be delivered to it",
        "run `holdfast fsck --repair` on the shard before anything is appended; numbering goes on at 41",
    )
    assert only(acked, SHARD) == finding


def finish_beyond(files: SimulatedFiles) -> None:
    shard_id = ShardCheckpoint.read(files, SHARD).shard_id
    log = AckLog(files, SHARD, shard_id, clock=FakeClock())
    log.append([OutcomeRecord.of_offsets(1, Outcome.ACK, [40])])
    log.close()


def test_a_subscriber_that_starts_at_the_end(files: SimulatedFiles) -> None:
    """That is as it should be, also after it was taken into the ack checkpoint; a start behind the end is damage."""
    with opened(files) as store:
        topic = store.topic(TOPIC)
        topic.subscribe("later", "latest").close()
        log = topic.acks(0)
        with log.exclusive():
            log.progress(1).begin(BUNDLES)
            log.rotate({1})
    assert fsck(STORE, files=files).findings == ()
    document = read_checkpoint(files, TOPIC_CHECKPOINT)
    document["subscribers"]["registered"]["later"]["starts"] = {"0": BUNDLES + 2}
    write_checkpoint(files, TOPIC_CHECKPOINT, document)
    assert only(files).what.startswith(
        f"subscriber later is done with offset {BUNDLES + 1}, yet the shard ends before "
    )


def test_registrations_with_the_same_number_are_damage(acked: SimulatedFiles) -> None:
    """An outcome says its subscriber by number."""
    document = read_checkpoint(acked, TOPIC_CHECKPOINT)
    document["subscribers"]["registered"]["lake"]["number"] = 2
    write_checkpoint(acked, TOPIC_CHECKPOINT, document)
    (finding,) = [each for each in fsck(STORE, files=acked).findings if each.severity is Severity.DAMAGE]
    assert finding.path == str(TOPIC_CHECKPOINT)
    assert "subscribers have the numbers [2, 2], the next one is 4" in finding.what


def test_a_damaged_lease_is_damage(acked: SimulatedFiles) -> None:
    """Nobody can take the subscriber any more."""
    flip_bit(acked, LEASE, 8 * 40)
    finding = only(acked)
    assert (finding.severity, finding.path) == (Severity.DAMAGE, str(LEASE))
    assert finding.what.endswith(": nobody can take the subscriber lake, or see who holds it")
    assert finding.advice.startswith("run `holdfast fsck --repair` on the topic; it keeps a copy")


def test_the_lease_of_a_removed_subscriber_is_a_note(acked: SimulatedFiles) -> None:
    """A crash between the removal and the unlinking leaves one."""
    put(acked, LEASE.with_name("gone.lease"), acked.read(LEASE))
    finding = only(acked)
    assert (finding.severity, finding.what) == (
        Severity.NOTE, "the lease of a subscriber that is not registered: left by a removal",
    )  # fmt: skip


def test_damaged_keys_are_a_warning(acked: SimulatedFiles) -> None:
    """They may be forgotten, and the next one who uses a key mends the file."""
    flip_bit(acked, KEYS, 8 * 70)
    finding = only(acked)
    assert (finding.severity, finding.path, finding.position) == (Severity.WARNING, str(KEYS), 48)
    assert finding.what == (
        "45 bytes that are no record: keys in it are forgotten, "
        "so that a repeat of their append is stored a second time"
    )
    assert only(acked, KEYS) == finding


def test_keys_cut_short_are_a_note(acked: SimulatedFiles) -> None:
    """A torn write at the end."""
    put(acked, KEYS, acked.read(KEYS)[:-3])
    assert only(acked).severity is Severity.NOTE


def test_a_segment_that_is_recorded_as_deleted_is_left_over(acked: SimulatedFiles) -> None:
    """A crash between the record and the unlinking leaves the file; that is no damage, even if it is damaged."""
    checkpoint = ShardCheckpoint.read(acked, SHARD)
    replace(checkpoint, deleted=((6, 10),)).write(acked, SHARD)
    finding = only(acked)
    assert (finding.severity, finding.path) == (Severity.NOTE, str(segment_paths(acked)[1]))
    assert finding.what == "left over: shard.checkpoint says that all of it was deleted"
    flip_bit(acked, segment_paths(acked)[1], 8 * 300)
    assert only(acked).severity is Severity.NOTE
    acked.unlink(segment_paths(acked)[1])
    assert fsck(STORE, files=acked).findings == ()


def test_trash_and_what_workers_tell_each_other(acked: SimulatedFiles) -> None:
    """Sound trash gives no finding; damage in it, and in claims and requests, costs nothing and is said to."""
    segment = segment_paths(acked)[0]
    kept = SHARD / "trash" / f"{1:020d}-{segment.name}"
    put(acked, kept, acked.read(segment))
    assert fsck(STORE, files=acked).findings == ()
    flip_bit(acked, kept, 8 * 300)
    put(acked, SHARD / "budget.claim", b"HFCLAIM\n" + bytes(32))
    put(acked, SHARD / "evict.request", b"nonsense")
    put(acked, STORE / "budget.lock", b"")
    found = {Path(each.path).name: each.severity for each in fsck(STORE, files=acked).findings}
    assert found == {kept.name: Severity.WARNING, "budget.claim": Severity.NOTE, "evict.request": Severity.NOTE}


@pytest.mark.parametrize("place", [SHARD / "acks", SHARD / "trash", FOLDER / "subscribers", FOLDER / "keys"])
def test_strangers_and_temporary_files(acked: SimulatedFiles, place: Path) -> None:
    """What is nobody's is pointed out in every folder of ours; what a crash left over is a note."""
    put(acked, place / "letter.txt", b"dear reader")
    put(acked, place / "x.tmp", b"")
    found = {Path(each.path).name: (each.severity, each.what) for each in fsck(STORE, files=acked).findings}
    assert found == {
        "letter.txt": (Severity.WARNING, "not a file of Holdfast's"),
        "x.tmp": (Severity.NOTE, "a temporary file: being written now, or left by a crash"),
    }


def test_a_mark_of_distrust_is_a_note(acked: SimulatedFiles) -> None:
    """A sync failed once; what was read then is in the checkpoint by the next rotation."""
    put(acked, ACKS.with_suffix(".distrusted"), b"")
    finding = only(acked)
    assert (finding.severity, finding.what) == (
        Severity.NOTE, "a sync of this ack file failed: the next writer goes on in another",
    )  # fmt: skip


def test_a_rotation_during_the_check_is_no_damage(acked: SimulatedFiles) -> None:
    """Files that go while we look are in the checkpoint by then."""
    with opened(acked) as store:
        topic = store.topic(TOPIC)
        log = topic.acks(0)
        hits = []

        def rotate(operation: str, path: Path) -> None:
            if operation == "read" and path == ACKS and not hits:
                hits.append(path)
                with log.exclusive():
                    log.rotate({1, 2})

        acked.before = rotate
        report = fsck(STORE, files=acked)
        acked.before = None
    assert hits == [ACKS]
    assert not report.damaged
