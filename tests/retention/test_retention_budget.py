"""Caps that several workers keep together: admission, fair shares, asking others for room."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import Cap
from holdfast.files import LockHeld
from holdfast.retention import BUDGET_LOCK, CLAIM, REQUEST, Budget, Victim
from holdfast.retention._budget import BUSY_RETRY_SECONDS, FULL_RETRY_SECONDS
from holdfast.retention._claim import Claim, decode_claim, encode_claim
from holdfast.retention._request import REQUEST_SECONDS, Request, read_request, write_request
from holdfast.retention._standing import WANT_SECONDS
from holdfast.testing import FakeClock, SimulatedFiles, flip_bit
from retention.retentionkit import GB, STORE, Town, put, settings

KEEP = settings(steady_state_headroom=GB)
DROP = settings(steady_state_headroom=GB, size_cap_policy="drop_oldest")


def town_of(size: int, *topics: str, files: SimulatedFiles | None = None) -> Town:
    """Workers under one cap of the store, each with a shard of its own."""
    clock = FakeClock()
    cap = Cap("store", Path(), size)
    town = Town(files or SimulatedFiles(clock=clock), clock, dict.fromkeys(topics, (cap,)))
    for topic in topics:
        town.worker(topic).budget.settle()
    return town


def test_admission_ends_at_the_cap() -> None:
    """A worker may write while the total is not above the cap; the segment that crosses it is the last."""
    town = town_of(100, "a/x")
    (worker,) = town.workers.values()
    assert [worker.write(40) for _ in range(5)] == [True, True, True, False, False]
    assert town.segment_bytes() == 120


def test_the_refusal_says_what_is_full() -> None:
    """A refusal names level, use and cap, and when to ask again."""
    town = town_of(100, "a/x")
    (worker,) = town.workers.values()
    worker.write(150)
    verdict = worker.budget.admit(10)
    assert verdict == (False, "the store has 150 B on disk or promised, and its size_cap is 100 B", FULL_RETRY_SECONDS)


def test_without_caps_nothing_is_measured() -> None:
    """A shard under no cap is always admitted, and no file is made or looked at."""
    files, clock = SimulatedFiles(), FakeClock()
    files.make_folder(STORE)
    budget = Budget(files, clock, STORE, STORE, (), neighbours=Town(files, clock, {}))
    before = files.calls
    assert budget.admit(10**12).ok
    budget.settle()
    assert (budget.relieve().own_bytes, budget.victims(10), budget.request(), budget.standings()) == (0, [], None, ())
    assert set(files.calls - before) <= {"free_bytes", "exists"}


def test_free_disk_refuses() -> None:
    """Below `min_free_disk` nobody is admitted, cap or not."""
    files, clock = SimulatedFiles(capacity=1000), FakeClock()
    put(files, STORE / "a/x/shard-0000/segments/other", 950)
    budget = Budget(
        files, clock, STORE, STORE / "a/x/shard-0000", (), neighbours=Town(files, clock, {}), min_free_disk=0.06
    )
    assert budget.admit(1).reason == "the disk has 50 B free, below the 60 B that min_free_disk keeps"
    files.capacity = 2000
    assert budget.admit(1).ok


def test_every_level_counts() -> None:
    """A shard is refused by the cap of its topic, its namespace or the store, each counting what is under it."""
    files, clock = SimulatedFiles(), FakeClock()
    store, space = Cap("store", Path(), 1000), Cap("namespace", Path("a"), 600)
    topic = Cap("topic", Path("a/x"), 300)
    town = Town(files, clock, {"a/x": (store, space, topic), "a/y": (store, space), "b/z": (store,)})
    x, y, z = (town.worker(name) for name in ("a/x", "a/y", "b/z"))
    assert x.write(301)
    assert "topic a/x has" in x.budget.admit(1).reason
    assert y.write(299)
    assert y.write(1)
    assert "namespace a has" in y.budget.admit(1).reason
    assert z.write(399)
    assert z.write(1)
    assert "the store has" in z.budget.admit(1).reason


def test_dead_letters_count_for_their_topic() -> None:
    """A topic's cap counts the topic of its dead letters too, and no other topic that begins alike."""
    files, clock = SimulatedFiles(), FakeClock()
    town = Town(files, clock, {"a/x": (Cap("topic", Path("a/x"), 100),)})
    worker = town.worker("a/x")
    put(files, STORE / "a/x.deadly/shard-0000/wal/1.wal", 500)
    assert worker.budget.admit(1).ok
    put(files, STORE / "a/x.dead/shard-0000/wal/1.wal", 101)
    assert not worker.budget.admit(1).ok


