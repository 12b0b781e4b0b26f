"""The loopback server: two pages, and no way to hurt the process."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from holdfast import metrics
from holdfast.errors import InvalidSettings
from holdfast.health import MAX_CONNECTIONS, MAX_HEAD_BYTES, Health, HealthServer, Status


def request(server: HealthServer, path: str, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(server.address, timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def raw(server: HealthServer, data: bytes) -> bytes:
    """All that comes back for these bytes."""
    with connected(server) as client:
        client.sendall(data)
        return everything(client)


def connected(server: HealthServer) -> socket.socket:
    host, port = server.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def everything(client: socket.socket) -> bytes:
    found = b""
    while more := client.recv(65536):
        found += more
    return found


@pytest.fixture
def serve() -> Iterator[Callable[..., HealthServer]]:
    with ExitStack() as servers:
        yield lambda health=lambda: Health(Status.OK), **options: servers.enter_context(HealthServer(health, **options))


def test_a_healthy_process_answers_200_with_its_parts(serve: Callable[..., HealthServer]) -> None:
    """/healthz is 200 and JSON while all is well."""
    response, body = request(serve(lambda: Health(Status.OK, {"lake": {"status": "ok", "lag": 3}})), "/healthz")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "parts": {"lake": {"status": "ok", "lag": 3}}}


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.OK])
def test_any_other_status_answers_503(serve: Callable[..., HealthServer], status: Status) -> None:
    """A process that starts, fails or stops is not healthy, and the page says which it is."""
    response, body = request(serve(lambda: Health(status)), "/healthz")
    assert response.status == 503
    assert json.loads(body)["status"] == status


def test_a_health_function_that_fails_is_told(serve: Callable[..., HealthServer]) -> None:
    """An error in the health function is a 503 with its text, not a closed connection."""

    def broken() -> Health:
        raise OSError("the disk is gone")

    response, body = request(serve(broken), "/healthz")
    assert response.status == 503
    assert json.loads(body) == {"status": "failing", "parts": {}, "error": "OSError: the disk is gone"}


def test_metrics_are_the_page_of_the_process(
    serve: Callable[..., HealthServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """/metrics is what `metrics.render` gives, in Prometheus' type, and a query string changes nothing."""
    page = metrics.render()  # as it was now: threads of other tests may still count
    monkeypatch.setattr(metrics, "render", lambda: page)
    response, body = request(serve(), "/metrics?x=1")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert body == page


def test_head_has_the_length_and_no_body(serve: Callable[..., HealthServer]) -> None:
    """HEAD gives the headers of GET and nothing behind them."""
    server = serve()
    (head, nothing), (get, body) = request(server, "/healthz", "HEAD"), request(server, "/healthz")
    assert (head.status, nothing) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(body))


def test_other_methods_and_paths_are_refused(serve: Callable[..., HealthServer]) -> None:
    """Only GET and HEAD, only the two pages."""
    server = serve()
    response, _ = request(server, "/healthz", "POST")
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert request(server, "/../etc/passwd")[0].status == 404


def test_it_listens_on_loopback_only(serve: Callable[..., HealthServer]) -> None:
    """Without a host argument the server is bound to 127.0.0.1; with one, to that."""
    assert serve().address.startswith("127.0.0.1:")
    assert serve(host="127.0.0.2").address.startswith("127.0.0.2:")


def test_a_port_that_is_taken_is_a_clear_error(serve: Callable[..., HealthServer]) -> None:
    """The error names host and port and says what to do."""
    port = int(serve().address.rsplit(":", 1)[1])
    with pytest.raises(
        InvalidSettings, match=rf"^metrics cannot be served on 127\.0\.0\.1 port {port}: .*or 0 for any$"
    ):
        serve(port=port)


def test_a_request_that_is_too_long_is_refused(serve: Callable[..., HealthServer]) -> None:
    """A head without end is cut off at the limit."""
    found = raw(serve(), b"GET /healthz HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"a"))
    assert found.startswith(b"HTTP/1.0 431 ")


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET /healthz HTTP/9.9\r\n\r\n", b"\xff\x00\r\n\r\n"]
)
def test_nonsense_does_not_hurt(serve: Callable[..., HealthServer], data: bytes) -> None:
    """Bytes that are no request are refused, and the next request is answered."""
    server = serve()
    assert b" 200 " not in raw(server, data)
    assert request(server, "/healthz")[0].status == 200


def test_more_connections_than_allowed_are_turned_away(serve: Callable[..., HealthServer]) -> None:
    """Clients that say nothing use up the places; one more is told to come again, and is served when one is free."""
    server = serve()
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(MAX_CONNECTIONS)]
        assert everything(stack.enter_context(connected(server))).startswith(b"HTTP/1.0 503 ")
        silent[0].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert everything(silent[0]).startswith(b"HTTP/1.0 200 ")


def test_after_close_nobody_listens(serve: Callable[..., HealthServer]) -> None:
    """close ends it, twice too."""
    server = serve()
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        connected(server)
