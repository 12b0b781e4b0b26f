"""Deletions: each logged, failures kept to themselves and tried again; trash; crashes at every step."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.files import SystemFiles
from holdfast.retention import Deleter, Deletion, Doomed, Trash, plan
from holdfast.retention import _deleter as deleter_module
from holdfast.segment import segment_name
from holdfast.testing import CrashMode, FakeClock, SimulatedFiles, crash_states
from retention.retentionkit import put, segments, settings, situation

SHARD = Path("/store/a/x/shard-0000")
SEGMENTS = SHARD / "segments"


def doomed(first: int, *, final: bool = True, size: int = 10) -> Doomed:
    deletion = Deletion(first, first + 10, size, "finished", unfinished=False, final=final, age_seconds=12.5)
    return Doomed(SEGMENTS / segment_name(first // 10, first), deletion)


def shard_with(count: int, files: SimulatedFiles) -> list[Doomed]:
    made = [doomed(place * 10) for place in range(count)]
    for each in made:
        put(files, each.path, each.deletion.size)
    return made


def deleter_over(files: SimulatedFiles, clock: FakeClock | None = None) -> Deleter:
    return Deleter(files, clock or FakeClock(), SHARD, "a/x/0")


def test_deleted_files_are_gone_and_logged() -> None:
    """Each deletion is logged with shard, offsets, size, age and reason."""
    files = SimulatedFiles()
    first, second, third = shard_with(3, files)
    with capture_logs() as lines:
        report = deleter_over(files).delete([first, third])
    assert files.list(SEGMENTS) == [second.path.name]
    assert (report.deleted, report.failed, report.freed_bytes) == ((first, third), (), 20)
    assert lines[0] == {
        "event": "segment deleted", "log_level": "info", "shard": "a/x/0", "first": 0, "end": 10, "bytes": 10,
        "age_seconds": 12.5, "reason": "finished", "unfinished": False, "trash": False,
    }  # fmt: skip
    assert [line["first"] for line in lines] == [0, 20]


def test_one_failure_stops_no_other() -> None:
    """A file that cannot be deleted is warned of and kept on a list; the others go."""
    files = SimulatedFiles()
    first, second, third = shard_with(3, files)
    files.fail("unlink", errno.EACCES, path=f"*{second.path.name}", times=2)
    deleter = deleter_over(files)
    with capture_logs() as lines:
        report = deleter.delete([first, second, third])
    assert report.deleted == (first, third)
    assert [(each.doomed, each.attempts) for each in report.failed] == [(second, 1)]
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert warning["event"] == "segment could not be deleted; the next sweep tries again"
    assert (warning["first"], "Permission denied" in warning["error"]) == (10, True)
    assert deleter.delete().deleted == ()
    assert [each.attempts for each in deleter.failed] == [2]
    assert deleter.delete().deleted == (second,)
    assert deleter.failed == ()
    assert files.list(SEGMENTS) == []


def test_a_failed_one_that_is_named_again_is_tried_once() -> None:
    """A plan that names a failed file again does not double it."""
    files = SimulatedFiles()
    (only,) = shard_with(1, files)
    files.fail("unlink", times=None)
    deleter = deleter_over(files)
    deleter.delete([only])
    assert [each.attempts for each in deleter.delete([only]).failed] == [2]
    files.heal()
    assert deleter.delete([only]).deleted == (only,)


def test_the_list_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound failures are told but not remembered; the files are there for the next plan."""
    monkeypatch.setattr(deleter_module, "MAX_RETRIES", 2)
    files = SimulatedFiles()
    made = shard_with(3, files)
    files.fail("unlink", times=None)
    deleter = deleter_over(files)
    assert len(deleter.delete(made).failed) == 3
    assert [each.doomed for each in deleter.failed] == made[:2]


def test_gone_already_is_deleted() -> None:
    """A file that somebody else deleted counts as deleted, in trash mode too."""
    files = SimulatedFiles()
    first, second = shard_with(2, files)
    files.unlink(first.path)
    files.unlink(second.path)
    second = doomed(10, final=False)
    report = deleter_over(files).delete([first, second])
    assert (report.deleted, report.failed) == ((first, second), ())


def test_a_failed_sync_is_made_good() -> None:
    """If the folder cannot be synced, that is warned of and done with the next call."""
    files = SimulatedFiles()
    (only,) = shard_with(1, files)
    files.fail("sync_folder")
    deleter = deleter_over(files)
    with capture_logs() as lines:
        deleter.delete([only])
    assert lines[-1]["event"] == "deletions are not durable yet; the next sweep tries again"
    before = files.calls["sync_folder"]
    deleter.delete()
    deleter.delete()
    assert files.calls["sync_folder"] == before + 1


