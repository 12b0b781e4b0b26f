"""Every state in which a crash can leave a simulated disk.

The journal is replayed once, on a copy of the disk it began with. After each record the model knows what is
durable and what is pending, and `Pending` decides the rest, mode by mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from holdfast.testing._dice import Dice
from holdfast.testing._disk import Disk
from holdfast.testing._journal import Note, Operation
from holdfast.testing._pending import CrashMode, Pending
from holdfast.testing._simulated import SimulatedFiles
from holdfast.testing._tree import Tree, tree_digest

POWER_CUT_MODES: Final = tuple(mode for mode in CrashMode if mode is not CrashMode.KILLED)
_MODE_NUMBERS: Final = {mode: number for number, mode in enumerate(CrashMode)}  # seeds; a new mode goes last


class CrashState:
    """One disk that a crash can leave.

    prefix    how many records of the journal had happened
    mode      what became of what was pending
    variant   which of the mode's states this is; prefix, mode, variant and seed name the state for good
    last      the record that the crash followed, or `None` at the very start
    """

    def __init__(self, origin: SimulatedFiles, history: _History, mode: CrashMode, variant: int, tree: Tree) -> None:
        self.prefix = history.prefix
        self.mode = mode
        self.variant = variant
        self.last: Operation | None = history.last
        self._origin = origin
        self._tree = tree
        self._disk = history.disk.clone() if mode is CrashMode.KILLED else None
        self._notes = history.notes
        self._note_count = len(history.notes)

    @property
    def notes(self) -> tuple[object, ...]:
        """The values noted before the crash, in order."""
        return tuple(self._notes[: self._note_count])

    @property
    def note_count(self) -> int:
        return self._note_count

    @property
    def description(self) -> str:
        """One line that names this state: `after 12 (11 append /a/b [0, 9)): torn 3`."""
        last = "before anything happened" if self.last is None else f"after {self.prefix} ({self.last})"
        return f"{last}: {self.mode} {self.variant}"

    @cached_property
    def digest(self) -> str:
        """Of the whole tree of names and bytes; the same as `files.digest`."""
        return tree_digest(self._tree).hex()

    @cached_property
    def files(self) -> SimulatedFiles:
        """The disk, made when first asked for: all durable (unless `killed`), without locks and faults."""
        return self._origin._successor(self._disk or Disk.holding(self._tree))

    def __repr__(self) -> str:
        return f"<CrashState {self.description}>"


class _History:
    """The journal replayed up to `prefix` records."""

    def __init__(self, base: Disk) -> None:
        self.disk = base
        self.prefix = 0
        self.last: Operation | None = None
        self.notes: list[object] = []

    def step(self, operation: Operation) -> None:
        operation.apply(self.disk)
        if isinstance(operation, Note):
            self.notes.append(operation.value)
        self.last = operation
        self.prefix += 1


def crash_states(
    files: SimulatedFiles,
    *,
    modes: Iterable[CrashMode] = POWER_CUT_MODES,
    seed: int = 0,
    per_prefix: int = 4,
    first: int = 0,
    last: int | None = None,
    stride: int = 1,
    offset: int = 0,
    distinct: bool = True,
) -> Iterator[CrashState]:
    """Every prefix of the journal so far, crashed in every mode; `per_prefix` states for a mode with choices.

    Prefixes `first` to `last` (both included) are taken, of those each with `prefix % stride == offset`: so a
    test is spread over workers, and a state is the same whichever worker makes it. With `distinct`, a state
    is left out when one with the same digest and the same notes came before; a `killed` one never is, because
    what is pending counts too.
    """
    with files._changed:
        history, journal = _History(files._base.clone()), tuple(files._journal)
    modes = tuple(map(CrashMode, modes))
    met: set[tuple[int, str]] = set()
    for prefix in range(len(journal) + 1):
        if prefix:
            history.step(journal[prefix - 1])
        if prefix < first or prefix % stride != offset:
            continue
        if last is not None and prefix > last:
            return
        for state in _states(files, history, modes, seed, per_prefix):
            if distinct and state.mode is not CrashMode.KILLED:
                key = (state.note_count, state.digest)
                if key in met:
                    continue
                met.add(key)
            yield state


def crash(files: SimulatedFiles, mode: CrashMode = CrashMode.LOST, *, seed: int = 0) -> SimulatedFiles:
    """Cut the power now: the disk as the next process finds it. A mode without a choice acts as `kept`."""
    end = len(files.journal)
    states = crash_states(files, modes=[mode], seed=seed, per_prefix=1, first=end, last=end)
    state = next(states, None) or next(crash_states(files, modes=[CrashMode.KEPT], first=end, last=end))
    return state.files


def _states(
    origin: SimulatedFiles, history: _History, modes: Sequence[CrashMode], seed: int, per_prefix: int
) -> Iterator[CrashState]:
    pending = Pending(history.disk, history.last)
    if pending.nothing:  # then all modes come to the same
        modes = [CrashMode.KEPT]
    for mode in modes:
        for variant in range(pending.variants(mode, per_prefix)):
            dice = Dice(seed, history.prefix, _MODE_NUMBERS[mode], variant)
            yield CrashState(origin, history, mode, variant, pending.tree(mode, variant, dice))
