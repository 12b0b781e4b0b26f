"""The rules of retention, one by one, and their order of precedence."""

from __future__ import annotations

import pytest

from holdfast.retention import Plan, Shortfall, plan
from retention.retentionkit import GB, SECOND, segment, segments, settings, situation

KEEP = GB  # headroom that keeps rule 1 out of a test


def taken(made: Plan) -> list[tuple[int, str]]:
    """First offset and reason of each deletion, in order."""
    return [(each.first, each.reason) for each in made.deletions]


def test_finished_goes_at_once() -> None:
    """Steady state: what everyone has finished is deleted without any pressure, wherever it stands."""
    made = plan(settings(), segments("finished", "blocked", "finished", "blocked"), situation())
    assert taken(made) == [(0, "finished"), (20, "finished")]
    assert not any(each.unfinished for each in made.deletions)
    assert (made.still_over, made.seal_open, made.more) == ((), False, False)


@pytest.mark.parametrize(("headroom", "gone"), [(0, [0, 10, 30]), (9, [0, 10, 30]), (10, [0, 10]), (29, [0]), (30, [])])
def test_headroom_keeps_the_newest_finished(headroom: int, gone: list[int]) -> None:
    """The newest finished segments that fit into the headroom stay."""
    made = plan(
        settings(steady_state_headroom=headroom), segments("finished", "finished", "blocked", "finished"), situation()
    )
    assert [each.first for each in made.deletions] == gone


def test_headroom_is_not_filled_with_older_ones() -> None:
    """A small old segment does not stay in place of a large newer one that did not fit."""
    rows = [segment(0, "finished", size=5), segment(10, "finished", size=100), segment(20, "finished", size=5)]
    made = plan(settings(steady_state_headroom=20), rows, situation())
    assert [each.first for each in made.deletions] == [0, 10]


def test_age_takes_finished_only() -> None:
    """Finished segments inside the headroom go when they are too old; unfinished ones never do."""
    rules = settings(steady_state_headroom=KEEP, max_age=985)
    made = plan(rules, segments("blocked", "finished", "finished", "expendable"), situation())
    assert taken(made) == [(10, "age")]
    assert made.deletions[0].age_seconds == 990


def test_expire_unfinished() -> None:
    """With `expire_unfinished` age takes what somebody still needs, and says so."""
    rules = settings(max_age=975, expire_unfinished=True)
    made = plan(rules, segments("blocked", "blocked delivering", "expendable", "blocked"), situation())
    assert taken(made) == [(0, "age"), (10, "age"), (20, "age")]
    assert all(each.unfinished for each in made.deletions)


def test_age_counts_from_the_last_bundle() -> None:
    """A segment is as old as its youngest bundle; exactly `max_age` is not too old."""
    old = segment(0, "finished")._replace(ingested=(0, 900 * SECOND))
    rules = settings(steady_state_headroom=KEEP, max_age=100)
    assert taken(plan(rules, [old], situation())) == []
    assert taken(plan(rules, [old], situation(now_ns=1000 * SECOND + 1))) == [(0, "age")]


def test_age_by_event_time() -> None:
    """By event time, a segment without one is as old as its ingestion."""
    late = segment(0, "finished", second=999)._replace(event_time=(0, 5 * SECOND))
    bare = segment(10, "finished", second=999)
    young = segment(20, "finished", second=5)._replace(event_time=(0, 999 * SECOND))
    rules = settings(steady_state_headroom=KEEP, max_age=100, age_by="event")
    assert taken(plan(rules, [late, bare, young], situation())) == [(0, "age")]
    by_ingestion = rules.model_copy(update={"age_by": "ingestion"})
    assert taken(plan(by_ingestion, [late, bare, young], situation())) == [(20, "age")]


def test_size_takes_finished_oldest_first_and_no_more_than_needed() -> None:
    """Under a cap the headroom protects no longer, and the plan stops as soon as enough is freed."""
    rules = settings(steady_state_headroom=KEEP)
    made = plan(rules, segments("finished", "blocked", "finished", "finished"), situation(over_bytes=11))
    assert taken(made) == [(0, "size"), (20, "size")]
    assert made.still_over == ()


