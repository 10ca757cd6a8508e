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
from onward.actors.security._jwt_fetch import check_url, fetch_keys
from onward.protocol.security import BadKeySet

KEYS = b'{"keys": []}'
STOPPED = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/keys":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(KEYS)
        elif self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
        elif path == "/nonsense":
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


SECRET = "planted-in-a-url"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"http://issuer.example/{SECRET}", "by https only"),
        (f"https://ida:{SECRET}@issuer.example/keys", "has a user or a password"),
        (f"https://{SECRET}@issuer.example/keys", "has a user or a password"),
        (f"https://ida:{SECRET}/x@issuer.example/keys", "cannot be read"),  # as a port
        (f"https://ida:1@x:{SECRET}/keys", "cannot be read"),
        (f"https://[{SECRET}", "cannot be read"),
        (f"https:///{SECRET}", "has no host"),
        (f"https://issuer.example:0/{SECRET}", "or no port"),
    ],
)
def test_a_url_of_no_use_is_refused_and_not_told(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        check_url(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__context__ is None  # its text has a part of the URL


@pytest.mark.parametrize("url", ["https://a/", "https://a:8443/keys?x=1", "https://[::1]:1/a@b"])
def test_a_url_of_use(url: str) -> None:
    check_url(url)


@pytest.mark.real_time
async def test_the_query_of_a_url_is_not_told(authority: Any) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with https(authority) as url:
        for path, most in (("none", 1000), ("nonsense", 1000), ("keys", 10)):
            with pytest.raises((OSError, BadKeySet)) as caught:
                await fetch_keys(f"{url}/{path}?signature={SECRET}", context, 5.0, most)
            assert f"{url}/{path}" in str(caught.value)
            assert SECRET not in str(caught.value)


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
