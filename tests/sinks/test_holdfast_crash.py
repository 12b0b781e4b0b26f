"""The commit of the sink that appends to a topic, crashed at every step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from sinkkit import KEY, identity, ranges, soon

from holdfast import Store
from holdfast.files import Files
from holdfast.sinks import HoldfastSink, HoldfastSinkSettings
from holdfast.sinks import holdfast as module
from holdfast.sinks._stage import Staged, StagePlan
from holdfast.testing import CrashMode, FakeClock, SequenceIds, SimulatedFiles, crash_states

STATE, STORE = Path("/pipeline/clean"), Path("/store")
BATCHES = [(0, 2), (2, 5)]


def frame() -> Any:
    from pyspark.sql.types import LongType, StructField, StructType

    return SimpleNamespace(schema=StructType([StructField("id", LongType())]))


@pytest.fixture
def staging(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for the executors: the offsets of the batch as rows, in one durable file."""

    def install(files: Files, first: int, end: int) -> None:
        def stage(frame: Any, plan: StagePlan, deadline: Any) -> list[Staged]:
            batch = pa.record_batch({"id": pa.array(range(first, end), pa.int64())})
            output = pa.BufferOutputStream()
            with pa.ipc.new_file(output, batch.schema) as writer:
                writer.write_batch(batch)
            name = f"{plan.prefix}-0-0.arrow"
            file = files.create(Path(plan.folder, name))
            file.append([output.getvalue()])
            file.sync()
            file.close()
            files.sync_folder(Path(plan.folder))
            return [Staged(0, name, end - first, batch.nbytes)]

        monkeypatch.setattr(module, "stage", stage)

    return install


def opened(files: SimulatedFiles, seed: int) -> HoldfastSink:
    settings = HoldfastSinkSettings(type="holdfast", inputs=("x",), topic="clean/logs", slot="logs")
    sink = HoldfastSink(settings, files, FakeClock(), SequenceIds(seed))
    sink.open(None, identity(STATE, store=STORE))  # type: ignore[arg-type]
    return sink


def stored(files: SimulatedFiles) -> list[int]:
    with Store.open(STORE, files=files, clock=FakeClock(), ids=SequenceIds(99)) as store:
        return [row for batch in store.topic("clean/logs").read(slot="logs") for row in batch.column("id").to_pylist()]


def deliver(staging: Any, sink: HoldfastSink, files: SimulatedFiles) -> None:
    at = sink.position().get(KEY, 0)
    for first, end in BATCHES:
        if at <= first:
            staging(files, first, end)
            sink.write(frame(), ranges(first, end), soon())
            files.note(end)


@pytest.mark.parametrize(("stride", "per_prefix"), [(7, 1), pytest.param(1, 4, marks=pytest.mark.long)])
def test_every_crash_leaves_each_row_once(staging: Any, stride: int, per_prefix: int) -> None:
    """After any crash the position is not below what was answered, and in the end each row is stored once."""
    files = SimulatedFiles()
    sink = opened(files, 0)
    deliver(staging, sink, files)
    states = 0
    for state in crash_states(files, modes=list(CrashMode), per_prefix=per_prefix, stride=stride):
        answered = max((note for note in state.notes if isinstance(note, int)), default=0)
        later = opened(state.files, 1)
        assert later.position().get(KEY, 0) >= answered, state
        deliver(staging, later, state.files)
        later.close()
        assert stored(state.files) == list(range(5)), state
        states += 1
    sink.close()
    assert states > 20
