"""`holdfast run` for `holdfast demo`: it is asked to stop when its standard input ends, with whoever started it."""

from __future__ import annotations

import os
import signal
import sys
import threading

from holdfast.cli._app import run

_INPUT = 0


def _until_alone() -> None:
    while os.read(_INPUT, 4096):
        pass
    for each in (signal.SIGTERM, signal.SIGINT):  # twice: nobody waits for it to be done properly
        os.kill(os.getpid(), each)


def main() -> None:
    threading.Thread(target=_until_alone, name="holdfast-demo", daemon=True).start()
    sys.exit(run(["run", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
