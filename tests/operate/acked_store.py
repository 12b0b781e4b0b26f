"""A small store with two subscribers as a kill leaves it: outcomes in a checkpoint and in a file, leases, keys.

lake    finished 0 to 9 except 4 (in the checkpoint), 10 to 13 (in the file), rejected 14; its next epoch is 2
alerts  finished 2 (in the checkpoint); paused, gives way when the disk is full
gone    was removed
"""

from __future__ import annotations

from pathlib import Path

from holdfast import Store, Topic
from holdfast.store.key_format import KeyEntry, KeyFileHeader, encode_record
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from operate.crashed_store import BUNDLES, SEALED_ENDS, SETTINGS, SHARD, STORE, TOPIC, bundle

FOLDER = STORE / TOPIC
ACKS = SHARD / "acks/0000000000000001.acks"
ACK_CHECKPOINT = SHARD / "acks.checkpoint"
TOPIC_CHECKPOINT = FOLDER / "topic.checkpoint"
LEASE = FOLDER / "subscribers/lake.lease"
KEYS = FOLDER / "keys/0000000000000001.keys"
UNFINISHED = {"lake": [4, 15, 16, 17], "alerts": [each for each in range(BUNDLES) if each != 2]}


def opened(files: SimulatedFiles, seed: int = 3, *, read_only: bool = False) -> Store:
    """The store; its clock stands still."""
    return Store.open(
        STORE, settings=SETTINGS, files=files, clock=FakeClock(), ids=SequenceIds(seed), read_only=read_only
    )


def acked_store() -> SimulatedFiles:
    """As the module says."""
    files = SimulatedFiles()
    store = opened(files)
    topic = store.topic(TOPIC)
    lake = topic.subscribe("lake")
    alerts = topic.subscribe("alerts", on_full="drop", authoritative=True, expire_after=60.0)
    for number in range(BUNDLES):
        topic.append(bundle(number)).wait()
        if number + 1 in SEALED_ENDS:
            topic.seal()
    for delivery in alerts.take(3, timeout=0):
        if delivery.offset == 2:
            delivery.ack()
    alerts.flush()
    held = lake.take(15, timeout=0)
    for delivery in held[:10]:
        if delivery.offset != 4:
            delivery.ack()
    lake.flush()
    rotate(topic)
    for delivery in held[10:14]:
        delivery.ack()
    lake.flush()
    held[14].reject("no such column")
    topic.pause("alerts")
    topic.subscribe("gone").close()
    topic.remove("gone", "not wanted any more")
    put(files, KEYS, key_file([b"first"], [b"second"], [b"third"]))
    image = files.kill()
    store.close()
    return image


def rotate(topic: Topic) -> None:
    log = topic.acks(0)
    with log.exclusive():
        log.rotate({1, 2})


def key_file(*records: list[bytes]) -> bytes:
    """A file of keys, one record for each list."""
    made = [encode_record([KeyEntry(key, 0, 1, 2) for key in keys], 0) for keys in records]
    return KeyFileHeader(1, 0, 48, 0).encode() + b"".join(made)


def put(files: SimulatedFiles, path: Path, data: bytes) -> None:
    """Write a file, in place of what is there."""
    files.make_folder(path.parent)
    file = files.open(path) if files.exists(path) else files.create(path)
    file.truncate(0)
    file.append([data])
    file.close()


def unfinished(files: SimulatedFiles, name: str) -> list[int]:
    """What is delivered to a subscriber that comes back."""
    with opened(files, 9) as store:
        topic = store.topic(TOPIC)
        topic.resume(name)
        with topic.subscribe(name) as subscriber:
            return [delivery.offset for delivery in subscriber.take(1000, timeout=0)]
