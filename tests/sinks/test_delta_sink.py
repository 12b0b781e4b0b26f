"""The Delta sink: positions, repeats, races, crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sinkkit import KEY, STORE_ID, RecordingFiles, delta, identity, numbers, ranges, soon

from holdfast.errors import Closed, SinkFailed, SinkMoved, SinkTimeout
from holdfast.sinks import DeltaSink, Ranges, WriteResult
from sparkkit import environment

deltalake = pytest.importorskip("deltalake")


def opened(
    path: Path, spark: Any, kind: type[DeltaSink] = DeltaSink, subscriber: str = "lake", **rest: Any
) -> DeltaSink:
    sink = delta(path, kind, **rest)
    sink.open(spark, identity(subscriber=subscriber))
    return sink


def ids(path: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(str(path)).to_pyarrow_table().column("id").to_pylist())


def entries(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path / "_delta_log") if name.endswith(".json"))


def test_rows_and_position_arrive_in_one_transaction(spark: Any, tmp_path: Path) -> None:
    """A batch makes one log entry that has its file and its end offset, and a later process finds both."""
    sink = opened(tmp_path / "t", spark)
    assert sink.position() == {}
    assert sink.write(spark.createDataFrame(numbers(0, 3)), ranges(0, 3), soon()) == WriteResult(3, 1)
    assert len(entries(tmp_path / "t")) == 1
    assert opened(tmp_path / "t", spark).position() == {KEY: 3}
    assert ids(tmp_path / "t") == [0, 1, 2]


def test_a_batch_that_is_there_is_not_written_again(spark: Any, tmp_path: Path) -> None:
    """A repeat writes nothing, whoever does it; a batch that is there in part is refused and says where the sink is."""
    sink = opened(tmp_path / "t", spark)
    frame = spark.createDataFrame(numbers(0, 3))
    sink.write(frame, ranges(0, 3), soon())
    again = opened(tmp_path / "t", spark)
    assert again.write(frame, ranges(0, 3), soon()) == WriteResult(0, 0, repeated=True)
    for first, end in ((0, 5), (2, 5), (1, 4)):
        with pytest.raises(SinkMoved, match=f"it has {KEY} at 3"):
            again.write(frame, ranges(first, end), soon())
    assert ids(tmp_path / "t") == [0, 1, 2]
    assert len(entries(tmp_path / "t")) == 1


def test_several_shards_move_together(spark: Any, tmp_path: Path) -> None:
    """A batch over two shards moves both; one that only one of them has is refused."""
    sink = opened(tmp_path / "t", spark)
    both = Ranges(STORE_ID, "lake", {"a/b/0": (0, 2), "a/b/1": (5, 9)}, None, 100)
    sink.write(spark.createDataFrame(numbers(0, 2)), both, soon())
    assert sink.position() == {"a/b/0": 2, "a/b/1": 9}
    with pytest.raises(SinkMoved, match="it has a/b/1 at 9"):
        sink.write(
            spark.createDataFrame(numbers(2, 3)), Ranges(STORE_ID, "lake", {"a/b/0": (2, 3), "a/b/1": (5, 9)}), soon()
        )


def test_positions_of_others_are_not_ours(spark: Any, tmp_path: Path) -> None:
    """Two subscribers write into one table; each has its own position, and the one does not stop the other."""
    one, two = opened(tmp_path / "t", spark, seed=1), opened(tmp_path / "t", spark, subscriber="other", seed=2)
    one.write(spark.createDataFrame(numbers(0, 2)), ranges(0, 2), soon())
    two.write(spark.createDataFrame(numbers(2, 4)), ranges(0, 7, subscriber="other"), soon())
    assert (one.position(), two.position()) == ({KEY: 2}, {KEY: 7})


@pytest.mark.parametrize("rounds", [0, 1])
def test_of_two_writers_in_one_name_one_loses(spark: Any, tmp_path: Path, rounds: int) -> None:
    """Who commits on a snapshot that another writer of the same subscriber has moved past fails, and adds no rows.

    Also for the very first commit, which makes the table.
    """
    rival = opened(tmp_path / "t", spark, seed=1)
    frame = spark.createDataFrame(numbers(0, 3))
    for number in range(rounds):
        rival.write(frame, ranges(number, number + 1), soon())

    class Overtaken(DeltaSink):
        def _commit(self, *args: Any) -> None:
            rival.write(frame, ranges(rounds, rounds + 1), soon())
            super()._commit(*args)

    slow = opened(tmp_path / "t", spark, Overtaken, seed=2)
    with pytest.raises(SinkMoved, match="somebody else"):
        slow.write(frame, ranges(rounds, rounds + 1), soon())
    assert ids(tmp_path / "t") == sorted([0, 1, 2] * (rounds + 1))
    assert slow.position() == {KEY: rounds + 1}


def test_a_writer_of_another_name_does_not_hinder(spark: Any, tmp_path: Path) -> None:
    """A commit of another subscriber between snapshot and commit leaves both in the table."""
    rival = opened(tmp_path / "t", spark, subscriber="other", seed=1)
    frame = spark.createDataFrame(numbers(0, 1))
    rival.write(frame, ranges(0, 1, subscriber="other"), soon())

    class Overtaken(DeltaSink):
        def _commit(self, *args: Any) -> None:
            rival.write(frame, ranges(1, 2, subscriber="other"), soon())
            super()._commit(*args)

    sink = opened(tmp_path / "t", spark, Overtaken, seed=2)
    sink.write(frame, ranges(0, 1), soon())
    assert ids(tmp_path / "t") == [0, 0, 0]
    assert (sink.position(), rival.position()) == ({KEY: 1}, {KEY: 2})


def test_a_rival_while_the_table_is_widened(spark: Any, tmp_path: Path) -> None:
    """A batch that another writer of the same name delivered while columns were added is not delivered again."""
    rival = opened(tmp_path / "t", spark, seed=1)
    rival.write(spark.createDataFrame(numbers(0, 1)), ranges(0, 1), soon())

    class Overtaken(DeltaSink):
        def _widened(self, batch: pa.Schema) -> pa.Schema:
            rival.write(spark.createDataFrame(numbers(1, 2)), ranges(1, 2), soon())
            return super()._widened(batch)

    slow = opened(tmp_path / "t", spark, Overtaken, seed=2)
    wide = spark.createDataFrame(numbers(1, 2, more=["x"]))
    assert slow.write(wide, ranges(1, 2), soon()).repeated
    assert ids(tmp_path / "t") == [0, 1]


def test_no_commit_for_a_batch_without_rows(spark: Any, tmp_path: Path) -> None:
    """Only the first empty batch is committed, since it makes the table; rows after others are taken all the same."""
    sink = opened(tmp_path / "t", spark)
    empty = spark.createDataFrame(numbers(0, 0))
    assert sink.write(empty, ranges(0, 2), soon()) == WriteResult(0, 0)
    assert sink.position() == {KEY: 2}
    assert sink.write(empty, ranges(2, 9), soon()) == WriteResult(0, 0)
    assert sink.position() == {KEY: 2}
    assert len(entries(tmp_path / "t")) == 1
    sink.write(spark.createDataFrame(numbers(0, 1)), ranges(9, 10), soon())
    assert sink.position() == {KEY: 10}


def test_the_log_entry_is_synced_before_the_write_returns(spark: Any, tmp_path: Path) -> None:
    """After a commit its log entry is synced, then the folder; an entry that was found is synced before it counts."""
    files = RecordingFiles()
    sink = opened(tmp_path / "t", spark, files=files)
    log = tmp_path / "t" / "_delta_log"
    for number in range(2):
        files.synced.clear()
        sink.write(spark.createDataFrame(numbers(0, 1)), ranges(number, number + 1), soon())
        assert files.synced == [log / f"{number:020}.json", log]
    later = RecordingFiles()
    assert opened(tmp_path / "t", spark, files=later).position() == {KEY: 2}
    assert {log / f"{number:020}.json" for number in range(2)} | {log} <= set(later.synced)


def test_a_log_folder_that_the_disk_did_not_sync(spark: Any, tmp_path: Path) -> None:
    """After a failed sync of the folder the batch does not count; the repeat makes the entry's name anew."""
    log = tmp_path / "t" / "_delta_log"

    class Refusing(RecordingFiles):
        refuse = False
        renamed: list[Path] = []  # noqa: RUF012 (one instance)

        def sync_folder(self, path: Path) -> None:
            if self.refuse and path == log:
                self.refuse = False
                raise OSError(5, "Input/output error")
            super().sync_folder(path)

        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            self.renamed.append(target)

    files = Refusing()
    sink = opened(tmp_path / "t", spark, files=files)
    frame = spark.createDataFrame(numbers(0, 2))
    files.refuse = True
    with pytest.raises(SinkFailed, match="Input/output error"):
        sink.write(frame, ranges(0, 2), soon())
    files.synced.clear()
    assert sink.write(frame, ranges(0, 2), soon()).repeated
    assert files.renamed == [log / f"{0:020}.json"]
    assert files.synced[-1] == log
    assert ids(tmp_path / "t") == [0, 1]


