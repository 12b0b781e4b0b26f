"""One flipped bit anywhere: it is reported, or all that was acknowledged comes back all the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import arrow_strategies as arrows
import holdfast as hf
from crash.life import content
from holdfast.errors import Corruption, NewerVersion, NotAStore
from holdfast.testing import SimulatedFiles, flip_bit
from store.storekit import FOLDER, SEGMENTS, SHARD, STORE, TOPIC, WAL, open_store

PARTS = 8
DETECTED = (Corruption, NewerVersion, NotAStore)
BUNDLES = 7


@cache
def killed_store() -> SimulatedFiles:
    """A segment of three bundles, then a WAL of two files with four more; the writer was killed."""
    files = SimulatedFiles()
    topic = open_store(files, buffer={"wal": {"file_size": 4096, "flush_interval": "1h"}}).topic(TOPIC)
    for number in range(BUNDLES):
        receipt = topic.append(content(number), attributes={"id": number})
        topic.flush()
        assert receipt.wait(timeout=30)
        if number == 2:
            topic.seal()
    return files.kill()


@cache
def closed_store() -> SimulatedFiles:
    """The same, closed as it should be: everything is sealed."""
    files = killed_store().kill()
    with open_store(files, seed=2) as store:
        assert store.topic(TOPIC).positions() == {0: (0, BUNDLES)}
    return files


def whole(topic: hf.Topic) -> bool:
    """Is everything there, and equal?"""
    found = list(topic.bundles())
    for number, bundle in enumerate(found):
        assert (bundle.offset, bundle.attributes) == (number, {"id": number}), "another bundle came back"
        assert set(bundle) == set(content(number))
        for slot, expected in content(number).items():
            arrows.assert_same(expected, bundle[slot])
    return len(found) == BUNDLES


def outcome(files: SimulatedFiles, path: Path, *, read_only: bool) -> str:
    """What opening and reading everything comes to."""
    try:
        if read_only:
            with hf.Store.open(STORE, read_only=True, files=files) as store:
                return "whole" if whole(store.topic(TOPIC)) else "short"
        with open_store(files, seed=3) as store:
            return "whole" if whole(store.topic(TOPIC)) else "short"
    except DETECTED as error:
        if path.name in str(error) or str(path.parent) in str(error):
            return "detected"
        raise


def flips(files: SimulatedFiles, path: Path, part: int, stride: int) -> Iterator[int]:
    """Bits of a file, of one part in `PARTS`; with a stride, one bit of each byte or of some bytes."""
    bits = files.size(path) * 8
    yield from range(part * stride, bits, PARTS * stride)


def check(original: SimulatedFiles, path: Path, part: int, stride: int) -> set[str]:
    seen = set()
    for bit in flips(original, path, part, stride):
        for read_only in (False, True):
            files = original.kill()
            flip_bit(files, path, bit)
            found = outcome(files, path, read_only=read_only)
            # A damaged tail costs other processes the last turn, until its writer is back: it is a lower bound.
            assert found != "short" or (read_only and path.name == "tail"), f"bit {bit} of {path} silently lost data"
            seen.add(found)
    return seen


def every_file(files: SimulatedFiles, folder: Path = STORE) -> Iterator[Path]:
    for name in files.list(folder):
        if files.is_folder(folder / name):
            yield from every_file(files, folder / name)
        elif not name.endswith((".lock", "LOCK")):
            yield folder / name


def stride_of(path: Path) -> int:
    """How sparse the usual run is; odd, so that every bit of a byte has its turn."""
    return 331 if path.suffix in (".seg", ".wal") else 47


def test_the_disk_is_as_meant() -> None:
    """The killed store has a segment, WAL files with acknowledged bundles, a tail and all checkpoints."""
    names = {path.relative_to(STORE).as_posix() for path in every_file(killed_store())}
    assert {"store.checkpoint", "prod/logs/topic.checkpoint", "prod/logs/shard-0000/shard.checkpoint"} < names
    assert len(killed_store().list(SEGMENTS)) == 1
    assert [each for each in killed_store().list(WAL) if each.endswith(".wal")]
    assert outcome(killed_store().kill(), WAL, read_only=False) == "whole"
    assert outcome(killed_store().kill(), WAL, read_only=True) == "whole"
    assert len(closed_store().list(SEGMENTS)) > 1
    assert outcome(closed_store().kill(), WAL, read_only=True) == "whole"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("state", [killed_store, closed_store], ids=["killed", "closed"])
def test_some_bits_of_every_file(state: object, part: int) -> None:
    """Flips spread over every file of a store are all seen, or do no harm."""
    assert callable(state)
    files = state()
    seen: set[str] = set()
    for path in every_file(files):
        seen |= check(files, path, part, stride_of(path))
    assert "detected" in seen


def test_every_bit_of_the_last_acknowledged_frame() -> None:
    """The end of the WAL is where damage looks most like a torn tail; the tail file tells them apart."""
    original = killed_store()
    path = WAL / [name for name in original.list(WAL) if name.endswith(".wal")][-1]
    size = len(original.read(path).rstrip(b"\0"))  # room that was made ready behind it is zeros
    for bit in range((size - 200) * 8, size * 8, 7):
        files = original.kill()
        flip_bit(files, path, bit)
        assert outcome(files, path, read_only=False) == "detected", bit


def check_columns(bits: range) -> None:
    """Read one column of the first segment, with one of these bits flipped."""
    original = closed_store()
    path = SEGMENTS / original.list(SEGMENTS)[0]

    def ids(files: SimulatedFiles) -> list[list[int]]:
        with hf.Store.open(STORE, read_only=True, files=files) as store:
            batches = store.topic(TOPIC).read(slot="logs", columns=["id"], verify=True)
            return [each["id"].to_pylist() for each in batches]

    expected = ids(original.kill())
    wrong = []
    for bit in bits:
        files = original.kill()
        flip_bit(files, path, bit)
        try:
            if ids(files) != expected:
                wrong.append(bit)
        except DETECTED:
            continue
    assert wrong == [], f"{len(wrong)} flips gave other values without an error"


def bits_of_the_first_segment() -> int:
    return closed_store().size(SEGMENTS / closed_store().list(SEGMENTS)[0]) * 8


def test_columns_of_a_damaged_segment() -> None:
    """Reading some columns of a segment with `verify` gives right values or an error, as reading all of them does."""
    check_columns(range(0, bits_of_the_first_segment(), 37))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_columns_of_a_segment_damaged_anywhere(part: int) -> None:
    """The same for every single bit of it."""
    check_columns(range(part, bits_of_the_first_segment(), PARTS))


@pytest.mark.parametrize("name", ["shard.checkpoint", "topic.checkpoint", "store.checkpoint", "tail"])
def test_missing_small_file(name: str) -> None:
    """A checkpoint that is gone is reported or does no harm; it never makes data silently disappear."""
    path = {"topic.checkpoint": FOLDER, "store.checkpoint": STORE}.get(name, SHARD) / name
    for original in (killed_store(), closed_store()):
        files = original.kill()
        files.unlink(path)
        try:
            found = outcome(files, path, read_only=False)
        except hf.errors.HoldfastError as error:
            found = "detected" if name.split(".", maxsplit=1)[0] in str(error) else str(error)
        assert found in ("detected", "whole"), found


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("state", [killed_store, closed_store], ids=["killed", "closed"])
def test_all_bits_of_every_file(state: object, part: int) -> None:
    """Every single bit of every file, one at a time."""
    assert callable(state)
    files = state()
    for path in every_file(files):
        check(files, path, part, 1)
