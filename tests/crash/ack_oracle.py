"""Holds a disk that a crash left against what callers of `ack_life` had been told.

The laws, in the order in which they are checked:

    registrations  every subscriber that was told it is registered is, every removed one is gone
    outcomes       none is forgotten once it is durable, none is found that was not given: so no watermark is over a gap
    data           what was acknowledged is there, or everyone has finished it; what was deleted is not there
    dead letters   every rejected bundle is kept
    answers        a batch that was answered is answered the same again
    delivery       each subscriber is given exactly what it has not finished, in order
    numbers        new bundles get numbers above every old one, also when everything was deleted
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import holdfast as hf
from crash.ack_life import (
    DEAD,
    TOPIC,
    Answered,
    Appended,
    Asked,
    Deleted,
    Dropping,
    Paused,
    Pausing,
    Promised,
    Registered,
    Registering,
    Removed,
    Removing,
    Sealed,
    Synced,
    Trimming,
    Written,
    batch_of,
    last_segment,
    open_store,
    upkeep,
)
from crash.still import without_committers
from holdfast.acks import BatchStatus, Outcome, Progress
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.registry import Registration
from holdfast.testing import CrashMode, CrashState, FakeClock, SequenceIds, SimulatedFiles, crash, crash_states


@dataclass
class Known:
    """A subscriber, as far as its callers know."""

    may_exist: bool = True
    may_be_absent: bool = True
    number: int | None = None
    start: int | None = None
    paused: set[bool] = field(default_factory=lambda: {False})


class Facts:
    """What the notes up to a crash say may, must and must not be found."""

    def __init__(self, notes: Iterable[object], *, written_counts: bool) -> None:
        """`written_counts`: nothing that was written is lost, so it must be found like what was synced."""
        self.appended: dict[int, int] = {}
        self.promised: dict[int, int] = {}
        self.subscribers: dict[str, Known] = {}
        self.asked: dict[tuple[int, int], set[Outcome]] = defaultdict(set)
        self.durable: dict[tuple[int, int], Outcome] = {}
        self.may_be_dropped = 0
        self.may_be_trimmed = 0
        self.deleted: set[int] = set()
        self.highest_segment = -1
        self.answered: dict[str, BatchStatus] = {}
        for note in notes:
            self._take(note, written_counts)

    def _take(self, note: object, written_counts: bool) -> None:
        match note:
            case Appended(number, offset):
                self.appended[offset] = number
            case Promised(number, offset):
                self.promised[offset] = number
            case Registering(name):
                self.subscribers[name] = Known()
            case Registered(name, number, start):
                self.subscribers[name] = Known(may_be_absent=False, number=number, start=start)
            case Removing(name):
                self.subscribers[name].may_be_absent = True
            case Removed(name):
                self.subscribers[name].may_exist = False
            case Pausing(name, paused):
                self.subscribers[name].paused.add(paused)
            case Paused(name, paused):
                self.subscribers[name].paused = {paused}
            case Asked(subscriber, offsets, outcome):
                for offset in offsets:
                    self.asked[subscriber, offset].add(outcome)
            case Synced(subscriber, offsets, outcome):
                self.durable.update(((subscriber, offset), outcome) for offset in offsets)
            case Written(subscriber, offsets, outcome) if written_counts:
                self.durable.update(((subscriber, offset), outcome) for offset in offsets)
            case Dropping(below):
                self.may_be_dropped = below
            case Trimming(before):
                self.may_be_trimmed = before
            case Deleted(offsets):
                self.deleted.update(offsets)
            case Sealed(segment_seq):
                self.highest_segment = max(self.highest_segment, segment_seq)
            case Answered(batch, status):
                self.answered[batch] = status

    @property
    def is_rejecting(self) -> bool:
        """Was something being rejected when the crash came?"""
        return any(Outcome.REJECTED in asked and place not in self.durable for place, asked in self.asked.items())

    @property
    def highest(self) -> int:
        """Of all offsets that anybody was told, or may have acted on."""
        return max([*self.promised, *(offset for _, offset in self.asked), -1])


class Look:
    """What a store shows: subscribers, their outcomes, and what can be read."""

    def __init__(self, topic: hf.Topic) -> None:
        registry = topic._subscriptions.registry()
        self.subscribers: dict[str, Registration] = dict(registry.subscribers)
        self.found: dict[int, int] = {}
        for bundle in topic.bundles():
            assert bundle.offset is not None
            assert not self.found or bundle.offset > max(self.found), "bundles come out of order"
            number = self.found[bundle.offset] = bundle.attributes["id"]
            assert number < 0 or dict(bundle.slots) == batch_of(number), f"bundle {number} came back different"
        self.end = topic.positions()[0][1] if topic.positions() else 0
        self.progress: dict[str, Progress] = {}
        if topic.positions():
            log = topic.acks(0)
            log.refresh()
            for name, registration in self.subscribers.items():
                self.progress[name] = progress = log.progress(registration.number)
                progress.begin(registration.start(0))

    def unfinished(self, name: str) -> list[int]:
        return [offset for offset in self.found if not self.progress[name].is_final(offset)]


def check_laws(facts: Facts, topic: hf.Topic) -> Look:
    """Registrations, outcomes, data, answers: without changing anything."""
    look = Look(topic)
    _check_registrations(facts, look)
    _check_outcomes(facts, look)
    _check_data(facts, look)
    return look


def _check_registrations(facts: Facts, look: Look) -> None:
    for name, known in facts.subscribers.items():
        registration = look.subscribers.get(name)
        if registration is None:
            assert known.may_be_absent or not known.may_exist, f"subscriber {name} is forgotten"
            continue
        assert known.may_exist, f"subscriber {name} was removed and is back"
        assert known.number in (None, registration.number), f"{name} has another number"
        assert known.start in (None, registration.start(0)), f"{name} starts elsewhere"
        assert registration.paused in known.paused, f"{name}: paused is {registration.paused}"
    strangers = look.subscribers.keys() - facts.subscribers.keys()
    assert not strangers, f"nobody registered {strangers}"


def _check_outcomes(facts: Facts, look: Look, held: Collection[int] | None = None) -> None:
    """Each that is there was given; each that is durable is there. Below its start nothing is a subscriber's business.

    An offset that holds nothing is finished for everyone: its append failed, or was lost, or it was deleted before the
    subscriber came. `held` are those that did hold something when the subscriber last looked.
    """
    numbers = {registration.number for registration in look.subscribers.values()}
    for (subscriber, offset), outcome in facts.durable.items():
        if subscriber in numbers:
            name = next(name for name, each in look.subscribers.items() if each.number == subscriber)
            found = look.progress[name].worst(offset, offset + 1)
            assert found is outcome, f"{name} has {found} for offset {offset}, and was told {outcome}"
    for name, progress in look.progress.items():
        registration = look.subscribers[name]
        end = max(look.end, facts.highest + 1, progress.watermark)
        for offset in range(registration.start(0), end):
            found = progress.worst(offset, offset + 1)
            if found is None:
                continue
            given = facts.asked.get((registration.number, offset), set())
            dropped = found is Outcome.DROPPED and offset < facts.may_be_dropped
            is_empty = offset not in look.found and (offset not in facts.promised or offset in facts.deleted)
            excused = found is Outcome.ACK and (is_empty or (held is not None and offset not in held))
            assert found in given or dropped or excused, (
                f"{name} has {found.name} for offset {offset}, below or above its watermark {progress.watermark}; "
                f"it was given {given or 'nothing'}"
            )


def _check_data(facts: Facts, look: Look) -> None:
    back = facts.deleted & look.found.keys()
    assert not back, f"offsets {sorted(back)} were deleted and are back"
    for offset, number in look.found.items():
        assert number < 0 or facts.appended.get(offset, number) == number, f"offset {offset} was given to two bundles"
    for offset, number in facts.promised.items():
        if offset in look.found:
            assert look.found[offset] == number, f"offset {offset} holds another bundle"
            continue
        trimmed = offset < facts.may_be_trimmed
        assert look.subscribers or facts.subscribers or trimmed, f"offset {offset} is lost"
        for name, progress in look.progress.items():
            assert progress.is_final(offset), f"offset {offset} is gone, and {name} has not finished it"
        assert trimmed or any(_finished_by(facts, name, offset) for name in facts.subscribers), (
            f"offset {offset} is lost: nobody who is or was registered had finished it"
        )


def _finished_by(facts: Facts, name: str, offset: int) -> bool:
    known = facts.subscribers[name]
    if known.number is None:
        return False
    dropped = offset < facts.may_be_dropped
    return bool(facts.asked.get((known.number, offset))) or dropped


def check_dead_letters(facts: Facts, store: hf.Store, look: Look) -> None:
    """Whatever a subscriber rejected for good is kept, once, as it was."""
    rejected = {place for place, outcome in facts.durable.items() if outcome is Outcome.REJECTED}
    for name, registration in look.subscribers.items():
        for subscriber, offset in facts.asked:
            if subscriber == registration.number:
                outcome = look.progress[name].worst(offset, offset + 1)
                rejected |= {(subscriber, offset)} if outcome is Outcome.REJECTED else set()
    if not rejected:
        return
    letters = [DeadLetter.from_bundle(bundle) for bundle in store.topic(DEAD).bundles()]
    places = [(letter.number, letter.offset) for letter in letters]
    for place in rejected:
        assert places.count(place) == 1, f"{place} was rejected and has {places.count(place)} dead letters"
    for letter in letters:
        assert Outcome.REJECTED in facts.asked.get((letter.number, letter.offset), ()), f"{letter} was never rejected"
        assert dict(letter.original().slots) == batch_of(facts.appended[letter.offset])


def check_answers(facts: Facts, topic: hf.Topic) -> None:
    """A source that asks again is told the same; upkeep was done."""
    for batch, status in facts.answered.items():
        found = topic.find_batch("source", "run", batch)
        assert found is not None, f"batch {batch} was answered and is forgotten"
        assert found.status is status, f"batch {batch} was {status} and is {found.status}"


def check_delivery(facts: Facts, topic: hf.Topic, look: Look) -> None:
    """Each subscriber is given what it has not finished, and finishes it."""
    for name, registration in look.subscribers.items():
        expected = look.unfinished(name)
        if registration.paused:
            topic.resume(name)
        holder = topic.subscribe(name)
        given = holder.take(1000, timeout=0)
        assert [delivery.offset for delivery in given] == expected, f"{name} is given other bundles than it needs"
        for delivery in given:
            assert delivery.bundle.attributes["id"] == look.found[delivery.offset]
            facts.asked[registration.number, delivery.offset].add(Outcome.ACK)
            delivery.ack()
        holder.flush()


def put(topic: hf.Topic) -> int:
    """Append something new, durably; its offset."""
    fresh = topic.append(batch_of(0), attributes={"id": -1})
    topic.flush()
    fresh.wait(timeout=30)
    return fresh.offset


def reopen(files: SimulatedFiles, seed: int) -> hf.Store:
    return open_store(files, FakeClock(), SequenceIds(seed))


@without_committers()
def check(state: CrashState) -> None:
    """Open what the crash left and go through the laws, work on, lose the power once more and look again.

    What costs another opening, or cannot fail if the rest does not, is done for every few states only.
    """
    try:
        _check(state, turn=state.prefix + state.variant)
    except AssertionError as problem:
        raise AssertionError(f"{problem}; {state.description}") from problem


@without_committers()
def check_second_crashes(state: CrashState, *, stride: int) -> int:
    """Look after what the crash left, crash that too, anywhere, in every way, and go through the laws; how often."""
    facts, files = Facts(state.notes, written_counts=False), state.files
    files.clear_journal()
    with reopen(files, 5) as store:
        upkeep(store, store.topic(TOPIC))
    count = 0
    for second in crash_states(files, modes=CrashMode, per_prefix=1, stride=stride, offset=state.prefix % stride):
        try:
            with reopen(second.files, 6) as store:
                topic = store.topic(TOPIC)
                check_laws(facts, topic)
                upkeep(store, topic)
                check_laws(facts, topic)
                check_answers(facts, topic)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; {state.description}, then {second.description}") from problem
        count += 1
    return count


def _check(state: CrashState, turn: int) -> None:
    facts = Facts(state.notes, written_counts=state.mode in (CrashMode.KEPT, CrashMode.KILLED))
    with reopen(state.files, 2) as store:
        topic = store.topic(TOPIC)
        if turn % 4 == 0:
            check_laws(facts, topic)
        upkeep(store, topic)
        look = check_laws(facts, topic)
        check_answers(facts, topic)
        if turn % 3 == 0 or facts.is_rejecting:
            check_dead_letters(facts, store, look)
        if state.mode is CrashMode.KILLED:
            _check_power_cut(state, facts)
        gone = facts.deleted | _work_on(facts, store, topic, look)
        if turn % 5 == 0:
            files = crash(state.files, CrashMode.LOST)
            with reopen(files, 3) as again:
                _check_gone(facts, files, again.topic(TOPIC), gone)


def _check_power_cut(state: CrashState, facts: Facts) -> None:
    """Upkeep after a kill acts on what it reads; a power cut right then finds all of that durable."""
    mode = (CrashMode.LOST, CrashMode.REORDERED)[state.prefix % 2]
    with reopen(crash(state.files, mode, seed=state.prefix), 4) as store:
        topic = store.topic(TOPIC)
        check_laws(Facts(state.notes, written_counts=False), topic)
        upkeep(store, topic)
        check_answers(facts, topic)


def _check_gone(facts: Facts, files: SimulatedFiles, topic: hf.Topic, gone: Collection[int]) -> None:
    back = set(gone) & Look(topic).found.keys()
    assert not back, f"offsets {sorted(back)} were deleted after the crash and are back"
    assert put(topic) > facts.highest
    topic.seal()
    newest = last_segment(files)
    assert newest > facts.highest_segment, f"segment number {newest} is used again, {facts.highest_segment} was given"


def _work_on(facts: Facts, store: hf.Store, topic: hf.Topic, look: Look) -> set[int]:
    """Finish everything: it is deleted, and numbering goes on. What was deleted."""
    check_delivery(facts, topic, look)
    if look.found:
        topic.seal()
    upkeep(store, topic)
    after = Look(topic)
    _check_outcomes(facts, after, held=look.found)
    if look.subscribers:
        assert after.found == {}, f"everyone has finished {sorted(after.found)}, and they are kept"
    fresh = put(topic)
    above = max([facts.highest, *look.found])
    assert fresh > above, f"offset {fresh} was given again; {above} was in use"
    return look.found.keys() - after.found.keys()
