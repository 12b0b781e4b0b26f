"""The enumeration of crash states."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from holdfast.testing import (
    POWER_CUT_MODES,
    CrashMode,
    Create,
    MakeFolder,
    Note,
    SimulatedFiles,
    Sync,
    SyncFolder,
    Write,
    crash,
    crash_states,
)

FOLDER = Path("/store")


def busy_disk(rounds: int = 4) -> SimulatedFiles:
    """Appends, syncs, renames and unlinks, with a note after each sync."""
    files = SimulatedFiles()
    files.make_folder(FOLDER)
    for number in range(rounds):
        file = files.create(FOLDER / f"{number}.tmp")
        for part in range(3):
            file.append([bytes([65 + number % 26]) * (700 + part)])
        file.sync()
        files.note(("synced", number))
        file.append([b"unsynced"])
        files.rename(FOLDER / f"{number}.tmp", FOLDER / f"{number}.log")
        if number:
            files.unlink(FOLDER / f"{number - 1}.log")
        if number % 2:
            files.sync_folder(FOLDER)
    return files


def test_journal_records_changes_and_notes_in_order() -> None:
    """Each change is one printable record with its index; reads leave none."""
    files = SimulatedFiles()
    files.make_folder(FOLDER)
    file = files.create(FOLDER / "a")
    file.append([b"abc", b"de"])
    files.read(FOLDER / "a")
    files.note("acked")
    file.sync()
    kinds = [SyncFolder, MakeFolder, SyncFolder, Create, Write, Note, Sync]
    assert [type(record) for record in files.journal] == kinds
    assert [str(record) for record in files.journal] == [
        "0 sync_folder /",
        "1 make_folder /store",
        "2 sync_folder /",
        "3 create /store/a",
        "4 append /store/a [0, 5)",
        "5 note 'acked'",
        "6 sync /store/a",
    ]


def test_failed_and_refused_calls_leave_the_records_of_what_they_changed() -> None:
    """A call that changes nothing is not in the journal; a failed sync is, because it strands."""
    files = SimulatedFiles()
    file = files.create(FOLDER.with_name("a"))
    with pytest.raises(FileExistsError):
        files.create(FOLDER.with_name("a"))
    files.fail("append")
    with pytest.raises(OSError):
        file.append([b"x"])
    files.fail("append", short=1)
    with pytest.raises(OSError):
        file.append([b"xy"])
    files.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    assert [str(record) for record in files.journal] == [
        "0 create /a",
        "1 append /a [0, 1)",
        "2 sync /a (failed)",
    ]


def test_notes_tell_what_had_happened_before_the_crash() -> None:
    """A state knows exactly the notes of its prefix."""
    files = busy_disk()
    journal = files.journal
    for state in crash_states(files):
        expected = [record.value for record in journal[: state.prefix] if isinstance(record, Note)]
        assert list(state.notes) == expected
        assert state.note_count == len(expected)


def test_every_prefix_is_crashed() -> None:
    """Without deduplication every prefix is crashed, the empty and the full one included."""
    files = busy_disk()
    states = list(crash_states(files, modes=[CrashMode.KEPT], distinct=False))
    assert [state.prefix for state in states] == list(range(len(files.journal) + 1))
    assert states[0].description == "before anything happened: kept 0"
    assert states[5].description == "after 5 (4 append /store/0.tmp [0, 700)): kept 0"
    assert states[5].last == files.journal[4]


def test_states_are_reproducible() -> None:
    """The same seed gives the same states; another seed gives others."""
    one = [(state.description, state.digest) for state in crash_states(busy_disk(), seed=1)]
    two = [(state.description, state.digest) for state in crash_states(busy_disk(), seed=1)]
    other = {state.digest for state in crash_states(busy_disk(), seed=2)}
    assert one == two
    assert other != {digest for _, digest in one}


def test_more_variants_include_the_fewer() -> None:
    """A larger `per_prefix` adds states and takes none away."""
    few = {state.digest for state in crash_states(busy_disk(), per_prefix=3)}
    many = {state.digest for state in crash_states(busy_disk(), per_prefix=9)}
    assert few < many


def test_shards_together_are_the_whole() -> None:
    """Spread over workers by `stride` and `offset`, the same states come out, each prefix with one worker."""
    files = busy_disk()
    whole = {(state.prefix, state.mode, state.variant, state.digest) for state in crash_states(files, distinct=False)}
    shards = [
        {
            (state.prefix, state.mode, state.variant, state.digest)
            for state in crash_states(files, distinct=False, stride=3, offset=offset)
        }
        for offset in range(3)
    ]
    assert set.union(*shards) == whole
    assert sum(map(len, shards)) == len(whole)


def test_distinct_leaves_out_repetitions_only() -> None:
    """Deduplication keeps every pair of digest and notes, once."""
    files = busy_disk()
    everything = [(state.digest, state.notes) for state in crash_states(files, distinct=False)]
    distinct = [(state.digest, state.notes) for state in crash_states(files)]
    assert len(distinct) == len(set(distinct)) < len(everything)
    assert set(distinct) == set(everything)


def test_same_disk_with_more_notes_is_another_state() -> None:
    """More was promised by then, so it is checked again."""
    files = SimulatedFiles()
    files.create(Path("/a"))
    files.sync_folder(Path("/"))
    files.note("promised")
    states = [(state.notes, state.files.list(Path("/"))) for state in crash_states(files, modes=[CrashMode.KEPT])]
    assert states == [((), []), ((), ["a"]), (("promised",), ["a"])]


def test_digest_is_of_the_tree() -> None:
    """Equal names and bytes give equal digests however they came about; any difference shows."""

    def disk(*names: str, data: bytes = b"x") -> str:
        files = SimulatedFiles()
        for name in names:
            path = Path("/") / name
            files.make_folder(path.parent)
            files.create(path).append([data])
        return files.digest

    assert disk("a", "d/b") == disk("d/b", "a")
    assert len({disk("a", "b"), disk("a", "c"), disk("a"), disk("a", "b", data=b"y"), disk("a", "d/b")}) == 5
    assert disk("a") == "1e5409f326589b336732a977895e3d4e"


def torn_contents(data: bytes, position: int, per_prefix: int) -> set[bytes]:
    """What a crash in the middle of one write behind `position` durable bytes can leave of that write."""
    files = SimulatedFiles()
    file = files.create(Path("/a"))
    file.append([bytes(position)])
    file.sync()
    files.sync_folder(Path("/"))
    file.append([data])
    end = len(files.journal)
    states = crash_states(files, modes=[CrashMode.TORN], per_prefix=per_prefix, first=end)
    return {state.files.read(Path("/a"), position) for state in states}


def test_torn_write_at_every_byte() -> None:
    """The write that the crash fell into may end at any of its bytes."""
    data = bytes(range(1, 41))
    assert {data[:count] for count in range(1, 40)} <= torn_contents(data, position=0, per_prefix=1000)


def test_torn_write_by_sectors() -> None:
    """Each sector that a write touches is written or not by itself, with or without the new length."""
    sectors = b"\x01" * 412, b"\x02" * 512, b"\x03" * 76
    found = torn_contents(b"".join(sectors), position=100, per_prefix=300)
    for choice in itertools.product([True, False], repeat=3):
        parts = [sector if kept else bytes(len(sector)) for sector, kept in zip(sectors, choice, strict=True)]
        extended = b"".join(parts)
        assert extended in found, choice
        assert extended.rstrip(b"\0") in found, choice


def test_files_that_nothing_can_name_any_more_make_no_states() -> None:
    """Unsynced bytes of a file whose removal is durable are nobody's, and do not multiply the states."""
    files = SimulatedFiles()
    file = files.create(Path("/a"))
    file.append([b"x" * 100])
    files.unlink(Path("/a"))
    files.sync_folder(Path("/"))
    file.append([b"y" * 100])
    states = list(crash_states(files, first=len(files.journal), distinct=False))
    assert [state.files.list(Path("/")) for state in states] == [[]]


