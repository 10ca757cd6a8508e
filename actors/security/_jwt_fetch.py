"""Fetching a set of keys by https, on the loop. It imports the modules of HTTP: a late one."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from ...protocol.security import BadKeySet
from .._values import MissingExtra

__all__ = ["check_url", "fetch_keys", "load_h11"]

_CHUNK: Final = 64 * 1024
_OK: Final = 200
_PORT: Final = 443


def load_h11() -> Any:
    """Import `h11`.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import h11
    except ImportError:
        raise MissingExtra("keys of a URL for the authentication method jwt", "jwt") from None
    return h11


def check_url(url: str) -> None:
    """Check the URL of a set of keys. The text of the error has no part of it: it may be a secret.

    Raises:
        ValueError: It is not https, has no host or no usable port, or has a user or a password,
            which would not be sent.
    """
    fault = ""
    try:
        parts = urlsplit(url)
        if parts.scheme != "https":
            fault = "keys are fetched by https only"
        elif not parts.hostname or parts.port == 0:
            fault = "the URL of the keys has no host, or no port"
        elif "@" in parts.netloc:
            fault = "the URL of the keys has a user or a password: keys are fetched without"
    except ValueError:
        fault = "the URL of the keys cannot be read"
    if fault:
        raise ValueError(fault)


def _shown(url: str) -> str:
    """Return a URL for the log: without its query, which may have a secret."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


async def fetch_keys(url: str, context: ssl.SSLContext | None, timeout: float, most: int) -> bytes:
    """Fetch a document by https, directly: it follows no redirect, which could lead elsewhere.

    Args:
        url: The URL; see `check_url`.
        context: The TLS context; `None`: the authorities of the system.
        timeout: Seconds for all of it, however slowly the server sends.
        most: The maximum size, in bytes.

    Raises:
        OSError: It cannot be fetched in this time.
        BadKeySet: It is too large.
        MissingExtra: The extra `jwt` is not installed.
    """
    h11 = load_h11()
    try:
        async with asyncio.timeout(timeout):
            if context is None:
                context = await asyncio.to_thread(ssl.create_default_context)
            return await _fetch(h11, url, context, most)
    except TimeoutError:
        raise TimeoutError(f"{_shown(url)} was not fetched in {timeout} s") from None
    except h11.ProtocolError as error:
        raise OSError(f"{_shown(url)}: {type(error).__name__}: {error}") from error


async def _fetch(h11: Any, url: str, context: ssl.SSLContext, most: int) -> bytes:
    parts = urlsplit(url)
    host = parts.hostname or ""
    reader, writer = await asyncio.open_connection(host, parts.port or _PORT, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = [
            ("Host", parts.netloc.rpartition("@")[2]),
            ("Accept", "application/json"),
            ("Connection", "close"),
        ]
        asked = h11.Request(method="GET", target=target, headers=headers)
        writer.write(connection.send(asked) + connection.send(h11.EndOfMessage()))
        document = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Response) and event.status_code != _OK:
                raise OSError(f"{_shown(url)}: status {event.status_code}")
            elif isinstance(event, h11.Data):
                document += event.data
                if len(document) > most:
                    raise BadKeySet(f"{_shown(url)} has more than {most} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(document)
    finally:
        writer.transport.abort()
