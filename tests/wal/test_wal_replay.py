"""Opening a WAL: which bundles count, what is torn, what is damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Corruption
from holdfast.testing import SimulatedFiles
from holdfast.wal import FileHeader, TornTail, WalName, WriteAheadLog, replay
from wal.walkit import FOLDER, SHARD_ID, bundle, disk, names, new_log, offsets, only, replace, replayed, write, written


def three_files() -> tuple[SimulatedFiles, WriteAheadLog, list[Path]]:
    """Offsets 0 to 5, two in each file, all synced."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(6):
        log.write([bundle(offset, width=1500)], offset)
        log.sync()
    paths = [FOLDER / name for name in names(files)]
    assert len(paths) == 3
    return files, log, paths


def test_empty_folder() -> None:
    """A WAL without files holds nothing and begins with generation 0."""
    result = replayed(disk(), start=7)
    assert (result.bundles, result.end, result.highest, result.next_generation) == ([], 7, 7, 0)


def test_all_files_in_order() -> None:
    """Bundles come in offset order over file borders, with what goes on from there."""
    files, _, _ = three_files()
    result = replayed(files)
    assert offsets(result) == list(range(6))
    assert (result.end, result.highest, result.durable, result.next_generation) == (6, 6, 5, 3)
    assert [(file.name.first_offset, file.end) for file in result.log_files] == [(0, 2), (2, 4), (4, 6)]
    assert (result.torn, result.lost) == ([], [])


@pytest.mark.parametrize("start", range(7))
def test_what_segments_cover_is_left_out(start: int) -> None:
    """Only bundles from the start on come back."""
    files, _, _ = three_files()
    assert offsets(replayed(files, start=start)) == list(range(start, 6))


def test_progress_is_told_in_bytes() -> None:
    """Progress rises to the size of all files."""
    files, _, paths = three_files()
    size = sum(files.size(path) for path in paths)
    told: list[tuple[int, int]] = []
    replayed(files, progress=lambda done, total: told.append((done, total)))
    assert [total for _, total in told] == [size] * 3
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == size


def test_missing_file_in_the_middle() -> None:
    """A file that is gone, though a later one is there, is damage and says which offsets."""
    files, _, paths = three_files()
    files.unlink(paths[1])
    with pytest.raises(Corruption, match="offsets 2 to 3 are missing before this file") as caught:
        replayed(files)
    assert caught.value.path == str(paths[2])
    assert offsets(replayed(files, start=4)) == [4, 5]  # unless segments have them


def test_missing_last_file_below_the_tail() -> None:
    """A file that is gone at the end is seen by the tail, which knows that more was durable."""
    files, _, paths = three_files()
    files.unlink(paths[2])
    with pytest.raises(Corruption, match="the WAL ends at offset 4, yet everything up to 5 was durable"):
        replayed(files, tail_durable=6)
    assert offsets(replayed(files, tail_durable=4)) == [0, 1, 2, 3]


def test_all_files_missing_below_the_tail() -> None:
    """An empty folder is damage when the tail says that there was something."""
    with pytest.raises(Corruption, match="the WAL ends at offset 0, yet everything up to 2 was durable"):
        replayed(disk(), tail_durable=3)


def test_torn_above_every_mark_is_cut_and_below_one_is_damage() -> None:
    """The same bad bytes are a torn tail or corruption, depending on what was known to be durable."""
    files = disk()
    write(files, range(3), synced=0)
    path = only(files)
    data = written(files)
    replace(files, path, data[:-5])
    result = replayed(files)
    assert offsets(result) == [0, 1]
    assert (result.end, result.highest) == (2, 3)
    assert [(torn.path, torn.position < len(data), torn.reason) for torn in result.torn] == [
        (path, True, "the file ends 5 bytes before the record of offset 2 does")
    ]
    assert offsets(replayed(files, tail_durable=2)) == [0, 1]
    with pytest.raises(Corruption, match="before the record of offset 2 does, yet offset 2 was durable") as caught:
        replayed(files, tail_durable=3)
    assert caught.value.position == result.torn[0].position


