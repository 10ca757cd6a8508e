"""Fetching a set of keys by https, from a server on this machine."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from onward.actors.security import _jwt_fetch as module
from onward.actors.security._jwt_fetch import fetch_keys
from onward.protocol.security import BadKeySet

KEYS = b'{"keys": []}'


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
def test_a_document_is_fetched_by_https(authority: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with https(authority) as url:
        assert fetch_keys(f"{url}/keys", context, 5.0, 1000) == KEYS
        for path, trusted, most, kind, text in (
            ("keys", context, 10, BadKeySet, "more than 10 bytes"),
            ("elsewhere", context, 1000, OSError, "302"),
            ("none", context, 1000, OSError, "404"),
            ("nonsense", context, 1000, OSError, "BadStatusLine"),
            ("keys", None, 1000, OSError, "certificate"),
        ):
            with pytest.raises(kind, match=text):
                fetch_keys(f"{url}/{path}", trusted, 5.0, most)
        ticks = iter([0.0, 5.1])
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        with pytest.raises(TimeoutError, match=r"not fetched in 5\.0 s"):
            fetch_keys(f"{url}/keys", context, 5.0, 1000)
