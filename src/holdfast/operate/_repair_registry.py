"""Who is subscribed, when the topic's checkpoint cannot say it any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.clock import Clock
from holdfast.files import Files
from holdfast.operate._aside import Aside
from holdfast.operate._repair_leases import registrations_by_lease
from holdfast.operate._survey import ShardSurvey
from holdfast.store.registry import Registry


def rebuilt_registry(
    files: Files, topic: Path, left: Registry | None, surveys: Sequence[ShardSurvey], aside: Aside, clock: Clock
) -> Registry:
    """As it was, if that can be read (`left`); else by the leases, from the beginning of each shard on.

    It errs towards delivering again and towards keeping data. The number of a subscriber is what its outcomes are
    recorded under, so no number that was seen anywhere is given out again.
    """
    acked = {number for found in surveys for number in found.acks.ends}
    leased = registrations_by_lease(files, topic)
    seen = acked | {each.number for each in leased}
    if left is not None:
        if left.subscribers:
            aside.did(f"kept the registrations of {', '.join(sorted(left.subscribers))}")
        return replace(left, next_number=max([left.next_number, *(number + 1 for number in seen)]))
    registry = Registry(next_number=max(seen, default=0) + 1)
    for each in leased:
        registry = registry.with_one(replace(each, since_ns=clock.now_ns()))
        aside.did(
            f"registered {each.name} (number {each.number}) again, by its lease: it gets everything but what its "
            "outcomes finish; subscribe with on_full, expire_after and authoritative to set these anew"
        )
    nameless = sorted(acked - registry.numbers)
    if nameless:
        numbers = ", ".join(map(str, nameless))
        aside.did(
            f"subscribers known by number alone ({numbers}) are not registered any more: those that are still there "
            f"have to subscribe again, and begin anew; numbers go on at {registry.next_number}"
        )
    return registry
