"""A process that appends, and says on its standard output what it was told; to be killed.

    python writer.py STORE FIRST THREADS [options as JSON: count, seal_every, truncate_every, keep, buffer]

A line for each acknowledged bundle: `level shard offset number`.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from typing import Any

import pyarrow as pa

import holdfast as hf

TOPIC = "prod/logs"


def batch(number: int) -> pa.RecordBatch:
    """Rows that can be made again from the number alone."""
    rows = 1 + number % 3
    return pa.record_batch({"id": [number] * rows, "text": [f"line {number} " + "x" * (number * 37 % 500)] * rows})


def main() -> None:
    path, first, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    options: dict[str, Any] = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    count = options.get("count", 10**9)
    numbers = itertools.count(first)
    lock = threading.Lock()
    with hf.Store.open(path, settings={"buffer": options.get("buffer", {})}) as store:
        topic = store.topic(TOPIC, shard=0)

        def work() -> None:
            while True:
                with lock:
                    number = next(numbers)
                if number >= first + count:
                    return
                level = "os" if number % 4 == 0 else "fsync"
                receipt = topic.append({"logs": batch(number)}, durability=level, attributes={"id": number})
                receipt.wait()
                with lock:
                    print(level, receipt.shard, receipt.offset, number, flush=True)
                tidy(receipt.offset)

        def tidy(offset: int) -> None:
            if options.get("seal_every") and offset % options["seal_every"] == 0:
                topic.seal()
            if options.get("truncate_every") and offset % options["truncate_every"] == 0 and offset > options["keep"]:
                topic.truncate(offset - options["keep"])

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
