"""What only the real filesystem can show."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.files import LockHeld, SystemFiles


def test_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the system takes only some bytes of an append or a write, the rest follows."""
    real_pwritev, real_pwrite = os.pwritev, os.pwrite

    def short_pwritev(descriptor: int, buffers: Any, position: int) -> int:
        return real_pwritev(descriptor, [b"".join(buffers)[:5]], position)

    def short_pwrite(descriptor: int, data: Any, position: int) -> int:
        return real_pwrite(descriptor, bytes(data)[:2], position)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", short_pwrite)
    file = SystemFiles().create(tmp_path / "a")
    assert file.append([b"abc", b"", b"defgh", b"ijklmnop", b"q"]) == 17
    file.write_at(1, b"BCDEF")
    file.append([b"r"])
    file.close()
    assert (tmp_path / "a").read_bytes() == b"aBCDEFghijklmnopqr"


def test_append_without_pwritev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot write several buffers at once they are written one by one."""
    monkeypatch.delattr(os, "pwritev")
    file = SystemFiles().create(tmp_path / "a")
    assert file.append([b"abc", b"", b"def"]) == 6
    file.close()
    assert (tmp_path / "a").read_bytes() == b"abcdef"


def test_lock_is_not_left_behind_when_its_note_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that fails half-way, as on a full disk, is given up."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="full"):
            SystemFiles().lock(tmp_path / "LOCK", note="me")
    SystemFiles().lock(tmp_path / "LOCK", note="me").release()


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    """A lock of another process keeps us out, and is free as soon as that process is killed."""
    program = (
        "import sys; from pathlib import Path; from holdfast.files import SystemFiles\n"
        "lock = SystemFiles().lock(Path(sys.argv[1]), note='the child')\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "LOCK")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(LockHeld, match="the child"):
            SystemFiles().lock(tmp_path / "LOCK", note="us")
        child.kill()
    SystemFiles().lock(tmp_path / "LOCK", note="us").release()


def test_make_folder_syncs_every_name_it_relies_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new folder is synced in its parent, and so is the one found: its maker may have been killed."""
    synced: list[Path] = []
    monkeypatch.setattr(SystemFiles, "sync_folder", lambda _, path: synced.append(path))
    SystemFiles().make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a"]
    synced.clear()
    SystemFiles().make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a"]


def test_make_folder_below_a_parent_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that belongs to somebody else is no obstacle to making folders in our own."""
    real = SystemFiles.sync_folder

    def guarded(files: SystemFiles, path: Path) -> None:
        if path == tmp_path.parent:
            raise PermissionError(errno.EACCES, "not yours", str(path))
        real(files, path)

    monkeypatch.setattr(SystemFiles, "sync_folder", guarded)
    SystemFiles().make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir()
