"""The options of RSocket listeners."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from ...protocol.options import Count, Range, Seconds, check_options
from ...protocol.rsocket import MAX_REQUEST_N, ConnectionLimits, ResumeLimits
from ..streams._source import check_proxies
from ..streams._unix_file import FileMode
from ..streams._ws_options import WebSocketOptions

__all__ = [
    "FlowOptions",
    "GatheringOptions",
    "LeaseOptions",
    "LinkOptions",
    "ResumeOptions",
    "UnixOptions",
    "WebSocketOptions",
]


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """The leases that one side of a connection grants the other.

    Attributes:
        requests: Requests granted in each `interval`. One more is REJECTED.
        interval: Seconds from one lease to the next. Each is valid for half as long again, so that
            leases overlap.

    Raises:
        ValueError: A number is out of its range.
    """

    requests: Annotated[int, Range(least=1, most=MAX_REQUEST_N)] = 1000
    interval: Annotated[float, Range(above=0, most=MAX_REQUEST_N / 1000, unit="seconds")] = 10.0

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def valid(self) -> float:
        """The seconds for which a lease is valid."""
        return 1.5 * self.interval


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """The limits of backlogs, and of the credit of streams.

    Attributes:
        high_water: Backlog of a peer's socket, in bytes, above which the peers that send to it
            are not read, and a destination gets requests only if no other can take them. Above four
            times as much it gets none. Below a quarter of it the peers are read again. Above eight
            times as much a stream is CANCELED if its destination exceeds the credit granted by the
            broker.
        max_pending: Backlog in bytes above which a peer is closed as too slow, if it has read
            nothing since `high_water` was passed. A peer that reads is not closed, and none of its
            requests is CANCELED, until its source has used up its share of `max_pending_total`.
            Above half of `max_pending`, destinations that answer this peer only are not read, if
            it reads.
        max_pending_total: Most bytes of the backlogs of all peers of one listener; a peer counts
            above 64 KiB. The share of a source (see `LinkOptions.max_connections_per_source`) is
            the number of free bytes. Once a source has used up its share, its peer with the largest
            backlog has its newest unanswered requests CANCELED: one, and twice as many for each
            further 64 KiB. The peer is closed as too slow instead if it has read nothing, or if all
            of `max_pending_total` is used up. If another source has more than an equal part (the
            total divided by the number of sources and one more), the peer is one of that source.
        stall_timeout: Seconds in which a peer with a backlog above `high_water` has to read
            a quarter of that, before it is closed as too slow.
        credit_window: Most elements of one stream requested of a destination ahead of the
            requester's socket. Fewer are requested at first, and of large elements: about
            4 x `high_water` bytes. Elements beyond that are relayed within the requester's credit.

    Raises:
        ValueError: A number is out of its range, or `max_pending` is below `high_water`.
    """

    high_water: Count = 1024 * 1024
    max_pending: Count = 64 * 1024 * 1024
    max_pending_total: Count = 512 * 1024 * 1024
    stall_timeout: Seconds = 30.0
    credit_window: Annotated[int, Range(least=1, most=MAX_REQUEST_N)] = 128

    def __post_init__(self) -> None:
        check_options(self)
        if self.max_pending < self.high_water:
            raise ValueError("max_pending must be at least high_water")

    @property
    def low_water(self) -> int:
        """The backlog in bytes below which the peers that send to a slow one are read again."""
        return max(1, self.high_water // 4)

    @property
    def max_overdraft(self) -> int:
        """The backlog in bytes above which a stream beyond the granted credit is CANCELED."""
        return 8 * self.high_water


@dataclass(frozen=True, slots=True)
class GatheringOptions:
    """The limits of fragmented requests, answers and multicasts that are held.

    Attributes:
        max_answer: Most bytes of an answer to a request of a worker of this node.
        max_gather: Most bytes of a fragmented request held until its metadata is complete,
            and of a request held until its hand-over. Over it: REJECTED.
        max_request: Most bytes of a fragmented request gathered for a worker of this node.
            Over it: INVALID.
        max_gathered: Most bytes of all such requests of one peer together, with the cost of their
            objects, elements of channels that handlers of this node have not received, and
            unfinished answers to workers of this node. At the limit, the next fragment has its
            request REJECTED or its channel CANCELED, or a worker's request fails with
            `PayloadTooBig`.
        max_gathered_total: Most bytes counted by `max_gathered`, of all peers of one listener
            together. No source may have more than is free; both limits act as `max_gathered`. If
            another source has more than an equal part (one part for each source, and one more),
            its largest requests are REJECTED instead.
        max_multicast_held: Most bytes held for all multicasts of one requester, with the cost of
            their objects. The multicast that would exceed it is CANCELED. Copies of large frames
            wait, and are CANCELED if they find no room for `MulticastOptions.patience`. Copies
            without a byte read for 0.2 s do not count here as long as they fill less than a
            quarter of `max_held_total`.
        max_forwarded: Most bytes of requests that are kept while a peer broker has not answered
            them, each with the chunk of input that it came in. If it rejects a request that is
            kept, the request is sent elsewhere. One that finds no room is not kept.

    Raises:
        ValueError: A number is out of its range, or `max_gathered` is below `max_gather`.
    """

    max_answer: Count = 16 * 1024 * 1024
    max_gather: Count = 1024 * 1024
    max_request: Count = 8 * 1024 * 1024
    max_gathered: Count = 32 * 1024 * 1024
    max_gathered_total: Count = 256 * 1024 * 1024
    max_multicast_held: Count = 32 * 1024 * 1024
    max_forwarded: Count = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)
        if self.max_gathered < self.max_gather:
            raise ValueError("max_gathered must be at least max_gather")


_SESSION: Final = ResumeLimits()


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """The limits of the sessions of a listener that can be resumed.

    Attributes:
        session: The limits of one session.
        max_kept_total: Most bytes of sent frames that are kept for all sessions together. The share
            of a source is the number of free bytes. A session that finds no room drops what it
            keeps, and cannot be resumed unless its peer has received all of it.
        max_sessions: Most sessions, open and suspended. One source alone leaves half of them to
            others. One more has its SETUP refused with REJECTED_SETUP.

    Raises:
        ValueError: A number is out of its range.
    """

    session: ResumeLimits = _SESSION
    max_kept_total: Count = 256 * 1024 * 1024
    max_sessions: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)


_FLOW: Final = FlowOptions()
_GATHERING: Final = GatheringOptions()
_LEASE: Final = LeaseOptions()


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The limits of a listener and its connections.

    Attributes:
        connection: The limits of the connection's state machine.
        max_connections: Most connections of one listener, TLS and WebSocket handshakes under way
            included. One more is closed at once, unless an unused connection can be closed.
        max_connections_per_source: Most connections of one source: an address, the /64 network
            for IPv6, the user for a Unix socket. `None`: no more than are free, so that one source
            alone leaves half of them to others. One more is closed at once, unless an unused
            connection of the source can be closed.
        proxies: Networks from which proxies connect: addresses, or networks like `10.0.0.0/8`;
            `unix` is all peers of a Unix socket. Each connection of a proxy is a source by itself
            for all that is shared by source: connections, bytes, and requests that wait. The proxy
            has to limit its clients.
        proxy_protocol: Whether connections from `proxies` must begin with a header of the PROXY
            protocol, version 2, before TLS. The source in the header is then that of the
            connection. From other networks, connections with a header are refused. A header has at
            most 4096 bytes, and has to be whole after 5 s.
        tls_timeout: Seconds for the client's first bytes and for the TLS handshake, after which the
            connection is closed.
        unused_timeout: Seconds after which a connection that is no destination and has sent no
            request may be closed in favour of a new one.
        silent_after: Seconds of silence after which a destination is passed over, if others match
            and it has an answer due, or a KEEPALIVE unanswered for half of the time. After half of
            the time in silence, it is sent a KEEPALIVE with the next request. It is not closed
            before its lifetime. A destination that sends KEEPALIVE frames but answers none gets
            fewer requests.
        frame_timeout: Seconds from the first byte of a frame to its last, before the connection
            is closed; time in which it is not read does not count.
        max_unfinished: Most bytes of unfinished frames and WebSocket messages of all connections
            of one listener. The connection that would exceed it is closed.
        drain_timeout: Seconds in which a closing connection has to send its backlog and, on a
            WebSocket, to answer the Close. Then it is cut.
        flow: The limits of backlogs, and the credit given ahead.
        gathering: The limits of fragmented requests, answers and multicasts that are held.
        lease: The leases of the peers with leases in their SETUP; it overrides
            `connection.lease`. `None`: such a SETUP gets ERROR[UNSUPPORTED_SETUP].
        resume: The sessions of peers with a resume token in their SETUP, which survive the loss of
            a connection. `None`: such a SETUP gets ERROR[REJECTED_SETUP].

    Raises:
        ValueError: A number is out of its range, or one of `proxies` is no network.
    """

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: Count = 10_000
    max_connections_per_source: Count | None = None
    proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False
    tls_timeout: Seconds = 5.0
    unused_timeout: Seconds = 10.0
    silent_after: Seconds = 5.0
    frame_timeout: Seconds = 30.0
    max_unfinished: Count = 256 * 1024 * 1024
    drain_timeout: Seconds = 2.0
    flow: FlowOptions = _FLOW
    gathering: GatheringOptions = _GATHERING
    lease: LeaseOptions | None = _LEASE
    resume: ResumeOptions | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_proxies(self.proxies, protocol=self.proxy_protocol)
        leases = self.lease is not None
        if self.connection.lease != leases:
            connection = replace(self.connection, lease=leases)
            object.__setattr__(self, "connection", connection)


@dataclass(frozen=True, slots=True)
class UnixOptions:
    """The permissions of a Unix socket.

    Attributes:
        mode: The permissions of the socket's file. A peer needs the right to write to it.
            Default 600 octal: the user the broker runs as, and root.

    Raises:
        ValueError: The mode is not of 0 to 777 octal.
    """

    mode: FileMode = 0o600

    def __post_init__(self) -> None:
        check_options(self)
