"""Opening a store: what is refused, and with which words."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import Closed, Corruption, InvalidName, NewerVersion, NotAStore, ReadOnly, UnknownTopic
from holdfast.files import SystemFiles
from holdfast.files.checkpoint import encode_checkpoint
from holdfast.testing import SimulatedFiles
from store.storekit import FOLDER, SHARD, STORE, TOPIC, append, contents, open_store, put, running_store


def replace(files: SimulatedFiles, path: Path, data: bytes) -> None:
    if files.exists(path):
        files.unlink(path)
    file = files.create(path)
    file.append([data])
    file.close()


def a_store() -> SimulatedFiles:
    files = SimulatedFiles()
    with open_store(files) as store:
        put(store.topic(TOPIC), 0)
    return files


def test_missing_folder_read_only() -> None:
    """A reader does not make a store."""
    files = SimulatedFiles()
    with pytest.raises(NotAStore) as caught:
        hf.Store.open(STORE, read_only=True, files=files)
    assert str(caught.value) == (
        "there is no store at /store: no store.checkpoint in it; check the path, or open it for writing once"
    )
    assert files.list(Path("/")) == []


def test_path_is_a_file(tmp_path: Path) -> None:
    """A file is not a store, on a real disk too."""
    path = tmp_path / "data"
    path.write_bytes(b"x")
    with pytest.raises(NotAStore) as caught:
        hf.Store.open(path)
    assert str(caught.value) == f"{path} is a file; a store is a folder"


def test_foreign_folder_is_left_alone() -> None:
    """A folder with other things in it is not turned into a store."""
    files = SimulatedFiles()
    files.make_folder(STORE)
    for name in ("holiday.jpg", "notes.txt"):
        replace(files, STORE / name, b"x")
    with pytest.raises(NotAStore) as caught:
        open_store(files)
    assert str(caught.value) == (
        "/store holds other things (holiday.jpg, notes.txt) and no store.checkpoint: "
        "not a store; choose an empty or a new folder"
    )
    assert files.list(STORE) == ["holiday.jpg", "notes.txt"]


def test_empty_folder_and_leftovers_of_a_crash() -> None:
    """An empty folder becomes a store, also when an earlier attempt died over it."""
    files = SimulatedFiles()
    files.make_folder(STORE)
    replace(files, STORE / "store.checkpoint.tmp", b"half")
    with open_store(files) as store:
        assert put(store.topic(TOPIC), 0) == 0


def test_id_stays() -> None:
    """A store keeps its id; two stores have two."""
    files = SimulatedFiles()
    with open_store(files, seed=1) as store, open_store(files, seed=2, path=Path("/other")) as other:
        first = store.id
        assert len(first) == 32
        assert other.id != first
    with open_store(files, seed=3) as store:
        assert store.id == first
        assert repr(store) == "Store('/store', read_only=False)"


@pytest.mark.parametrize("at", [("make_folder", "store"), ("sync_folder", ""), ("lock", "store.lock")])
def test_two_who_make_the_same_store_at_once(at: tuple[str, str]) -> None:
    """Processes that start together on an empty folder agree on one store."""
    files = SimulatedFiles()
    other: list[str] = []

    def interfere(operation: str, path: Path) -> None:
        if (operation, path.name) == at:
            files.before = None
            other.append(_id(files))

    files.before = interfere
    with open_store(files, seed=4) as store:
        assert other == [store.id]
    assert _id(files) == store.id


def _id(files: SimulatedFiles) -> str:
    with open_store(files, seed=5) as store:
        return store.id


@pytest.mark.parametrize("where", [STORE / "store.checkpoint", FOLDER / "topic.checkpoint", SHARD / "shard.checkpoint"])
def test_damaged_checkpoint(where: Path) -> None:
    """A checkpoint that fails its checksum is named, and what to do."""
    files = a_store()
    data = bytearray(files.read(where))
    data[-2] ^= 1
    replace(files, where, bytes(data))
    with pytest.raises(Corruption) as caught:
        _read_all(files)
    assert str(caught.value).startswith(f"{where}, byte 16: checkpoint fails its checksum: found 0x")
    assert "Run `holdfast fsck`" in str(caught.value)


@pytest.mark.parametrize("where", [STORE / "store.checkpoint", FOLDER / "topic.checkpoint", SHARD / "shard.checkpoint"])
@pytest.mark.parametrize("document", [{}, {"kind": "other"}, {"kind": "shard", "shard_id": "zz"}])
def test_checkpoint_of_something_else(where: Path, document: dict[str, Any]) -> None:
    """A checkpoint that is whole and not what it should be is damage too."""
    files = a_store()
    replace(files, where, encode_checkpoint(document))
    with pytest.raises(Corruption, match=r"not a (store|topic|shard)'s checkpoint"):
        _read_all(files)


@pytest.mark.parametrize("where", [STORE / "store.checkpoint", FOLDER / "topic.checkpoint", SHARD / "shard.checkpoint"])
def test_checkpoint_of_a_newer_version(where: Path) -> None:
    """What a later Holdfast wrote asks for an upgrade."""
    files = a_store()
    body = json.dumps({"kind": "later"}).encode()
    head = struct.pack("<HHI", 9, 0, len(body))
    checksum = crc32c.crc32c(body, crc32c.crc32c(head))
    replace(files, where, b"HFCKPT\r\n" + head + struct.pack("<I", checksum) + body)
    with pytest.raises(NewerVersion) as caught:
        _read_all(files)
    assert str(caught.value) == f"{where} is a checkpoint of version 9; this Holdfast reads up to 1: upgrade it"


def _read_all(files: SimulatedFiles) -> dict[int, int]:
    with open_store(files, seed=9) as store:
        return contents(store.topic(TOPIC))


@pytest.mark.parametrize(
    "name",
    ["logs", "a/b/c", "/logs", "prod/", "../x", "prod/..", "./x", "prod/.hidden", "a\\b/c", "prod/a b", "prod/a\0",
     "prod/LOCK.lock", "con/x", "prod/nul.txt", "prod/x.tmp", "", "/", "a" * 129 + "/b", "prod/é"],
)  # fmt: skip
def test_names_that_could_leave_the_store(name: str) -> None:
    """No name of a topic reaches a path outside its folder, or a file of the store's own."""
    files = SimulatedFiles()
    with open_store(files) as store:
        with pytest.raises(InvalidName):
            store.topic(name)
        assert store.topics() == []
    assert [each for each in files.list(STORE) if files.is_folder(STORE / each)] == []


