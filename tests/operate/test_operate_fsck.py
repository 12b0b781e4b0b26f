"""What a check finds, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import Store
from holdfast.encoded import EncodedBundle, encode_slot, payload_kind
from holdfast.errors import NotAStore
from holdfast.operate import Kind, Severity, fsck, recognise
from holdfast.retention._claim import Claim, encode_claim
from holdfast.schema import fingerprint
from holdfast.segment import SegmentReader, write_segment
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.testing import SequenceIds, SimulatedFiles, flip_bit
from holdfast.wal import scan_file
from operate.acked_store import key_file, put
from operate.crashed_store import BUNDLES, SHARD, STORE, TOPIC, bundle, segment_paths, wal_paths

SMALL = [
    STORE / "store.checkpoint",
    STORE / "prod/logs/topic.checkpoint",
    SHARD / "shard.checkpoint",
    SHARD / "tail",
    SHARD / "acks/0000000000000000.acks",
]


def worst(files: SimulatedFiles, path: Path = STORE) -> Severity | None:
    """The worst severity that a check tells."""
    found = {finding.severity for finding in fsck(path, files=files).findings}
    return next((severity for severity in Severity if severity in found), None)


def checked_files(files: SimulatedFiles) -> list[Path]:
    """Every file of the store that holds data."""
    return [*SMALL, *wal_paths(files), *segment_paths(files)]


def written(files: SimulatedFiles, path: Path) -> int:
    """How many bytes of a file count: behind the records of a WAL file anything may follow."""
    return scan_file(files.map(path), path)[0].position if path.suffix == ".wal" else files.size(path)


def test_a_store_left_by_a_crash_has_no_findings(files: SimulatedFiles) -> None:
    """A sound store gives no finding at all, and everything in it was looked at."""
    report = fsck(STORE, files=files)
    assert report.findings == ()
    assert (report.kind, report.damaged) == ("store", False)
    assert report.files_checked == len(checked_files(files))
    assert report.bytes_checked == sum(files.size(path) for path in checked_files(files))


def test_a_closed_store_has_no_findings(files: SimulatedFiles) -> None:
    """After a clean close there is nothing to tell either."""
    with Store.open(STORE, files=files) as store:
        store.topic(TOPIC).append(bundle(BUNDLES)).wait()
    assert fsck(STORE, files=files).findings == ()


def test_a_check_changes_nothing(files: SimulatedFiles) -> None:
    """Neither a sound nor a damaged store is touched by a check, and no lock is taken."""
    flip_bit(files, wal_paths(files)[-1], 2000)
    files.clear_journal()
    for path in [STORE, STORE / "prod/logs", SHARD, *checked_files(files)]:
        fsck(path, files=files)
    assert files.journal == ()


def flips(size: int, count: int) -> range:
    """Bits spread evenly over a file, at a step that meets every bit of a byte."""
    step = max(1, size * 8 // count)
    return range(0, size * 8, step if step % 2 else step + 1)


def undetected(files: SimulatedFiles, path: Path, bits: range, checked: Path = STORE) -> list[int]:
    """The bits whose inversion a check does not see."""
    missed = []
    for bit in bits:
        flip_bit(files, path, bit)
        if worst(files, checked) is None:
            missed.append(bit)
        flip_bit(files, path, bit)
    return missed


@pytest.mark.parametrize("number", range(11))
def test_a_flipped_bit_is_found(files: SimulatedFiles, number: int) -> None:
    """One inverted bit anywhere, in any kind of file, is seen."""
    path = checked_files(files)[number]
    assert undetected(files, path, flips(written(files, path), 40)) == []


@pytest.mark.long
@pytest.mark.parametrize("number", range(11))
def test_every_flipped_bit_is_found(files: SimulatedFiles, number: int) -> None:
    """Each single bit is under a checksum; of WAL files, which only the whole shard can judge, every seventh."""
    path = checked_files(files)[number]
    bits = range(0, written(files, path) * 8, 7 if path.suffix == ".wal" else 1)
    assert undetected(files, path, bits, path if path.suffix == ".seg" else STORE) == []


def test_the_store_has_as_many_files_as_the_sweeps_expect(files: SimulatedFiles) -> None:
    """The sweeps above leave no file out."""
    assert len(checked_files(files)) == 11


def test_damage_in_the_last_acknowledged_frame_is_no_torn_tail(files: SimulatedFiles) -> None:
    """The tail says that the last frame was durable: a bad byte in it is damage."""
    last = wal_paths(files)[-1]
    scan, _ = scan_file(files.map(last), last)
    flip_bit(files, last, scan.position * 8 - 1000)
    findings = [each for each in fsck(STORE, files=files).findings if each.severity is Severity.DAMAGE]
    assert [each.path for each in findings] == [str(last), str(SHARD)]
    assert findings[0].what.endswith(f"yet offset {BUNDLES - 1} was durable")
    assert findings[1].what == (
        f"offset {BUNDLES - 1} was durable and is missing: in no segment, in no WAL file, and not recorded as lost"
    )


def test_torn_tail_is_a_note(files: SimulatedFiles) -> None:
    """Half a record behind what was durable is what a crash leaves."""
    last = wal_paths(files)[-1]
    scan, _ = scan_file(files.map(last), last)
    file = files.open(last)
    file.write_at(scan.position, b"HFrb" + scan.header.salt.to_bytes(4, "little") + bytes(range(1, 60)))
    file.close()
    (finding,) = fsck(STORE, files=files).findings
    assert finding.severity is Severity.NOTE
    assert finding.what.startswith("torn tail (normal after a crash): ")
    assert finding.position == scan.position


def test_damage_below_a_synced_mark_is_damage_without_a_tail(files: SimulatedFiles) -> None:
    """A later record says what was durable, even when the tail is gone."""
    files.unlink(SHARD / "tail")
    first = wal_paths(files)[-1]
    flip_bit(files, first, 8 * 600)
    assert worst(files) is Severity.DAMAGE


def test_a_torn_slot_of_the_tail_is_a_warning(files: SimulatedFiles) -> None:
    """The other slot still counts."""
    flip_bit(files, SHARD / "tail", 100)
    (finding,) = fsck(STORE, files=files).findings
    assert (finding.severity, finding.what) == (Severity.WARNING, "slot 0 is not whole; the other slot counts")


def test_damage_that_segments_cover_is_a_warning(files: SimulatedFiles) -> None:
    """A bad WAL record whose bundles, and all after it in the file, are in segments has cost nothing."""
    kept = wal_paths(files)[-1]
    content = files.read(kept)
    with Store.open(STORE, files=files) as store:
        store.topic(TOPIC).seal()
    file = files.create(kept)
    file.append([content])
    file.close()
    flip_bit(files, kept, 8 * 600)
    (finding,) = fsck(STORE, files=files).findings
    assert finding.severity is Severity.WARNING
    assert finding.what.endswith("; segments, or another WAL file, hold all of it")


def test_a_missing_segment_is_told_by_its_offsets(files: SimulatedFiles) -> None:
    """Offsets that nothing holds are damage."""
    files.unlink(segment_paths(files)[1])
    messages = [finding.what for finding in fsck(STORE, files=files).findings]
    assert messages == [
        "offsets 6 to 9 were durable and are missing: in no segment, in no WAL file, and not recorded as lost"
    ]


def test_recorded_losses_are_notes(files: SimulatedFiles) -> None:
    """What is written down as lost is no damage."""
    files.unlink(segment_paths(files)[1])
    ShardCheckpoint.read(files, SHARD).with_lost([(6, 10)]).write(files, SHARD)
    (finding,) = fsck(STORE, files=files).findings
    assert (finding.severity, finding.what) == (Severity.NOTE, "recorded as lost: offsets 6 to 9")


def test_a_missing_wal_file_is_damage(files: SimulatedFiles) -> None:
    """What the tail says was durable has to be somewhere."""
    files.unlink(wal_paths(files)[-1])
    assert worst(files) is Severity.DAMAGE


def test_a_file_of_another_shard_is_damage(files: SimulatedFiles) -> None:
    """Segments and WAL files name their shard."""
    checkpoint = ShardCheckpoint.read(files, SHARD)
    replace(checkpoint, shard_id=bytes(16)).write(files, SHARD)
    report = fsck(STORE, files=files)
    foreign = [each.path for each in report.findings if f"belongs to shard {checkpoint.shard_id.hex()}" in each.what]
    assert foreign == [str(path) for path in (*segment_paths(files), *wal_paths(files))]


def test_a_temporary_file_is_a_note(files: SimulatedFiles) -> None:
    """It is being written, or was when the process died."""
    files.create(SHARD / "segments" / "x.seg.tmp").close()
    files.create(STORE / "store.checkpoint.tmp").close()
    assert [finding.severity for finding in fsck(STORE, files=files).findings] == [Severity.NOTE, Severity.NOTE]


def test_a_file_that_is_nobodys_is_a_warning(files: SimulatedFiles) -> None:
    """A stranger in a folder of ours is pointed out."""
    files.create(SHARD / "wal" / "notes.txt").close()
    (finding,) = fsck(STORE, files=files).findings
    assert (finding.severity, finding.what) == (Severity.WARNING, "not a file of Holdfast's")


def test_a_shard_that_was_never_finished_is_a_note(files: SimulatedFiles) -> None:
    """A crash while a shard was made leaves an empty folder; nothing was stored in it."""
    files.make_folder(STORE / "prod/logs/shard-0001/wal")
    (finding,) = fsck(STORE, files=files).findings
    assert finding.severity is Severity.NOTE


def add_segment(files: SimulatedFiles, *, slot: int = 0, wrong_fingerprint: bool = False) -> None:
    """A segment after the last, made by hand, in place of the WAL."""
    reader = SegmentReader(files, segment_paths(files)[-1])
    batch = pa.record_batch({"id": [1]})
    print_ = bytes(16) if wrong_fingerprint else fingerprint(batch.schema)
    bundles = [
        EncodedBundle(
            offset, reader.segment_seq + 1, offset - 12, 0, None, b"",
            (encode_slot(slot, print_, payload_kind(batch.schema), batch),), 0,
        )
        for offset in range(12, BUNDLES)
    ]  # fmt: skip
    for path in wal_paths(files):
        files.unlink(path)
    folder = SHARD / "segments"
    write_segment(files, folder, bundles, shard_id=reader.shard_id, signal=lambda _: "x")


def test_a_wrong_fingerprint_is_damage(files: SimulatedFiles) -> None:
    """A stream whose schema is not the one that it claims is found though every checksum is right."""
    add_segment(files, wrong_fingerprint=True)
    (finding,) = fsck(STORE, files=files).findings
    assert finding.severity is Severity.DAMAGE
    assert finding.what.endswith(f"the directory says {bytes(16).hex()}")


def test_a_slot_without_a_name_is_damage(files: SimulatedFiles) -> None:
    """Every number in use must be in the slot table."""
    add_segment(files, slot=77)
    (finding,) = fsck(STORE, files=files).findings
    assert finding.what == "bundles have slots 77, which the slot table does not name"


def test_wal_and_segment_that_disagree_are_damage(files: SimulatedFiles) -> None:
    """The same offset cannot be two bundles."""
    reader = SegmentReader(files, segment_paths(files)[-1])
    kept = {path: files.read(path) for path in wal_paths(files)}
    add_segment(files)
    for path, content in kept.items():
        file = files.create(path)
        file.append([content])
        file.close()
    messages = [finding.what for finding in fsck(STORE, files=files).findings]
    assert messages
    assert all(f"{reader.segment_seq + 1:016d}-" in message and "differs from" in message for message in messages)


@pytest.mark.parametrize("kind", list(Kind))
def test_what_a_path_is_comes_from_its_content(files: SimulatedFiles, kind: Kind) -> None:
    """A copy under any name is recognised and checked."""
    put(files, Path("/keys"), key_file([b"a key"]))
    put(files, SHARD / "budget.claim", encode_claim(Claim(100, 20, 3)))
    paths = {
        Kind.STORE: STORE, Kind.TOPIC: STORE / "prod/logs", Kind.SHARD: SHARD, Kind.SEGMENT: segment_paths(files)[0],
        Kind.WAL: wal_paths(files)[0], Kind.TAIL: SHARD / "tail", Kind.CHECKPOINT: STORE / "store.checkpoint",
        Kind.ACKS: SHARD / "acks/0000000000000000.acks", Kind.KEYS: Path("/keys"), Kind.CLAIM: SHARD / "budget.claim",
    }  # fmt: skip
    path = paths[kind]
    if not kind.is_folder:
        copy = Path("/elsewhere")
        file = files.create(copy)
        file.append([files.read(path)])
        file.close()
        path = copy
    assert recognise(files, path) is kind
    assert fsck(path, files=files).findings == ()


def test_something_else_is_refused(files: SimulatedFiles) -> None:
    """A file that is not Holdfast's is not called damaged."""
    file = files.create(Path("/letter.txt"))
    file.append([b"dear reader"])
    file.close()
    with pytest.raises(NotAStore, match=r"^/letter.txt is not Holdfast's: expected a store"):
        fsck("/letter.txt", files=files)


