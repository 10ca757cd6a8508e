"""The HTTP server of the admin interface, by raw bytes on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import pytest

from onward.transports.admin import (
    AdminOptions,
    AdminPaths,
    HttpError,
    HttpRequest,
    HttpResponse,
    text_response,
)
from tests.support.http_peer import HttpPeer, answers_of, serving
from tests.support.loops import on_both_loops
from tests.support.transports import eventually

pytestmark = on_both_loops

HEAD = b"GET /small HTTP/1.1\r\nHost: localhost\r\n"
LAST = HEAD + b"Connection: close\r\n\r\n"


async def small(request: HttpRequest) -> HttpResponse:
    return text_response(f"{request.method} {request.path} {request.query} {len(request.body)}")


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


async def large(_: HttpRequest) -> HttpResponse:
    return HttpResponse(bytes(20_000_000))


async def parts(_: HttpRequest) -> HttpResponse:
    return HttpResponse(_numbers())


async def _numbers() -> AsyncIterator[bytes]:
    for number in range(3):
        yield f"{number}\n".encode()
        await asyncio.sleep(0)


async def broken(_: HttpRequest) -> HttpResponse:
    raise RuntimeError("a secret of the program")


async def half(_: HttpRequest) -> HttpResponse:
    return HttpResponse(_half())


async def _half() -> AsyncIterator[bytes]:
    yield b"begun"
    raise RuntimeError("a secret of the program")


async def full(_: HttpRequest) -> HttpResponse:
    raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "later", {"retry-after": "5"})


Handle = Callable[[HttpRequest], Awaitable[HttpResponse]]


def paths(**more: Handle) -> AdminPaths:
    made = AdminPaths()
    own = {"small": small, "large": large, "parts": parts, "broken": broken, "half": half}
    for name, handle in {**own, "full": full, **more}.items():
        made.add(f"/{name}", handle)
    made.add("/echo", echo, method="POST")
    return made


def status_of(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


# --- requests that are right ----------------------------------------------------------------


async def test_one_connection_has_many_requests() -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        first = await peer.get("/small?a=1")
        assert (first.status, first.body) == (200, b"GET /small a=1 0\n")
        assert (await peer.get("/nothing")).status == 404
        assert (await peer.post("/echo", b'{"a":1}')).body == b'{"a":1}'
        assert (await peer.get("/parts")).body == b"0\n1\n2\n"
        assert (await peer.get("/small")).status == 200
        assert served.server.statistics().accepted == 1
        assert served.server.statistics().answers == {"200": 4, "404": 1}


async def test_an_answer_has_the_fields_that_keep_browsers_in_check() -> None:
    async with serving(paths()) as served:
        fields = (await (await served.connect()).get("/small")).headers
        assert fields["content-security-policy"].startswith("default-src 'self'")
        assert fields["x-content-type-options"] == "nosniff"
        assert fields["cache-control"] == "no-store"
        assert "set-cookie" not in fields
        assert "date" in fields


@pytest.mark.parametrize("path", ["/small", "/parts", "/large"])
async def test_head_is_get_without_the_body(path: str) -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        answer = await peer.get(path, method="HEAD")
        assert answer.status == 200
        assert (await peer.get("/small")).body == b"GET /small  0\n"  # nothing came in between


async def test_another_method_is_answered_with_those_there_are() -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        for method, path, allowed in (
            ("POST", "/small", "GET, HEAD"),
            ("OPTIONS", "/small", "GET, HEAD"),
            ("TRACE", "/echo", "POST"),
            ("GET", "/echo", "POST"),
        ):
            answer = await peer.get(path, method=method)
            assert (answer.status, answer.headers["allow"]) == (405, allowed)


async def test_a_request_comes_byte_by_byte() -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        for byte in b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n":
            peer.write(bytes((byte,)))
            await asyncio.sleep(0)
        peer.write(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await asyncio.sleep(0)
        peer.write(b"0\r\n\r\n")
        assert (await peer.answer()).body == b"{}"


async def test_requests_in_advance_are_answered_one_after_the_other() -> None:
    running: list[int] = []

    async def alone(_: HttpRequest) -> HttpResponse:
        running.append(1)
        assert len(running) == 1
        await asyncio.sleep(0.001)
        running.pop()
        return text_response("alone")

    async with serving(paths(alone=alone)) as served:
        peer = await served.connect()
        one = b"GET /alone HTTP/1.1\r\nHost: localhost\r\n\r\n"
        peer.write(one * 3 + LAST)
        for _ in range(3):
            assert (await peer.answer()).body == b"alone\n"
        assert (await peer.answer()).body == b"GET /small  0\n"
        assert await peer.closed() == b""


async def test_a_peer_that_asks_to_continue_is_told_to() -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        peer.write(
            b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await peer.head())[0] == 100
        peer.write(b"[]")
        assert (await peer.answer()).body == b"[]"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET http://localhost/small HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n", 200),
        (b"GET http://evil/small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 421),
        (b"GET /small HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /parts HTTP/1.0\r\nHost: 127.0.0.1:1\r\n\r\n", 200),
        (b"GET /small HTTP/1.0\r\n\r\n", 421),
    ],
)
async def test_other_forms_of_a_request(raw: bytes, status: int) -> None:
    async with serving(paths()) as served:
        assert status_of(await answers_of(served, raw)) == status


async def test_a_peer_that_has_sent_all_gets_its_answer() -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        peer.write(HEAD + b"\r\n")
        peer.writer.write_eof()
        assert (await peer.closed()).endswith(b"GET /small  0\n")


# --- requests that are wrong ----------------------------------------------------------------

BROKEN = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # a TLS handshake
    (b"hello\r\n\r\n", 400),
    (b"GET /small HTTP/1.1\r\n\r\n", 400),  # RFC 9112 section 3.2: no Host
    (HEAD + b"Host: localhost\r\n\r\n", 400),  # two of them
    (b"GET /sm all HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /small HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    (HEAD + b"Bad Name: x\r\n\r\n", 400),
    (HEAD + b"Name : x\r\n\r\n", 400),  # section 5.1: "No whitespace is allowed"
    (HEAD + b"A: b\r\n folded: x\r\n : y\r\n\r\n", 200),  # an obs-fold, which is a space
    (HEAD + b"Nul: \x00\r\n\r\n", 400),
    # Smuggling: two lengths, in all their forms.
    (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    (HEAD + b"Content-Length: 1, 2\r\n\r\nab", 400),
    (HEAD + b"Content-Length: -1\r\n\r\n", 400),
    (HEAD + b"Content-Length: +1\r\n\r\na", 400),
    (HEAD + b"Content-Length: 0x1\r\n\r\na", 400),
    (HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n", 501),
    (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n", 501),
    (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    (HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    (HEAD + b"Content-Length: 1_0\r\n\r\n", 400),
    (HEAD + b"X: a\rContent-Length: 1\r\n\r\n", 400),  # a bare CR is no end of a line
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400),
    (HEAD + b"Content-Length: 70000\r\n\r\n", 413),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n11170\r\n" + bytes(70_000), 413),
    (HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
]


@pytest.mark.parametrize(("raw", "status"), BROKEN, ids=range(len(BROKEN)))
async def test_a_broken_request_is_answered_and_ends_the_connection(
    raw: bytes, status: int
) -> None:
    if status == 200:
        raw = raw[:-2] + b"Connection: close\r\n\r\n"
    async with serving(paths()) as served:
        found = await answers_of(served, raw + LAST * (status != 200))
        assert found.count(b"HTTP/1.1 ") == 1  # what follows is not read as a request
        assert status_of(found) == status


async def test_a_request_that_is_cut_off_ends_the_connection() -> None:
    async with serving(paths()) as served:
        for raw in (b"", b"GET", HEAD, HEAD + b"Content-Length: 5\r\n\r\nab"):
            peer = await served.connect()
            peer.write(raw)
            peer.writer.write_eof()
            found = await peer.closed()
            assert not found or status_of(found) == 400
        await eventually(lambda: served.server.statistics().connections == 0)


@pytest.mark.parametrize("raw", [b"", HEAD, HEAD + b"Content-Length: 5\r\n\r\nab"])
async def test_a_slow_request_ends_the_connection(raw: bytes) -> None:
    async with serving(paths(), options=AdminOptions(request_timeout=0.02)) as served:
        assert await answers_of(served, raw) == b""
        assert served.server.statistics().closed == {"request timeout": 1}


async def test_an_idle_connection_ends() -> None:
    async with serving(paths(), options=AdminOptions(request_timeout=0.05)) as served:
        found = await answers_of(served, HEAD + b"\r\n")
        assert found.count(b"HTTP/1.1 ") == 1


# --- handlers and readers -------------------------------------------------------------------


async def test_a_handler_that_fails_tells_no_internals() -> None:
    async with serving(paths()) as served:
        peer = await served.connect()
        answer = await peer.get("/broken")
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert (await peer.get("/small")).status == 200


async def test_an_answer_that_fails_halfway_is_not_taken_for_a_whole_one() -> None:
    async with serving(paths()) as served:
        found = await answers_of(served, HEAD.replace(b"small", b"half") + b"\r\n")
        assert b"0\r\n\r\n" not in found
        assert served.server.statistics().closed == {"failure": 1}


async def test_an_error_of_a_handler_has_its_fields() -> None:
    async with serving(paths()) as served:
        answer = await (await served.connect()).get("/full")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_a_peer_that_does_not_read_is_cut_off() -> None:
    async with serving(paths(), options=AdminOptions(write_timeout=0.05)) as served:
        peer = await served.connect(limit=1024)
        peer.write(HEAD.replace(b"small", b"large") + b"\r\n")
        await eventually(lambda: served.server.statistics().closed == {"slow reader": 1})


async def test_a_handler_ends_with_its_peer() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def forever(_: HttpRequest) -> HttpResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("unexpected")

    async with serving(paths(forever=forever)) as served:
        peer = await served.connect()
        peer.write(HEAD.replace(b"small", b"forever") + b"\r\n")
        await begun.wait()
        peer.reset()
        async with asyncio.timeout(10):
            await ended.wait()
        await eventually(lambda: served.server.statistics().connections == 0)


@pytest.mark.parametrize("leave", ["reset", "half", "stop"])
async def test_a_stream_ends_with_its_peer_and_with_the_server(leave: str) -> None:
    ended: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
                await asyncio.sleep(0.001)
        finally:
            ended.append("generator")

    async def stream(_: HttpRequest) -> HttpResponse:
        return HttpResponse(endless(), on_end=lambda: ended.append("answer"))

    async with serving(paths(stream=stream)) as served:
        peer = await served.connect()
        peer.write(HEAD.replace(b"small", b"stream") + b"\r\n")
        assert (await peer.head())[0] == 200
        assert await peer.part() == b"more"
        if leave == "reset":
            peer.reset()
        elif leave == "half":
            peer.writer.write_eof()
        else:
            await served.node.stop_worker("admin")
        await eventually(lambda: ended == ["generator", "answer"])


async def test_what_comes_during_a_request_is_bounded() -> None:
    release = asyncio.Event()

    async def waits(_: HttpRequest) -> HttpResponse:
        await release.wait()
        return text_response("done")

    async with serving(paths(waits=waits)) as served:
        peer = await served.connect()
        peer.write(HEAD.replace(b"small", b"waits") + b"\r\n")
        junk = b"x" * 65536
        for _ in range(400):
            peer.write(junk)
        # The socket fills up: the server does not read on.
        await eventually(lambda: peer.writer.transport.get_write_buffer_size() > 0)
        release.set()
        assert (await peer.answer()).body == b"done\n"
        assert b" 4" in (await peer.closed())[:13]


# --- places ---------------------------------------------------------------------------------


async def test_an_idle_connection_makes_room_for_a_new_one() -> None:
    async with serving(paths(), options=AdminOptions(max_connections=3)) as served:
        peers = [await served.connect() for _ in range(3)]
        for peer in peers:
            assert (await peer.get("/small")).status == 200
        another = await served.connect()
        assert (await another.get("/small")).status == 200
        assert await peers[0].closed() == b""
        assert (await peers[1].get("/small")).status == 200


async def test_connections_beyond_the_limit_are_closed() -> None:
    release = asyncio.Event()

    async def waits(_: HttpRequest) -> HttpResponse:
        await release.wait()
        return text_response("done")

    async with serving(paths(waits=waits), options=AdminOptions(max_connections=2)) as served:
        peers: list[HttpPeer] = []
        for _ in range(2):
            peer = await served.connect()
            peer.write(HEAD.replace(b"small", b"waits") + b"\r\n")
            peers.append(peer)
        await eventually(lambda: served.server.statistics().connections == 2)
        refused = await served.connect()
        assert await refused.closed() == b""
        assert served.server.statistics().turned_away == 1
        release.set()
        for peer in peers:
            assert (await peer.answer()).body == b"done\n"
