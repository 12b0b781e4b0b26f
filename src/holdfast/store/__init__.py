"""Topics and shards: append, seal, recover, read by offset, deliver, delete.

_store.py             Store: a folder of topics
_topic.py             Topic: append to the shard that this process owns, read all shards, subscribe
topic_state.py        topic.checkpoint: slot table, merged schemas, subscribers; under the topic's lock
_ownership.py         which shard this process writes
_shard_table.py       the shards of a topic: the one that is owned, and those that are followed
_ack_logs.py          their ack logs
_appender.py          append, each idempotency key once
_encoder.py           a caller's bundle to bytes
reserved.py           attributes that only Holdfast itself gives
_disk_error.py        what a caller is told when the system refuses

_shard.py             Shard: one writer; append, seal, delete
_contents.py          what it holds, as readers see it
_sealed_segments.py   its segment files: what is known of each, how one goes
_sealing.py           from the WAL into a segment file
shard_checkpoint.py   shard.checkpoint: identity, what was trimmed, deleted, lost
_committer.py         group commit
_receipt.py           Receipt, and the group whose fate it shares
_open_segment.py      bundles on their way into a segment, and who plans which
_sealer.py            the thread that seals
recovery.py           opening a shard after whatever happened to it
_follower.py          a shard as other processes see it
segments.py           segment files: listing, open readers
_span.py              a run of bundles in one place

keys.py               idempotent append; key_format.py, _key_log.py, _key_table.py, _key_receipt.py

_subscriptions.py     the subscribers of a topic: register, pause, remove; what this process delivers
registry.py           who is subscribed; part of topic.checkpoint
lease.py              one holder at a time
_subscriber.py        Subscriber: deliver in order, answers in any order, retries, deadlines
_drain.py             Drain: reads by offset, acks ranges
_lane.py              what a subscriber does in one shard
_delivery.py          Delivery: one attempt
_hand.py              deliveries without an answer
_retries.py           what was nacked, until it is due again
_waiting.py           who waits for something to take
_outbox.py            answers on their way into the ack logs
dead_letters.py       what was rejected
views.py              how far each subscriber is

_batch.py             Batch: what a source waits for
_finalizers.py        who answers it
_sources.py           who opens batches, and asks for them again
_sweeper.py           retention of one shard
_sweeping.py          which shards of a topic this process sweeps
_upkeep.py            what follows from outcomes and from time passing
_keeper.py            the thread for that
_listener.py          the thread that hears of other processes
_report.py            what the metrics are told; _subscriber_report.py
layout.py             the names in a store's folder
"""

from holdfast.store._batch import Batch
from holdfast.store._delivery import Delivery
from holdfast.store._drain import Drain
from holdfast.store._receipt import Receipt
from holdfast.store._shard import ShardStatistics
from holdfast.store._span import Span, StreamFacts
from holdfast.store._store import Store
from holdfast.store._subscriber import Subscriber
from holdfast.store._topic import Topic

__all__ = [
    "Batch",
    "Delivery",
    "Drain",
    "Receipt",
    "ShardStatistics",
    "Span",
    "Store",
    "StreamFacts",
    "Subscriber",
    "Topic",
]