def test_a_report_is_plain_json(files: SimulatedFiles) -> None:
    """The keys that programs rely on."""
    flip_bit(files, SHARD / "tail", 0)
    document = fsck(STORE, files=files).to_document()
    assert set(document) == {
        "path", "kind", "damaged", "counts", "findings", "files_checked", "bytes_checked", "repair",
    }  # fmt: skip
    assert document["counts"] == {"damage": 0, "warning": 1, "note": 0}
    assert set(document["findings"][0]) == {"severity", "path", "position", "what", "advice"}


def test_progress_reaches_the_end(files: SimulatedFiles) -> None:
    """Bytes done rise to the bytes in all."""
    seen: list[tuple[int, int]] = []
    report = fsck(STORE, files=files, progress=lambda _, done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (report.bytes_checked, report.bytes_checked)


def test_a_segment_trimmed_during_the_check_is_no_damage(files: SimulatedFiles) -> None:
    """A writer that deletes what it has finished with, while we look, gives no finding."""
    store = Store.open(STORE, files=files, ids=SequenceIds(3))
    topic = store.topic(TOPIC)
    topic.positions()
    first = segment_paths(files)[0]
    hits = []

    def trim(operation: str, path: Path) -> None:
        if operation == "map" and path == first and not hits:
            hits.append(path)
            topic.truncate(8)

    files.before = trim
    report = fsck(STORE, files=files)
    files.before = None
    store.close()
    assert hits == [first]
    assert not report.damaged


def test_a_wal_file_retired_during_the_check_is_no_damage(files: SimulatedFiles) -> None:
    """A writer that seals while we look moves bundles from the WAL into a segment; none is missed."""
    store = Store.open(STORE, files=files, ids=SequenceIds(3))
    topic = store.topic(TOPIC)
    topic.positions()
    hits = []

    def seal(operation: str, path: Path) -> None:
        if operation == "map" and path.suffix == ".wal" and not hits:
            hits.append(path)
            topic.seal()

    files.before = seal
    report = fsck(STORE, files=files)
    files.before = None
    store.close()
    assert hits
    assert not report.damaged
