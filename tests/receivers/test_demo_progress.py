"""What the checkpoints of a demo source say to the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Corruption, InvalidSettings
from holdfast.files import SystemFiles
from holdfast.receivers._demo_progress import DemoProgress, sent_blocks


def progress(folder: Path, worker: int = 0, workers: int = 1, **options: Any) -> DemoProgress:
    fixed = {"store_id": "s", "rows_per_bundle": 10, "seed": 0, **options}
    return DemoProgress(SystemFiles(), folder, "demo", worker=worker, workers=workers, **fixed)


def test_without_a_checkpoint_it_begins_at_the_workers_first_block(tmp_path: Path) -> None:
    """Worker i begins at block i."""
    assert [progress(tmp_path / "new", worker, 3).resume() for worker in range(3)] == [0, 1, 2]


def test_it_resumes_where_it_was(tmp_path: Path) -> None:
    """What was saved is found again, by this worker alone."""
    progress(tmp_path, 1, 2).save(41, 45, None)
    assert [progress(tmp_path, worker, 2).resume() for worker in range(2)] == [0, 41]


def test_other_numbers_of_workers_count_too(tmp_path: Path) -> None:
    """With another number of workers all begin above what every former worker had finished."""
    for worker, following in enumerate((30, 41, 20)):
        progress(tmp_path, worker, 3).save(following, following, None)
    assert progress(tmp_path).resume() == 20
    assert [progress(tmp_path, worker, 2).resume() for worker in range(2)] == [20, 21]
    progress(tmp_path).save(100, 100, None)
    assert [progress(tmp_path, worker, 3).resume() for worker in range(3)] == [102, 100, 101]


def test_a_former_worker_without_checkpoint_had_finished_nothing(tmp_path: Path) -> None:
    """A layout of which one worker's checkpoint is missing promises nothing to others."""
    progress(tmp_path, 0, 2).save(30, 30, None)
    assert progress(tmp_path).resume() == 0


def test_another_store_has_none_of_the_blocks(tmp_path: Path) -> None:
    """A checkpoint of a store that was replaced does not count."""
    progress(tmp_path).save(30, 30, None)
    assert progress(tmp_path, store_id="other").resume() == 0
    assert sent_blocks(SystemFiles(), tmp_path, "demo", "other") == set()


@pytest.mark.parametrize(("key", "value"), [("rows_per_bundle", 20), ("seed", 1)])
def test_other_rows_are_refused(tmp_path: Path, key: str, value: int) -> None:
    """A changed block size or seed would give the same keys other rows: an error that says what to do."""
    progress(tmp_path).save(30, 30, None)
    with pytest.raises(
        InvalidSettings, match=rf"source demo has sent blocks with {key} \d+, and is now set to {value}"
    ):
        progress(tmp_path, **{key: value}).resume()


def test_sent_blocks_are_those_of_all_workers(tmp_path: Path) -> None:
    """The union of what each worker has sent."""
    progress(tmp_path, 0, 2).save(2, 6, None)
    progress(tmp_path, 1, 2).save(1, 3, None)
    assert sent_blocks(SystemFiles(), tmp_path, "demo", "s") == {0, 1, 2, 4}


def test_a_foreign_document_is_corruption(tmp_path: Path) -> None:
    """A checkpoint of another kind at this name is named, not guessed at."""
    from holdfast.files.checkpoint import write_checkpoint

    write_checkpoint(SystemFiles(), tmp_path / "demo.checkpoint", {"kind": "store"})
    with pytest.raises(Corruption, match="not the checkpoint of a demo source"):
        progress(tmp_path).resume()