def test_topics_are_listed() -> None:
    """Every topic that was made is listed by namespace and name; other files and folders are not."""
    files = SimulatedFiles()
    with open_store(files) as store:
        for name in ("b/two", "a/one", "b/one"):
            store.topic(name)
        files.make_folder(STORE / "lost+found" / "x")
        assert store.topics() == ["a/one", "b/one", "b/two"]
        assert store.topic("a/one") is store.topic("a/one")


def test_unknown_topic_read_only() -> None:
    """A reader is told which topics there are."""
    files = a_store()
    with hf.Store.open(STORE, read_only=True, files=files) as store, pytest.raises(UnknownTopic) as caught:
        store.topic("prod/metrics")
    assert str(caught.value) == "/store has no topic 'prod/metrics'; it has prod/logs"


def test_read_only_refuses_changes() -> None:
    """Append, seal and truncate say that the store was opened read-only; nothing changes on disk."""
    files = a_store()
    digest = files.digest
    with hf.Store.open(STORE, read_only=True, files=files) as store:
        topic = store.topic(TOPIC)
        for change in (lambda: append(topic, 1), topic.seal, lambda: topic.truncate(1)):
            with pytest.raises(ReadOnly, match="open the store without read_only=True to write"):
                change()
        topic.flush()
        assert contents(topic) == {0: 0}
        assert topic.statistics() is None
    assert files.digest == digest


def test_closed_store_and_topic() -> None:
    """After close every call says Closed; closing again does nothing."""
    files = SimulatedFiles()
    store = open_store(files)
    topic = store.topic(TOPIC)
    put(topic, 0)
    store.close()
    store.close()
    with pytest.raises(Closed, match=r"^the store /store is closed; open it again$"):
        store.topic(TOPIC)
    for use in (
        lambda: append(topic, 1),
        topic.seal,
        lambda: topic.truncate(0),
        lambda: list(topic.bundles()),
        lambda: list(topic.read(slot="logs")),
        topic.positions,
        topic.slots,
        lambda: topic.schema("logs"),
    ):
        with pytest.raises(Closed, match=r"^topic prod/logs is closed; open the store again$"):
            use()


def test_closing_one_topic_leaves_the_others() -> None:
    """A topic's failure to close does not keep the rest open."""
    files = SimulatedFiles()
    store = running_store(files)
    topics = [store.topic(name) for name in ("a/one", "a/two")]
    for topic in topics:
        topic.append({"logs": _batch()}).wait(timeout=30)
    topics[0].close()
    topics[1].append({"logs": _batch()}).wait(timeout=30)
    store.close()
    with running_store(files) as again:
        assert [again.topic(name).positions() for name in ("a/one", "a/two")] == [{0: (0, 1)}, {0: (0, 2)}]


def _batch() -> Any:
    return pa.record_batch({"a": [1]})


def test_relative_path_and_text_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path may be a text, and relative; missing parents are made."""
    monkeypatch.chdir(tmp_path)
    with hf.Store.open("deep/er/data") as store:
        store.topic(TOPIC).append({"logs": _batch()}).wait(timeout=30)
    assert (tmp_path / "deep/er/data/store.checkpoint").exists()
    with hf.Store.open(tmp_path / "deep/er/data", read_only=True) as store:
        assert len(list(store.topic(TOPIC).bundles())) == 1


def test_progress_is_told_while_a_shard_is_recovered() -> None:
    """Recovery calls back with the shard's name and bytes done of all."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    for number in range(5):
        put(topic, number, width=1500)
    after = files.kill()
    told: list[tuple[str, int, int]] = []
    with open_store(after, seed=2, progress=lambda *args: told.append(args)) as store:
        assert contents(store.topic(TOPIC)) == {number: number for number in range(5)}
    assert told
    assert {name for name, _, _ in told} == {"prod/logs/0"}
    assert told[-1][1] == told[-1][2] > 0
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_real_disk(tmp_path: Path) -> None:
    """The same on the real filesystem: made, closed, opened, read."""
    with hf.Store.open(tmp_path / "data", files=SystemFiles()) as store:
        topic = store.topic(TOPIC)
        for number in range(20):
            append(topic, number).wait()
    with hf.Store.open(tmp_path / "data") as store:
        topic = store.topic(TOPIC)
        assert contents(topic) == {number: number for number in range(20)}
        assert append(topic, 20).wait() is hf.Durability.FSYNC
