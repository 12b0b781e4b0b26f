"""The small tools: clock, identifiers, damage, and copies to a real folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast.testing
from holdfast.clock import Clock, Deadline, Ids
from holdfast.files import Files, SystemFiles
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles, copy_tree, dump, flip_bit, load


def test_clock_moves_only_when_told() -> None:
    """Both times stand still, advance together, and never go back by advancing."""
    fake = FakeClock(now_ns=1_000, monotonic=5.0)
    clock: Clock = fake
    assert (clock.now_ns(), clock.monotonic()) == (1_000, 5.0)
    fake.advance(1.5)
    assert (clock.now_ns(), clock.monotonic()) == (1_500_001_000, 6.5)
    with pytest.raises(ValueError, match="cannot go back"):
        fake.advance(-1)


def test_wall_time_can_jump_alone() -> None:
    """A corrected wall clock does not disturb deadlines."""
    clock = FakeClock(now_ns=1_000)
    deadline = Deadline(10, clock)
    clock.advance(4)
    clock.set_wall(7)
    assert clock.now_ns() == 7
    assert deadline.remaining() == 6
    clock.advance(6)
    assert deadline.passed()
    assert clock.now_ns() == 6_000_000_007


def test_simulated_files_take_their_times_from_the_clock() -> None:
    """A file's modification time is the clock's at its last change."""
    clock = FakeClock(now_ns=1_000)
    files = SimulatedFiles(clock=clock)
    file = files.create(Path("/a"))
    assert files.modified_ns(Path("/a")) == 1_000
    clock.advance(1)
    file.append([b"x"])
    assert files.modified_ns(Path("/a")) == 1_000_001_000
    assert files.kill().modified_ns(Path("/a")) == 1_000_001_000


def test_identifiers_follow_from_the_seed() -> None:
    """The same seed gives the same bytes, each call others, of the length asked for."""
    ids: Ids = SequenceIds(7)
    first = [ids.random_bytes(16) for _ in range(50)]
    again = SequenceIds(7)
    assert [again.random_bytes(16) for _ in range(50)] == first
    assert len(set(first)) == 50
    assert SequenceIds(8).random_bytes(16) != first[0]
    assert len(ids.random_bytes(3)) == 3


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    return (SystemFiles(), tmp_path) if request.param == "system" else (SimulatedFiles(), Path("/"))


def test_flipping_a_bit_changes_that_bit_only(place: tuple[Files, Path]) -> None:
    """Bits count from the lowest of the first byte; flipping twice restores the file."""
    files, folder = place
    file = files.create(folder / "a")
    file.append([b"\x00\x00\xff"])
    file.close()
    flip_bit(files, folder / "a", 0)
    flip_bit(files, folder / "a", 15)
    flip_bit(files, folder / "a", 16)
    assert files.read(folder / "a") == b"\x01\x80\xfe"
    flip_bit(files, folder / "a", 15)
    assert files.read(folder / "a") == b"\x01\x00\xfe"


@pytest.mark.parametrize("bit", [-1, 8])
def test_there_is_no_bit_beyond_the_file(bit: int) -> None:
    """A bit that the file does not have is refused."""
    files = SimulatedFiles()
    files.create(Path("/a")).append([b"x"])
    with pytest.raises(ValueError, match=rf"/a has bits 0 to 7; there is no bit {bit}"):
        flip_bit(files, Path("/a"), bit)


def test_tree_goes_to_a_real_folder_and_back(tmp_path: Path) -> None:
    """All names, folders (empty ones too) and bytes survive the way out and the way back, durably."""
    files = SimulatedFiles()
    files.make_folder(Path("/store/empty"))
    files.create(Path("/store/a")).append([b"content" * 5000])
    files.create(Path("/top"))
    dump(files, tmp_path / "out")
    assert (tmp_path / "out" / "store" / "a").read_bytes() == b"content" * 5000
    assert (tmp_path / "out" / "store" / "empty").is_dir()
    back = SimulatedFiles()
    load(back, tmp_path / "out")
    assert back.digest == files.digest
    assert holdfast.testing.crash(back).digest == files.digest


def test_part_of_a_tree_is_copied_under_another_name(tmp_path: Path) -> None:
    """One folder of a disk can be handed out by itself, and put in anywhere."""
    files = SimulatedFiles()
    files.make_folder(Path("/store"))
    files.create(Path("/store/a")).append([b"x"])
    dump(files, tmp_path, Path("/store"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    load(files, tmp_path, Path("/copy/deep"))
    copy_tree(files, Path("/copy"), files, Path("/again"))
    assert files.read(Path("/again/deep/a")) == b"x"
    with pytest.raises(FileExistsError):
        dump(files, tmp_path, Path("/store"))


def test_everything_public_is_exported() -> None:
    """`__all__` names exactly what the package offers, each once."""
    names = holdfast.testing.__all__
    assert len(set(names)) == len(names)
    public = {name for name in vars(holdfast.testing) if not name.startswith("_")}
    assert set(names) == public