def test_torn_write_in_the_middle_of_older_pending_ones() -> None:
    """Not only the last pending write can be torn."""
    files = SimulatedFiles()
    files.create(Path("/a"))
    files.sync_folder(Path("/"))
    file = files.open(Path("/a"))
    file.append([b"1111"])
    file.append([b"2222"])
    end = len(files.journal)
    found = {
        state.files.read(Path("/a")) for state in crash_states(files, modes=[CrashMode.TORN], per_prefix=100, first=end)
    }
    assert {b"11\0\x002222", b"111122"} <= found


@pytest.mark.parametrize("mode", POWER_CUT_MODES)
def test_every_mode_runs_alone(mode: CrashMode) -> None:
    """Each mode makes states of its own where it has a choice, and `kept` ones where nothing is pending."""
    states = list(crash_states(busy_disk(), modes=[mode]))
    assert {state.mode for state in states} == {mode, CrashMode.KEPT}


def test_killed_is_for_the_asking() -> None:
    """The default modes are those of a power cut; `killed` leaves what is pending pending."""
    assert CrashMode.KILLED not in POWER_CUT_MODES
    files = SimulatedFiles()
    files.create(Path("/a")).append([b"x"])
    killed = [state for state in crash_states(files, modes=[CrashMode.KILLED]) if state.prefix == 2]
    assert [state.mode for state in killed] == [CrashMode.KILLED]
    assert killed[0].files.read(Path("/a")) == b"x"
    assert crash(killed[0].files).list(Path("/")) == []


