"""The options of the `udp` transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ...actors import MailboxOptions
from ...protocol.ockam import DatagramLimits
from ...protocol.options import Count, Range, Seconds, SecondsOrZero, Size, check_options
from ._link import LINK_MAILBOX

__all__ = ["UdpOptions"]

MAX_BUFFER: Final = 2**31 - 1
"""Most bytes that a system can be asked to keep."""

_DATAGRAMS: Final = DatagramLimits()


@dataclass(frozen=True, slots=True)
class UdpOptions:
    """What a link or listener of `udp` may use. Sizes are in bytes, times in seconds.

    Attributes:
        datagrams: How long a message may be, both ways, and what is kept of messages that have not
            come whole, for all peers of a socket.
        offsets: Whether to write messages in parts as Ockam's nodes did before December 2024, by
            offsets; for peers of that age. Both forms are read.
        max_peers: Peers of a listener at a time, each with a link. A new one takes the place of
            that which was silent for longest among those that have never answered us; if all have,
            the new one is turned away, and its message dropped.
        idle_timeout: A link over which no message has gone for this long, or up to twice as long,
            is closed; `None`: never. Heartbeats are messages.
        heartbeat: Time without a message sent after which, or up to twice as long, a link made by
            `connect` sends an empty one, so that what is on the way goes on to let answers
            through; `None`: never. Links opened by an address of type 2 send none.
        resolve_timeout: Time for the name of a host to be looked up.
        queue: Messages kept while that is done; more become dead letters ("link down").
        max_queue_bytes: Bytes that they have together, routes included; more become dead letters.
            One alone may have more.
        mailbox: The mailbox of the link's worker. It fills while the system takes no datagrams.
        high_water: Bytes waiting for the system above which links take no message until most are
            gone.
        arrivals: Messages of a peer kept while a local mailbox is full; more become dead letters
            ("mailbox full"). A peer cannot be slowed down.
        max_arrival_bytes: Bytes of them, above which no more are kept.
        stall_timeout: Time a full mailbox may take none of them; then they become dead letters.
        max_returns: Most addresses of ways back remembered, in each of three tables; see `Gate`.
        receive_buffer: What the system is asked to keep of what has come and is not read; it may
            give less.

    Raises:
        ValueError: A number is negative, or 0 where that makes no sense: only what is kept or
            waits and `stall_timeout` may be 0. Or `receive_buffer` is more than a system takes, or
            something is of another kind.
    """

    datagrams: DatagramLimits = _DATAGRAMS
    offsets: bool = False
    max_peers: Count = 1000
    idle_timeout: Seconds | None = 300.0
    heartbeat: Seconds | None = 30.0
    resolve_timeout: Seconds = 10.0
    queue: Size = 1000
    max_queue_bytes: Size = 16 * 1024 * 1024
    mailbox: MailboxOptions = LINK_MAILBOX
    high_water: Size = 256 * 1024
    arrivals: Size = 100
    max_arrival_bytes: Size = 256 * 1024
    stall_timeout: SecondsOrZero = 30.0
    max_returns: Count = 1000
    receive_buffer: Annotated[int, Range(least=1, most=MAX_BUFFER)] = 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)
