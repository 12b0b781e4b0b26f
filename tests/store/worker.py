"""A worker process: appends bundles of about 10 KB to a shard of its own, as fast as it may, and says what it did.

python worker.py STORE COUNT CAP POLICY SEED    one line for each bundle: its shard and offset, or `blocked`
"""

from __future__ import annotations

import logging
import sys

import pyarrow as pa
import structlog

import holdfast as hf
from holdfast.errors import Backpressure

TOPIC = "prod/logs"


def settings(cap: int, policy: str) -> dict[str, object]:
    return {
        "buffer": {
            "segment": {"target_size": 50_000},
            "wal": {"file_size": 50_000},
            "retention": {"size_cap": cap, "size_cap_policy": policy, "min_free_disk": 0},
        }
    }


def main(store: str, count: int, cap: int, policy: str, seed: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with hf.Store.open(store, settings=settings(cap, policy)) as opened:
        topic = opened.topic(TOPIC)
        done = 0
        while done < count:
            rows = pa.record_batch({"id": pa.array([seed * 1_000_000 + done]), "text": ["x" * 10_000]})
            try:
                receipt = topic.append({"logs": rows}, timeout=0.2)
            except Backpressure:
                print("blocked", flush=True)
                continue
            receipt.wait()
            print(receipt.shard, receipt.offset, flush=True)
            done += 1
        sys.stdin.readline()  # hold the shard until told to go


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