def test_clearing_the_journal_keeps_what_is_pending() -> None:
    """Crash states of a new journal start from the disk as it was, with its unsynced bytes at risk."""
    files = SimulatedFiles()
    files.create(Path("/a")).append([b"x"])
    files.note("early")
    files.clear_journal()
    assert files.journal == ()
    found = {tuple(state.files.list(Path("/"))) for state in crash_states(files)}
    assert found == {(), ("a",)}
    assert all(state.notes == () for state in crash_states(files))


def test_states_do_not_share_changes() -> None:
    """Writing to one crash state touches neither the others nor the disk it came from."""
    files = busy_disk()
    digest = files.digest
    states = list(crash_states(files, per_prefix=2))
    digests = [state.digest for state in states]
    for state in states:
        state.files.make_folder(FOLDER / "new")
        for name in state.files.list(FOLDER):
            if not state.files.is_folder(FOLDER / name):
                state.files.open(FOLDER / name).truncate(0)
    assert [state.digest for state in states] == digests
    assert files.digest == digest


def test_crash_states_can_be_crashed_again() -> None:
    """A crash during recovery is a crash of the state that recovery works on."""
    files = busy_disk(2)
    second = 0
    for state in crash_states(files, per_prefix=1):
        state.files.make_folder(FOLDER)
        file = state.files.create(FOLDER / "recovered")
        file.append([b"r"])
        for again in crash_states(state.files, per_prefix=1):
            second += again.files.exists(FOLDER / "recovered")
    assert second


def test_iterating_while_the_disk_goes_on() -> None:
    """The states are those of the journal when the iteration began."""
    files = busy_disk(1)
    states = crash_states(files, modes=[CrashMode.KEPT], distinct=False)
    prefixes = [next(states).prefix]
    end = len(files.journal)
    files.create(FOLDER / "later")
    prefixes += [state.prefix for state in states]
    assert prefixes == list(range(end + 1))


def test_crash_in_a_mode_without_a_choice() -> None:
    """`crash` gives the only state there is when nothing is pending."""
    files = SimulatedFiles()
    for mode in CrashMode:
        assert crash(files, mode).list(Path("/")) == []
    files.create(Path("/a"))
    assert crash(files, CrashMode.TORN).list(Path("/")) == ["a"]
    assert crash(files, CrashMode.LOST).list(Path("/")) == []


@pytest.mark.long
def test_thousands_of_operations_make_tens_of_thousands_of_states() -> None:
    """A journal of two thousand records yields tens of thousands of states, every one of them readable."""
    files = busy_disk(220)
    assert len(files.journal) > 2000
    count = 0
    for state in crash_states(files, per_prefix=20):
        count += 1
        for name in state.files.list(FOLDER) if state.files.exists(FOLDER) else ():
            state.files.read(FOLDER / name)
    assert count > 20_000
