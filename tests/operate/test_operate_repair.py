"""Repair: each kind of damage, what is left afterwards, and that nothing goes without a copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import RecordBundle, Store
from holdfast.errors import InputError, ShardTaken
from holdfast.operate import FsckReport, Severity, fsck, inspect
from holdfast.operate._aside import Aside
from holdfast.operate._mend import Mend
from holdfast.operate._progress import Work
from holdfast.operate._repair_shard import _keep_strays
from holdfast.operate._salvage import salvage
from holdfast.operate._survey import survey
from holdfast.segment import SegmentReader
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles, crash_states, flip_bit
from holdfast.wal import FileHeader, Tail, TailFile, WalScan, scan_file
from holdfast.wal._encode import bundle_bytes
from operate.crashed_store import BUNDLES, SHARD, STORE, TOPIC, all_files, bundle, same, segment_paths, wal_paths

Reopen = Callable[[SimulatedFiles], dict[int, RecordBundle]]


def repaired(files: SimulatedFiles, path: Path = STORE) -> FsckReport:
    """Repair, and insist that no damage is left."""
    report = fsck(path, repair=True, files=files, clock=FakeClock(), ids=SequenceIds(5))
    assert [finding for finding in report.findings if finding.severity is Severity.DAMAGE] == []
    return report


def record_start(files: SimulatedFiles, offset: int) -> tuple[Path, int]:
    """The WAL file that has the record of `offset`, and the byte where it starts."""
    for path in reversed(wal_paths(files)):
        data = files.map(path)
        scan = WalScan(path, FileHeader.decode(data, path))
        for each in scan.advance(data, offset + 1):
            if each.offset == offset:
                return path, scan.position - bundle_bytes(each)
    raise LookupError(offset)


def hit_record(files: SimulatedFiles, offset: int) -> None:
    path, position = record_start(files, offset)
    flip_bit(files, path, (position + 200) * 8)


def two_records(files: SimulatedFiles) -> None:
    for offset in (13, 16):
        hit_record(files, offset)


def hit_chunk(files: SimulatedFiles, segment: int, index: int) -> None:
    """Damage the first chunk of a bundle in a segment."""
    path = segment_paths(files)[segment]
    reader = SegmentReader(files, path)
    stream, chunk = next(iter(reader.manifest.pairs(index)))
    entry = reader.streams[stream]
    first = sum(each.chunks for each in reader.streams[:stream])
    flip_bit(files, path, (reader._chunks.positions[first + chunk] + 8) * 8)
    assert entry.chunks > chunk


def spoil(path: Path) -> Callable[[SimulatedFiles], None]:
    return lambda files: flip_bit(files, path, 8 * 17)


def meta_of(segment: int) -> Callable[[SimulatedFiles], None]:
    def hit(files: SimulatedFiles) -> None:
        path = segment_paths(files)[segment]
        flip_bit(files, path, SegmentReader(files, path)._footer.meta_position * 8)

    return hit


def footer_of(segment: int) -> Callable[[SimulatedFiles], None]:
    def hit(files: SimulatedFiles) -> None:
        path = segment_paths(files)[segment]
        flip_bit(files, path, files.size(path) * 8 - 90)

    return hit


def tail_whole(files: SimulatedFiles) -> None:
    flip_bit(files, SHARD / "tail", 8 * 20)
    flip_bit(files, SHARD / "tail", 8 * 84)


def short_wal(files: SimulatedFiles) -> None:
    last = wal_paths(files)[-1]
    file = files.open(last)
    file.truncate(100)
    file.close()


def last_wal_bundles(files: SimulatedFiles) -> set[int]:
    path = wal_paths(files)[-1]
    return {each.offset for each in scan_file(files.map(path), path)[1]}


CASES: dict[str, tuple[Callable[[SimulatedFiles], None], set[int]]] = {
    "a record in the middle of the WAL": (lambda files: hit_record(files, 14), {14}),
    "two records": (two_records, {13, 16}),
    "the last acknowledged record": (lambda files: hit_record(files, 17), {17}),
    "the header of a WAL file": (lambda files: flip_bit(files, wal_paths(files)[-1], 8 * 40), set()),
    "the salt of a WAL file": (lambda files: flip_bit(files, wal_paths(files)[-1], 8 * 12 + 3), set()),
    "a schema record": (lambda files: flip_bit(files, wal_paths(files)[-1], 8 * 160), set()),
    "a chunk in the first segment": (lambda files: hit_chunk(files, 0, 0), {0}),
    "a chunk in the middle of a segment": (lambda files: hit_chunk(files, 0, 4), {4, 5}),  # 5 is stray
    "a chunk at the end of a segment": (lambda files: hit_chunk(files, 1, 3), set()),  # the WAL has it still
    "a chunk in the last segment": (lambda files: hit_chunk(files, 2, 0), set()),
    "the header of a segment": (lambda files: flip_bit(files, segment_paths(files)[0], 8 * 20), set()),
    "the footer of a segment": (footer_of(0), set(range(6))),
    "the meta block of a segment": (meta_of(0), set(range(6))),
    "a missing segment": (lambda files: files.unlink(segment_paths(files)[1]), {6, 7, 8}),
    "a tail without a whole slot": (tail_whole, set()),
    "no tail": (lambda files: files.unlink(SHARD / "tail"), set()),
    "shard.checkpoint": (spoil(SHARD / "shard.checkpoint"), set()),
    "no shard.checkpoint": (lambda files: files.unlink(SHARD / "shard.checkpoint"), set()),
    "topic.checkpoint": (spoil(STORE / "prod/logs/topic.checkpoint"), set()),
    "no topic.checkpoint": (lambda files: files.unlink(STORE / "prod/logs/topic.checkpoint"), set()),
    "store.checkpoint": (spoil(STORE / "store.checkpoint"), set()),
    "no store.checkpoint": (lambda files: files.unlink(STORE / "store.checkpoint"), set()),
}  # fmt: skip


def named_as_before(found: dict[int, RecordBundle]) -> dict[int, RecordBundle]:
    """With the slot names that a rebuilt topic had to make up replaced by the old ones."""
    names = {"slot-0": "logs", "slot-1": "attrs"}
    return {
        offset: RecordBundle(
            {names.get(name, name): batch for name, batch in each.slots.items()},
            each.attributes,
            event_time=each.event_time,
        )
        for offset, each in found.items()
    }


@pytest.mark.parametrize("case", CASES)
def test_repair_keeps_all_that_can_be_read(files: SimulatedFiles, reopen: Reopen, case: str) -> None:
    """After a repair the store opens, exactly the unreadable bundles are gone, and numbers go on above the old ones."""
    harm, lost = CASES[case]
    harm(files)
    repaired(files)
    found = named_as_before(reopen(files))
    assert set(range(BUNDLES)) - set(found) == lost
    assert all(same(each, bundle(offset)) for offset, each in found.items())
    assert not fsck(STORE, files=files).damaged


def test_repair_when_the_newest_wal_file_is_gone(files: SimulatedFiles, reopen: Reopen) -> None:
    """What was durable and is nowhere any more is recorded as lost."""
    gone = last_wal_bundles(files)
    files.unlink(wal_paths(files)[-1])
    report = repaired(files)
    assert set(range(BUNDLES)) - set(reopen(files)) == gone
    assert report.repair is not None
    assert f"recorded as lost: offsets {min(gone)} to {max(gone)}" in report.repair.actions


def test_repair_when_the_wal_is_cut_short(files: SimulatedFiles, reopen: Reopen) -> None:
    """A file that ends before what was durable loses just that."""
    gone = last_wal_bundles(files)
    short_wal(files)
    repaired(files)
    assert set(range(BUNDLES)) - set(reopen(files)) == gone


def test_a_sound_store_is_left_alone(files: SimulatedFiles) -> None:
    """A repair of nothing changes nothing but the notes in the lock files."""
    before = {path: files.read(path) for path in [*wal_paths(files), *segment_paths(files), SHARD / "tail"]}
    report = repaired(files)
    assert report.repair is not None
    assert (report.repair.found, report.repair.actions) == ((), ())
    assert {path: files.read(path) for path in before} == before


@pytest.mark.parametrize("case", CASES)
def test_every_changed_file_is_kept(files: SimulatedFiles, case: str) -> None:
    """Whatever a repair changes or removes is found again, byte for byte, in a folder of copies."""
    CASES[case][0](files)
    before = all_files(files, STORE)
    repaired(files)
    after = all_files(files, STORE)
    copies = [content for path, content in after.items() if "damaged" in str(path)]
    for path, content in before.items():
        if path.name not in {"LOCK", "topic.lock"} and after.get(path) != content:
            assert content in copies, path


def test_stray_bundles_are_kept_readable(files: SimulatedFiles) -> None:
    """What has no number left in the shard is saved as a segment that can be inspected."""
    hit_chunk(files, 0, 2)
    report = repaired(files)
    assert report.repair is not None
    folder = SHARD / "damaged" / "0001-salvaged"
    (name,) = files.list(folder)
    document = inspect(folder / name, bundles=True, files=files)
    assert [each["attributes"]["number"] for each in document["bundles"]] == [0, 1]
    assert (
        f"saved offsets 0 to 1 into {folder / name}: there is no segment number left for them in the shard"
        in report.repair.actions
    )
    assert (
        "recorded as lost: offsets 0 to 2 (what could be read of them is kept, as said above)" in report.repair.actions
    )


def test_a_stray_run_over_two_segments(files: SimulatedFiles) -> None:
    """Bundles that belonged to two damaged segments are saved together, under the number of the first."""
    for segment in (0, 1):
        hit_chunk(files, segment, 2)
    found = survey(files, SHARD, Work(), {})
    saved = salvage(files, found)
    aside = Aside(files, SHARD)
    mend = Mend(stray=[[saved[offset] for offset in (4, 5, 6, 7)]])
    _keep_strays(files, mend, aside, found, SequenceIds(), lambda _: "logs")
    (name,) = files.list(SHARD / "damaged/0001-salvaged")
    document = inspect(SHARD / "damaged/0001-salvaged" / name, bundles=True, files=files)
    assert (document["segment_seq"], [each["offset"] for each in document["bundles"]]) == (0, [4, 5, 6, 7])


def test_leftover_temporary_files_go(files: SimulatedFiles) -> None:
    """With a copy, as everything."""
    leftovers = [
        SHARD / "segments" / "x.seg.tmp",
        STORE / "prod/logs/topic.checkpoint.tmp",
        STORE / "store.checkpoint.tmp",
    ]
    for path in leftovers:
        files.create(path).close()
    report = repaired(files)
    assert report.findings == ()
    assert not any(map(files.exists, leftovers))
    assert files.list(STORE / ".damaged") == ["0001-store.checkpoint.tmp"]


def test_names_of_slots_come_back_from_segments(files: SimulatedFiles) -> None:
    """The lowest slot of each bundle is named in the manifest; others are called by their number, and it is said."""
    spoil(STORE / "prod/logs/topic.checkpoint")(files)
    report = repaired(files)
    assert report.repair is not None
    made_up = "the names of some slots are kept nowhere else; they are now called slot-1: rename what reads them"
    assert made_up in report.repair.actions
    with Store.open(STORE, files=files) as store:
        assert store.topic(TOPIC).slots() == {"logs": 0, "slot-1": 1}


def test_a_second_repair_keeps_its_copies_apart(files: SimulatedFiles) -> None:
    """Copies of different repairs have different numbers."""
    for _ in range(2):
        tail_whole(files)
        repaired(files)
    assert [name for name in files.list(SHARD / "damaged") if name.endswith("-tail")] == ["0001-tail", "0002-tail"]


def test_repair_of_a_shard_alone(files: SimulatedFiles, reopen: Reopen) -> None:
    """The shard's folder can be given by itself."""
    hit_record(files, 14)
    repaired(files, SHARD)
    assert 14 not in reopen(files)


