"""The arithmetic of the benchmarks, and that a run leaves nothing behind."""

import random
from pathlib import Path

import pytest

from _child import ChildFailed, in_child
from _data import make_batch, make_pool
from _groups import GroupLog, ObservedFiles
from _harness import (
    Run,
    Spread,
    Target,
    fitting_count,
    interleaved,
    measure_once,
    per_round_ratios,
    rotated,
    scratch_folder,
    warm_memory,
)
from _peers import Bare, Sqlite, missing


class Recorder:
    """A contender that writes one file and says what was asked of it."""

    footprint = 1.0

    def __init__(self, name: str, *, fails: bool = False) -> None:
        self.name, self.calls, self._fails = name, [], fails

    def open(self, folder: Path) -> None:
        (folder / "data").write_bytes(b"x")
        self.calls.append("open")

    def run(self, count: int) -> Run:
        self.calls.append(f"run {count}")
        if self._fails:
            raise ConnectionError("gone")
        return Run(float(count))

    def close(self) -> None:
        self.calls.append("close")


def test_ratios_are_taken_within_each_round():
    """The ratio of a pair is computed round by round, and the median of those is reported with its range."""
    ratios = per_round_ratios([10.0, 40.0, 90.0], [5.0, 10.0, 30.0])
    assert ratios == [2.0, 4.0, 3.0]
    assert Spread.of(ratios) == Spread(median=3.0, low=2.0, high=4.0)


def test_rounds_of_different_number_are_refused():
    """Two contenders with different numbers of rounds cannot be compared."""
    with pytest.raises(ValueError, match="shorter"):
        per_round_ratios([1.0, 2.0], [1.0])


def test_every_round_starts_with_another_contender():
    """Each contender runs once in every round, and the order rotates."""
    order = []
    contenders = [Recorder(name) for name in "abc"]

    def measure(contender):
        order.append(contender.name)
        return Run(len(order))

    runs = interleaved(contenders, 3, measure)
    assert "".join(order) == "abc" + "bca" + "cab"
    assert [run.per_s for run in runs["b"]] == [2, 4, 9]
    assert rotated([], 5) == []


@pytest.mark.parametrize(
    ("per_s", "seconds", "most", "count"),
    [
        (1_000, 2, 10_000, 1_984),  # 31 whole groups of 64
        (1_000, 0.001, 10_000, 64),  # never fewer than one
        (1e9, 1, 10_000, 9_984),  # bounded
    ],
)
def test_a_count_lasts_about_as_long_as_asked(per_s, seconds, most, count):
    """The number of bundles follows from the rate, in whole groups and within the bound."""
    assert fitting_count(per_s, seconds, multiple_of=64, most=most) == count


def test_a_target_is_met_from_its_own_side():
    """At least for rates, at most for latencies and memory; the bound itself is met."""
    assert Target(4).met(4.0)
    assert not Target(4).met(3.9)
    assert Target(1.5, at_most=True).met(1.5)
    assert not Target(1.5, at_most=True).met(1.6)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_closes_its_contender_and_leaves_no_file(tmp_path, fails):
    """Whatever happens in a run, the contender is closed and its folder is gone."""
    contender = Recorder("one", fails=fails)
    if fails:
        with pytest.raises(ConnectionError):
            measure_once(contender, 5, tmp_path, 2_000_000)
    else:
        assert measure_once(contender, 5, tmp_path, 2_000_000) == Run(5.0)
    assert contender.calls == ["open", "run 5", "close"]
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_folder_goes_away(tmp_path):
    """What a benchmark writes is inside the chosen folder while it runs, and gone afterwards."""
    with scratch_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        warm_memory(folder, 3_000_000)
        assert list(folder.iterdir()) == []
        (folder / "left").touch()
    assert list(tmp_path.iterdir()) == []


def test_the_data_is_the_same_every_time():
    """Equal arguments give equal batches; bundles have the sizes that the targets speak of."""
    assert make_batch(10, 3, random.Random("7/3")).equals(make_pool(10).batch(3))
    assert make_pool(10).batch(64).equals(make_pool(10).batch(0))
    assert make_pool(1_000, distinct=2).payload_bytes == pytest.approx(74_000, rel=0.05)
    assert make_pool(100, distinct=2).payload_bytes == pytest.approx(8_000, rel=0.05)


def test_the_bare_disk_writes_the_very_bytes(tmp_path):
    """Groups of changing size come to exactly the bundles asked for, in order."""
    pool = make_pool(10, distinct=3)
    bare = Bare("bare", pool, lambda: iter([3, 1, 2, 60]))
    bare.open(tmp_path)
    bare.run(8)
    bare.close()
    assert (tmp_path / "bare").read_bytes() == b"".join(pool.payload(number) for number in range(8))


def test_sqlite_runs_and_counts(tmp_path):
    """The SQLite peer holds what it was given, the last short transaction included."""
    assert measure_once(Sqlite(make_pool(10)), 70, tmp_path, 0).per_s > 0


def test_groups_are_counted_from_writes_and_syncs(tmp_path):
    """Bundles per sync follow from the bytes between syncs; a file's header and other files do not count."""
    log = GroupLog(bundle_bytes=100)
    files = ObservedFiles(log)
    wal, other = files.create(tmp_path / "1.wal"), files.create(tmp_path / "1.seg")
    wal.append([b"head"])
    wal.sync()
    wal.append([bytes(110), bytes(110)])
    other.append([bytes(5_000)])
    other.sync()
    wal.append([bytes(110)])
    wal.sync()
    wal.sync()
    wal.append([bytes(104)])
    wal.sync()
    assert wal.path == tmp_path / "1.wal"
    assert log.bundles() == [3, 1]
    log.restart()
    assert log.bundles() == []
    wal.close()
    other.close()


def test_a_missing_server_is_named_with_its_package():
    """Whoever lacks a server or a client is told what to install."""
    assert missing("no-such-server", "json") == ("no-such-server is not installed: apt-get install no-such-server")
    assert missing("sh", "no_such_package") == (
        "the Python package no_such_package is not installed: pip install 'holdfast[bench]'"
    )
    assert missing("sh", "json") is None


def test_a_child_answers_or_is_reported():
    """Work in a new process gives its result; work that raises is an error here too."""
    assert in_child(abs, -3) == 3
    with pytest.raises(ChildFailed, match="divmod gave no answer"):
        in_child(divmod, 1, 0)
