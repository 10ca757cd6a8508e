"""The options of stream transports, and the texts of socket addresses."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from ...actors import MailboxOptions
from ...protocol import AddressError
from ...protocol.ockam import MAX_FRAME, WireLimits
from ...protocol.options import Count, Range, Seconds, SecondsOrZero, Size, check_options
from ..node._link import LINK_MAILBOX
from ._source import check_proxies
from ._tls import TlsOptions
from ._unix_file import check_path

__all__ = [
    "Backoff",
    "StreamOptions",
    "format_endpoint",
    "parse_endpoint",
    "parse_unix_uri",
    "parse_uri",
    "parse_websocket_uri",
]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between connection attempts: exponential, with full jitter.

    The n-th wait is evenly distributed from 0 to `min(longest, first * 2 ** n)`, so that peers
    that lose their connections together do not reconnect together.

    Attributes:
        first: Upper limit of the first wait, in seconds.
        longest: Upper limit of every wait, in seconds.
        random: Returns numbers from 0 up to 1; replace it for repeatable waits.

    Raises:
        ValueError: A time is not positive.
    """

    first: Seconds = 0.1
    longest: Seconds = 30.0
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        check_options(self)

    def bound(self, attempt: int) -> float:
        """Return the longest wait after this many consecutive failures, in seconds."""
        # 2 ** 64 seconds is long enough; beyond 1023 the float would overflow.
        return min(self.longest, self.first * 2.0 ** min(attempt, 64))

    def wait(self, attempt: int) -> float:
        """Return the wait after this many consecutive failures, in seconds."""
        return self.random() * self.bound(attempt)


_BACKOFF: Final = Backoff()


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a link or listener of `tcp`, `tls`, `uds`, `ws` and `wss`.

    Sizes are in bytes, times in seconds.

    Attributes:
        max_frame: Bytes of a message on the wire, routes included, both ways.
        max_connections: Connections of a listener at a time, including those with a handshake in
            progress; more are closed at once.
        max_connections_per_source: Connections from one source at a time: an address, the /64
            network for IPv6, the user for a Unix socket; more are closed at once. `None`: as many
            as there are free places, so that one source alone leaves half of them to others.
        proxies: Networks from which proxies connect to a listener: addresses, or networks like
            `10.0.0.0/8`; `unix` is all peers of a Unix socket. Each connection from there counts as
            its own source, so the proxy has to limit the connections of one peer. Otherwise all
            peers behind a proxy are one source.
        proxy_protocol: Whether connections from `proxies` must begin with a header of the PROXY
            protocol, version 2, before TLS. The source in the header is then that of the
            connection. From other networks, connections with a header are refused. A header has at
            most 4096 bytes, and has to be whole after 5 s.
        preamble_timeout: Time for the peer's first byte.
        connect_timeout: Time to connect, including the TLS and WebSocket handshakes and without
            the preamble.
        frame_timeout: Time from the first byte of a frame to its last, after which the
            connection is closed. Time in which a full mailbox keeps the socket from being read
            does not count.
        max_unfinished: Bytes of unfinished frames of all the connections of a listener
            together; a connection that brings more is closed. So peers can make a listener hold
            at most this for `frame_timeout`, and one read of each socket.
        idle_timeout: Time without a message, up to twice as long, after which a connected link is
            closed; `None`: never. Heartbeats are messages. A link in use stays open: one over
            which a relay or session is registered, or from which return routes go on over another
            link.
        heartbeat: Time without a message sent, up to twice as long, after which a link made by
            `connect` sends an empty one, so that it is idle at neither end; `None`: never. Links
            opened by an address of type 1 send none.
        reconnect: Whether a link made by `connect` connects again after a loss, under the same
            address.
        backoff: The waits between connection attempts.
        queue: Messages kept while a link is not connected; more become dead letters ("link down")
            at once, and the kept ones when the next attempt fails.
        max_queue_bytes: Bytes of these, routes included; more become dead letters at once. A
            single message may have more.
        mailbox: The mailbox of the link. It fills while the socket is slow; by default senders
            then wait for room, and 32 MiB of large payloads may wait.
        high_water: Bytes waiting for the socket above which the link sends no message until most
            are written.
        max_pending: Bytes waiting for the socket above which the link is closed.
        drain_timeout: Time for a stopped link to write the accepted messages. Then the socket is
            closed at once, and the rest is lost.
        write_timeout: Time without progress after which a link with a socket above `high_water`
            is closed. Also the time for writing the rest once the peer has closed.
        arrivals: Messages from the link kept while mailboxes, of workers or of other links, are
            full; more become dead letters ("mailbox full"). Above 64 of them, or 256 KiB, the
            socket is not read, so more come only from the last read and from other workers.
        max_arrival_bytes: Bytes of these, routes included, above which no more are kept. So a peer
            can make a link hold at most `max_frame` more than this.
        stall_timeout: Time for which a full mailbox may accept none of these; then they become dead
            letters ("mailbox full"), and later ones at once until its worker handles a message.
        max_inside: Bytes above which the socket is not read, of payloads larger than 16 KiB that
            came over the link and wait in mailboxes of the node.
        max_returns: Addresses in remembered return routes, in each of three tables; see `Gate`.
        tls: The encryption: `TlsOptions`, or an `ssl.SSLContext` for this side; `None`: none,
            unless the scheme requires it (`tls`, `wss`), which then means `TlsOptions()`.
        tls_timeout: Time for the TLS handshake, after which the connection is closed.

    Raises:
        ValueError: A number is negative, or 0 where that has no meaning: only numbers of what is
            kept or waits, `drain_timeout` and `stall_timeout` may be 0. Or `max_frame` is more
            than the protocol allows, one of `proxies` is not a network, or a value is of the
            wrong type.
    """

    max_frame: Annotated[int, Range(least=1, most=MAX_FRAME)] = MAX_FRAME
    max_connections: Count = 1000
    max_connections_per_source: Count | None = None
    proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False
    preamble_timeout: Seconds = 5.0
    connect_timeout: Seconds = 10.0
    frame_timeout: Seconds = 30.0
    max_unfinished: Count = 256 * 1024 * 1024
    idle_timeout: Seconds | None = 300.0
    heartbeat: Seconds | None = 60.0
    reconnect: bool = True
    backoff: Backoff = _BACKOFF
    queue: Size = 1000
    max_queue_bytes: Size = 64 * 1024 * 1024
    mailbox: MailboxOptions = LINK_MAILBOX
    high_water: Size = 256 * 1024
    max_pending: Count = 64 * 1024 * 1024
    drain_timeout: SecondsOrZero = 2.0
    write_timeout: Seconds = 30.0
    arrivals: Size = 10_000
    max_arrival_bytes: Size = 16 * 1024 * 1024
    stall_timeout: SecondsOrZero = 30.0
    max_inside: Size = 16 * 1024 * 1024
    max_returns: Count = 10_000
    tls: TlsOptions | ssl.SSLContext | None = None
    tls_timeout: Seconds = 5.0

    def __post_init__(self) -> None:
        check_options(self)
        check_proxies(self.proxies, protocol=self.proxy_protocol)

    @property
    def wire_limits(self) -> WireLimits:
        """The limits of the protocol."""
        return WireLimits(max_frame=self.max_frame)


def parse_uri(uri: str, scheme: str) -> tuple[str, int]:
    """Return host and port of `scheme://host:port`.

    Args:
        uri: The URI; an IPv6 address is written in brackets.
        scheme: The required scheme.

    Raises:
        ValueError: The URI is not of this form.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that do not match
        raise ValueError(f"{uri!r} is not {scheme}://host:port") from None
    more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme != scheme or more:
        raise ValueError(f"{uri!r} is not {scheme}://host:port")
    return parse_endpoint(parts.netloc)


