"""Measuring in a process of its own: a fresh start, its own memory, and an end like a crash."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
_SAMPLE_SECONDS = 0.01


class ChildFailed(Exception):
    """The child ended without an answer; its traceback is on stderr."""


def in_child(work: Callable[..., _T], *arguments: Any) -> _T:
    """The result of `work(*arguments)`, which must be a module's function, computed in a new process.

    The process ends by `os._exit` as soon as it has answered: what `work` left open is left as by a crash.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise ChildFailed(f"{work.__name__} gave no answer") from None
    finally:
        ours.close()
        process.terminate()
        process.join()


def _answer(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        connection.send(work(*arguments))
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    connection.close()
    os._exit(status)


def anonymous_bytes() -> int:
    """This process's resident memory that no file stands behind; Linux only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no line RssAnon; memory is measured on Linux only")


@contextmanager
def peak_of_anonymous_bytes() -> Iterator[Callable[[], int]]:
    """Samples meanwhile; the function it gives returns the highest value so far."""
    peak = anonymous_bytes()
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_SECONDS):
            peak = max(peak, anonymous_bytes())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: max(peak, anonymous_bytes())
    finally:
        done.set()
        thread.join()
