"""What a level takes: everything under it, counted anew each time, without asking again for what never changes."""

from __future__ import annotations

from pathlib import Path

from holdfast.config import Cap
from holdfast.files import SystemFiles
from holdfast.retention import BUDGET_LOCK, CLAIM, REQUEST, Meter
from holdfast.segment import segment_name
from holdfast.testing import FakeClock, SimulatedFiles
from retention.retentionkit import STORE, put

WHOLE = Cap("store", Path(), 1)


def meter_over(files: SimulatedFiles, clock: FakeClock) -> Meter:
    files.make_folder(STORE)
    return Meter(files, STORE, clock)


def test_everything_counts() -> None:
    """WAL, segments, acks, dead letters, trash, torn tails and checkpoints count, at each level above them."""
    files, clock = SimulatedFiles(), FakeClock()
    shard = STORE / "prod/logs/shard-0000"
    for number, name in enumerate(
        ["wal/1.wal", "wal/spare-1", f"segments/{segment_name(1, 0)}", "segments/x.seg.tmp", "acks/3.acks", "tail",
         f"trash/01700000000000000000-{segment_name(0, 0)}", "torn/deeper/copy", "shard.checkpoint"]
    ):  # fmt: skip
        put(files, shard / name, 2**number)
    put(files, STORE / "prod/logs/topic.checkpoint", 1000)
    put(files, STORE / "prod/logs.dead/shard-0000/wal/1.wal", 10_000)
    put(files, STORE / "prod/other/shard-0003/wal/1.wal", 100_000)
    put(files, STORE / "dev/logs/shard-0000/wal/1.wal", 1_000_000)
    put(files, STORE / "store.checkpoint", 10_000_000)
    meter = meter_over(files, clock)
    topic = meter.measure(Cap("topic", Path("prod/logs"), 1))
    assert topic.total_bytes == 11_000 + 511
    assert topic.shards[0] == (shard, 511, 64)
    assert meter.measure(Cap("namespace", Path("prod"), 1)).total_bytes == 111_000 + 511
    assert meter.measure(WHOLE).total_bytes == 11_111_000 + 511
    assert len(meter.measure(WHOLE).shards) == 4
    assert meter.shard(shard).total_bytes == 511


def test_the_budgets_own_files_do_not_count() -> None:
    """Claims, requests and locks of the budget take no room from anybody."""
    files, clock = SimulatedFiles(), FakeClock()
    for name in (BUDGET_LOCK, f"a/{BUDGET_LOCK}", f"a/x/shard-0000/{CLAIM}", f"a/x/shard-0000/{REQUEST}"):
        put(files, STORE / name, 100)
    put(files, STORE / f"a/x/shard-0000/{REQUEST}.tmp", 100)
    assert meter_over(files, clock).measure(WHOLE).total_bytes == 0


def test_names_that_look_like_ours() -> None:
    """A namespace called `segments` with a topic called `x.seg` is a folder like any other."""
    files, clock = SimulatedFiles(), FakeClock()
    put(files, STORE / "segments/x.seg/shard-0000/wal/1.wal", 10)
    put(files, STORE / "segments/x.seg/trash/y.seg", 5)
    usage = meter_over(files, clock).measure(WHOLE)
    assert (usage.total_bytes, [each.total_bytes for each in usage.shards]) == (15, [10])


def test_a_missing_level_is_empty() -> None:
    """A topic that was never written to takes nothing."""
    files, clock = SimulatedFiles(), FakeClock()
    assert meter_over(files, clock).measure(Cap("topic", Path("a/x"), 1)) == (0, ())


def test_files_that_go_meanwhile() -> None:
    """A file that is deleted between its listing and its measuring counts nothing."""
    files, clock = SimulatedFiles(), FakeClock()
    doomed = STORE / "a/x/shard-0000/wal/1.wal"
    put(files, doomed, 10)
    put(files, doomed.with_name("2.wal"), 5)

    def vanish(operation: str, path: Path) -> None:
        if (operation, path) == ("size", doomed):
            files.before = None
            files.unlink(doomed)

    files.before = vanish
    assert meter_over(files, clock).measure(WHOLE).total_bytes == 5


def test_segments_are_asked_for_once() -> None:
    """The sizes of segment files are kept, those of others are not; new and deleted ones are noticed anywhere."""
    files, clock = SimulatedFiles(), FakeClock()
    folder = STORE / "a/x/shard-0000/segments"
    for first in (0, 10, 20, 40):
        put(files, folder / segment_name(first, first), 10)
    wal = STORE / "a/x/shard-0000/wal/1.wal"
    put(files, wal, 7)
    meter = meter_over(files, clock)

    def asked() -> tuple[int, int]:
        before = files.calls["size"]
        return meter.measure(WHOLE).total_bytes, files.calls["size"] - before

    assert asked() == (47, 5)
    assert asked() == (47, 1)
    put(files, folder / segment_name(50, 50), 100)
    put(files, folder / segment_name(30, 30), 1000)
    assert asked() == (1147, 3)
    files.unlink(folder / segment_name(0, 0))
    files.unlink(folder / segment_name(40, 40))
    assert asked() == (1127, 1)
    file = files.open(wal)
    file.append([b"x" * 5])
    assert asked() == (1132, 1)
    for name in files.list(folder):
        files.unlink(folder / name)
    assert asked() == (12, 1)


def test_a_quiet_folder_is_not_listed_again() -> None:
    """Once its time of change is old enough to be told from a later one, a folder of segments is left alone."""
    clock = FakeClock()
    files = SimulatedFiles(clock=clock)
    folder = STORE / "a/x/shard-0000/segments"
    put(files, folder / segment_name(0, 0), 10)
    meter = meter_over(files, clock)
    listed: list[Path] = []
    files.before = lambda operation, path: listed.append(path) if operation == "list" else None
    assert meter.measure(WHOLE).total_bytes == meter.measure(WHOLE).total_bytes == 10
    assert listed.count(folder) == 2
    clock.advance(10)
    assert meter.measure(WHOLE).total_bytes == meter.measure(WHOLE).total_bytes == 10
    assert listed.count(folder) == 3
    put(files, folder / segment_name(1, 10), 5)
    assert meter.measure(WHOLE).total_bytes == 15


def test_a_segment_being_written_is_measured_each_time() -> None:
    """A temporary file grows without changing its folder's time; it is looked at all the same."""
    clock = FakeClock()
    files = SimulatedFiles(clock=clock)
    path = STORE / "a/x/shard-0000/segments/new.seg.tmp"
    put(files, path, 1)
    meter = meter_over(files, clock)
    clock.advance(10)
    assert meter.measure(WHOLE).total_bytes == 1
    files.open(path).append([b"22"])
    assert meter.measure(WHOLE).total_bytes == 3


def test_on_a_real_disk(tmp_path: Path) -> None:
    """The same over real files."""
    files, clock = SystemFiles(), FakeClock()
    shard = tmp_path / "a/x/shard-0000"
    put(files, shard / "segments" / segment_name(0, 0), 10)
    put(files, shard / "wal/1.wal", 5)
    meter = Meter(files, tmp_path, clock)
    assert meter.measure(WHOLE).total_bytes == 15
    put(files, shard / "segments" / segment_name(1, 10), 20)
    assert meter.measure(WHOLE).total_bytes == 35