def test_bad_record_below_a_later_mark() -> None:
    """A mark in a later record of the same file says that what is bad before it had been synced."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0)], 0)
    end = log.size
    log.write([bundle(1)], 1)
    data = bytearray(written(files))
    data[end - 1] ^= 8
    replace(files, only(files), bytes(data))
    with pytest.raises(
        Corruption, match=r"payload of offset 0, slot 0, fails its checksum: .* yet offset 0 was durable"
    ):
        replayed(files)


def test_bad_record_followed_by_records_without_a_mark() -> None:
    """Records behind a bad one, that know of nothing synced, are part of the torn tail; their numbers stay used."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0), bundle(1), bundle(2)], 0)
    first = written(files)
    for bit in (0, 100):
        data = bytearray(first)
        data[len(first) // 2] ^= 1 << bit % 8
        replace(files, only(files), bytes(data))
        result = replayed(files)
        assert result.end < 3
        assert result.highest == 3
        assert len(result.torn) == 1


def test_bad_record_below_the_header_of_a_later_file() -> None:
    """A file is begun only when the one before it is synced, so what is bad in that one is damage."""
    files, _, paths = three_files()
    data = bytearray(written(files, paths[1]))
    data[-1] ^= 1
    replace(files, paths[1], bytes(data))
    with pytest.raises(Corruption, match="yet offset 3 was durable") as caught:
        replayed(files)
    assert caught.value.path == str(paths[1])


@pytest.mark.parametrize("size", [0, 40, 79])
def test_torn_header_of_the_last_file(size: int) -> None:
    """A last file that was just begun is a torn tail from its first byte on."""
    files, _, paths = three_files()
    replace(files, paths[2], written(files, paths[2])[:size])
    result = replayed(files, tail_durable=4)
    assert offsets(result) == [0, 1, 2, 3]
    assert result.torn == [TornTail(paths[2], 0, "the file ends within its 80-byte header")]
    assert result.next_generation == 3
    with pytest.raises(Corruption, match="the file ends within its 80-byte header"):
        replayed(files, tail_durable=5)


def test_torn_header_of_an_earlier_file() -> None:
    """A file that others follow had its header synced: what is bad there is damage."""
    files, _, paths = three_files()
    replace(files, paths[1], written(files, paths[1])[:30])
    with pytest.raises(Corruption, match="the file ends within its 80-byte header") as caught:
        replayed(files)
    assert caught.value.path == str(paths[1])


def test_file_of_another_shard() -> None:
    """A file that was copied here from elsewhere is named, with both ids."""
    files, _, paths = three_files()
    other = bytes(16)
    with pytest.raises(Corruption) as caught:
        replay(files, FOLDER, other, start=0)
    assert caught.value.what == f"belongs to shard {SHARD_ID.hex()}, not to this one ({other.hex()})"
    assert caught.value.path == str(paths[0])


def test_renamed_file() -> None:
    """A file whose name is not what its header says is damage, if anything in it may have been durable."""
    files, _, paths = three_files()
    files.rename(paths[0], FOLDER / str(WalName(7, 1)))
    with pytest.raises(Corruption):
        replayed(files, tail_durable=6)


def test_lost_ranges_may_be_missing() -> None:
    """A gap is allowed exactly where the checkpoint says that nothing was stored."""
    files = disk()
    write(files, range(2))
    log = new_log(files, generation=1)
    log.write([bundle(5)], 5)
    log.sync()
    assert offsets(replayed(files, lost=[(2, 5)])) == [0, 1, 5]
    assert offsets(replayed(files, lost=[(2, 4), (4, 5)])) == [0, 1, 5]
    for lost in ([], [(2, 4)], [(3, 5)]):
        with pytest.raises(Corruption, match="offsets 2 to 4 are missing before this file"):
            replayed(files, lost=lost)


def test_lost_range_at_the_end() -> None:
    """The tail counts offsets that were lost as done; they need not be in the WAL."""
    files = disk()
    write(files, range(2))
    assert offsets(replayed(files, tail_durable=4, lost=[(2, 4)])) == [0, 1]
    with pytest.raises(Corruption):
        replayed(files, tail_durable=5, lost=[(2, 4)])


def test_what_is_lost_stays_lost() -> None:
    """Whole records of offsets that the checkpoint calls lost do not come back."""
    files = disk()
    write(files, range(4))
    assert offsets(replayed(files, lost=[(2, 3)])) == [0, 1, 3]


def test_overlapping_files() -> None:
    """Where two generations hold the same offsets, each counts once: the newer one from where it supersedes."""
    files = disk()
    write(files, range(4))
    log = new_log(files, generation=1)
    log.supersede(2)
    log.write([bundle(2, width=77), bundle(3, width=77), bundle(4, width=77)], 2)
    log.sync()
    result = replayed(files)
    assert offsets(result) == list(range(5))
    wide = bundle(2, width=77).size
    assert [each.size == wide for each in result.bundles] == [False, False, True, True, True]
    assert [file.end for file in result.log_files] == [2, 5]


def test_damage_in_what_is_superseded_does_no_harm() -> None:
    """Bytes that a later generation voids may be anything."""
    files = disk()
    log = write(files, range(2))
    size = log.size
    log.write([bundle(2)], 2)
    log.supersede(2)
    log.write([bundle(2)], 2)
    log.sync()
    path = FOLDER / names(files)[0]
    data = bytearray(files.read(path))
    data[size:] = b"\xff" * (len(data) - size)
    replace(files, path, bytes(data))
    assert offsets(replayed(files)) == [0, 1, 2]


def test_numbers_go_on_above_everything_seen() -> None:
    """Generations and segment numbers go on above those of records and headers that no longer count."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0, seq=9)], 0)
    log.sync()
    result = replayed(files, start=1)
    assert (result.next_generation, result.next_segment_seq, result.highest) == (1, 9, 1)


def test_other_names_are_left_alone() -> None:
    """Files that are not WAL files are not looked at."""
    files = disk()
    write(files, range(1))
    for name in ("notes.txt", "00000000000000000000-0000000000.wal.tmp", "spare-0000000009"):
        file = files.create(FOLDER / name)
        file.append([b"something"])
        file.close()
    assert offsets(replayed(files)) == [0]


def test_spare_that_has_its_new_name_and_nothing_else() -> None:
    """A file that was about to be written over holds an older header: it is empty, not damaged, not torn."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(4):
        log.write([bundle(offset, width=3000)], offset)
    log.sync()
    old = FOLDER / names(files)[0]
    files.rename(old, FOLDER / str(WalName(4, 4)))
    result = replayed(files, start=3, tail_durable=4)
    assert offsets(result) == [3]
    assert (result.torn, result.next_generation) == ([], 5)
    assert FileHeader.decode(files.read(FOLDER / str(WalName(4, 4))), old).generation == 0
