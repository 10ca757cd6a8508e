"""The options of the admin interface, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...protocol.options import Count, Seconds, Size, check_options
from ..streams._unix_file import FileMode

__all__ = ["AdminOptions", "AdminStatistics"]

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """The limits of the admin interface. Sizes are in bytes, times in seconds.

    Attributes:
        max_request: Bytes of a request, head and body together; a larger one is answered with
            status 431 or 413, and the connection is closed.
        max_connections: Connections at a time, TLS handshakes in progress included. One more is
            closed at once, unless one without a request in hand can be closed in its favour.
        max_connections_per_source: Of those, connections from one address, or one user of a Unix
            socket. `None`: as many as there are free places.
        max_event_streams: Streams of events at a time; one more is answered with status 503.
        tls_timeout: Time for the TLS handshake, after which the connection is closed.
        request_timeout: Time for a whole request, and between two; then the connection is closed.
        write_timeout: Time in which a peer has to read a part of an answer of 64 KiB, or a stream
            of events to make progress; then the connection is cut.
        heartbeat: Time without an event after which a stream of events gets a comment.
        hosts: The names, besides those of the loopback interface and the address of the socket, by
            which the interface is reached, without a port. A request with another name in `Host` is
            answered with status 421, so that a page of another site cannot read the answer.
        open_metrics: Whether `/metrics` needs no authentication. Through the management service of
            a broker they need it all the same.
        mode: The permissions of the file of a Unix socket.

    Raises:
        ValueError: A number is out of its range.
    """

    max_request: Count = 64 * 1024
    max_connections: Count = 100
    max_connections_per_source: Count | None = 100
    max_event_streams: Size = 20
    tls_timeout: Seconds = 5.0
    request_timeout: Seconds = 10.0
    write_timeout: Seconds = 10.0
    heartbeat: Seconds = 15.0
    hosts: tuple[str, ...] = ()
    open_metrics: bool = False
    mode: FileMode = 0o600

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def proxies(self) -> tuple[str, ...]:
        """No networks: the interface is not made to be behind proxies."""
        return ()

    @property
    def proxy_protocol(self) -> bool:
        """No PROXY headers, as there are no proxies."""
        return False


@dataclass(frozen=True, slots=True)
class AdminStatistics:
    """The figures of the admin interface at one moment.

    Attributes:
        uri: Its URI.
        connections: Connections now.
        accepted: Connections accepted since the start.
        turned_away: Connections closed at once for lack of room, since the start.
        handshakes: TLS handshakes in progress.
        refused_handshakes: Failed handshakes since the start, by reason.
        answers: Answers since the start, by status.
        closed: Connections that have ended since the start, by reason.
    """

    uri: str
    connections: int
    accepted: int
    turned_away: int
    handshakes: int
    refused_handshakes: Mapping[str, int]
    answers: Mapping[str, int]
    closed: Mapping[str, int]
