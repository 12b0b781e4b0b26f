"""A process that appends, seals, delivers and deletes until it is killed: python busy_writer.py STORE.

It prints the number of each bundle that is durable.
"""

from __future__ import annotations

import sys
from itertools import count

import pyarrow as pa

from holdfast import Store

# Small, so that sealing and the change of WAL files happen all the time.
SETTINGS = {"buffer": {"segment": {"target_size": 500_000, "max_open_duration": 0.5}, "wal": {"file_size": 500_000}}}
ROWS = 20


def main() -> None:
    with Store.open(sys.argv[1], settings=SETTINGS) as store:
        topic = store.topic("demo/events")
        with topic.subscribe("reader", "earliest") as subscriber:
            for number in count():
                texts = [f"event {row} of {number}" for row in range(ROWS)]
                receipt = topic.append({"events": pa.record_batch({"id": range(ROWS), "text": texts})})
                if number % 16 == 0:
                    receipt.wait()
                    for delivery in subscriber.take(12, timeout=0.0):
                        delivery.ack()
                    print(number, flush=True)


if __name__ == "__main__":
    main()
