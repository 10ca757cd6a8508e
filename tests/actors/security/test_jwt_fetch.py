"""Fetching a set of keys by https, from a server on this machine."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trustme

from onward.actors import MissingExtra
from onward.actors.security._jwt_fetch import fetch_keys
from onward.protocol.security import BadKeySet

KEYS = b'{"keys": []}'
STOPPED = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        if self.path == "/keys":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(KEYS)
        elif self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
        elif self.path == "/nonsense":
            self.wfile.write(b"nonsense\r\n\r\n")
        elif self.path == "/short":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        elif self.path.startswith("/drip"):
            body = b"HTTP/1.1 200 OK\r\n\r\n" if self.path == "/drip-body" else b""
            self.wfile.write(body)
            with suppress(OSError):
                for _ in range(1000):
                    self.wfile.write(b" " if body else b"H")
                    STOPPED.wait(0.02)
            self.close_connection = True
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base
        """Log nothing."""


@contextmanager
def https(authority: Any) -> Generator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"https://localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.real_time
async def test_a_document_is_fetched_by_https(authority: Any) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with https(authority) as url:
        assert await fetch_keys(f"{url}/keys", context, 5.0, 1000) == KEYS
        for path, trusted, most, kind, text in (
            ("keys", context, 10, BadKeySet, "more than 10 bytes"),
            ("elsewhere", context, 1000, OSError, "302"),
            ("none?x=1", context, 1000, OSError, "404"),
            ("nonsense", context, 1000, OSError, "RemoteProtocolError"),
            ("short", context, 1000, OSError, "RemoteProtocolError"),
            ("keys", None, 1000, OSError, "certificate"),
        ):
            with pytest.raises(kind, match=text):
                await fetch_keys(f"{url}/{path}", trusted, 5.0, most)


@pytest.mark.parametrize("where", ["head", "body"])
@pytest.mark.real_time
async def test_a_server_that_drips_is_given_up_as_a_whole(authority: Any, where: str) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with https(authority) as url:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError, match=r"not fetched in 0\.4 s"):
            await fetch_keys(f"{url}/drip-{where}", context, 0.4, 1_000_000)
        # Each byte comes in time; all of them would take 20 s.
        assert asyncio.get_running_loop().time() - began < 10


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(MissingExtra, match=r"onward\[jwt\]"):
        await fetch_keys("https://localhost/", None, 1.0, 1)
