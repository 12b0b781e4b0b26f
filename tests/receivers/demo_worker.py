"""A demo source as a process: python demo_worker.py STORE STATE LIMIT RATE ACKNOWLEDGEMENTS; prints when it is done."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast import Store
from receivers.receiverkit import running
from store.storekit import until


def main(path: str, state: str, limit: str, rate: str, acknowledgements: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with (
        Store.open(path) as store,
        running(
            store, Path(state), limit=int(limit), rows_per_second=int(rate), acknowledgements=acknowledgements == "yes"
        ) as source,
    ):
        until(lambda: source.failure or source.statistics().bundles)
        print("sending", flush=True)
        until(lambda: source.failure or source.statistics().finished)
        print(source.failure or "finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
