"""The way to a broker that a URI names: what all programs of other languages take too."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit

__all__ = ["Access", "secured"]


def secured(uri: str, **query: str | Path | None) -> str:
    """Return a URI with the TLS files and credentials of a client; `Access` says which."""
    words = {name: str(value) for name, value in query.items() if value is not None}
    return f"{uri}?{urlencode(words, safe='/:', quote_via=quote)}" if words else uri


class Access:
    """A URI: `tcp://HOST:PORT` or `ws://HOST:PORT`, with TLS `tls://` and `wss://`, and a query.

    Attributes:
        scheme: One of the four.
        host: The host.
        port: The port.
        plain: The URI without its query.
        authority: The file of the authority that is trusted, in PEM.
        certificate: The file of the client's certificate with its key, in PEM.
        simple: A user and the password, `simple=USER:PASSWORD` in the query.
        bearer: A token.
    """

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        assert parts.hostname
        assert parts.port
        self.scheme, self.host, self.port = parts.scheme, parts.hostname, parts.port
        self.plain = f"{parts.scheme}://{parts.netloc}"
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.authority = query.get("authority")
        self.certificate = query.get("certificate")
        user, _, password = query.get("simple", "").partition(":")
        self.simple = (user, password) if user else None
        self.bearer = query.get("bearer")

    def context(self) -> ssl.SSLContext | None:
        """Return the context for TLS, or None without."""
        if self.scheme not in {"tls", "wss"}:
            return None
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate:
            context.load_cert_chain(self.certificate)
        return context
