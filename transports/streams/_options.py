"""The options of stream transports, and how addresses of sockets are written."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlsplit

from ...actors import MailboxOptions
from ...protocol import AddressError
from ...protocol.ockam import MAX_FRAME, WireLimits
from ...protocol.options import Count, Range, Seconds, SecondsOrZero, Size, check_options
from ..node._link import LINK_MAILBOX
from ._source import check_proxies
from ._tls import TlsOptions

__all__ = [
    "Backoff",
    "StreamOptions",
    "format_endpoint",
    "parse_endpoint",
    "parse_uri",
    "parse_websocket_uri",
]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before connecting again: exponential, with full jitter.

    The n-th wait is evenly distributed from 0 to `min(longest, first * 2 ** n)`, so that
    peers cut off together do not come back together.

    Attributes:
        first: Upper end of the first wait, in seconds.
        longest: Upper end of any wait, in seconds.
        random: Gives numbers from 0 up to 1; inject it for repeatable waits.

    Raises:
        ValueError: A time is not more than 0.
    """

    first: Seconds = 0.1
    longest: Seconds = 30.0
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        check_options(self)

    def wait(self, attempt: int) -> float:
        """Return the wait after this many failed attempts in a row, in seconds."""
        # 2 ** 64 seconds is long enough; beyond 1023 a float would overflow.
        return self.random() * min(self.longest, self.first * 2.0 ** min(attempt, 64))


_BACKOFF: Final = Backoff()


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a link or listener of a stream transport may use: `tcp`, `tls`, `uds`, `ws` and `wss`.

    Sizes are in bytes, times in seconds.

    Attributes:
        max_frame: Most bytes of a message on the wire, routes included, both ways.
        max_connections: Connections a listener has at a time, with those whose handshake is
            under way; more are closed at once.
        max_connections_per_source: Most of them that come from one source: an address, the /64
            network for IPv6, the user for a Unix socket. `None`: no more than there are places
            free, so that one source alone leaves half of them to others. More are closed at once.
        proxies: Networks from which proxies connect to a listener: addresses, or networks like
            `10.0.0.0/8`; `unix` is all peers of a Unix socket. Each connection from there is a
            source by itself, so it is for the proxy to bound how many one peer has. Otherwise all
            peers behind a proxy are one source.
        preamble_timeout: Time the peer has for its first byte.
        connect_timeout: Time to connect, with the handshakes of TLS and WebSocket and without
            the preamble.
        frame_timeout: Time for a frame from its first byte to its last, however they come; the
            connection is closed then. Time in which a full mailbox keeps the socket from being
            read does not count.
        max_unfinished: Bytes of unfinished frames of all the connections of a listener
            together; one that brings more is closed. So the worst that peers can make a
            listener hold is this for `frame_timeout`, and one read of each socket.
        idle_timeout: A link that is connected and over which no message has gone for this long,
            or up to twice as long, is closed; `None`: never. Heartbeats are messages. A link is
            kept that is in use: over which a relay or session was registered, or from which ways
            back go on over another link that is there.
        heartbeat: Time without a message sent after which, or up to twice as long, a link made
            by `connect` sends an empty one, so that it is idle at neither end; `None`: never.
            Links opened by an address of type 1 send none.
        reconnect: Whether a link made by `connect` is connected again when it is lost, at
            the same address.
        backoff: How long to wait before that.
        queue: Messages kept while a link is not connected; they become dead letters
            ("link down") when the next attempt fails. More do at once.
        max_queue_bytes: Bytes that they have together, routes included; more become dead letters
            at once. One alone may have more.
        mailbox: The mailbox of the link's worker. It fills while the socket is slow; by default
            those that pass messages on wait for room then, and 32 MiB of large payloads may wait.
        high_water: Bytes waiting for the socket above which the worker takes no message
            until most are written.
        max_pending: Bytes waiting for the socket above which the link is closed.
        drain_timeout: Time a link that is stopped may take to write what was taken, in
            seconds. Then the socket is closed at once, and what is left is lost.
        write_timeout: Time in which a socket above `high_water` has to take something; the link is
            closed if it takes nothing. Also all the time that it has once the peer has closed.
        arrivals: Messages that have come over the link and are kept while mailboxes are full, of
            workers or of other links. The socket is not read while there are more than 64
            of them, or 256 KiB, so these are the rest of a read and what was on its way through
            other workers; more become dead letters ("mailbox full").
        max_arrival_bytes: Bytes of those messages, routes included, above which no more are kept.
            So a peer can make a link hold `max_frame` more than this at worst.
        stall_timeout: Time a full mailbox may take none of those messages; then they become dead
            letters ("mailbox full"), and later ones at once until its worker handles something.
        max_inside: Bytes of the payloads larger than 16 KiB that have come over the link and wait
            in mailboxes of the node, above which the socket is not read.
        max_returns: Most addresses of ways back remembered, in each of three tables; see `Gate`.
        tls: How the connection is encrypted: `TlsOptions`, or an `ssl.SSLContext` of the
            right side; `None`: it is not, unless the scheme says so (`tls`, `wss`), which then
            means `TlsOptions()`.
        tls_timeout: Time for the handshake of TLS; the connection is closed then.

    Raises:
        ValueError: A number is negative, or 0 where that makes no sense: only what is kept or
            waits, `drain_timeout` and `stall_timeout` may be 0. Or `max_frame` is more than the
            wire has room for, one of `proxies` is no network, or something is of another kind.
    """

    max_frame: Annotated[int, Range(least=1, most=MAX_FRAME)] = MAX_FRAME
    max_connections: Count = 1000
    max_connections_per_source: Count | None = None
    proxies: tuple[str, ...] = ()
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
        check_proxies(self.proxies)

    @property
    def wire_limits(self) -> WireLimits:
        """The limits of the wire."""
        return WireLimits(max_frame=self.max_frame)


def parse_uri(uri: str, scheme: str) -> tuple[str, int]:
    """Return host and port of `scheme://host:port`.

    Args:
        uri: The URI; an IPv6 address is written in brackets.
        scheme: The scheme it must have.

    Raises:
        ValueError: It is no such URI, or has more in it.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that do not match
        raise ValueError(f"{uri!r} is not {scheme}://host:port") from None
    more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme != scheme or more:
        raise ValueError(f"{uri!r} is not {scheme}://host:port")
    return parse_endpoint(parts.netloc)


def parse_websocket_uri(uri: str, scheme: str) -> tuple[str, int, str]:
    """Return host, port and path of `scheme://host:port/path`; the path may be "".

    Raises:
        ValueError: It is no such URI, or has more in it.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that do not match
        raise ValueError(f"{uri!r} is not {scheme}://host:port/path") from None
    wrong = parts.scheme != scheme or parts.query or parts.fragment or "@" in parts.netloc
    # A request for a path is a line of words, so it can have neither.
    if wrong or " " in uri or not uri.isprintable():
        raise ValueError(f"{uri!r} is not {scheme}://host:port/path")
    host, port = parse_endpoint(parts.netloc)
    return host, port, "" if parts.path == "/" else parts.path


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`; an IPv6 address is written in brackets.

    Raises:
        AddressError: It is no such text.
    """
    host, mark, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not mark or not host or (":" in host) != bracketed:
        raise AddressError(text, "not host:port")
    if len(port) > 5 or not port.isdecimal() or port != str(int(port)) or int(port) > 65535:
        raise AddressError(text, "the port is not a number from 0 to 65535")
    return host, int(port)


def format_endpoint(host: str, port: int) -> str:
    """Write host and port: the inverse of `parse_endpoint`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
