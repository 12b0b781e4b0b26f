"""Somebody who appends, as a process of its own: a line for each bundle when it begins, and one when it is durable.

python ingest_life.py <store> <topic> <first id> <bundles> <rows>
"""

from __future__ import annotations

import sys

import holdfast as hf
from e2e.oracle import SLOT, rows


def main(store: str, topic: str, first: str, bundles: str, count: str) -> None:
    begin, size = int(first), int(count)
    with hf.Store.open(store) as opened:
        place = opened.topic(topic)
        for number in range(begin, begin + int(bundles) * size, size):
            print("begun", number, flush=True)
            place.append({SLOT: rows(number, number + size)}).wait(timeout=60)
            print("durable", number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
