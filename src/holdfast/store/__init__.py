"""Topics and shards: append, seal, recover, read by offset.

_store.py             Store: a folder of topics
_topic.py             Topic: append to the shard that this process owns, read all shards
topic_state.py        topic.checkpoint: slot table and merged schemas, under the topic's lock
_encoder.py           a caller's bundle to bytes
_shard.py             Shard: one writer; seal, read, truncate
shard_checkpoint.py   shard.checkpoint: identity, what was trimmed, what was lost
_committer.py         group commit
_receipt.py           Receipt, and the group whose fate it shares
_open_segment.py      bundles on their way into a segment, and who plans which
_sealer.py            the thread that seals
recovery.py           opening a shard after whatever happened to it
_follower.py          a shard as other processes see it
segments.py           segment files: listing, open readers
_span.py              a run of bundles in one place
layout.py             the names in a store's folder
"""

from holdfast.store._receipt import Receipt
from holdfast.store._shard import ShardStatistics
from holdfast.store._store import Store
from holdfast.store._topic import Topic

__all__ = ["Receipt", "ShardStatistics", "Store", "Topic"]
