"""Send random and mutated bytes to connections of the admin interface.

Each input is a few requests, whole or in parts, on a connection of its own with a transport in
memory. The invariant: what comes back is answers that h11 reads as a client, each with a known
status; the handler sees whole requests only, and of its own hosts; nothing else is raised, logged
as a failure, or left behind. The process does not grow.

    python fuzz/admin.py --count 1000000 --seed 1
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from http import HTTPStatus
from random import Random
from typing import Any

import h11
from _fuzzing import arguments_of, mutated, noise, run

from onward.protocol.security import PeerIdentity
from onward.transports._log import SeldomLogger
from onward.transports.admin import (
    AdminOptions,
    AdminPaths,
    HttpRequest,
    HttpResponse,
    json_response,
)
from onward.transports.admin._connection import HttpConnection
from onward.transports.admin._guard import RequestGuard

SEEDS = [
    b"GET /get?a=1&b=%20 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"HEAD /get HTTP/1.1\r\nHost: 127.0.0.1:8601\r\nConnection: close\r\n\r\n",
    b"GET http://localhost/get HTTP/1.0\r\nHost: localhost\r\n\r\n",
    b"POST /post HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 9\r\nOrigin: http://localhost\r\n\r\n" + b'{"a": 12}',
    (
        b"POST /post HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    ),
    b"GET /get HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\n",
]
PIECES = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\0",
    b": ",
    b"Host: evil\r\n",
    b"Host: localhost\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 99999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: keep-alive\r\n",
    b"Upgrade: websocket\r\n",
    b"0\r\n\r\n",
    b"ffffffffff\r\n",
    b"x" * 600,
    *SEEDS,
]
OPTIONS = AdminOptions(max_request=1024)
KNOWN = {each.value for each in HTTPStatus}


class Transport(asyncio.Transport):
    """The socket of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Accept any limits: all is written at once."""

    def write(self, data: Any) -> None:
        """Keep what is written."""
        self.written += data

    def write_eof(self) -> None:
        """Accept the end."""

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """Go on: the input is at hand."""

    def resume_reading(self) -> None:
        """Go on: the input is at hand."""

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 8601) if name == "sockname" else default


class Host:
    """The server of the connections."""

    def __init__(self) -> None:
        self.options = OPTIONS
        self.paths = AdminPaths()
        self.guard = RequestGuard((), None, None)
        self.seldom = SeldomLogger(logging.getLogger("fuzz"))
        self.statuses: Counter[HTTPStatus] = Counter()
        self.idling: set[HttpConnection] = set()
        self.paths.add("/get", self.handle)
        self.paths.add("/post", self.handle, method="POST")

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer with what was understood."""
        if len(request.body) > OPTIONS.max_request:
            raise AssertionError("the body is too large")
        request.fields()
        return json_response({"length": len(request.body), "arguments": request.arguments()})

    def idle(self, connection: HttpConnection, *, idle: bool) -> None:
        (self.idling.add if idle else self.idling.discard)(connection)

    def answered(self, status: HTTPStatus) -> None:
        self.statuses[status] += 1

    def ended(self, connection: HttpConnection) -> None:
        self.idling.discard(connection)


class Failures(logging.Handler):
    """The log of failures, of which there must be none."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.getMessage())


def make(random: Random, number: int) -> bytes:
    """Return the bytes of some requests."""
    if number < len(SEEDS):
        return SEEDS[number]
    if number % 50 == 0:
        return noise(random)
    return b"".join(mutated(random, SEEDS, PIECES) for _ in range(1 + number % 3))


def check(loop: asyncio.AbstractEventLoop, host: Host, random: Random, data: bytes) -> bool:
    """Send an input; return whether a handler has answered it."""
    before = host.statuses[HTTPStatus.OK]
    loop.run_until_complete(talk(host, random, data))
    if host.idling or len(asyncio.all_tasks(loop)) > 0:
        raise AssertionError("something is left")
    return host.statuses[HTTPStatus.OK] > before


async def talk(host: Host, random: Random, data: bytes) -> None:
    """Send an input on a connection, and read the answers."""
    transport = Transport()
    connection = HttpConnection(host, PeerIdentity(), secure=False)
    connection.connection_made(transport)
    at = 0
    while at < len(data) and not transport.closed:
        size = 1 + int(random.random() * len(data))
        connection.data_received(data[at : at + size])
        at += size
        for _ in range(3):
            await asyncio.sleep(0)
    if not transport.closed:
        connection.eof_received()
        for _ in range(30):
            await asyncio.sleep(0)
    connection.connection_lost(None)
    await connection.gone()
    read_answers(bytes(transport.written))


def read_answers(raw: bytes) -> None:
    """Check that the bytes are whole answers."""
    while raw:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(raw)
        head = client.next_event()
        if not isinstance(head, h11.Response | h11.InformationalResponse):
            raise AssertionError(f"unexpected {head}")  # noqa: TRY004 - a finding
        if head.status_code not in KNOWN:
            raise AssertionError(f"status {head.status_code}")
        if isinstance(head, h11.InformationalResponse):
            raw = raw[raw.index(b"\r\n\r\n") + 4 :]
            continue
        length = int(dict(head.headers)[b"content-length"])
        body = raw[raw.index(b"\r\n\r\n") + 4 :]
        # Of HEAD there is no body: the next answer follows at once, or nothing.
        raw = body if not body or body.startswith(b"HTTP/1.1 ") else body[length:]


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__, count=20_000).parse_args(arguments)
    failures = logging.getLogger("onward.transports.admin")
    failures.addHandler(Failures(logging.ERROR))
    failures.propagate = False
    host = Host()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        def check_one(random: Random, data: bytes) -> bool:
            return check(loop, host, random, data)

        good = run("admin", options.count, options.seed, make, check_one)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
