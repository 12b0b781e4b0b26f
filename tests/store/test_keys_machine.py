"""Two processes of one topic, killed, cut off from power and refused by the disk in any order, against a plain model.

The model knows what each caller was told. A bundle carries a serial number, so two with the same key are told apart.
"""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from holdfast.errors import TryAgain
from holdfast.testing import POWER_CUT_MODES, CrashMode, FakeClock, SimulatedFiles, crash
from store.keykit import Process, Stored

PROCESSES = st.integers(0, 1)
ALL_KEYS = {b"a", b"b", b"c"}
KEYS = st.sampled_from(sorted(ALL_KEYS))
WINDOW = 1000.0
FAULTS = ["append", "sync", "truncate", "rename", "sync_folder", "create", "unlink", "lock", "read", "list"]


class Killed(BaseException):
    """The process is gone, in the middle of a call."""


class KeysMachine(RuleBasedStateMachine):
    """Every rule is something that can happen to one process, or to the machine it runs on."""

    @initialize()
    def start(self) -> None:
        self.clock = FakeClock()
        self.files = SimulatedFiles(clock=self.clock)
        self.processes: dict[int, Process] = {}
        self.serial = 0
        self.era = 0  # keys of an earlier one are beyond the window
        self.eras: dict[int, int] = {}  # by serial
        self.promised: dict[tuple[int, int], bytes] = {}  # places whose bundle somebody was told to be durable

    def process(self, number: int) -> Process:
        if number not in self.processes:
            self.processes[number] = Process(self.files, number, self.clock, window=WINDOW)
        return self.processes[number]

    def bury(self, number: int) -> None:
        if number in self.processes:
            self.processes.pop(number).kill()

    @rule(number=PROCESSES, key=KEYS)
    def append(self, number: int, key: bytes) -> None:
        """What is told to be durable is a bundle with this key, whoever stored it."""
        process = self.process(number)
        with self.an_append(process) as serial:
            receipt, repeated = process.append(key, serial)
        try:
            receipt.wait(timeout=0)
        except TryAgain:  # also when time is up: at once
            return
        assert repeated, "durable before it was committed"
        self.promised[receipt.shard, receipt.offset] = key

    @contextlib.contextmanager
    def an_append(self, process: Process) -> Iterator[int]:
        self.serial += 1
        self.eras[self.serial] = self.era
        yield self.serial

    @rule(number=PROCESSES, seal=st.booleans())
    def commit(self, number: int, seal: bool) -> None:
        for stored in self.process(number).commit():
            self.promised[number, stored.offset] = stored.key
        if seal:
            self.process(number).seal()

    @rule(number=PROCESSES, written=st.booleans())
    def fail(self, number: int, written: bool) -> None:
        self.process(number).fail(written=written)

    @rule(number=PROCESSES)
    def kill(self, number: int) -> None:
        self.bury(number)
        self.the_disk_agrees()

    @rule(number=PROCESSES, what=st.sampled_from(["append", "commit", "seal", "open"]), key=KEYS, at=st.integers(0, 40))
    def kill_within(self, number: int, what: str, key: bytes, at: int) -> None:
        """The process dies at its `at`th call of the filesystem; nothing of it happens from then on."""
        process = None if what == "open" else self.process(number)
        if what == "open":
            self.bury(number)
        calls = 0

        def before(_operation: str, _path: Path) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise Killed

        self.files.before = before
        try:
            if process is None:
                self.process(number)
            elif what == "append":
                with self.an_append(process) as serial:
                    process.append(key, serial)
            elif what == "commit":
                for stored in process.commit():
                    self.promised[number, stored.offset] = stored.key
            else:
                process.seal()
        except Killed:
            self.bury(number)
        finally:
            self.files.before = None
        self.the_disk_agrees()

    @rule(number=PROCESSES, what=st.sampled_from(["append", "seal", "fail", "open"]), key=KEYS,
          operation=st.sampled_from(FAULTS), nth=st.integers(1, 3), error=st.sampled_from([errno.EIO, errno.ENOSPC]),
          short=st.sampled_from([None, 7, 30]))  # fmt: skip
    def refuse(
        self, number: int, what: str, key: bytes, operation: str, nth: int, error: int, short: int | None
    ) -> None:
        """One call on the key log is refused; what the process was about to do fails, or is made good later."""
        process = self.process(number)
        short = short if operation == "append" else None
        self.files.fail(operation, error, nth=nth, path="*/keys/*", short=short)
        try:
            if what == "append":
                with self.an_append(process) as serial:
                    process.append(key, serial)
            elif what == "seal":
                process.seal()
            elif what == "fail":
                process.fail(written=True)
            else:
                self.bury(number)
                self.process(number)
        except OSError:
            pass
        except TryAgain:
            assert what == "append"
        finally:
            self.files.heal()

    @rule(mode=st.sampled_from(POWER_CUT_MODES), seed=st.integers(0, 1000))
    def cut_power(self, mode: CrashMode, seed: int) -> None:
        """All processes are gone, and with them some of what was not synced."""
        self.processes.clear()
        self.files = crash(self.files, mode, seed=seed)
        self.the_disk_agrees()

    @rule()
    def window_passes(self) -> None:
        self.clock.advance(WINDOW)
        self.era += 1

    @rule(seconds=st.floats(0.0, 1.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def teardown(self) -> None:
        if hasattr(self, "files"):
            self.the_disk_agrees()

    def the_disk_agrees(self) -> None:
        # A process of its own, on a copy of the disk: it recovers all shards, as after the death of everybody.
        onlooker = Process(self.files.kill(), 9, self.clock, window=WINDOW)
        for number in (0, 1):
            onlooker.attend(number)
        found = onlooker.stored()
        for place, key in self.promised.items():
            assert place in found, f"{place} was promised, and is lost"
            assert found[place].key == key
        counted = Counter((each.key, self.eras[each.serial]) for each in found.values())
        assert not [key for key, count in counted.items() if count > 1], f"stored twice: {found}"
        self.keys_find_what_is_stored(onlooker, found)

    def keys_find_what_is_stored(self, onlooker: Process, found: dict[tuple[int, int], Stored]) -> None:
        for place, stored in found.items():
            if self.eras[stored.serial] == self.era and self.within_window(stored):
                receipt, repeated = onlooker.append(stored.key)
                assert repeated, f"{stored} is stored, and its key is not known"
                assert (receipt.shard, receipt.offset) == place
        known = {each.key for each in found.values() if self.within_window(each)}
        for key in ALL_KEYS - known:
            _, repeated = onlooker.append(key)
            assert not repeated, f"{key!r} is said to be stored, and is not"

    def within_window(self, stored: Stored) -> bool:
        return self.clock.now_ns() - stored.time_ns < WINDOW * 10**9


def run(examples: int) -> None:
    run_state_machine_as_test(
        KeysMachine,
        settings=settings(max_examples=examples, stateful_step_count=40, deadline=None, derandomize=True),
    )


def test_any_order_of_events() -> None:
    """A key whose bundle is durable is always found, one whose bundle is not never is, no bundle is stored twice."""
    run(30)


@pytest.mark.long
def test_many_more_orders_of_events() -> None:
    """The same, at length."""
    run(1500)