def test_crash_between_files_and_commit(spark: Any, tmp_path: Path) -> None:
    """Files without a commit are in nobody's way: the batch is delivered by the next attempt, once."""

    class Dies(DeltaSink):
        def _commit(self, *args: Any) -> None:
            raise KeyboardInterrupt

    frame = spark.createDataFrame(numbers(0, 2))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path / "t", spark, Dies, seed=_).write(frame, ranges(0, 2), soon())
    sink = opened(tmp_path / "t", spark, seed=9)
    assert sink.position() == {}
    sink.write(frame, ranges(0, 2), soon())
    assert ids(tmp_path / "t") == [0, 1]
    orphans = [name for name in os.listdir(tmp_path / "t") if name.startswith("part-lake-")]
    assert len(orphans) == 3


def test_a_torn_log_entry_is_set_aside(spark: Any, tmp_path: Path) -> None:
    """An empty or half log entry at the end, as a power cut leaves it, is moved away, and the table goes on."""
    sink = opened(tmp_path / "t", spark)
    frame = spark.createDataFrame(numbers(0, 2))
    sink.write(frame, ranges(0, 2), soon())
    log = tmp_path / "t" / "_delta_log"
    (log / f"{1:020}.json").write_bytes((log / f"{0:020}.json").read_bytes()[:-20])
    (log / f"{2:020}.json").write_bytes(b"")
    later = opened(tmp_path / "t", spark, seed=1)
    assert later.position() == {KEY: 2}
    later.write(frame, ranges(2, 4), soon())
    assert ids(tmp_path / "t") == [0, 0, 1, 1]
    assert sorted(os.listdir(tmp_path / "t/_holdfast/torn")) == [f"{1:020}.json", f"{2:020}.json"]


