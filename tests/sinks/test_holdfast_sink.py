"""The sink that appends to another topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sinkkit import KEY, identity, numbers, ranges, soon

from holdfast import Store
from holdfast.clock import Ids, SystemClock, SystemIds
from holdfast.errors import SinkFailed, SinkMoved, SinkRefused
from holdfast.files import SystemFiles
from holdfast.sinks import HoldfastSink, HoldfastSinkSettings, WriteResult
from holdfast.sinks import holdfast as module


def opened(tmp_path: Path, spark: Any, kind: type[HoldfastSink] = HoldfastSink, ids: Ids | None = None) -> HoldfastSink:
    settings = HoldfastSinkSettings(type="holdfast", inputs=("x",), topic="clean/logs", slot="logs")
    sink = kind(settings, SystemFiles(), SystemClock(), ids or SystemIds())
    sink.open(spark, identity(tmp_path / "state", store=tmp_path / "store"))
    return sink


def stored(tmp_path: Path) -> list[list[int]]:
    """The ids in each bundle of the target."""
    with Store.open(tmp_path / "store", read_only=True) as store:
        return [bundle["logs"].column("id").to_pylist() for bundle in store.topic("clean/logs").bundles()]


def test_a_batch_becomes_one_bundle(spark: Any, tmp_path: Path) -> None:
    """All partitions of a batch are one bundle, in their order, marked with its source; a repeat stores nothing."""
    sink = opened(tmp_path, spark)
    assert sink.position() == {}
    assert sink.write(spark.range(0, 100, 1, 4), ranges(0, 3), soon()) == WriteResult(100, 1)
    assert sink.write(spark.createDataFrame(numbers(0, 0)), ranges(3, 4), soon()) == WriteResult(0, 0)
    assert sink.write(spark.range(0, 100, 1, 4), ranges(0, 3), soon()).repeated
    with pytest.raises(SinkMoved, match=f"it has {KEY} at 3"):
        sink.write(spark.range(1), ranges(2, 5), soon())
    assert list((tmp_path / "state/staged").iterdir()) == []
    sink.close()
    assert stored(tmp_path) == [list(range(100))]
    with Store.open(tmp_path / "store", read_only=True) as store:
        (bundle,) = store.topic("clean/logs").bundles()
        assert bundle.attributes["source"] == "lake"
    later = opened(tmp_path, spark)
    assert later.position() == {KEY: 3}
    later.close()


def test_a_crash_between_intent_append_and_position(spark: Any, tmp_path: Path) -> None:
    """Killed before or after the append, the next start stores the batch once and moves on."""

    class Before(HoldfastSink):
        def _append(self, *args: Any) -> Any:
            raise KeyboardInterrupt

    class After(HoldfastSink):
        def _clear(self) -> None:
            raise KeyboardInterrupt

    class Between(HoldfastSink):
        def _append(self, progress: Any, *args: Any) -> Any:
            super()._append(progress, *args)
            progress.write(self._files, self._checkpoint)  # as if the position had not been written
            raise KeyboardInterrupt

    for number, kind in enumerate((Before, Between, After)):
        sink = opened(tmp_path, spark, kind)
        with pytest.raises(KeyboardInterrupt):
            sink.write(spark.createDataFrame(numbers(number, number + 1)), ranges(number, number + 1), soon())
        sink.close()
        later = opened(tmp_path, spark)
        assert later.position() == {KEY: number + 1}
        assert list((tmp_path / "state/staged").iterdir()) == []
        later.close()
    assert stored(tmp_path) == [[0], [1], [2]]


def test_an_intent_is_settled_by_the_next_write(spark: Any, tmp_path: Path) -> None:
    """A sink whose append failed goes on with it when the same batch, or the next one, is written."""
    sink = opened(tmp_path, spark)
    real, failures = module.read_staged, [OSError("gone for a moment")]

    def failing(*args: Any) -> pa.Table:
        if failures:
            raise failures.pop()
        return real(*args)

    module.read_staged = failing  # type: ignore[assignment]
    try:
        with pytest.raises(SinkFailed, match="gone for a moment"):
            sink.write(spark.createDataFrame(numbers(0, 1)), ranges(0, 1), soon())
        assert sink.write(spark.createDataFrame(numbers(0, 1)), ranges(0, 1), soon()).repeated
    finally:
        module.read_staged = real
    sink.close()
    assert stored(tmp_path) == [[0]]


def test_staged_files_that_are_gone(spark: Any, tmp_path: Path) -> None:
    """Without the staged rows of an intent nobody can tell what is lacking: the sink says so and does not go on."""

    class Dies(HoldfastSink):
        def _append(self, *args: Any) -> Any:
            raise KeyboardInterrupt

    sink = opened(tmp_path, spark, Dies)
    with pytest.raises(KeyboardInterrupt):
        sink.write(spark.range(1), ranges(0, 1), soon())
    sink.close()
    for file in (tmp_path / "state/staged").iterdir():
        file.unlink()
    later = opened(tmp_path, spark)
    with pytest.raises(SinkFailed, match="is gone, with rows of a batch"):
        later.position()
    later.close()


def test_a_batch_that_is_too_large_for_a_bundle(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before anything is appended, with the setting to change."""
    monkeypatch.setattr(module, "MAX_BUNDLE_BYTES", 100)
    sink = opened(tmp_path, spark)
    with pytest.raises(SinkRefused, match="lower the sink's max_batch_bytes"):
        sink.write(spark.range(0, 1000, 1, 1), ranges(0, 1), soon())
    assert sink.position() == {}
    sink.close()


def test_no_store_is_named(spark: Any, tmp_path: Path) -> None:
    """Neither the sink nor the pipeline has a store: refused."""
    settings = HoldfastSinkSettings(type="holdfast", inputs=("x",), topic="a/b")
    sink = HoldfastSink(settings, SystemFiles(), SystemClock(), SystemIds())
    with pytest.raises(SinkRefused, match="no store was named"):
        sink.open(spark, identity(tmp_path))
