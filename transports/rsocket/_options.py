"""The options of RSocket listeners, and limits beyond those of a connection's state machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ...protocol.options import Count, Range, Seconds, check_options
from ...protocol.rsocket import MAX_REQUEST_N, ConnectionLimits
from ..streams._source import check_proxies
from ..streams._unix_file import FileMode
from ..streams._ws_options import WebSocketOptions

__all__ = ["LinkOptions", "UnixOptions", "WebSocketOptions"]


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How much a connection may hold, and how long it may take.

    Attributes:
        connection: The limits of the connection's state machine.
        max_connections: Most connections of one listener, with those whose WebSocket handshake
            is under way; one more is closed at once, unless one that is there does nothing.
        max_connections_per_source: Most of them that come from one source: an address, the /64
            network for IPv6, the user for a Unix socket. `None`: no more than there are places
            free, so that one source alone leaves half of them to others. One more is closed at
            once, unless one of its own does nothing.
        proxies: Networks from which proxies connect: addresses, or networks like `10.0.0.0/8`;
            `unix` is all peers of a Unix socket. Each connection from there is a source by itself,
            in whatever is shared by source: connections, bytes, and requests that wait. So it is
            for the proxy to bound what one client takes.
        unused_timeout: After how many seconds a connection that is no destination and has sent no
            request gives up its place to one that finds none free.
        high_water: Bytes waiting for the peer's socket above which those who send to it
            are no longer read.
        low_water: Bytes below which they are read again.
        max_pending: Bytes waiting for a peer's socket above which it is closed as too slow, if it
            has read nothing since more than `high_water` waited. A peer that reads is not closed
            for this, and none of its requests is CANCELED, until its source has used up its share
            of `max_pending_total`. Above half of `max_pending`, destinations that answer this peer
            alone are not read, if it reads.
        max_pending_total: Most bytes waiting for the sockets of all peers of one listener; a peer
            counts if more than 64 KiB wait for it. The share of a source (see
            `max_connections_per_source`) is as many bytes as are free. Once a source has used up
            its share, the peer of that source for which most bytes wait has its newest requests
            CANCELED, those that it sent last of the ones that are not answered in full: one, and
            twice as many each time that 64 KiB more wait. It is closed as too slow instead if it
            has read nothing, or if all of `max_pending_total` is used up. If another source has
            more than its part (the total, divided by the sources that have some and one more),
            the peer is one of that source.
        stall_timeout: How long a peer that more than `high_water` bytes wait for may take to read
            `low_water` bytes, in seconds, before it is closed as too slow.
        silent_after: After how many seconds a destination that says nothing at all is passed over,
            if others carry the tags and it has an answer to give, or has not answered a KEEPALIVE
            for half of the time; it is sent one with a request that comes when it has said nothing
            for half of the time. It is not closed before its lifetime. One that sends KEEPALIVEs
            and does not answer those that it is sent gets fewer requests.
        credit_window: Most elements of one stream that a destination is asked to send ahead of
            the requester's socket. Fewer are asked for at first, and of large ones: about
            4 x `high_water` bytes. What it sends beyond that is relayed, as long as the requester
            has asked for it.
        max_overdraft: Bytes waiting for a requester's socket above which a stream is CANCELED whose
            destination sends more than it was asked for by the broker.
        max_answer: Most bytes of an answer to a request that a worker of this node made.
        max_gather: Most bytes of a fragmented request held until its metadata is complete,
            and of a request on its way to a destination. Over it: REJECTED.
        max_request: Most bytes of a fragmented request gathered for a worker of this node.
            Over it: INVALID.
        max_gathered: Most bytes of all such requests of one peer together, with what the
            objects cost that hold them, with elements of channels that handlers of this node
            have not taken, and with answers to workers of this node that are not whole. One more
            fragment has its request REJECTED, or its channel CANCELED; who asked for the answer
            gets `PayloadTooBig`.
        max_gathered_total: Most bytes of all that `max_gathered` counts, of all peers of one
            listener together. No source may have more of them than are free; at either limit it
            is as at `max_gathered`. If another source has more than its part (a part for each that
            has some, and one for others), its largest requests are REJECTED instead.
        max_multicast_held: Most bytes held for all multicasts that one peer has asked for, with
            what the objects cost that hold them. The multicast that would exceed it is
            CANCELED. Copies of large frames wait, and are CANCELED if they find no room for
            `multicast_patience`. Those of which nothing has been read for 0.2 s do not count here
            as long as they fill less than a quarter of `max_held_total`.
        frame_timeout: How long a frame may take from its first byte to its last, in seconds,
            before the connection is closed; time in which it is not read does not count.
        max_unfinished: Most bytes that the connections of one listener together keep of
            frames, or WebSocket messages, that are not whole. The one that would exceed it is
            closed.
        drain_timeout: How long a closing connection may take to send what is waiting, and,
            on a WebSocket, to answer the Close, in seconds. Then it is cut.
        lease: Whether peers that ask for leases in their SETUP are taken, with
            `connection.lease`, which it overrides. Otherwise: ERROR[UNSUPPORTED_SETUP].
        lease_requests: Requests that a requester with leases is allowed in each
            `lease_time`. One more is REJECTED.
        lease_time: After how many seconds a requester is given its next lease; each holds for
            half as long again, so that none is missing meanwhile.

    Raises:
        ValueError: A number has to be at least 1 or more than 0 and is not, or is more than a
            frame can say, one of `proxies` is no network, or the marks are not in the order
            `low_water`, `high_water`, `max_pending`.
    """

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: Count = 10_000
    max_connections_per_source: Count | None = None
    proxies: tuple[str, ...] = ()
    unused_timeout: Seconds = 10.0
    high_water: Count = 1024 * 1024
    low_water: Count = 256 * 1024
    max_pending: Count = 64 * 1024 * 1024
    max_pending_total: Count = 512 * 1024 * 1024
    stall_timeout: Seconds = 30.0
    silent_after: Seconds = 5.0
    credit_window: Annotated[int, Range(least=1, most=MAX_REQUEST_N)] = 128
    max_overdraft: Count = 8 * 1024 * 1024
    max_answer: Count = 16 * 1024 * 1024
    max_gather: Count = 1024 * 1024
    max_request: Count = 8 * 1024 * 1024
    max_gathered: Count = 32 * 1024 * 1024
    max_gathered_total: Count = 256 * 1024 * 1024
    max_multicast_held: Count = 32 * 1024 * 1024
    frame_timeout: Seconds = 30.0
    max_unfinished: Count = 256 * 1024 * 1024
    drain_timeout: Seconds = 2.0
    lease: bool = True
    lease_requests: Annotated[int, Range(least=1, most=MAX_REQUEST_N)] = 1000
    lease_time: Annotated[float, Range(above=0, most=MAX_REQUEST_N / 1000, unit="seconds")] = 10.0

    def __post_init__(self) -> None:
        check_options(self)
        if not self.low_water <= self.high_water <= self.max_pending:
            raise ValueError("low_water, high_water and max_pending must be in this order")
        if self.max_gathered < self.max_gather:
            raise ValueError("max_gathered must be at least max_gather")
        check_proxies(self.proxies)
        if self.connection.lease != self.lease:
            connection = replace(self.connection, lease=self.lease)
            object.__setattr__(self, "connection", connection)


@dataclass(frozen=True, slots=True)
class UnixOptions:
    """Who may connect to a Unix socket.

    Attributes:
        mode: The permissions of the socket's file. To connect takes the right to write to it.
            Default 600 octal: the user the broker runs as, and root.

    Raises:
        ValueError: The mode is not of 0 to 777 octal.
    """

    mode: FileMode = 0o600

    def __post_init__(self) -> None:
        check_options(self)