def test_what_is_promised_counts() -> None:
    """A grant counts in full before a byte of it is written, and once only while it is being written."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    assert x.budget.admit(101).ok
    assert not y.budget.admit(1).ok
    put(town.files, x.path(0), 60)  # on disk now; 41 are promised still
    assert not y.budget.admit(1).ok
    assert y.budget.standings()[0].committed_bytes == 101
    x.budget.settle(unspent=40)
    assert y.budget.admit(1).ok


def test_a_new_grant_replaces_the_old_one() -> None:
    """What is left of a grant is not added to the next one."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    assert x.budget.admit(90).ok
    assert x.budget.admit(20).ok
    assert y.budget.standings()[0].committed_bytes == 20


def test_a_refusal_leaves_the_old_grant() -> None:
    """A worker that is refused more keeps what it was promised before."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    assert x.budget.admit(30).ok
    put(town.files, y.path(0), 80)
    put(town.files, x.path(0), 25)
    assert not x.budget.admit(30).ok
    assert y.budget.standings()[0].committed_bytes == 80 + 30


def test_the_promise_of_a_dead_worker_is_void() -> None:
    """A claim ends with its worker, however that ended: nothing is leaked."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    assert x.budget.admit(500).ok
    assert not y.budget.admit(1).ok
    x.budget.close()
    assert y.budget.admit(1).ok
    assert y.budget.standings()[0].live == {y.shard}


def test_a_killed_process_leaks_nothing() -> None:
    """After `kill -9` of everyone the next worker starts from what is on disk."""
    town = town_of(100, "a/x", "a/y")
    x, _ = town.workers.values()
    assert x.budget.admit(500).ok
    files = town.files.kill()  # type: ignore[attr-defined]
    after = Town(files, town.clock, town.caps)
    assert after.worker("a/y").budget.admit(1).ok


def test_while_another_measures() -> None:
    """A worker that finds the budget busy is told to come again soon, and waits for nothing."""
    town = town_of(100, "a/x")
    (worker,) = town.workers.values()
    lock = town.files.lock(STORE / BUDGET_LOCK, note="")
    assert worker.budget.admit(1) == (False, "another worker is measuring", BUSY_RETRY_SECONDS)
    lock.release()
    assert worker.budget.admit(1).ok


def test_no_lock_is_kept() -> None:
    """Whatever the budget was asked, and also when that failed, its locks are free afterwards."""
    files = SimulatedFiles()
    town = town_of(100, "a/x", "a/y", files=files)
    x, y = town.workers.values()
    x.write(150, "finished")
    assert not y.budget.admit(10).ok
    y.budget.relieve()
    x.budget.request()
    fault = files.fail("list", times=None)
    with pytest.raises(OSError, match="Input/output error"):
        x.budget.admit(10)
    assert fault.fired
    files.heal()
    files.lock(STORE / BUDGET_LOCK, note="").release()
    assert x.budget.standings()[0].own_bytes == 150


def test_the_share_is_even_among_the_living() -> None:
    """The even share is the cap divided by the live workers; shards without one have none."""
    town = town_of(300, "a/x", "a/y", "a/z")
    x, y, z = town.workers.values()
    assert x.budget.standings()[0].share_bytes == 100
    z.budget.close()
    assert x.budget.standings()[0].share_bytes == 150
    assert y.budget.standings()[0].live == {x.shard, y.shard}


def test_a_busy_shard_uses_what_idle_ones_leave() -> None:
    """One worker fills the whole cap while the others write nothing."""
    town = town_of(300, "a/x", "a/y", "a/z")
    x, _, _ = town.workers.values()
    assert [x.write(100) for _ in range(5)] == [True, True, True, True, False]


def test_those_below_their_share_go_first() -> None:
    """While a worker below its share waits, one above its share gets nothing; when it has given up, it does."""
    town = town_of(100, "a/x", "a/y")
    hog, small = town.workers.values()
    for _ in range(3):
        assert hog.write(40)
    assert not small.budget.admit(30).ok
    hog.finish(0)
    hog.sweep(settings())
    assert town.segment_bytes() == 80
    assert not hog.budget.admit(10).ok
    town.clock.advance(WANT_SECONDS + 1)
    assert hog.budget.admit(10).ok
    hog.budget.settle()
    assert small.budget.admit(30).ok
    assert small.budget.standings()[0].waiting_bytes == 0


def test_who_waits_for_a_narrow_cap_holds_nobody_back_elsewhere() -> None:
    """A worker that its topic's cap refuses leaves the rest of the store's cap to the others."""
    files, clock = SimulatedFiles(), FakeClock()
    store, topic = Cap("store", Path(), 100), Cap("topic", Path("a/x"), 10)
    town = Town(files, clock, {"a/x": (store, topic), "b/y": (store,)})
    x, y = town.worker("a/x"), town.worker("b/y")
    x.write(11)
    y.write(80)
    assert not x.budget.admit(50).ok
    assert y.budget.admit(5).ok


