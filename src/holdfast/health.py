"""What every long-running process serves on loopback: `/metrics` for Prometheus, `/healthz` for whoever watches it.

`/healthz` answers 200 while the process does what it is for, and 503 otherwise; the body is the same JSON either way:

    {"status": "failing", "parts": {"lake": {"status": "failing", "error": "the disk is full"}}}

One request for each connection, GET or HEAD. Its head must be there within `HEAD_SECONDS` and have at most
`MAX_HEAD_BYTES`; more than `MAX_CONNECTIONS` at once are turned away. A slow or hostile client costs a thread for a
few seconds, and the process nothing else.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

from holdfast import metrics
from holdfast.clock import Clock, Deadline, SystemClock
from holdfast.errors import InvalidSettings

LOOPBACK: Final = "127.0.0.1"
MAX_CONNECTIONS: Final = 16
MAX_HEAD_BYTES: Final = 8192
HEAD_SECONDS: Final = 5.0
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUSY: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


class Status(StrEnum):
    """How a process or a part of one is; only `ok` is healthy."""

    OK = "ok"
    STARTING = "starting"
    FAILING = "failing"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Health:
    """The status of the whole, and for each part what is known of it (JSON values; `status` says how it is)."""

    status: Status
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        return {"status": str(self.status), "parts": {name: dict(part) for name, part in self.parts.items()}}


class HealthServer:
    """Serves from the moment it is made until `close`; `port` 0 takes any free one. `address` is `host:port`."""

    def __init__(
        self, health: Callable[[], Health], *, port: int = 0, host: str = LOOPBACK, clock: Clock | None = None
    ) -> None:
        handler = type("_BoundHandler", (_Handler,), {"health": staticmethod(health), "clock": clock or SystemClock()})
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        kind = type("_BoundServer", (_Server,), {"address_family": family})
        try:
            self._server: _Server = kind((host, port), handler)
        except (OSError, OverflowError) as problem:
            raise InvalidSettings(
                f"metrics cannot be served on {host} port {port}: {problem}; choose another port, or 0 for any"
            ) from problem
        number = self._server.server_address[1]
        self.address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="holdfast-health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests that are being answered go on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> HealthServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that hangs must not hold the process
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        """As the parent, without asking the network for this machine's name, which may take seconds."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            request.settimeout(0)
            with contextlib.suppress(OSError):  # it did not wait for the answer
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's problem."""


class _Handler(BaseHTTPRequestHandler):
    health: Callable[[], Health]
    clock: Clock
    server_version = "holdfast"
    sys_version = ""
    timeout = HEAD_SECONDS

    def handle(self) -> None:
        head = self._read_head()
        self.rfile = io.BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""  # for answers before it is parsed
        self.close_connection = True
        if not head:
            return
        if not head.endswith(b"\r\n\r\n"):
            self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "text/plain", b"the request is too long\n")
        elif self.parse_request():
            self.request_version = "HTTP/1.0"
            self._respond()

    def _read_head(self) -> bytes:
        """The request line and the headers; without their end if they are too long, nothing if they do not come."""
        deadline, head = Deadline(HEAD_SECONDS, self.clock), b""
        try:
            while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
                self.connection.settimeout(max(0.001, deadline.remaining() or 0))
                more = self.connection.recv(MAX_HEAD_BYTES - len(head))
                if not more or deadline.passed():
                    return b""
                head += more
                end = head.find(b"\r\n\r\n")
                if end >= 0:  # a body is of no interest
                    head = head[: end + 4]
            self.connection.settimeout(HEAD_SECONDS)
        except OSError:
            return b""
        return head

    def _respond(self) -> None:
        path = self.path.partition("?")[0]
        if self.command not in ("GET", "HEAD"):
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET and HEAD\n", {"Allow": "GET, HEAD"})
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, _METRICS_TYPE, metrics.render())
        elif path == "/healthz":
            self._answer_health()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"here are /metrics and /healthz\n")

    def _answer_health(self) -> None:
        try:
            health = self.health()
            document, healthy = health.to_document(), health.status is Status.OK
        except Exception as problem:  # whoever asks must be told, whatever it is
            text = f"{type(problem).__name__}: {problem}"
            document, healthy = {"status": str(Status.FAILING), "parts": {}, "error": text}, False
        body = json.dumps(document, ensure_ascii=False, default=str).encode() + b"\n"
        self._answer(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, "application/json", body)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the parent's name
        """Requests are not logged: somebody asks every few seconds."""
