"""What the ack log of a shard means: damage in it never skips a bundle, it has some delivered again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.acks.format import CHECKPOINT, FOLDER
from holdfast.operate._findings import Finding
from holdfast.operate._judge import damage, highest_offset, note
from holdfast.operate._survey import ShardSurvey
from holdfast.store.registry import Registry

AGAIN: Final = "what was recorded there is delivered again; nothing is skipped"
CUT_SHORT: Final = "a record is cut short at the end: being written now, or left by a crash"
ACK_REPAIR: Final = (
    "run `holdfast fsck --repair` on the shard; it keeps a copy, and goes on from the outcomes that can be read"
)


def judge_acks(found: ShardSurvey, registry: Registry | None) -> Iterator[Finding]:
    """All findings about the outcomes in one shard; without a `registry`, of every subscriber that is named there."""
    if found.is_unfinished:
        return
    acks = found.acks
    if acks.newer is not None:
        yield damage(found.folder / FOLDER, None, str(acks.newer), "upgrade Holdfast")
        return
    for each in acks.damage:
        path = Path(each.path)
        if path.name == CHECKPOINT:
            yield damage(path, each.position, f"{each.what}; nothing is skipped", ACK_REPAIR)
        else:
            size = f" ({each.length} bytes)" if each.length else ""
            yield damage(path, each.position, f"{each.what}{size}: {AGAIN}", ACK_REPAIR)
    advice = "nothing: it goes when the ack log is next rotated"
    for each in acks.remnants:
        yield note(
            Path(each.path),
            each.position,
            f"{each.length} bytes of a record that a crash cut short: what it was to record is delivered again",
            advice,
        )
    if acks.torn is not None:
        path, position = acks.torn
        yield note(path, position, CUT_SHORT, advice)
    for path in acks.distrusted:
        yield note(path, None, "a sync of this ack file failed: the next writer goes on in another", advice)
    yield from _beyond(found, registry)


def beyond_the_end(found: ShardSurvey, registry: Registry | None) -> dict[str, int]:
    """Subscribers that are done with offsets that were never given out; for each, one above the highest of them.

    They finished them, or were registered to start behind them: then WAL or segments were lost since.
    """
    end = highest_offset(found)
    if registry is None:
        return {f"number {number}": last for number, last in found.acks.ends.items() if last > end}
    return {
        name: last
        for name, each in registry.subscribers.items()
        if (last := max(found.acks.ends.get(each.number, 0), each.start(found.number))) > end
    }


def _beyond(found: ShardSurvey, registry: Registry | None) -> Iterator[Finding]:
    for name, last in beyond_the_end(found, registry).items():
        yield damage(
            found.folder / FOLDER,
            None,
            f"subscriber {name} is done with offset {last - 1}, yet the shard ends before {highest_offset(found)}: "
            "bundles that come there would never be delivered to it",
            f"run `holdfast fsck --repair` on the shard before anything is appended; numbering goes on at {last}",
        )