def test_repair_of_a_single_file_is_refused(files: SimulatedFiles) -> None:
    """It needs the rest of the shard."""
    path = wal_paths(files)[0]
    with pytest.raises(InputError, match="is a single file: a repair needs all of its shard"):
        fsck(path, repair=True, files=files)


def test_repair_beside_a_writer_is_refused(files: SimulatedFiles) -> None:
    """The error names who writes; nothing is changed."""
    with Store.open(STORE, files=files) as store:
        store.topic(TOPIC).positions()
        with pytest.raises(ShardTaken, match=r"is being written by process \d+ on "):
            fsck(STORE, repair=True, files=files)


def test_damage_in_a_store_with_a_lost_tail(files: SimulatedFiles, reopen: Reopen) -> None:
    """Without a tail the marks in the WAL say what was durable, and numbers still go on above all that was seen."""
    hit_record(files, 14)
    files.unlink(SHARD / "tail")
    repaired(files)
    assert set(range(BUNDLES)) - set(reopen(files)) == {14}


def test_a_tail_that_claims_more_than_there_is(files: SimulatedFiles, reopen: Reopen) -> None:
    """Durable up to 30, says the tail: the offsets that are nowhere are lost and do not come again."""
    TailFile(files, SHARD / "tail", Tail(30, 12, 1, 50)).close()
    report = repaired(files)
    assert report.repair is not None
    assert f"recorded as lost: offsets {BUNDLES} to 29" in report.repair.actions
    assert set(reopen(files)) == set(range(BUNDLES))


