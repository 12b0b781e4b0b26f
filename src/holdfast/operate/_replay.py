"""Dead letters sent once more to the subscriber that rejected them, or to another one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.acks import Outcome, OutcomeRecord
from holdfast.clock import Clock
from holdfast.errors import InputError
from holdfast.files import Files, SystemFiles
from holdfast.operate._letters import REPLAY, Letters, PlacedLetter
from holdfast.operate._subscribers import Where, registry_of
from holdfast.operate._values import moment
from holdfast.store import Store
from holdfast.store.registry import Registration, Registry

Document = dict[str, Any]


def replay_letters(
    path: Where,
    topic: str,
    which: Sequence[str],
    *,
    subscriber: str | None = None,
    to_subscriber: str | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
) -> Document:
    """Deliver dead letters (`which`: ids, or "all") again; those that were replayed before are left out.

    First it is made sure that every letter has a subscriber to go to. Then, for each letter:

    1. Append the original bundle, meant for that subscriber alone, under a key that follows from the letter's place.
       A crash now: repeating the replay appends nothing, because the key is known.
    2. Finish the letter for the subscriber `replay` of the dead-letter topic, synced. It is not replayed again, and
       retention may delete it.
    """
    files = SystemFiles() if files is None else files
    done: list[Document] = []
    skipped: list[str] = []
    with Store.open(path, files=files, clock=clock) as store:
        letters = Letters(store, topic, files)
        registry = registry_of(files, Path(path), topic)
        for found in letters.chosen(which, subscriber):
            _target(registry, found, to_subscriber)
        if letters.dead is not None:
            dead, live = letters.dead, store.topic(topic)
            with dead.subscribe(REPLAY, "earliest"):  # one at a time
                number = registry_of(files, Path(path), letters.name).get(REPLAY).number
                for found in letters.chosen(which, subscriber):
                    if found.replayed:
                        skipped.append(found.id)
                        continue
                    to = _target(registry, found, to_subscriber)
                    receipt = live.redeliver(found.letter.original(), to=to.number, key=_key(found, to))
                    receipt.wait()
                    record = OutcomeRecord.of_offsets(number, Outcome.ACK, [found.offset])
                    dead.acks(found.shard).append([record], sync=True)
                    dead.acks_written(found.shard)
                    done.append(
                        {"id": found.id, "subscriber": to.name, "shard": receipt.shard, "offset": receipt.offset}
                    )
    return {"path": str(Path(path)), "topic": topic, "replayed": done, "replayed_before": skipped}


def _target(registry: Registry, found: PlacedLetter, to_subscriber: str | None) -> Registration:
    """Who gets the letter; raises `InputError` or `UnknownSubscriber` if there is nobody of that name."""
    if to_subscriber is not None:
        return registry.get(to_subscriber)
    letter = found.letter
    rejecter = registry.numbered(letter.number)
    if rejecter is not None:
        return rejecter
    removal = next((each for each in reversed(registry.removals) if each.number == letter.number), None)
    when = "" if removal is None else f" at {moment(removal.time_ns)} ({removal.why})"
    anew = " and has been registered anew since" if letter.subscriber in registry.subscribers else ""
    known = ", ".join(sorted(registry.subscribers)) or "none"
    raise InputError(
        f"dead letter {found.id} was rejected by {letter.subscriber!r}, which was removed{when}{anew}; "
        f"name who gets it with --to-subscriber: {known}"
    )


def _key(found: PlacedLetter, to: Registration) -> str:
    """The same for the same letter and receiver. Its time is in it, should the dead-letter topic ever begin anew."""
    letter = found.letter
    text = repr((letter.key, letter.time_ns, found.shard, found.offset, to.number))
    return f"replay:{hashlib.sha256(text.encode()).hexdigest()}"
