"""The peers: the same bytes kept by a bare file, Redis Streams, NATS JetStream and SQLite.

Each is driven as well as it can be from one Python process with 64 bundles in flight, gets its bytes
ready-made (Holdfast encodes and checksums within its time), runs on a fresh server and an empty folder each
time, and has what it acknowledged counted afterwards. Servers listen on a free port of 127.0.0.1 and end with
the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path

from _data import Pool
from _harness import Run

IN_FLIGHT = 64
_LOOPBACK = "127.0.0.1"
_START_TIMEOUT_S = 20.0
_IOV_MAX = 1024


class PeerFailed(Exception):
    """A peer did not start, or did not keep what it acknowledged."""


class Bare:
    """Write a group, `fdatasync`, write the next: what the disk gives to anyone who acknowledges honestly.

    `groups` says how many bundles each group has.
    """

    footprint = 1.1

    def __init__(self, name: str, pool: Pool, groups: Callable[[], Iterable[int]]) -> None:
        self.name = name
        self._pool = pool
        self._groups = groups
        self._descriptor = -1

    @classmethod
    def of(cls, pool: Pool, group: int) -> Bare:
        return cls(f"bare disk, groups of {group}", pool, lambda: repeat(group))

    def open(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "bare", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)

    def run(self, count: int) -> Run:
        payload, descriptor = self._pool.payload, self._descriptor
        groups = iter(self._groups())
        done = 0
        start = time.perf_counter()
        while done < count:
            end = min(count, done + next(groups))
            write_all(descriptor, [payload(number) for number in range(done, end)])
            os.fdatasync(descriptor)
            done = end
        return Run(count / (time.perf_counter() - start))

    def close(self) -> None:
        os.close(self._descriptor)


class Redis:
    """XADD with `appendfsync always`; the window is split among connections, each with its own pipeline."""

    footprint = 2.2  # its file, and the server's memory

    def __init__(self, pool: Pool, clients: int) -> None:
        self.name = f"redis streams, {_counted(clients, 'client')} x {IN_FLIGHT // clients} pipelined"
        self._pool = pool
        self._clients = clients

    def open(self, folder: Path) -> None:
        import redis

        self._port = free_port()
        self._server = subprocess.Popen(
            [
                _program("redis-server"),
                *("--port", str(self._port), "--bind", _LOOPBACK, "--dir", str(folder)),
                *("--appendonly", "yes", "--appendfsync", "always"),
                *("--save", "", "--auto-aof-rewrite-percentage", "0"),  # nothing but appending
            ],
            stdout=subprocess.DEVNULL,
        )
        self._client = redis.Redis(_LOOPBACK, self._port)
        wait_for_port(self._server, self._port)

    def run(self, count: int) -> Run:
        share = IN_FLIGHT // self._clients
        with ThreadPoolExecutor(self._clients) as threads:
            start = time.perf_counter()
            clients = [threads.submit(self._produce, first * share, share, count) for first in range(self._clients)]
            for client in clients:
                client.result()
            seconds = time.perf_counter() - start
        _expect(self.name, count, self._client.xlen("bench"))
        return Run(count / seconds)

    def _produce(self, first: int, share: int, count: int) -> None:
        import redis

        with redis.Redis(_LOOPBACK, self._port) as client:
            for begin in range(first, count, IN_FLIGHT):
                pipeline = client.pipeline(transaction=False)
                for number in range(begin, min(count, begin + share)):
                    pipeline.xadd("bench", {b"bundle": self._pool.payload(number)})
                pipeline.execute()

    def close(self) -> None:
        self._client.close()
        _end(self._server)


class Nats:
    """64 publishers that each await their acknowledgement, which comes before any sync of the file."""

    footprint = 1.2
    name = f"nats jetstream, {IN_FLIGHT} awaited publishes"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def open(self, folder: Path) -> None:
        self._port = free_port()
        self._server = subprocess.Popen(
            [
                _program("nats-server"),
                *("--addr", _LOOPBACK, "--port", str(self._port)),
                *("--jetstream", "--store_dir", str(folder)),
            ],
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self._server, self._port)

    def run(self, count: int) -> Run:
        return Run(count / asyncio.run(self._publish(count)))

    async def _publish(self, count: int) -> float:
        import nats

        # Room for the whole window on the client's side: it would otherwise flush early.
        client = await nats.connect(f"nats://{_LOOPBACK}:{self._port}", pending_size=1 << 24)
        try:
            jetstream = client.jetstream(timeout=60)
            await jetstream.add_stream(name="bench", subjects=["bench"], storage="file")
            numbers = iter(range(count))

            async def publisher() -> None:
                for number in numbers:
                    await jetstream.publish("bench", self._pool.payload(number))

            start = time.perf_counter()
            await asyncio.gather(*(publisher() for _ in range(IN_FLIGHT)))
            seconds = time.perf_counter() - start
            _expect(self.name, count, (await jetstream.stream_info("bench")).state.messages)
            return seconds
        finally:
            await client.close()

    def close(self) -> None:
        _end(self._server)


class Sqlite:
    """One writer, one transaction for each 64 bundles; WAL mode, synchronous=FULL, checkpoints as usual."""

    footprint = 2.2  # WAL and database
    name = f"sqlite WAL, synchronous=FULL, {IN_FLIGHT} per transaction"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def open(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "bench.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE bundles (number INTEGER PRIMARY KEY, bundle BLOB)")

    def run(self, count: int) -> Run:
        database, payload = self._database, self._pool.payload
        start = time.perf_counter()
        for begin in range(0, count, IN_FLIGHT):
            database.execute("BEGIN")
            rows = ((payload(number),) for number in range(begin, min(count, begin + IN_FLIGHT)))
            database.executemany("INSERT INTO bundles (bundle) VALUES (?)", rows)
            database.execute("COMMIT")
        seconds = time.perf_counter() - start
        _expect(self.name, count, database.execute("SELECT count(*) FROM bundles").fetchone()[0])
        return Run(count / seconds)

    def close(self) -> None:
        self._database.close()


def missing(program: str, package: str) -> str | None:
    """What to install before this peer can run; `None` when it can."""
    if _found(program) is None:
        return f"{program} is not installed: apt-get install {program}"
    if find_spec(package) is None:
        return f"the Python package {package} is not installed: pip install 'holdfast[bench]'"
    return None


def write_all(descriptor: int, buffers: list[bytes]) -> None:
    """Writes every byte, also when the system takes fewer at once."""
    for begin in range(0, len(buffers), _IOV_MAX):
        part = buffers[begin : begin + _IOV_MAX]
        written = os.writev(descriptor, part)
        rest = memoryview(b"".join(part))[written:] if written < sum(map(len, part)) else memoryview(b"")
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_for_port(server: subprocess.Popen[bytes], port: int) -> None:
    """Returns when the server takes connections; raises if it ends first or takes too long."""
    for _ in _until(_START_TIMEOUT_S):
        if server.poll() is not None:
            raise PeerFailed(f"{server.args} ended with status {server.returncode} at its start")
        with contextlib.suppress(ConnectionError):
            socket.create_connection((_LOOPBACK, port)).close()
            return
    _end(server)
    raise PeerFailed(f"{server.args} took no connection on port {port} within {_START_TIMEOUT_S:g} s")


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)


def _found(program: str) -> str | None:
    # Debian puts nats-server where only root's PATH looks.
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def _program(name: str) -> str:
    path = _found(name)
    if path is None:
        raise PeerFailed(f"{name} is gone")
    return path


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _expect(name: str, count: int, kept: int) -> None:
    if kept != count:
        raise PeerFailed(f"{name}: acknowledged {count} bundles and holds {kept}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
