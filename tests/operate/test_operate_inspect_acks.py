"""Files of outcomes, leases, keys and claims, shown."""

from __future__ import annotations

import pytest

from holdfast.acks import AckLog, AnswerRecord, BatchId, BatchRecord, BatchStatus
from holdfast.acks.format import FILE_HEADER_BYTES
from holdfast.errors import Corruption
from holdfast.operate import inspect
from holdfast.retention._claim import Claim, encode_claim
from holdfast.store.key_format import KeyEntry, KeyFileHeader, Kind, Void, encode_record
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.testing import FakeClock, SimulatedFiles, flip_bit
from operate.acked_store import ACK_CHECKPOINT, ACKS, KEYS, LEASE, TOPIC_CHECKPOINT, put
from operate.crashed_store import SHARD

NOW = "2023-11-14T22:13:20.000000000Z"


def test_an_ack_file(acked: SimulatedFiles) -> None:
    """Its header, how many bundles each subscriber finished how, and every record."""
    document = inspect(ACKS, files=acked)
    assert (document["kind"], document["file_number"], document["damage"], document["torn"]) == ("acks", 1, [], None)
    assert document["subscribers"] == [{"subscriber": 1, "records": 2, "ack": 4, "rejected": 1}]
    acked_record, rejected = document["records"]
    assert acked_record == {
        "position": 48, "what": "ack", "subscriber": 1, "epoch": 1, "bundles": 4, "ranges": [[10, 14]], "batch": None,
        "status": None, "time": NOW, "reason": None,
    }  # fmt: skip
    assert (rejected["what"], rejected["ranges"], rejected["reason"]) == ("rejected", [[14, 15]], "no such column")


def test_batches_and_answers_in_an_ack_file(acked: SimulatedFiles) -> None:
    """With the identity that the source gave them."""
    log = AckLog(acked, SHARD, ShardCheckpoint.read(acked, SHARD).shard_id, clock=FakeClock())
    batch = BatchId("web", "run 1", "batch 2")
    log.append([BatchRecord(batch, [(3, 5)]), AnswerRecord(batch, BatchStatus.DELIVERED)])
    log.close()
    *_, closed, answer = inspect(ACKS, files=acked)["records"]
    assert (closed["what"], closed["batch"], closed["ranges"]) == ("batch", ["web", "run 1", "batch 2"], [[3, 5]])
    assert (answer["what"], answer["status"], answer["subscriber"]) == ("answer", "delivered", None)


def test_a_damaged_ack_file_is_shown_as_far_as_it_can_be_read(acked: SimulatedFiles) -> None:
    """What is behind the damage is found again."""
    flip_bit(acked, ACKS, 8 * (FILE_HEADER_BYTES + 30))
    flip_bit(acked, ACKS, 8 * 20)
    document = inspect(ACKS, files=acked)
    assert document["file_number"] is None
    assert [(each["position"], each["bytes"]) for each in document["damage"]] == [(0, 48), (48, 68)]
    assert [each["what"] for each in document["records"]] == ["rejected"]


def test_an_ack_checkpoint(acked: SimulatedFiles) -> None:
    """The progress of each subscriber in plain numbers."""
    document = inspect(ACK_CHECKPOINT, files=acked)
    assert (document["kind"], document["document"]["replay_from"]) == ("checkpoint", 1)
    assert document["progress"] == [
        {"subscriber": 1, "watermark": 4, "gaps": 1, "finished_above": 5, "rejected": 0, "dropped": 0},
        {"subscriber": 2, "watermark": 0, "gaps": 1, "finished_above": 1, "rejected": 0, "dropped": 0},
    ]
    assert (document["batches"], document["answers"]) == (0, 0)


def test_registrations_and_leases(acked: SimulatedFiles) -> None:
    """Who is registered how, and who held a lease last."""
    alerts, lake = inspect(TOPIC_CHECKPOINT, files=acked)["subscribers"]
    assert alerts == {
        "name": "alerts", "registered": NOW, "number": 2, "starts": {}, "paused": True, "on_full": "drop",
        "authoritative": True, "expire_after": 60.0,
    }  # fmt: skip
    assert (lake["name"], lake["number"], lake["paused"]) == ("lake", 1, False)
    lease = inspect(LEASE, files=acked)["document"]
    assert (lease["kind"], lease["number"], lease["epoch"]) == ("lease", 1, 1)


def test_a_key_file(acked: SimulatedFiles) -> None:
    """Keys with their places, and offsets that were given up."""
    records = [
        encode_record(
            [KeyEntry(b"a", 0, 5, 10**9), KeyEntry(b"b", 1, 2**64 - 1, 0), KeyEntry(b"\xff", 1, 2**64 - 2, 0)], 0
        ),
        encode_record(Void(Kind.RECOVERED, 1, 9), 0),
        encode_record(Void(Kind.LOST, 1, 9, 12), 1),
    ]
    put(acked, KEYS, KeyFileHeader(4, 0, 0, 0).encode() + b"".join(records) + b"HFky")
    document = inspect(KEYS, files=acked)
    assert (document["kind"], document["generation"], document["keys"]) == ("keys", 4, 3)
    keys, recovered, lost = document["records"]
    assert [(each["key"], each["shard"], each["offset"]) for each in keys["entries"]] == [
        ("a", 0, 5), ("b", 1, "unplaced"), ("\\xff", 1, "withdrawn"),
    ]  # fmt: skip
    assert (recovered["what"], recovered["void"]) == ("recovered", {"shard": 1, "first": 9, "end": None})
    assert (lost["what"], lost["void"]) == ("lost", {"shard": 1, "first": 9, "end": 12})
    assert lost["position"] == 48 + len(records[0]) + len(records[1])
    (damage,) = document["damage"]
    assert (damage["position"], damage["bytes"], damage["what"]) == (acked.size(KEYS) - 4, 4, "cut short at the end")


def test_a_claim(acked: SimulatedFiles) -> None:
    """What a worker may grow to, and what it waits for; one that is not whole is told."""
    path = SHARD / "budget.claim"
    put(acked, path, encode_claim(Claim(1000, 20, 10**9, 2)))
    document = inspect(path, files=acked)
    assert {key: value for key, value in document.items() if key not in {"path", "kind"}} == {
        "limit_bytes": 1000, "wanted_bytes": 20, "wanted_since": "1970-01-01T00:00:01.000000000Z", "wanted_of": "topic",
    }  # fmt: skip
    flip_bit(acked, path, 8 * 30)
    with pytest.raises(Corruption, match="the claim fails its checksum; it counts as nothing promised"):
        inspect(path, files=acked)
