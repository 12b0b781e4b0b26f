"""The crashed store, a fresh copy for each test, and how to open it again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import RecordBundle, Store
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from operate.acked_store import acked_store
from operate.crashed_store import BUNDLES, SEALED_ENDS, SETTINGS, STORE, TOPIC, bundle


@pytest.fixture(scope="session")
def _image() -> SimulatedFiles:
    files = SimulatedFiles()
    store = Store.open(STORE, settings=SETTINGS, files=files, clock=FakeClock(), ids=SequenceIds())
    topic = store.topic(TOPIC)
    for number in range(BUNDLES):
        topic.append(bundle(number)).wait()
        if number + 1 in SEALED_ENDS:
            topic.seal()
    image = files.kill()
    store.close()
    return image


@pytest.fixture
def files(_image: SimulatedFiles) -> SimulatedFiles:
    """The store's disk, a copy for each test."""
    return _image.kill()


@pytest.fixture(scope="session")
def _acked_image() -> SimulatedFiles:
    return acked_store()


@pytest.fixture
def acked(_acked_image: SimulatedFiles) -> SimulatedFiles:
    """The disk of the store with subscribers, a copy for each test."""
    return _acked_image.kill()


@pytest.fixture
def reopen() -> Callable[[SimulatedFiles], dict[int, RecordBundle]]:
    """Open the store for writing, append one bundle, and return those that were there before it by offset."""

    def opened(files: SimulatedFiles) -> dict[int, RecordBundle]:
        with Store.open(STORE, settings=SETTINGS, files=files, clock=FakeClock(), ids=SequenceIds(7)) as store:
            topic = store.topic(TOPIC)
            found = list(topic.bundles())
            receipt = topic.append(bundle(1000))
            receipt.wait()
            assert receipt.offset >= BUNDLES, "a number came again"
            assert [each.offset for each in topic.bundles()] == [*(each.offset for each in found), receipt.offset]
        return {each.offset: each for each in found if each.offset is not None}

    return opened