def test_trash_keeps_name_and_time() -> None:
    """A file that goes to the trash is whole there, under its old name after the time."""
    files, clock = SimulatedFiles(), FakeClock()
    shard_with(1, files)
    moved = doomed(0, final=False)
    report = deleter_over(files, clock).delete([moved])
    assert files.list(SHARD / "trash") == [f"{clock.now_ns():020d}-{moved.path.name}"]
    assert files.read(SHARD / "trash" / files.list(SHARD / "trash")[0]) == b"x" * 10
    assert (files.list(SEGMENTS), report.freed_bytes) == ([], 0)


def test_trash_expires_by_age() -> None:
    """What is in the trash for longer than `trash_age` goes for good; without one, all of it."""
    files, clock = SimulatedFiles(), FakeClock()
    shard_with(3, files)
    deleter = deleter_over(files, clock)
    for first in (0, 10, 20):
        deleter.delete([doomed(first, final=False)])
        clock.advance(100)
    trash = deleter.trash
    assert trash.expire(clock.now_ns(), 300) == (0, 0, 0)
    assert trash.expire(clock.now_ns(), 299) == (1, 10, 0)
    assert trash.total_bytes() == 20
    assert trash.expire(clock.now_ns(), None) == (2, 20, 0)
    assert trash.total_bytes() == 0


def test_trash_is_emptied_oldest_first() -> None:
    """Under pressure the oldest go, as many as are needed; one that fails stops no other."""
    files, clock = SimulatedFiles(), FakeClock()
    shard_with(4, files)
    deleter = deleter_over(files, clock)
    for first in (30, 0, 10, 20):
        deleter.delete([doomed(first, final=False)])
        clock.advance(1)
    assert deleter.trash.empty(0).files == 0
    assert deleter.trash.empty(11) == (2, 20, 0)
    assert [name.split("-", 1)[1] for name in files.list(SHARD / "trash")] == [segment_name(1, 10), segment_name(2, 20)]
    files.fail("unlink")
    with capture_logs() as lines:
        assert deleter.trash.empty(20) == (1, 10, 1)
    assert lines[0]["event"] == "file in the trash could not be deleted"


def test_what_others_put_into_the_trash_stays() -> None:
    """A file without a time of ours before its name is not ours to delete, and does not count as reclaimable."""
    files = SimulatedFiles()
    for name in ("notes.txt", "1-short.seg"):
        put(files, SHARD / "trash" / name, 10)
    trash = Trash(files, SHARD)
    assert (trash.total_bytes(), trash.expire(2**62, None).files) == (0, 0)


def test_no_trash_no_folder() -> None:
    """Looking into the trash of a shard that has none makes none."""
    files = SimulatedFiles()
    files.make_folder(SHARD)
    trash = Trash(files, SHARD)
    assert (trash.total_bytes(), trash.empty(100).files, trash.expire(0, None).files) == (0, 0, 0)
    assert files.list(SHARD) == []


@pytest.mark.parametrize("final", [True, False])
def test_crashes_while_deleting(final: bool) -> None:
    """Wherever the power fails: what was not deleted is there and whole; once `delete` returned, nothing comes back.

    In between a file may be in its place, in the trash, or in both, and never in neither if it goes to the trash.
    """
    files = SimulatedFiles()
    made = shard_with(4, files)
    files.clear_journal()
    deleter = deleter_over(files)
    doomed_ones = [each._replace(deletion=each.deletion._replace(final=final)) for each in made]
    for pair in (doomed_ones[1:3], doomed_ones[:1]):
        deleter.delete(pair)
        files.note(tuple(each.path.name for each in pair))
    names = [each.path.name for each in made]
    seen = 0
    for state in crash_states(files, modes=CrashMode):
        there = state.files
        kept = there.list(SEGMENTS)
        trash = there.list(SHARD / "trash") if there.exists(SHARD / "trash") else []
        trashed = {name.split("-", 1)[1] for name in trash}
        gone = {name for note in state.notes for name in note}  # type: ignore[attr-defined]
        assert names[3] in kept, state.description
        assert not gone & set(kept), state.description
        if not final:
            assert set(kept) | trashed == set(names), state.description
        for folder, found in ((SEGMENTS, kept), (SHARD / "trash", trash)):
            assert all(there.read(folder / name) == b"x" * 10 for name in found), state.description
        seen += 1
    assert seen >= 10


def test_a_cycle_over_a_hundred_real_files(tmp_path: Path) -> None:
    """Plan and delete a hundred finished segments on a real disk, half of them by way of the trash."""
    files, clock = SystemFiles(), FakeClock()
    shard = tmp_path / "shard-0000"
    rows = segments(*["finished"] * 100)
    for row in rows:
        put(files, shard / "segments" / segment_name(row.first // 10, row.first), row.size)
    made = plan(settings(trash_age="1h"), rows, situation(over_bytes=500))
    deleter = Deleter(files, clock, shard, "x")
    report = deleter.delete(
        Doomed(shard / "segments" / segment_name(each.first // 10, each.first), each) for each in made.deletions
    )
    assert (len(report.deleted), report.freed_bytes) == (100, 500)
    assert (files.list(shard / "segments"), len(files.list(shard / "trash"))) == ([], 50)
    assert deleter.trash.expire(clock.now_ns(), None).files == 50