def test_the_log_is_checkpointed(spark: Any, tmp_path: Path) -> None:
    """After 100 entries there is a durable checkpoint, and position and rows can be read without the older entries."""
    path, files = tmp_path / "t", RecordingFiles()
    sink = opened(path, spark, files=files)
    sink.write(spark.createDataFrame(numbers(0, 1)), ranges(0, 1), soon())
    table = deltalake.DeltaTable(str(path))
    without = deltalake.PostCommitHookProperties(create_checkpoint=False)
    for _ in range(98):
        table.create_write_transaction([], "append", table.schema(), post_commithook_properties=without)
        table.update_incremental()
    sink.write(spark.createDataFrame(numbers(1, 2)), ranges(1, 2), soon())
    names = os.listdir(path / "_delta_log")
    assert f"{99:020}.checkpoint.parquet" in names
    assert "_last_checkpoint" in names
    for version in range(99):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    later = opened(path, spark, seed=1)
    assert later.position() == {KEY: 2}
    later.write(spark.createDataFrame(numbers(2, 3)), ranges(2, 3), soon())
    assert ids(path) == [0, 1, 2]


def test_a_deadline_cancels_the_job(spark: Any, tmp_path: Path) -> None:
    """A batch that takes too long ends with SinkTimeout, nothing of it is delivered, and the sink can be used again."""
    sink = opened(tmp_path / "t", spark)
    endless = spark.range(0, 2**62, 1, 1).selectExpr("id").where("id * 3 % 7 = 8")
    with pytest.raises(SinkTimeout, match="deadline"):
        sink.write(endless, ranges(0, 1), soon(0.5))
    with pytest.raises(SinkTimeout, match="before anything was written"):
        sink.write(endless, ranges(0, 1), soon(0))
    assert sink.position() == {}
    sink.write(spark.createDataFrame(numbers(0, 1)), ranges(0, 1), soon())
    assert ids(tmp_path / "t") == [0]
    assert not list(spark.sparkContext.getJobTags())


def test_a_failing_job_is_told_in_one_line(spark: Any, tmp_path: Path) -> None:
    """An error inside the frame comes as SinkFailed that says what it was, without stack traces."""
    sink = opened(tmp_path / "t", spark)
    frame = spark.range(3).selectExpr("id", "cast(raise_error('no such luck') as string) as text")
    with pytest.raises(SinkFailed, match="no such luck") as caught:
        sink.write(frame, ranges(0, 1), soon())
    assert "\n" not in str(caught.value)
    assert sink.position() == {}


def test_a_closed_sink_says_so(spark: Any, tmp_path: Path) -> None:
    """Closed, or never opened: an error that says what to do."""
    sink = opened(tmp_path / "t", spark)
    sink.close()
    with pytest.raises(Closed, match="open it"):
        sink.position()


_DRIVER = """
import os, signal, sys
from pathlib import Path
import sparkkit, sinkkit
from pyspark.sql import SparkSession
from holdfast.sinks import DeltaSink

path, when = Path(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder.master("local[1]")
for key, value in sparkkit.CONF.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

class Dies(DeltaSink):
    def _commit(self, *args):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super()._commit(*args)
        os.kill(os.getpid(), signal.SIGKILL)

sink = sinkkit.delta(path, Dies, seed=7)
sink.open(spark, sinkkit.identity())
end = sink.position().get(sinkkit.KEY, 0)
frame = spark.createDataFrame(sinkkit.numbers(end, end + 2))
sink.write(frame, sinkkit.ranges(end, end + 2), sinkkit.soon())
"""


@pytest.mark.long
@pytest.mark.parametrize(("when", "held"), [("before", 0), ("after", 2)])
def test_the_driver_is_killed_around_its_commit(spark: Any, tmp_path: Path, when: str, held: int) -> None:
    """A driver killed before its commit leaves nothing, one killed right after it the whole batch."""
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    path = os.pathsep.join([str(Path(__file__).parent), environment()["PYTHONPATH"]])
    process = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "t"), when],
        env={**environment(), "PYTHONPATH": path},
        capture_output=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    sink = opened(tmp_path / "t", spark)
    assert sink.position() == ({KEY: held} if held else {})
    sink.write(spark.createDataFrame(numbers(held, held + 2)), ranges(held, held + 2), soon())
    assert ids(tmp_path / "t") == list(range(held + 2))
