"""What may be deleted, when, and who makes room for whom. This room decides and deletes files; the store acts on it.

The order of precedence, for each sweep of a shard (the details are drawn in `_plan.py`):

    1  steady state    finished segments beyond the headroom
    2  age             finished segments that are too old; unfinished ones only if `expire_unfinished`
    3  under pressure  trash, then finished segments, then those that only subscribers with `on_full: drop` need
    4  drop_oldest     unfinished segments, those that are being delivered last; then the open segment is sealed
    5  backpressure    what is over then makes appends wait

Under pressure means: a `size_cap` is over, the disk has less than `min_free_disk`, or a shard more than `max_segments`.

_facts.py        what is known of each segment, in little room
_plan.py         what a sweep deletes: the rules above, as a pure function
_usage.py        how many bytes a store, a namespace or a topic takes
_claim.py        what a worker may write and what it waits for: a locked file (format drawn there)
_standing.py     a level against its cap, seen from one of its shards
_victims.py      the oldest finished segments of several shards
_relief.py       where the bytes come from that a cap is over by
_request.py      asking a shard's owner to make room
_neighbours.py   what the store provides for that
_budget.py       a cap that several workers keep: admission, and relief (with the argument why it holds)
_trash.py        where deleted files wait
_deleter.py      deletions, one by one, failures tried again
"""

from holdfast.retention._budget import Budget, Verdict
from holdfast.retention._claim import BUDGET_LOCK, CLAIM, decode_claim
from holdfast.retention._deleter import Deleter, Doomed, Failure, Report
from holdfast.retention._facts import SegmentFacts, SegmentTable
from holdfast.retention._neighbours import Neighbours
from holdfast.retention._plan import MAX_DELETIONS, Deletion, Plan, Reason, Shortfall, Situation, plan
from holdfast.retention._relief import Relief
from holdfast.retention._request import REQUEST, Request
from holdfast.retention._standing import Standing
from holdfast.retention._trash import Emptied, Trash
from holdfast.retention._usage import TRASH, Meter, ShardUsage, Usage
from holdfast.retention._victims import Victim, oldest_finished

__all__ = [
    "BUDGET_LOCK",
    "CLAIM",
    "MAX_DELETIONS",
    "REQUEST",
    "TRASH",
    "Budget",
    "Deleter",
    "Deletion",
    "Doomed",
    "Emptied",
    "Failure",
    "Meter",
    "Neighbours",
    "Plan",
    "Reason",
    "Relief",
    "Report",
    "Request",
    "SegmentFacts",
    "SegmentTable",
    "ShardUsage",
    "Shortfall",
    "Situation",
    "Standing",
    "Trash",
    "Usage",
    "Verdict",
    "Victim",
    "decode_claim",
    "oldest_finished",
    "plan",
]
