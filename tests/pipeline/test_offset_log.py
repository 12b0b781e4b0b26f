"""What range a batch covers, by Spark's log of offsets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.errors import Corruption
from holdfast.files import SystemFiles
from holdfast.pipeline._offset_log import ends_of, last_entry

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
LOGS = '{"store": "/data", "subscriber": "lake", "prod/logs/0": 120, "prod/logs/1": 40}'
WEB = '{"store": "/data", "subscriber": "lake", "prod/web/0": 7}'


def entry(checkpoint: Path, batch: int, *lines: str) -> Path:
    path = checkpoint / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    return path


def test_the_ends_of_all_topics(tmp_path: Path) -> None:
    """An entry with a line for each topic gives one mapping, and says nothing of whose store it was."""
    entry(tmp_path, 3, "v1", METADATA, LOGS, WEB)
    assert ends_of(SystemFiles(), tmp_path, 3) == {"prod/logs/0": 120, "prod/logs/1": 40, "prod/web/0": 7}


def test_a_topic_without_an_offset_yet(tmp_path: Path) -> None:
    """A dash stands for a topic that has not been asked yet: the others are told all the same."""
    entry(tmp_path, 0, "v1", METADATA, "-", WEB)
    assert ends_of(SystemFiles(), tmp_path, 0) == {"prod/web/0": 7}


def test_two_ends_for_one_shard(tmp_path: Path) -> None:
    """A shard that was read to two different ends has no end: nothing may be acked by either."""
    entry(tmp_path, 0, "v1", METADATA, WEB, WEB)
    assert ends_of(SystemFiles(), tmp_path, 0) == {"prod/web/0": 7}
    entry(tmp_path, 1, "v1", METADATA, WEB, WEB.replace("7", "9"))
    with pytest.raises(Corruption, match="prod/web/0 ends at 7 and at 9"):
        ends_of(SystemFiles(), tmp_path, 1)


@pytest.mark.parametrize(
    "lines",
    [(), ("v1",), ("v1", METADATA), ("v1", METADATA, "-"), ("v1", METADATA, "[1]"), ("v1", METADATA, LOGS[:-9])],
    ids=["zero bytes", "version only", "no sources", "only a dash", "no mapping", "cut short"],
)
def test_an_entry_that_is_damaged(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """What cannot be read is corruption that names the file, never an empty range."""
    path = entry(tmp_path, 5, *lines)
    with pytest.raises(Corruption, match=re.escape(str(path))):
        ends_of(SystemFiles(), tmp_path, 5)


def test_an_entry_that_is_missing(tmp_path: Path) -> None:
    """Of a batch that Spark has not written down nothing is known."""
    with pytest.raises(FileNotFoundError):
        ends_of(SystemFiles(), tmp_path, 0)


def test_the_last_entry(tmp_path: Path) -> None:
    """The highest number counts, not the last in the alphabet; files that are no entries do not."""
    assert last_entry(SystemFiles(), tmp_path, "offsets") is None
    for name in ("9", "10", ".10.crc", "11.tmp", ".11.a-b.tmp"):
        entry(tmp_path, 0).with_name(name).touch()
    assert last_entry(SystemFiles(), tmp_path, "offsets") == 10
