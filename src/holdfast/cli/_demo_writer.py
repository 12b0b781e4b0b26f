"""The process that `holdfast demo` kills: `python -m holdfast.cli._demo_writer FOLDER FIRST_ID`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import structlog

from holdfast.operate import write_demo


def main() -> None:
    # Its output is a protocol; what it does otherwise is of no interest here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    write_demo(Path(sys.argv[1]), int(sys.argv[2]), sys.stdout)


if __name__ == "__main__":
    main()
