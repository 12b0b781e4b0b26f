"""What the benchmark of acknowledgements measures is what it says it measures."""

import multiprocessing

import pytest
import structlog

import holdfast as hf
from _ack_log import OutcomesMissing, batched, fill_log, in_runs, open_log, replay, scattered, write_rate
from _ack_notice import append_when_asked
from _ack_store import UNSEALED, quiet
from _ack_sweep import Ground, percentile
from _data import make_pool
from _delivery import ack_rate, filled_topic, iterate, take_and_ack


@pytest.fixture
def silent():
    """Logs are off during the test, and as before afterwards."""
    before = structlog.get_config()
    quiet()
    yield
    structlog.configure(**before)


def test_scattered_offsets_make_no_run():
    """Scattered outcomes are distinct, the same every time, and no two of them are neighbours."""
    offsets = scattered(500)
    assert offsets == scattered(500)
    assert offsets != sorted(offsets)
    assert sorted(offsets) == list(range(1, 1_000, 2))


@pytest.mark.parametrize("size", [1, 1_000])
def test_a_log_is_replayed_whole(tmp_path, size):
    """However outcomes are put into records, a fresh log finds all of them, and one too few is noticed."""
    fill_log(tmp_path / "log", batched(scattered(2_500), size))
    assert replay(tmp_path / "log", 2_500) > 0
    with pytest.raises(OutcomesMissing, match="2501 outcomes were written; the log says 2500"):
        replay(tmp_path / "log", 2_501)


def test_runs_are_as_many_outcomes_in_far_fewer_bytes(tmp_path):
    """Ranges say the same number of outcomes as single offsets do."""
    runs = fill_log(tmp_path / "runs", in_runs(10_000))
    singles = fill_log(tmp_path / "singles", batched(scattered(10_000), 1_000))
    assert replay(tmp_path / "runs", 10_000) > 0
    assert runs < singles / 10


def test_writing_leaves_no_log_behind(tmp_path):
    """The rate is that of outcomes that are in the log; the log is gone afterwards."""
    assert write_rate(scattered(3_000), tmp_path / "log") > 0
    assert list(tmp_path.iterdir()) == []
    open_log(tmp_path / "log").close()


@pytest.mark.usefixtures("silent")
def test_every_round_delivers_the_same_bundles(tmp_path):
    """Acked bundles stay for the next round, whether they are sealed or not, and subscribers go when they are done."""
    with filled_topic(250, tmp_path / "store") as topic:
        for _ in range(2):
            assert iterate(topic, 250).wall > 0
            assert take_and_ack(topic, 250, at_once=100).wall > 0
            assert ack_rate(topic, 250) > 0
            topic.seal()
        assert list(topic.subscribers()) == ["pin"]
        assert len(list(topic.bundles())) == 250


@pytest.mark.usefixtures("silent")
def test_segments_stay_until_they_are_released(tmp_path):
    """Segments that one subscriber still pins are there; once it is gone all of them are deleted."""
    with hf.Store.open(tmp_path, settings=UNSEALED) as store:
        ground = Ground(store)
        for _ in range(2):
            ground.lay(3)
            assert len(list(tmp_path.rglob("*.seg"))) == 3
            assert not ground.is_swept
            ground.release()
            ground.wait()
            assert list(tmp_path.rglob("*.seg")) == []
            assert ground.is_swept


@pytest.mark.usefixtures("silent")
def test_an_appender_answers_after_its_receipt(tmp_path):
    """For each bundle that is asked for there is one in the topic, and a moment; then it ends."""
    ours, theirs = multiprocessing.Pipe()
    for word in (True, True, False):
        ours.send(word)
    with hf.Store.open(tmp_path) as store:
        topic = store.topic("bench/append")
        append_when_asked(topic, theirs)
        bundles = list(topic.bundles())
    assert [bundle["logs"].equals(make_pool(10).batch(number)) for number, bundle in enumerate(bundles)] == [True, True]
    assert ours.recv() < ours.recv()
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(100, 99, 99), (101, 99, 100), (10, 99, 10), (1, 50, 1), (4, 50, 2)]
)
def test_a_percentile_is_one_of_the_values(count, share, expected):
    """The lowest value that so many percent do not exceed."""
    assert percentile(list(range(count, 0, -1)), share) == expected
