"""Tasks stage, the driver adopts: the writers, without a session."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import holdfast as hf
from holdfast.errors import InvalidSettings, UnknownSlot
from holdfast.operate import fsck
from holdfast.spark import _writers
from holdfast.spark._options import Options
from holdfast.spark._writers import STAGING, BatchWriter, StreamWriter
from spark.topickit import TOPIC, fill, given, ids, put, read_all, source

STRUCT = StructType().add("id", "long")


def writer(path: Path, **options: Any) -> BatchWriter:
    return BatchWriter(Options.of(given(path, **options)), STRUCT)


def stream_writer(path: Path, **options: Any) -> StreamWriter:
    return StreamWriter(Options.of(given(path, source="copy", slot="logs", **options)), STRUCT)


def staged(path: Path) -> list[str]:
    folder = path / STAGING
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


def bundles(path: Path) -> list[list[int]]:
    with hf.Store.open(path, read_only=True) as store:
        return [bundle["logs"]["id"].to_pylist() for bundle in store.topic(TOPIC).bundles()]


def test_what_all_tasks_staged_is_appended_in_their_order(tmp_path: Path) -> None:
    """Nothing is in the topic before the job commits; then everything is, and the staging folder is empty."""
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path)
    messages = [job.write(iter([ids(1), ids(2)])), job.write(iter([ids(3)])), job.write(iter([]))]
    assert bundles(tmp_path) == [[0]]
    assert len(staged(tmp_path)) == 2

    job.commit([messages[0], None, *messages[1:]])

    assert bundles(tmp_path) == [[0], [1, 2], [3]]
    assert staged(tmp_path) == []


def test_writers_travel(tmp_path: Path) -> None:
    """The writer that stages and the one that commits are copies in other processes."""
    fill(tmp_path, [ids(0)])
    job = pickle.dumps(writer(tmp_path))
    message = pickle.loads(job).write(iter([ids(1)]))
    pickle.loads(job).commit([pickle.loads(pickle.dumps(message))])

    assert bundles(tmp_path) == [[0], [1]]


def test_a_second_attempt_of_a_task_counts_once(tmp_path: Path) -> None:
    """Files of an attempt that Spark did not accept are never appended, and are gone after the job."""
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path)
    job.write(iter([ids(1)]))
    job.commit([job.write(iter([ids(1)]))])

    assert bundles(tmp_path) == [[0], [1]]
    assert staged(tmp_path) == []


def test_an_aborted_job_leaves_nothing(tmp_path: Path) -> None:
    """No bundle, no file, not even of attempts that nobody told of."""
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path)
    job.write(iter([ids(1)]))
    job.abort([None])

    assert bundles(tmp_path) == [[0]]
    assert staged(tmp_path) == []


def test_jobs_do_not_touch_each_others_files(tmp_path: Path) -> None:
    """Two jobs at once stage side by side."""
    fill(tmp_path, [ids(0)])
    first, second = writer(tmp_path), writer(tmp_path)
    message = first.write(iter([ids(1)]))
    second.write(iter([ids(2)]))
    second.abort([])
    first.commit([message])

    assert bundles(tmp_path) == [[0], [1]]


def test_rows_are_cut_into_bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are joined, large outputs cut."""
    monkeypatch.setattr(_writers, "BUNDLE_ROWS", 5)
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path)
    job.commit([job.write(iter([ids(number, number) for number in range(7)]))])

    assert [len(bundle) for bundle in bundles(tmp_path)] == [1, 6, 6, 2]


def test_what_is_written_is_durable_and_says_where_from(tmp_path: Path) -> None:
    """The source's name is on every bundle."""
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path, source="copy")
    job.commit([job.write(iter([ids(1)]))])

    assert read_all(tmp_path, metadata="_source")["_source"].to_pylist() == [None, "copy"]
    assert read_all(tmp_path, sources="copy")["id"].to_pylist() == [1]


def test_a_writer_beside_another_process(tmp_path: Path) -> None:
    """While somebody else writes to the topic a job appends to a shard of its own."""
    with hf.Store.open(tmp_path) as store:
        put(store.topic(TOPIC), ids(0))
        job = writer(tmp_path)
        job.commit([job.write(iter([ids(1)]))])
        put(store.topic(TOPIC), ids(2))

        found = read_all(tmp_path, metadata="_shard")
        assert found.to_pydict() == {"id": [0, 2, 1], "_shard": [0, 0, 1]}


def test_a_repeated_batch_is_stored_once(tmp_path: Path) -> None:
    """Spark commits a batch again after a crash: what was stored stays single, and what was missing is added."""
    fill(tmp_path, [ids(0)])
    first = stream_writer(tmp_path)
    first.commit([first.write(iter([ids(1)])), first.write(iter([ids(2)]))], 7)
    again = stream_writer(tmp_path)
    again.commit([again.write(iter([ids(1)])), again.write(iter([ids(2)])), again.write(iter([ids(3)]))], 7)

    assert bundles(tmp_path) == [[0], [1], [2], [3]]
    assert staged(tmp_path) == []


