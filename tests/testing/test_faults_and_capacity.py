"""Calls that fail on request, and a disk that fills up."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.testing import OPERATIONS, SimulatedFiles

ROOT = Path("/")
A = Path("/a")


def test_every_operation_can_fail() -> None:
    """Each method of a filesystem and of an open file fails when told to, once, and then works again."""
    files = SimulatedFiles()
    file = files.create(A)
    files.create(Path("/old"))
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: file.append([b"x"]),
        "write_at": lambda: file.write_at(0, b"y"),
        "preallocate": lambda: file.preallocate(10),
        "truncate": lambda: file.truncate(1),
        "sync": file.sync,
        "create": lambda: files.create(Path("/new")),
        "open": lambda: files.open(A),
        "open_shared": lambda: files.open_shared(A),
        "open_mapped": lambda: files.open_mapped(A),
        "read": lambda: files.read(A),
        "map": lambda: files.map(A),
        "size": lambda: files.size(A),
        "modified_ns": lambda: files.modified_ns(A),
        "exists": lambda: files.exists(A),
        "is_folder": lambda: files.is_folder(A),
        "list": lambda: files.list(ROOT),
        "make_folder": lambda: files.make_folder(Path("/folder")),
        "rename": lambda: files.rename(Path("/old"), Path("/older")),
        "unlink": lambda: files.unlink(Path("/older")),
        "sync_folder": lambda: files.sync_folder(ROOT),
        "lock": lambda: files.lock(Path("/LOCK"), note="me"),
        "watch": files.watch,
        "free_bytes": lambda: files.free_bytes(ROOT),
    }
    assert set(calls) == OPERATIONS
    for operation, call in calls.items():
        before = files.digest
        fault = files.fail(operation, errno.EIO)
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EIO, operation
        assert raised.value.filename is not None, operation
        assert files.digest == before, operation
        assert fault.fired == 1
        call()
        assert (fault.seen, fault.fired) == (2, 1), operation


def test_nth_and_times() -> None:
    """Calls fail from the nth on, so many times, counted from when the rule was made."""
    files = SimulatedFiles()
    file = files.create(A)
    file.append([b"."])
    files.fail("append", nth=2, times=2)
    outcomes = []
    for _ in range(5):
        try:
            file.append([b"x"])
            outcomes.append(True)
        except OSError:
            outcomes.append(False)
    assert outcomes == [True, False, False, True, True]


def test_failing_for_ever_until_healed() -> None:
    """With `times=None` every call fails until the rules are taken back."""
    files = SimulatedFiles()
    files.fail("create", errno.ENOSPC, times=None)
    for _ in range(10):
        with pytest.raises(OSError, match="No space left on device"):
            files.create(A)
    files.heal()
    files.create(A)


def test_path_glob() -> None:
    """Only paths that match are counted and failed."""
    files = SimulatedFiles()
    files.make_folder(Path("/store/wal"))
    fault = files.fail("create", path="/store/*.wal", times=None)
    files.create(Path("/store/a.seg"))
    files.create(Path("/elsewhere.wal"))
    assert fault.seen == 0
    for path in ("/store/a.wal", "/store/wal/a.wal"):
        with pytest.raises(OSError):
            files.create(Path(path))
    assert (fault.seen, fault.fired) == (2, 2)


def test_short_write_puts_down_the_first_bytes() -> None:
    """A short write leaves its first bytes and then fails; the next append follows them."""
    files = SimulatedFiles()
    file = files.create(A)
    files.fail("append", errno.ENOSPC, short=3)
    with pytest.raises(OSError) as raised:
        file.append([b"ab", b"cdef"])
    assert raised.value.errno == errno.ENOSPC
    assert files.read(A) == b"abc"
    file.append([b"!"])
    files.fail("write_at", errno.EIO, short=1)
    with pytest.raises(OSError):
        file.write_at(0, b"XY")
    assert files.read(A) == b"Xbc!"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"operation": "chmod"}, "'chmod' cannot fail; these can: append, create"),
        ({"operation": "sync", "short": 1}, "short=1 makes sense for append and write_at only"),
        ({"operation": "append", "nth": 0}, "nth counts from 1, not 0"),
    ],
)
def test_senseless_rule_is_refused(arguments: dict[str, object], text: str) -> None:
    """A rule that could never fire says so when it is made."""
    with pytest.raises(ValueError, match=text):
        SimulatedFiles().fail(**arguments)  # type: ignore[arg-type]


def test_calls_are_counted() -> None:
    """The count of each operation lets a test fail the first, the second, and so on to the last."""
    files = SimulatedFiles()
    file = files.create(A)
    for _ in range(3):
        file.append([b"x"])
    files.fail("append")
    with pytest.raises(OSError):
        file.append([b"x"])
    file.sync()
    assert files.calls == {"create": 1, "append": 4, "sync": 1}


def test_hook_runs_ahead_of_each_call_without_a_lock() -> None:
    """The hook may use the disk, hold one thread back while others work, and raise instead of the call."""
    files = SimulatedFiles()
    file = files.create(A)
    reached, go_on = threading.Event(), threading.Event()
    seen: list[tuple[str, Path]] = []

    def before(operation: str, path: Path) -> None:
        seen.append((operation, path))
        if operation == "sync":
            reached.set()
            assert go_on.wait(60)

    files.before = before
    thread = threading.Thread(target=file.sync)
    thread.start()
    assert reached.wait(60)
    assert files.calls["sync"] == 0
    file.append([b"meanwhile"])
    go_on.set()
    thread.join(60)
    assert files.calls["sync"] == 1
    assert seen == [("sync", A), ("append", A)]

    def refuse(operation: str, path: Path) -> None:
        raise KeyboardInterrupt

    files.before = refuse
    with pytest.raises(KeyboardInterrupt):
        file.append([b"never"])
    files.before = None
    assert files.read(A) == b"meanwhile"


def test_full_disk_takes_what_fits_and_then_fails() -> None:
    """A write beyond the capacity is short first, as on a real disk, and writes in place still work."""
    files = SimulatedFiles(capacity=10)
    one, two = files.create(A), files.create(Path("/b"))
    one.append([b"1234567"])
    assert files.free_bytes(ROOT) == (3, 10)
    with pytest.raises(OSError) as raised:
        two.append([b"abcde"])
    assert raised.value.errno == errno.ENOSPC
    assert files.read(Path("/b")) == b"abc"
    assert files.free_bytes(ROOT) == (0, 10)
    with pytest.raises(OSError):
        two.append([b"d"])
    one.write_at(0, b"ABCDEFG")
    assert files.read(A) == b"ABCDEFG"


def test_room_comes_back_by_unlink_and_truncate() -> None:
    """Deleted and cut bytes are free again, and so are those of a file that was replaced."""
    files = SimulatedFiles(capacity=10)
    one, two = files.create(A), files.create(Path("/b"))
    one.append([b"12345"])
    two.append([b"12345"])
    one.truncate(2)
    assert files.free_bytes(ROOT) == (3, 10)
    files.rename(Path("/b"), A)
    assert files.free_bytes(ROOT) == (5, 10)
    files.unlink(A)
    assert files.free_bytes(ROOT) == (10, 10)


def test_preallocation_looks_for_room() -> None:
    """Reserving more than there is fails; reserving what fits sets nothing aside."""
    files = SimulatedFiles(capacity=10)
    file = files.create(A)
    file.append([b"12345"])
    file.preallocate(10)
    assert files.free_bytes(ROOT) == (5, 10)
    with pytest.raises(OSError) as raised:
        file.preallocate(11)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError):
        file.truncate(11)


def test_capacity_can_change_and_outlives_a_kill() -> None:
    """A test may fill or free the disk at any time; the next process finds it as full."""
    files = SimulatedFiles()
    file = files.create(A)
    file.append([b"12345"])
    files.capacity = 5
    with pytest.raises(OSError):
        file.append([b"6"])
    survivor = files.kill()
    with pytest.raises(OSError):
        survivor.open(A).append([b"6"])
    files.capacity = 6
    file.append([b"6"])


def test_threads_share_the_disk() -> None:
    """Appends of many threads to files of their own are all there, and all in the journal."""
    files = SimulatedFiles()

    def work(number: int) -> None:
        file = files.create(Path(f"/{number}"))
        for _ in range(100):
            file.append([b"x"])
        file.sync()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [files.size(Path(f"/{number}")) for number in range(8)] == [100] * 8
    assert [record.index for record in files.journal] == list(range(8 * 102))


def test_paths_that_leave_the_disk_are_refused() -> None:
    """`..` is not followed, and relative paths count from the root."""
    files = SimulatedFiles()
    files.create(Path("relative"))
    assert files.exists(Path("/relative"))
    with pytest.raises(ValueError, match="does not follow"):
        files.exists(Path("/store/../a"))
