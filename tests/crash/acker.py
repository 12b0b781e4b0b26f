"""A process that holds a subscriber and finishes what it is given, in no particular order; to be killed.

    python acker.py STORE NAME SEED

Says a line of offsets each time after they were written down; ends when it has finished the bundle whose attribute
`last` is set, and all before it.
"""

from __future__ import annotations

import logging
import random
import sys

import structlog

import holdfast as hf

TOPIC = "prod/logs"


def main(path: str, name: str, seed: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    dice = random.Random(seed)
    over = False
    with hf.Store.open(path, read_only=True) as store, store.topic(TOPIC).subscribe(name, window=200) as subscriber:
        hand: list[hf.Delivery] = []
        while hand or not over:
            given = subscriber.take(50, timeout=0 if over else 60)
            over = over or any("last" in delivery.bundle.attributes for delivery in given)
            hand += given
            dice.shuffle(hand)
            count = len(hand) if over and not given else len(hand) // 2
            done, hand = hand[:count], hand[count:]
            for delivery in done:
                delivery.ack()
            subscriber.flush()
            if done:
                print(*(delivery.offset for delivery in done), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