def test_a_wait_ends_with_the_grant() -> None:
    """A worker that got its room holds nobody back any more."""
    town = town_of(100, "a/x", "a/y")
    hog, small = town.workers.values()
    hog.write(101)
    assert not small.budget.admit(1).ok
    hog.finish(0)
    hog.sweep(settings())
    assert small.budget.admit(1).ok
    assert hog.budget.standings()[0].waiting_bytes == 0


def test_the_globally_oldest_finished_goes_first() -> None:
    """Victims are the oldest finished segments of all shards, by ingestion, as many as are needed."""
    town = town_of(1000, "a/x", "b/y")
    x, y = town.workers.values()
    for worker in (x, y, y, x):
        town.clock.advance(1)
        worker.write(10, "finished")
    town.clock.advance(1)
    y.write(10, "blocked")
    order = [Victim(x.shard, 0, 10, 10), Victim(y.shard, 0, 10, 10), Victim(y.shard, 10, 20, 10), (x.shard, 10, 20, 10)]
    assert [x.budget.victims(wanted) for wanted in (0, 1, 11, 30, 99)] == [[], order[:1], order[:2], order[:3], order]


def test_victims_keep_a_shards_own_order() -> None:
    """Where the clock was set back, a shard still gives its older segment before its newer one."""
    town = town_of(1000, "a/x", "b/y")
    x, y = town.workers.values()
    now = town.clock.now_ns()
    x.write(10, "finished")
    town.clock.set_wall(now - 100 * 10**9)
    x.write(10, "finished")
    town.clock.set_wall(now - 50 * 10**9)
    y.write(10, "finished")
    assert [(each.shard, each.first) for each in x.budget.victims(30)] == [(y.shard, 0), (x.shard, 0), (x.shard, 10)]


def test_a_live_owner_is_asked() -> None:
    """Room in a shard with a live worker is made by that worker; until then nothing of it is touched."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    for _ in range(3):
        x.write(40, "finished")
    assert not y.budget.admit(30).ok
    relief = y.budget.relieve()
    assert (relief.own_bytes, relief.ask, relief.reclaim, relief.short_bytes) == (0, {x.shard: (40, 0)}, {}, 0)
    assert len(x.segments) == 3
    x.sweep(KEEP, relieve=False)
    assert [each.first for each in x.segments] == [10, 20]
    assert not town.files.exists(x.shard / REQUEST)
    assert y.budget.admit(30).ok


def test_a_request_that_is_no_longer_needed_takes_nothing() -> None:
    """If room was made meanwhile, the owner deletes nothing for a request that is still there."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    for _ in range(3):
        x.write(40, "finished")
    y.budget.relieve()
    x.carry_out(KEEP, 30, 0)
    x.budget.settle()
    assert town.files.exists(x.shard / REQUEST)
    x.sweep(KEEP)
    assert len(x.segments) == 2
    assert not town.files.exists(x.shard / REQUEST)


def test_a_request_expires() -> None:
    """An owner that was away for long ignores what it was asked then, and takes it away."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    x.write(140, "finished")
    y.budget.relieve()
    town.clock.advance(REQUEST_SECONDS + 1)
    assert x.budget.request() is None
    assert not town.files.exists(x.shard / REQUEST)


def test_a_damaged_request_is_set_aside() -> None:
    """Damage to a request deletes no data: it is ignored and unlinked."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    x.write(140, "finished")
    y.budget.relieve()
    flip_bit(town.files, x.shard / REQUEST, 30 * 8)
    assert x.budget.request() is None
    assert not town.files.exists(x.shard / REQUEST)


def test_of_two_requests_the_larger_counts() -> None:
    """Two workers that see the same pressure do not have the owner free it twice."""
    files, clock = SimulatedFiles(), FakeClock()
    files.make_folder(STORE)
    write_request(files, STORE, Request("one", 10, 7, clock.now_ns()), clock)
    write_request(files, STORE, Request("two", 30, 0, clock.now_ns()), clock)
    request = read_request(files, STORE, clock)
    assert request == ("two", 30, 7, clock.now_ns())
    assert (request.asked_bytes, request.over_bytes) == (30, 37)


def test_a_shard_without_owner_is_reclaimed() -> None:
    """Room in a shard that nobody holds is made by whoever needs it."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    x.write(60, "finished")
    x.write(60, "finished")
    x.budget.close()
    relief = y.budget.relieve()
    assert town.reclaimed == [(x.shard, 60)]
    assert (relief.freed_bytes, relief.ask) == (60, {})
    assert y.budget.admit(30).ok


def test_trash_anywhere_goes_before_anything_finished() -> None:
    """The trash of every shard is taken before the first finished segment."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    y.write(40, "finished")
    x.write(50, "finished")
    x.carry_out(settings(trash_age="1h"), 0, 0)
    x.write(40)
    assert town.segment_bytes() == 130
    relief = y.budget.relieve()
    assert (relief.own_bytes, relief.ask) == (0, {x.shard: (30, 0)})
    x.sweep(KEEP, relieve=False)
    assert (town.segment_bytes(), len(y.segments), len(x.segments)) == (80, 1, 1)