def check_crashes(files: SimulatedFiles, case: str, every: int) -> None:
    harm, lost = CASES[case]
    harm(files)
    files = files.kill()
    for path in all_files(files, STORE):  # the damaged state itself is durable
        handle = files.open(path)
        handle.sync()
        handle.close()
    for folder in (STORE, STORE / "prod", STORE / "prod/logs", SHARD, SHARD / "wal", SHARD / "segments"):
        files.sync_folder(folder)
    files.clear_journal()
    repaired(files)
    for number, state in enumerate(crash_states(files)):
        if number % every:
            continue
        disk = state.files
        repaired(disk)
        with Store.open(STORE, files=disk) as store:
            found = {each.offset for each in store.topic(TOPIC).bundles()}
        assert set(range(BUNDLES)) - found <= lost | stray(case), state


def stray(case: str) -> set[int]:
    """A repair that was interrupted may find fewer numbers free; what has none is kept beside the copies."""
    return set(range(6)) if "segment" in case else set()


CRASHED = ["a record in the middle of the WAL", "a chunk in the first segment", "shard.checkpoint"]


@pytest.mark.parametrize("case", CRASHED)
def test_a_crash_during_repair(files: SimulatedFiles, case: str) -> None:
    """A repair that was cut off can be run again, and saves the same bundles."""
    check_crashes(files, case, 12)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_every_step_of_a_repair(files: SimulatedFiles, case: str) -> None:
    """The same at every step, for every kind of damage."""
    check_crashes(files, case, 1)
