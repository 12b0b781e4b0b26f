"""The commit of the Parquet sink, crashed at every step."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sinkkit import KEY, STORE_ID, identity, parquet, ranges, soon

from holdfast.errors import SinkFailed, SinkMoved
from holdfast.files import Files
from holdfast.sinks import ParquetSink, _write_files
from holdfast.sinks import parquet as module
from holdfast.sinks._folder_writer import FileFacts
from holdfast.testing import CrashMode, SimulatedFiles, crash, crash_states

ROOT = Path("/lake/events")
BATCHES = [(0, 2), (2, 5), (5, 6)]


def frame() -> Any:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    fields = [StructField("id", LongType()), StructField("day", StringType())]
    return SimpleNamespace(schema=StructType(fields))


@pytest.fixture
def staging(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for the executors: one file a row, durable, with the row's number as its content."""

    def install(files: Files) -> None:
        def write_files(frame: Any, plan: _write_files.Plan, batch: Any, deadline: Any) -> list[FileFacts]:
            ((first, end),) = batch.ranges.values()
            facts = []
            for number in range(first, end):
                name = f"{plan.prefix}-{number}.parquet"
                file = files.create(Path(plan.folder, name))
                file.append([str(number).encode()])
                file.sync()
                file.close()
                facts.append(FileFacts(name, 1, 1, (f"d{number % 2}",) if plan.partition_by else (), ""))
            files.sync_folder(Path(plan.folder))
            return facts

        monkeypatch.setattr(module, "write_files", write_files)

    return install


def opened(files: SimulatedFiles, seed: int, partition_by: tuple[str, ...]) -> ParquetSink:
    sink = parquet(ROOT, files, seed, partition_by=partition_by)
    sink.open(None, identity())  # type: ignore[arg-type]
    return sink


def readable(files: Files, folder: Path = ROOT) -> list[int]:
    """What a reader of the folder finds."""
    found: list[int] = []
    for name in files.list(folder):
        if name.startswith("_"):
            continue
        if files.is_folder(folder / name):
            found += readable(files, folder / name)
        else:
            found.append(int(files.read(folder / name)))
    return sorted(found)


def deliver(sink: ParquetSink, files: SimulatedFiles) -> None:
    at = sink.position().get(KEY, 0)
    for first, end in BATCHES:
        if at <= first:
            sink.write(frame(), ranges(first, end), soon())
            files.note(end)


@pytest.mark.parametrize("partition_by", [(), ("day",)])
@pytest.mark.parametrize(("per_prefix", "seeds"), [(1, 1), pytest.param(6, 8, marks=pytest.mark.long)])
def test_every_crash_leaves_each_row_once(
    staging: Any, partition_by: tuple[str, ...], per_prefix: int, seeds: int
) -> None:
    """After any crash the position is that of a whole batch, not below what was answered; each row is there once."""
    files = SimulatedFiles()
    staging(files)
    deliver(opened(files, 0, partition_by), files)
    states = 0
    for seed in range(seeds):
        for state in crash_states(files, modes=list(CrashMode), per_prefix=per_prefix, seed=seed):
            answered = max((note for note in state.notes if isinstance(note, int)), default=0)
            staging(state.files)
            sink = opened(state.files, 1, partition_by)
            position = sink.position().get(KEY, 0)
            assert position >= answered, state
            assert readable(state.files) == list(range(position)), state
            deliver(sink, state.files)
            assert readable(state.files) == list(range(6)), state
            assert state.files.list(ROOT / "_staging/lake") == [], state
            states += 1
    assert states > 50


def test_a_crash_while_a_crash_is_mended(staging: Any) -> None:
    """A start that is cut off while it brings a commit to its end is no harm to the next start."""
    files = SimulatedFiles()
    staging(files)
    sink = opened(files, 0, ())
    sink.write(frame(), ranges(0, 2), soon())
    files.fail("rename", path="*_staging*")
    with pytest.raises(SinkFailed):
        sink.write(frame(), ranges(2, 5), soon())
    half = files.kill()
    opened(half, 1, ()).position()
    for state in crash_states(half, modes=list(CrashMode), per_prefix=2):
        assert opened(state.files, 2, ()).position() == {KEY: 5}, state
        assert readable(state.files) == list(range(5)), state


@pytest.mark.parametrize(
    "operation", ["create", "append", "sync", "rename", "sync_folder", "read", "unlink", "list", "lock", "make_folder"]
)
def test_failing_calls_lose_and_double_nothing(staging: Any, operation: str) -> None:
    """Whichever call of the disk fails, a repeat delivers each row once, and a power cut afterwards takes none."""
    failed = 0
    for nth in range(1, 12):
        files = SimulatedFiles()
        staging(files)
        sink = opened(files, 0, ("day",))
        sink.write(frame(), ranges(0, 2), soon())
        fault = files.fail(operation, nth=nth)
        with contextlib.suppress(SinkFailed, OSError):  # an OSError is the stand-in's own
            sink.write(frame(), ranges(2, 5), soon())
        failed += fault.fired
        files.heal()
        deliver(sink, files)
        assert readable(files) == list(range(6)), nth
        after = crash(files, CrashMode.LOST)
        assert opened(after, 1, ("day",)).position() == {KEY: 6}, nth
        assert readable(after) == list(range(6)), nth
    assert failed


def test_two_writers_in_one_name(staging: Any) -> None:
    """Who finds at its commit that another was faster, or that its files were cleared away, writes nothing."""
    files = SimulatedFiles()
    staging(files)
    one, two = opened(files, 1, ()), opened(files, 2, ())
    stage = module.write_files

    def overtaken(*args: Any) -> list[FileFacts]:
        facts = stage(*args)
        module.write_files = stage
        rivals.pop(0)()
        return facts

    def loses(first: int) -> None:
        module.write_files = overtaken  # type: ignore[assignment]
        with pytest.raises(SinkMoved, match="somebody else"):
            one.write(frame(), ranges(first, first + 2), soon())

    rivals = [lambda: two.write(frame(), ranges(0, 2), soon()), two.position]
    loses(0)
    loses(2)
    assert one.position() == {KEY: 2}
    assert readable(files) == [0, 1]


def test_a_commit_waits_for_nobody(staging: Any) -> None:
    """While another process is inside its commit, this one fails and may try again."""
    files = SimulatedFiles()
    staging(files)
    sink = opened(files, 0, ())
    lock = files.lock(ROOT / "_holdfast/lake.lock", note="")
    with pytest.raises(SinkFailed, match="try again"):
        sink.position()
    lock.release()
    assert sink.position() == {}


def test_another_store_does_not_overwrite_files(staging: Any) -> None:
    """A store with the same offsets but another id has a position and file names of its own."""
    from holdfast.sinks import Ranges

    files = SimulatedFiles()
    staging(files)
    sink = opened(files, 0, ())
    sink.write(frame(), ranges(0, 2), soon())
    other = Ranges("cd" * 16, "lake", {KEY: (0, 2)})
    assert not sink.write(frame(), other, soon()).repeated
    assert readable(files) == [0, 0, 1, 1]
    assert sink.position() == {KEY: 2}
    names = [name for name in files.list(ROOT) if not name.startswith("_")]
    assert f"lake-{STORE_ID[:8]}-prod.logs.0-0-2-0.parquet" in names
