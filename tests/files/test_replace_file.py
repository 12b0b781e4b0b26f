"""Replacing a file whole."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast.files import TEMPORARY_SUFFIX, Files, replace_file
from holdfast.testing import CrashMode, SimulatedFiles, crash_states

PATH = Path("/store/state")
OLD, NEW = b"old" * 700, b"new!" * 900
TEMPORARY = PATH.with_name(PATH.name + TEMPORARY_SUFFIX)


def with_old_file() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_folder(PATH.parent)
    replace_file(files, PATH, [OLD])
    files.clear_journal()
    return files


def test_replaces_content(place: tuple[Files, Path]) -> None:
    """The file holds the new bytes and nothing else is left in the folder."""
    files, folder = place
    replace_file(files, folder / "state", [b"first"])
    replace_file(files, folder / "state", [b"sec", b"ond"])
    assert files.read(folder / "state") == b"second"
    assert files.list(folder) == ["state"]


def test_crash_at_every_point_leaves_the_old_file_or_the_new_one() -> None:
    """Whatever is lost, reordered or torn, the file is whole, and the new one once the call has returned."""
    files = with_old_file()
    replace_file(files, PATH, [NEW[:1000], NEW[1000:]])
    files.note("replaced")
    found = set()
    for state in crash_states(files, modes=CrashMode, per_prefix=40):
        content = state.files.read(PATH)
        found.add(content)
        assert content in (OLD, NEW), state.description
        assert content == NEW or not state.notes, state.description
        assert set(state.files.list(PATH.parent)) <= {PATH.name, TEMPORARY.name}, state.description
    assert found == {OLD, NEW}


def test_leftover_of_a_crash_is_no_obstacle() -> None:
    """After a crash at any point the file can be replaced again."""
    files = with_old_file()
    replace_file(files, PATH, [NEW])
    leftovers = 0
    for state in crash_states(files, per_prefix=10):
        leftovers += state.files.exists(TEMPORARY)
        replace_file(state.files, PATH, [b"third"])
        assert state.files.list(PATH.parent) == [PATH.name], state.description
        assert state.files.read(PATH) == b"third", state.description
    assert leftovers


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename"])
def test_fault_leaves_the_old_file(operation: str, error: int) -> None:
    """A step that fails is reported, the old bytes stay, and the next attempt succeeds."""
    files = with_old_file()
    short = 5 if operation == "append" else None
    files.fail(operation, error, short=short)
    with pytest.raises(OSError) as raised:
        replace_file(files, PATH, [NEW])
    assert raised.value.errno == error
    assert files.read(PATH) == OLD
    for state in crash_states(files, per_prefix=10):
        assert state.files.read(PATH) == OLD, state.description
    replace_file(files, PATH, [NEW])
    assert files.read(PATH) == NEW


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_failed_write_leaves_no_rubbish(operation: str) -> None:
    """The temporary file of a failed attempt is gone: a full disk does not stay full because of it."""
    files = with_old_file()
    files.fail(operation, errno.ENOSPC, short=7 if operation == "append" else None)
    with pytest.raises(OSError):
        replace_file(files, PATH, [NEW])
    assert files.list(PATH.parent) == [PATH.name]


def test_error_that_is_not_the_systems_leaves_no_rubbish_either() -> None:
    """Something that is not bytes is refused, and neither an open file nor a temporary one stays behind."""
    files = with_old_file()
    with pytest.raises(TypeError):
        replace_file(files, PATH, ["text"])
    assert files.list(PATH.parent) == [PATH.name]
