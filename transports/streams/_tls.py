"""TLS for stream transports: options, contexts, certified names and error texts."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from ...protocol._principal import PeerIdentity
from ...protocol.options import Range, check_options

__all__ = [
    "NAME_KINDS",
    "NO_TLS",
    "TlsOptions",
    "certified",
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
"""OpenSSL's error reasons for bytes that are not TLS."""

_IP: Final = "IP Address"
_KINDS: Final = {"URI": "URI", "DNS": "DNS", _IP: "IP", "email": "email"}
"""The kinds of names in a certificate, in the order shown, and the prefix of each."""

NAME_KINDS: Final = (*_KINDS.values(), "CN")
"""The prefixes of certified names, before the colon."""

MAX_NAMES: Final = 16
"""The maximum number of names kept of a peer's certificate; further ones are ignored."""


ClientCertificates: TypeAlias = Literal["none", "optional", "required"]
"""Whether a listener asks its clients for certificates."""

_VERIFY: Final[dict[ClientCertificates, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The certificates of one side of a connection. The oldest supported version is TLS 1.2.

    A listener needs a certificate. A connecting side needs one if the listener requires it. It
    checks that the listener's certificate is signed by a trusted authority, valid now, and
    issued for the name it connects to.

    Attributes:
        certificate: A PEM file with this side's certificate and the intermediate ones; `None`:
            no certificate.
        key: A PEM file with its key, which must not be encrypted; `None`: the key is in the file
            of the certificate.
        authority: A PEM file with the certificates of the trusted authorities; `None`: those of
            the system.
        client: Whether a listener asks clients for a certificate: `none`; `optional`: a client may
            have none, but not one that is invalid; `required`: a client without one is refused.
            Both need `authority`: the authorities of the system certify any host.
        reload_interval: Seconds between two looks at the files of a listener. If one has changed,
            later connections use the new ones; if those are of no use, the ones before. A
            connecting side looks whenever it connects. `None`: they are only read again by
            `Listener.reload`.
        server_name: The name that the listener's certificate must have, if it is not the host of
            the URI; required for Unix sockets.
    """

    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    authority: str | os.PathLike[str] | None = None
    client: ClientCertificates = "none"
    reload_interval: Annotated[float, Range(least=1, most=86_400, unit="seconds")] | None = 60.0
    server_name: str | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.client != "none" and self.authority is None:
            raise ValueError(f"client={self.client!r} needs authority, those of the clients")
        if self.key is not None and self.certificate is None:
            raise ValueError("key needs certificate, the certificate it is the key of")


def server_context(tls: TlsOptions | ssl.SSLContext) -> ssl.SSLContext:
    """Return the TLS context of a listener.

    Raises:
        ValueError: There is no certificate, or a file has the wrong contents.
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
    context.verify_mode = _VERIFY[tls.client]
    return context


def client_context(tls: TlsOptions | ssl.SSLContext) -> ssl.SSLContext:
    """Return the TLS context of a connecting side.

    Raises:
        ValueError: A file has the wrong contents.
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
        # Without a password OpenSSL would ask for one on the terminal.
        _try(
            "certificate or key",
            certificate,
            lambda: context.load_cert_chain(certificate, key, password=lambda: b""),
        )


def _readable(what: str, path: str | os.PathLike[str]) -> str:
    """Return the path of a readable file; OpenSSL's own errors do not name the file.

    Raises:
        OSError: The file cannot be read.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb"):  # noqa: PTH123 - the path may be of any type
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


def certified(identity: PeerIdentity, transport: asyncio.BaseTransport) -> PeerIdentity:
    """Return the identity of a peer with what its verified certificate adds, if it has one.

    Args:
        identity: The identity as the socket reports it.
        transport: The transport of the connection, after the TLS handshake if any.
    """
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return identity
    encoded = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return replace(
        identity,
        names=certified_names(certificate),
        digest=sha256(encoded).digest(),
        expires=float(ssl.cert_time_to_seconds(certificate["notAfter"])),
    )


def certified_names(certificate: Any) -> tuple[str, ...]:
    """Return the names in a peer's verified certificate, at most `MAX_NAMES`.

    Each has its kind as a prefix, so that a name is not mistaken for one of another kind: an
    authority that certifies host names may not check whether one reads like a URI. The common name
    counts only if there are no others (RFC 6125 section 6.4.4).

    Args:
        certificate: The result of `getpeercert`: `None` or empty without a certificate.
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
    """Return an IP address in its usual form, which differs from OpenSSL's."""
    try:
        return str(ip_address(address.strip()))
    except ValueError:
        return address


def reason_of(error: BaseException) -> str:
    """Return a short text for an error of TLS or of the transport below it."""
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
