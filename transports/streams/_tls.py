"""TLS for stream transports: which certificates, and what went wrong, in words."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, cast

from ...protocol.options import check_options

__all__ = [
    "NAME_KINDS",
    "NO_TLS",
    "TlsOptions",
    "certified_names",
    "client_context",
    "reason_of",
    "server_context",
]

NO_TLS: Final = "the peer does not speak TLS"

_OF_NO_TLS: Final = frozenset(
    {
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_MESSAGE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
"""What OpenSSL says of bytes that are no TLS."""

_IP: Final = "IP Address"
_KINDS: Final = {"URI": "URI", "DNS": "DNS", _IP: "IP", "email": "email"}
"""The names of a certificate that are shown, in this order, and what is put before each."""

NAME_KINDS: Final = (*_KINDS.values(), "CN")
"""What the names of a certificate begin with, before a colon."""

MAX_NAMES: Final = 16
"""Most names of a peer's certificate that are kept; further ones are not seen."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Certificates, for one side of a connection. TLS 1.2 is the oldest that is spoken.

    A listener needs a certificate. A side that connects has one if the listener asks for it; it
    checks that the listener's certificate is of an authority it trusts, valid now, and for the
    name it connects to.

    Attributes:
        certificate: A PEM file with our certificate and those between it and the authority's;
            `None`: we have none.
        key: A PEM file with its key, which must not be encrypted; `None`: it is in the file of
            the certificate.
        authority: A PEM file with the certificates of the authorities we trust; `None`: those
            of the system.
        require_client: Whether a listener turns away who has no certificate of an authority it
            trusts. It needs `authority`: nearly everybody has one of the system's.
        server_name: The name that the listener's certificate must have, where that is not the
            host of the URI; Unix sockets need it.
    """

    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    authority: str | os.PathLike[str] | None = None
    require_client: bool = False
    server_name: str | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.require_client and self.authority is None:
            raise ValueError("require_client needs authority, the authorities of the clients")
        if self.key is not None and self.certificate is None:
            raise ValueError("key needs certificate, the certificate it is the key of")


def server_context(tls: TlsOptions | ssl.SSLContext) -> ssl.SSLContext:
    """Make what a listener needs.

    Raises:
        ValueError: There is no certificate, or a file has something else in it.
        OSError: A file cannot be read.
    """
    if isinstance(tls, ssl.SSLContext):
        if tls.protocol is ssl.PROTOCOL_TLS_CLIENT:
            raise ValueError("tls= is a context for clients, and this is a listener")
        return tls
    if tls.certificate is None:
        raise ValueError("a listener with TLS needs a certificate: TlsOptions(certificate=...)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, tls)
    if tls.require_client:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: TlsOptions | ssl.SSLContext) -> ssl.SSLContext:
    """Make what a side that connects needs.

    Raises:
        ValueError: A file has something else in it.
        OSError: A file cannot be read.
    """
    if isinstance(tls, ssl.SSLContext):
        if tls.protocol is ssl.PROTOCOL_TLS_SERVER:
            raise ValueError("tls= is a context for listeners, and this side connects")
        return tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.authority is None:
        context.load_default_certs()
    _load(context, tls)
    return context


def _load(context: ssl.SSLContext, tls: TlsOptions) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.authority is not None:
        path = _readable("authority", tls.authority)
        _try("authority", path, lambda: context.load_verify_locations(path))
    if tls.certificate is not None:
        certificate = _readable("certificate", tls.certificate)
        key = _readable("key", tls.key or certificate)
        # Without a password of ours OpenSSL would ask for one on the terminal.
        _try(
            "certificate or key",
            certificate,
            lambda: context.load_cert_chain(certificate, key, password=lambda: b""),
        )


def _readable(what: str, path: str | os.PathLike[str]) -> str:
    """Check a file, for an error that names it: OpenSSL's own do not.

    Raises:
        OSError: It cannot be read.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb"):  # noqa: PTH123 - the path is any that the system takes
            return path
    except OSError as error:
        text = f"the file of the {what} cannot be read: {os.strerror(error.errno or 0)}"
        raise OSError(error.errno, text, path) from None


def _try(what: str, path: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        words = (error.reason or "it is not in PEM").replace("_", " ").lower()
        raise ValueError(f"no usable {what} in {path!r}: {words}") from None


def certified_names(certificate: Any) -> tuple[str, ...]:
    """Return the names in a peer's certificate that was verified: at most `MAX_NAMES`.

    Each has its kind before it, so that none is taken for one of another: an authority that hands
    out names of hosts may not have looked whether one of them reads like a URI. The common name
    counts only if there are no others (RFC 6125 section 6.4.4).

    Args:
        certificate: As `getpeercert` gives it: `None` or empty if there is none.
    """
    return tuple(dict.fromkeys(_names(certificate or {})))[:MAX_NAMES]


def _names(certificate: dict[str, Any]) -> Iterator[str]:
    alternatives = cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))
    for kind, shown in _KINDS.items():
        found = (value for each, value in alternatives if each == kind)
        yield from (f"{shown}:{_usual(each) if kind == _IP else each}" for each in found)
    if alternatives:
        return
    for parts in cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ())):
        yield from (f"CN:{value}" for key, value in parts if key == "commonName")


def _usual(address: str) -> str:
    """Write an IP address as everybody does but OpenSSL."""
    try:
        return str(ip_address(address.strip()))
    except ValueError:
        return address


def reason_of(error: BaseException) -> str:
    """Say what went wrong with TLS, or with what is below it, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        words = getattr(error, "verify_message", "") or "for a reason unknown"
        return f"the peer's certificate is not accepted: {words.rstrip('.')}"
    if not isinstance(error, ssl.SSLError):
        return str(error)
    reason = error.reason or ""
    if reason in _OF_NO_TLS:
        return NO_TLS
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the peer has no certificate"
    words = reason.replace("_", " ").lower()
    _, alert, text = words.partition(" alert ")
    return f"the peer refuses: {text}" if alert else f"TLS: {words or error}"
