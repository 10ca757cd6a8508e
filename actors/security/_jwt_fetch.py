"""Fetching a set of keys by https. The modules of HTTP are slow imports, so this one is late."""

from __future__ import annotations

import ssl
import time
from http.client import HTTPException
from typing import Any, Final
from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

from ...protocol.security import BadKeySet

__all__ = ["fetch_keys"]

_CHUNK: Final = 64 * 1024


class _NoRedirect(HTTPRedirectHandler):
    """A handler that follows no redirect: it could lead to http, or into the own network."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Refuse: the redirect is an error of the request."""


def fetch_keys(url: str, context: ssl.SSLContext | None, timeout: float, most: int) -> bytes:
    """Fetch a document by https. It blocks, and belongs on a thread.

    Args:
        url: The URL.
        context: The TLS context; `None`: the authorities of the system.
        timeout: Seconds for all of it.
        most: The maximum size, in bytes.

    Raises:
        OSError: It cannot be fetched in this time.
        BadKeySet: It is too large.
    """
    end = time.monotonic() + timeout
    context = context if context is not None else ssl.create_default_context()
    opener = build_opener(HTTPSHandler(context=context), _NoRedirect())
    document = bytearray()
    try:
        with opener.open(url, timeout=timeout) as response:
            while chunk := response.read1(_CHUNK):
                document += chunk
                if len(document) > most:
                    raise BadKeySet(f"{url} has more than {most} bytes")
                if time.monotonic() > end:
                    raise TimeoutError(f"{url} was not fetched in {timeout} s")
    except HTTPException as error:
        raise OSError(f"{url}: {type(error).__name__}") from error
    return bytes(document)
