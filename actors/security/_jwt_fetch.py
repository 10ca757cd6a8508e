"""Fetching a set of keys by https, on the loop. It imports the modules of HTTP: a late one."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from ...protocol.security import BadKeySet
from .._values import MissingExtra

__all__ = ["fetch_keys", "load_h11"]

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


async def fetch_keys(url: str, context: ssl.SSLContext | None, timeout: float, most: int) -> bytes:
    """Fetch a document by https, directly: it follows no redirect, which could lead elsewhere.

    Args:
        url: The URL.
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
        raise TimeoutError(f"{url} was not fetched in {timeout} s") from None
    except h11.ProtocolError as error:
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error


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
                raise OSError(f"{url}: status {event.status_code}")
            elif isinstance(event, h11.Data):
                document += event.data
                if len(document) > most:
                    raise BadKeySet(f"{url} has more than {most} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(document)
    finally:
        writer.transport.abort()