def parse_websocket_uri(uri: str, scheme: str, *, query: bool = False) -> tuple[str, int, str]:
    """Return host, port and path of `scheme://host:port/path`; the path may be "".

    Args:
        uri: The URI.
        scheme: The required scheme.
        query: Whether a query is allowed; it is returned as a part of the path.

    Raises:
        ValueError: The URI is not of this form.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that do not match
        raise ValueError(f"{uri!r} is not {scheme}://host:port/path") from None
    wrong = parts.scheme != scheme or parts.fragment or "@" in parts.netloc
    # The request line of HTTP separates its parts by spaces.
    if wrong or (parts.query and not query) or " " in uri or not uri.isprintable():
        raise ValueError(f"{uri!r} is not {scheme}://host:port/path")
    host, port = parse_endpoint(parts.netloc)
    if parts.query:
        return host, port, f"{parts.path or '/'}?{parts.query}"
    return host, port, "" if parts.path == "/" else parts.path


_IPV6: Final = frozenset("0123456789abcdefABCDEF:.")
"""The characters of an IPv6 address."""


def parse_unix_uri(uri: str, scheme: str) -> str:
    """Return the path of `scheme:///path`; `%` and two digits stand for a byte.

    Raises:
        ValueError: The URI is not of this form, or the path is too long for a socket.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path)
    wrong = parts.query or parts.fragment or not path.strip("/") or "\0" in path
    if wrong or not uri.startswith(f"{scheme}:///"):
        raise ValueError(f"{uri!r} is not {scheme}:///path")
    return str(check_path(path))


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`; an IPv6 address is written in brackets.

    Raises:
        AddressError: The text is not of this form.
    """
    host, mark, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not mark or not host or (":" in host) != bracketed:
        if host.count(":") > 1 and set(host) <= _IPV6:
            raise AddressError(text, f"an IPv6 host has brackets: [{host}]:{port}")
        raise AddressError(text, "not host:port")
    if len(port) > 5 or not port.isdecimal() or port != str(int(port)) or int(port) > 65535:
        raise AddressError(text, "the port is not a number from 0 to 65535")
    return host, int(port)


def format_endpoint(host: str, port: int) -> str:
    """Return the text of host and port: the inverse of `parse_endpoint`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