def test_short_of_finished_data() -> None:
    """What finished data cannot cover is told; under `backpressure` nothing unfinished goes for it."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    x.write(30, "finished")
    x.write(60)
    y.write(60)
    relief = y.budget.relieve()
    assert (relief.ask, relief.short_bytes) == ({x.shard: (30, 10)}, 20)
    x.sweep(KEEP)
    y.sweep(KEEP)
    assert [len(x.segments), len(y.segments), x.lost, y.lost] == [1, 1, [], []]
    assert not x.budget.admit(1).ok
    assert not y.budget.admit(1).ok


def test_under_drop_oldest_those_above_their_share_give() -> None:
    """A worker below its share loses nothing unfinished while another one is above; that one does, as far as needed."""
    town = town_of(100, "a/x", "a/y")
    hog, small = town.workers.values()
    small.write(20)
    for _ in range(3):
        hog.write(30)
    assert not small.budget.admit(20).ok
    small.sweep(DROP)
    hog.sweep(DROP)
    assert ([each.first for each in hog.lost], small.lost) == ([0], [])
    assert small.budget.admit(20).ok


def test_alone_above_the_cap_one_gives_ones_own() -> None:
    """Without another worker above its share, `drop_oldest` takes from the worker that needs the room."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    x.write(60)
    x.write(60)
    y.budget.close()
    x.sweep(DROP)
    assert [each.first for each in x.lost] == [0]
    assert x.write(10)


def test_the_narrow_cap_is_served_first_and_counts_for_the_wide_one() -> None:
    """What a topic's cap takes counts for the store's, so that nothing is taken twice."""
    files, clock = SimulatedFiles(), FakeClock()
    store, topic = Cap("store", Path(), 100), Cap("topic", Path("a/x"), 50)
    town = Town(files, clock, {"a/x": (store, topic), "b/y": (store,)})
    x, y = town.worker("a/x"), town.worker("b/y")
    y.budget.settle()
    clock.advance(1)
    y.write(50, "finished")
    clock.advance(1)
    x.write(40, "finished")
    x.write(40, "finished")
    relief = x.budget.relieve()
    assert (relief.own_bytes, relief.ask, relief.short_bytes) == (40, {}, 0)


def test_two_caps_that_are_over_take_different_segments() -> None:
    """The wide cap goes on where the narrow one stopped: no segment is counted on twice."""
    files, clock = SimulatedFiles(), FakeClock()
    store, topic = Cap("store", Path(), 100), Cap("topic", Path("a/x"), 50)
    town = Town(files, clock, {"a/x": (store, topic), "b/y": (store,)})
    x, y = town.worker("a/x"), town.worker("b/y")
    for size in (30, 15, 20):
        assert x.write(size, "finished")
    assert y.write(100)
    relief = x.budget.relieve()
    assert (relief.own_bytes, relief.short_bytes) == (65, 0)


def test_claims_are_checked() -> None:
    """A claim comes back as it was written; each flipped bit, a torn and an empty one are seen."""
    claim = Claim(limit=2**40, wanted=17, wanted_at_ns=3, wanted_level=2)
    data = encode_claim(claim)
    assert decode_claim(data) == claim
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        assert decode_claim(bytes(broken)) is None
    assert decode_claim(data[:20]) is None
    assert decode_claim(b"") is None


def test_claim_bytes() -> None:
    """The format of a claim does not change unseen."""
    data = bytes.fromhex("4846434c41494d0a 01000200 a96c7e8e 0100000000000000 0200000000000000 0300000000000000")
    assert encode_claim(Claim(1, 2, 3, 2)) == data


def test_a_damaged_claim_promises_nothing() -> None:
    """Damage in the claim of a live worker keeps nobody from measuring, and its worker from having a share."""
    town = town_of(100, "a/x", "a/y")
    x, y = town.workers.values()
    assert x.budget.admit(50).ok
    flip_bit(town.files, x.shard / CLAIM, 20 * 8)
    standing = y.budget.standings()[0]
    assert (standing.committed_bytes, len(standing.live)) == (0, 2)


def test_a_shard_has_one_claim() -> None:
    """The lock on the claim is the worker's as long as it lives."""
    town = town_of(100, "a/x")
    (worker,) = town.workers.values()
    with pytest.raises(LockHeld):
        town.files.lock(worker.shard / CLAIM, note="")
    worker.budget.close()
    town.files.lock(worker.shard / CLAIM, note="").release()