def test_equal_rows_of_other_batches_are_stored(tmp_path: Path) -> None:
    """The same rows in another batch, in another place of it, or of another query are other rows."""
    fill(tmp_path, [ids(0)])
    for batch in (1, 2):
        job = stream_writer(tmp_path)
        job.commit([job.write(iter([ids(1)])), job.write(iter([ids(1)]))], batch)
    other = StreamWriter(Options.of(given(tmp_path, source="other")), STRUCT)
    other.commit([other.write(iter([ids(1)]))], 1)

    assert bundles(tmp_path) == [[0], [1], [1], [1], [1], [1]]


def test_other_rows_under_an_old_number_are_stored(tmp_path: Path) -> None:
    """A query that lost its checkpoint counts batches from 0 again: its new rows are not taken for old ones."""
    fill(tmp_path, [ids(0)])
    for number in (1, 2):
        job = stream_writer(tmp_path)
        job.commit([job.write(iter([ids(number)]))], 0)

    assert bundles(tmp_path) == [[0], [1], [2]]


def test_an_aborted_batch_leaves_nothing(tmp_path: Path) -> None:
    """As for a job."""
    fill(tmp_path, [ids(0)])
    job = stream_writer(tmp_path)
    job.write(iter([ids(1)]))
    job.abort([], 0)

    assert bundles(tmp_path) == [[0]]
    assert staged(tmp_path) == []


def test_a_stream_commits_with_another_writer(tmp_path: Path) -> None:
    """Spark makes a writer anew to commit: what the tasks staged is gone all the same, after a commit or an abort."""
    fill(tmp_path, [ids(0)])
    staging = stream_writer(tmp_path)
    staging.write(iter([ids(1)]))  # an attempt that was given up
    message = staging.write(iter([ids(1)]))
    stream_writer(tmp_path).commit([message], 0)
    assert staged(tmp_path) == []
    message = staging.write(iter([ids(2)]))
    stream_writer(tmp_path).abort([message], 1)

    assert staged(tmp_path) == []
    assert bundles(tmp_path) == [[0], [1]]


def test_files_of_jobs_that_died(tmp_path: Path) -> None:
    """Files that nobody adopted for a week are removed by the next job; younger ones may be in use."""
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path)
    (path,) = job.write(iter([ids(1)])).paths
    writer(tmp_path)
    assert Path(path).exists()
    os.utime(path, (0, 0))
    writer(tmp_path)

    assert not Path(path).exists()


def test_a_stream_needs_a_name(tmp_path: Path) -> None:
    """Without a name of its own a repeated batch could not be told."""
    fill(tmp_path, [ids(0)])

    with pytest.raises(InvalidSettings, match=r'needs a name of its own: \.option\("source", \.\.\.\)'):
        source(tmp_path).streamWriter(STRUCT, overwrite=False)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A topic only grows."""
    fill(tmp_path, [ids(0)])

    for make in (source(tmp_path).writer, source(tmp_path).streamWriter):
        with pytest.raises(InvalidSettings, match=r'a topic is appended to, never overwritten: \.mode\("append"\)'):
            make(STRUCT, overwrite=True)


def test_slots(tmp_path: Path) -> None:
    """The only slot is meant unless another is named; where there are none or several, one must be."""
    with pytest.raises(UnknownSlot, match=r"prod/logs has no slot yet: choose one to write to"):
        writer(tmp_path)
    job = writer(tmp_path, slot="traces")
    job.commit([job.write(iter([ids(1)]))])
    fill(tmp_path, [ids(2)])
    with pytest.raises(UnknownSlot, match=r"prod/logs has the slots logs, traces: choose one to write to"):
        writer(tmp_path)

    assert read_all(tmp_path, slot="traces")["id"].to_pylist() == [1]


def test_staging_is_no_part_of_the_store(tmp_path: Path) -> None:
    """A staging folder, empty or not, is neither a namespace nor damage."""
    fill(tmp_path, [ids(0)])
    job = writer(tmp_path)
    job.write(iter([ids(1)]))

    with hf.Store.open(tmp_path) as store:
        assert store.topics() == [TOPIC]
    assert not fsck(tmp_path).findings


def test_time_zones_of_sessions(tmp_path: Path) -> None:
    """Moments written by sessions in different time zones stand in one column."""
    struct = StructType().add("at", "timestamp")
    for zone in ("Europe/Berlin", "UTC"):
        job = BatchWriter(Options.of(given(tmp_path, slot="logs")), struct)
        job.commit([job.write(iter([pa.record_batch({"at": pa.array([0], pa.timestamp("us", zone))})]))])

    assert [each.timestamp() for each in read_all(tmp_path)["at"].to_pylist()] == [0.0, 0.0]