def test_what_earlier_rules_took_counts() -> None:
    """Steady state frees 10 bytes and age 10; a cap that is over by 20 then takes nothing more."""
    rules = settings(steady_state_headroom=30, max_age=985)
    rows = segments("finished", "finished", "finished", "finished")
    assert taken(plan(rules, rows, situation(over_bytes=20))) == [(0, "finished"), (10, "age")]
    assert taken(plan(rules, rows, situation(over_bytes=21))) == [(0, "finished"), (10, "age"), (20, "size")]


def test_backpressure_keeps_what_is_needed() -> None:
    """Under `backpressure` nothing unfinished goes, and the plan tells by how much the bounds are missed."""
    rows = segments("blocked", "finished", "blocked delivering", "blocked")
    made = plan(settings(max_segments=1), rows, situation(over_bytes=50, free_bytes=40, disk_bytes=2000))
    assert taken(made) == [(10, "finished")]
    assert made.still_over == (Shortfall("size", 40), Shortfall("free_disk", 50), Shortfall("count", 2))
    assert not made.seal_open


def test_without_subscribers_nothing_is_finished() -> None:
    """What no subscriber has finished stays under `backpressure`, whatever the pressure."""
    made = plan(settings(max_age=1), segments("blocked", "blocked"), situation(over_bytes=100))
    assert made.deletions == ()


def test_free_disk() -> None:
    """Below `min_free_disk` the same rules free what is missing."""
    rules = settings(steady_state_headroom=KEEP, min_free_disk=0.1)
    rows = segments("finished", "finished", "finished")
    assert taken(plan(rules, rows, situation(free_bytes=85, disk_bytes=1000))) == [(0, "free_disk"), (10, "free_disk")]
    assert taken(plan(rules, rows, situation(free_bytes=100, disk_bytes=1000))) == []


def test_segment_count() -> None:
    """Above `max_segments` the oldest finished go; what size took counts."""
    rules = settings(steady_state_headroom=KEEP, max_segments=2)
    rows = segments("finished", "finished", "blocked", "blocked")
    assert taken(plan(rules, rows, situation())) == [(0, "count"), (10, "count")]
    assert taken(plan(rules, rows, situation(over_bytes=1))) == [(0, "size"), (10, "count")]


