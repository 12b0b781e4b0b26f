"""A process that appends to a shard of its own, seals often, and deletes what everyone has finished; to be killed.

    python busy_writer.py STORE FIRST COUNT FAST

Says a line for each bundle that is durable: `shard offset number`; then `done`, and waits for a line before it ends. As
subscriber FAST, unless that is empty, it finishes every bundle of its topic at once, so that something is being deleted
all the time.
"""

from __future__ import annotations

import logging
import sys
import threading

import structlog

import holdfast as hf
from holdfast.errors import Closed

if __name__ == "__main__":
    from writer import TOPIC, batch
else:
    from crash.writer import TOPIC, batch

SETTINGS = {
    "buffer": {
        "segment": {"target_size": 4_000},
        "wal": {"file_size": 16_384, "max_size": 1_000_000},
        "retention": {"min_free_disk": 0, "check_interval": 0.2},
    }
}


def drain(subscriber: hf.Subscriber) -> None:
    """Finish whatever comes."""
    while True:
        try:
            for delivery in subscriber.take(50):
                delivery.ack()
            subscriber.flush()
        except Closed:
            return


def main(path: str, first: int, count: int, fast: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with hf.Store.open(path, settings=SETTINGS) as store:
        topic = store.topic(TOPIC)
        if fast:
            threading.Thread(target=drain, args=(topic.subscribe(fast),), daemon=True).start()
        for number in range(first, first + count):
            receipt = topic.append({"logs": batch(number)}, attributes={"id": number})
            receipt.wait()
            print(receipt.shard, receipt.offset, number, flush=True)
            if number % 4 == 0:
                topic.seal()
        print("done", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
