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
"""The largest receive buffer that a system accepts."""

_DATAGRAMS: Final = DatagramLimits()


@dataclass(frozen=True, slots=True)
class UdpOptions:
    """The options of a link or listener of `udp`. Sizes are in bytes, times in seconds.

    Attributes:
        datagrams: The maximum length of a message, both ways, and the limits on incomplete messages
            of all peers of a socket.
        offsets: Whether to number the parts of a message by offsets, as Ockam's nodes did before
            December 2024. Both forms are read.
        max_peers: Peers of a listener at a time, each with a link. A new one replaces the peer
            that was silent for longest of those that never answered; if all have answered, the
            message of the new one is dropped.
        idle_timeout: Time without a message, up to twice as long, after which a link is closed;
            `None`: never. Heartbeats are messages.
        heartbeat: Time without a message sent, up to twice as long, after which a link made by
            `connect` sends an empty one, so that firewalls keep letting replies through;
            `None`: never. Links opened by an address of type 2 send none.
        resolve_timeout: Time for the name of a host to be looked up.
        queue: Messages kept during the look-up; more become dead letters ("link down").
        max_queue_bytes: Bytes of these, routes included; more become dead letters. A single
            message may have more.
        mailbox: The mailbox of the link. It fills while the system accepts no datagrams.
        high_water: Bytes waiting for the system above which links stop sending until most are
            gone.
        arrivals: Messages of a peer kept while a local mailbox is full; more become dead letters
            ("mailbox full"). A peer cannot be slowed down.
        max_arrival_bytes: Bytes of these above which no more are kept.
        stall_timeout: Time for which a full mailbox may accept none of them; then they become dead
            letters.
        max_returns: Addresses in remembered return routes, in each of three tables; see `Gate`.
        receive_buffer: The receive buffer asked of the system, which may give less.

    Raises:
        ValueError: A number is negative, or 0 where that has no meaning: only numbers of what is
            kept or waits and `stall_timeout` may be 0. Or `receive_buffer` is more than a system
            accepts, or a value is of the wrong type.
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