def test_drop_oldest_order() -> None:
    """Finished, expendable, unfinished; each oldest first, and what is being delivered after all that is not."""
    rules = settings(size_cap_policy="drop_oldest", steady_state_headroom=KEEP)
    kinds = ["blocked delivering", "expendable delivering", "blocked", "expendable", "finished", "blocked", "finished"]
    rows = segments(*kinds)
    order = [40, 60, 30, 20, 50, 10, 0]
    for wanted in range(1, 71):
        made = plan(rules, rows, situation(over_bytes=wanted))
        assert [each.first for each in made.deletions] == order[: -(-wanted // 10)]
        assert [each.unfinished for each in made.deletions] == [first not in (40, 60) for first, _ in taken(made)]


def test_on_full_drop_gives_way_under_backpressure() -> None:
    """Segments that only `on_full: drop` subscribers need go after the finished ones, also under `backpressure`."""
    rows = segments("expendable delivering", "blocked", "expendable", "finished")
    made = plan(settings(steady_state_headroom=KEEP), rows, situation(over_bytes=100))
    assert taken(made) == [(30, "size"), (20, "size"), (0, "size")]
    assert made.still_over == (Shortfall("size", 70),)


def test_expendable_stays_without_pressure() -> None:
    """`on_full: drop` gives nothing up while there is room."""
    assert plan(settings(), segments("expendable"), situation()).deletions == ()


@pytest.mark.parametrize(
    ("kind", "policy", "sealed"),
    [
        ("blocked", "drop_oldest", True),
        ("blocked", "backpressure", False),
        ("expendable", "backpressure", True),
        ("finished", "backpressure", True),
    ],
)
def test_the_open_segment_is_sealed_when_all_else_is_not_enough(kind: str, policy: str, sealed: bool) -> None:
    """It is sealed exactly if a later sweep could take it, and only for bytes that sealed ones did not free."""
    rules = settings(size_cap_policy=policy)
    rows, last = segments("finished", "expendable"), segment(20, kind)
    assert plan(rules, rows, situation(over_bytes=21, open=last)).seal_open is sealed
    assert plan(rules, rows, situation(over_bytes=0, open=last)).seal_open is False
    assert plan(rules, rows, situation(over_bytes=10, open=last)).seal_open is False
    assert plan(rules, rows, situation(over_bytes=21)).seal_open is False


def test_a_finished_open_segment_saves_unfinished_ones() -> None:
    """What the open segment will free once it is sealed is not taken from unfinished data; it still counts as over."""
    rules = settings(size_cap_policy="drop_oldest")
    made = plan(rules, segments("blocked", "blocked"), situation(over_bytes=15, open=segment(20, "finished")))
    assert (taken(made), made.seal_open) == ([(0, "size")], True)
    assert made.still_over == (Shortfall("size", 5),)


def test_another_shard_asks() -> None:
    """What another shard asks for comes from finished segments only, under `drop_oldest` too, and is no shortfall."""
    rules = settings(size_cap_policy="drop_oldest", steady_state_headroom=KEEP)
    made = plan(rules, segments("blocked", "finished", "expendable"), situation(asked_bytes=100))
    assert taken(made) == [(10, "size")]
    assert (made.still_over, made.seal_open) == ((), False)


def test_trash_only_without_pressure() -> None:
    """With `trash_age`, what goes for steady state, age or count goes to the trash."""
    rules = settings(steady_state_headroom=10, trash_age="1h", max_segments=1)
    made = plan(rules, segments("finished", "finished", "blocked"), situation())
    assert [(each.reason, each.final) for each in made.deletions] == [("finished", False), ("count", False)]
    assert made.empty_trash_bytes == 0


@pytest.mark.parametrize(
    ("over", "trash", "emptied", "finals", "still"),
    [
        (5, 8, 5, [False, False], 0),  # the trash has enough
        (8, 8, 8, [False, False], 0),
        (9, 8, 8, [True, False], 0),  # the first frees the rest for good
        (28, 8, 8, [True, True], 0),
        (29, 8, 8, [True, True], 1),
    ],
)
def test_trash_is_emptied_before_anything_else(
    over: int, trash: int, emptied: int, finals: list[bool], still: int
) -> None:
    """Under pressure the trash goes first, then deletions bypass it as far as bytes are wanted."""
    rows = segments("finished", "blocked", "finished")
    made = plan(settings(trash_age="1h"), rows, situation(over_bytes=over, trash_bytes=trash))
    assert made.empty_trash_bytes == emptied
    assert [each.final for each in made.deletions] == finals
    assert sum(each.amount for each in made.still_over) == still


def test_trash_before_unfinished() -> None:
    """Under `drop_oldest` nothing unfinished goes while the trash has what is wanted; dropped data never goes there."""
    rules = settings(trash_age="1h", size_cap_policy="drop_oldest")
    rows = segments("blocked", "blocked")
    assert plan(rules, rows, situation(over_bytes=8, trash_bytes=8)).deletions == ()
    (dropped,) = plan(rules, rows, situation(over_bytes=9, trash_bytes=8)).deletions
    assert (dropped.first, dropped.final) == (0, True)


def test_a_long_plan_is_cut() -> None:
    """A plan has at most `limit` deletions, the first ones, and says that there are more."""
    rules = settings(size_cap_policy="drop_oldest")
    rows = segments("finished", "finished", "blocked", "blocked")
    for limit in range(1, 5):
        made = plan(rules, rows, situation(over_bytes=40, open=segment(40)), limit=limit)
        assert [each.first for each in made.deletions] == [0, 10, 20, 30][:limit]
        assert made.more is (limit < 4)
        assert made.seal_open is False


def test_no_segments() -> None:
    """An empty shard has nothing to give; its open segment may."""
    made = plan(settings(size_cap_policy="drop_oldest"), [], situation(over_bytes=5, open=segment(0)))
    assert (made.deletions, made.seal_open, made.still_over) == ((), True, (Shortfall("size", 5),))
