"""The options of the AMQP edge, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from ...protocol.options import Count, Range, Seconds, check_options

__all__ = ["AmqpOptions", "AmqpStatistics"]


@dataclass(frozen=True, slots=True)
class AmqpOptions:
    """The limits of a listener for clients of AMQP. Sizes are in bytes, times in seconds.

    Attributes:
        max_frame: Bytes of a frame; a larger one ends the connection before it is read.
        max_message: Bytes of a message in both directions. The link of a larger one from a client
            is closed; a larger one for a client is released, as is one over the client's own limit.
        max_gathered: Bytes of messages of one connection that have come in part; one more ends the
            connection.
        max_unsent: Bytes of messages for one connection that wait for its client to read, besides
            the one or two that are being written. Beyond: the credit of its links is taken back, so
            that messages wait in their names; of what was under way by then, pre-settled messages
            beyond as many bytes more are dropped. A link that goes through to a container has a
            quarter of it on its way; then the other end is held back.
        max_sessions: Sessions of one connection of a client; one more ends it. A connection to a
            container has one, and one for each link that goes through.
        max_links: Links of one connection, in all its sessions; one more ends it.
        max_unsettled: Deliveries to one consumer that it has not settled; then no more of its
            credit is passed on.
        max_connections: Connections at a time, TLS handshakes in progress included; one more is
            closed at once.
        max_connections_per_source: Of those, connections from one address. `None`: as many as
            there are free places.
        attach_timeout: Time in which a container has to answer the attach of an `AutoLink`. Later:
            the link is detached, counted and attached again after a wait. Once 8 such links of a
            connection are not answered at all, the connection is closed and made again.
        tls_timeout: Time for the TLS handshake, after which the connection is closed.
        open_timeout: Time from then until the client has opened the connection, with SASL.
        idle_timeout: Time without a frame of an open connection, after which it is closed. The
            client is asked for one at least twice in that time.
        write_timeout: Time in which a client has to read from a full socket; then it is cut.
        strip: Whether annotations of messages are removed: of those that come `in`, of those that
            go `out`, of `both`, or of none (`no`).

    Raises:
        ValueError: A number is out of its range.
    """

    max_frame: Annotated[int, Range(512, 1024 * 1024)] = 16 * 1024
    max_message: Count = 1024 * 1024
    max_gathered: Count = 4 * 1024 * 1024
    max_unsent: Count = 4 * 1024 * 1024
    max_sessions: Annotated[int, Range(1, 32768)] = 16
    max_links: Count = 256
    max_unsettled: Count = 1000
    max_connections: Count = 1000
    max_connections_per_source: Count | None = None
    attach_timeout: Seconds = 30.0
    tls_timeout: Seconds = 5.0
    open_timeout: Seconds = 10.0
    idle_timeout: Seconds = 60.0
    write_timeout: Seconds = 10.0
    strip: Literal["no", "in", "out", "both"] = "no"

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def proxies(self) -> tuple[str, ...]:
        """No networks: the listener is not made to be behind proxies."""
        return ()

    @property
    def proxy_protocol(self) -> bool:
        """No PROXY headers, as there are no proxies."""
        return False


@dataclass(frozen=True, slots=True)
class AmqpStatistics:
    """The figures of a listener for clients of AMQP at one moment.

    Attributes:
        uri: Its URI.
        connections: Connections now.
        accepted: Connections accepted since the start.
        turned_away: Connections closed at once for lack of room, since the start.
        handshakes: TLS handshakes in progress.
        refused_handshakes: Failed handshakes since the start, by reason.
        closed: Connections that have ended since the start, by reason.
        dropped: Messages since the start that were dropped at the edge, by reason.
    """

    uri: str
    connections: int
    accepted: int
    turned_away: int
    handshakes: int
    refused_handshakes: Mapping[str, int]
    closed: Mapping[str, int]
    dropped: Mapping[str, int]
