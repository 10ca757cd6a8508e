"""The faults of a simulated network, its limits, its events and its counters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from ...protocol.options import Count, Probability, Seconds, SecondsOrZero, check_options

__all__ = ["NO_FAULTS", "Event", "Faults", "SimulationOptions", "Traffic"]


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of messages from one node to another, all drawn from the seed.

    A link keeps the order of messages, except for `reorder`.

    Attributes:
        latency: Shortest and longest time in transit, in seconds; evenly distributed.
        loss: The probability that a message is lost.
        duplicate: The probability that a message arrives twice.
        reorder: The probability that later messages may overtake a message. It takes up to
            `reorder_by` longer.
        reorder_by: Longest additional time of such a message, in seconds.

    Raises:
        ValueError: A probability is not from 0 to 1, or a time is negative or infinite.
    """

    latency: tuple[SecondsOrZero, SecondsOrZero] = (0.001, 0.001)
    loss: Probability = 0.0
    duplicate: Probability = 0.0
    reorder: Probability = 0.0
    reorder_by: SecondsOrZero = 0.1

    def __post_init__(self) -> None:
        check_options(self)
        shortest, longest = self.latency
        if shortest > longest:
            raise ValueError(f"Faults.latency has the shortest time first, not {self.latency}")


NO_FAULTS: Final = Faults()
"""A latency of one millisecond each way and no other faults."""


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The limits of a simulated network, and the times of its links.

    Attributes:
        window: Messages of a link in transit in one direction, including those that wait for
            room in a mailbox; at this number the link stops handling its own mailbox.
        detection: Time until the other end of a link detects that a node has crashed, or that a
            link was closed behind a partition, in seconds.
        connect_timeout: Time for connecting through a partition, in seconds; then `LinkDown`.
        connect_retry: Time between two attempts, in seconds.
        resend: Time after which a byte stream sends a part again that was lost or is held up by a
            partition, in seconds.
        max_resends: Times that one part is sent again because it was lost; then both ends of the
            stream are reset.
        stream_window: Bytes of a stream that are sent and not yet read, in one direction; further
            ones are the write buffer of its protocol.
        history: Events kept; older ones are forgotten, and still counted.
        nodes: Nodes with different names. More: `LimitReached`.
        max_links: Link ends of one node. More: `LinkDown` for the connecting node.

    Raises:
        ValueError: A number is not positive, or infinite.
    """

    window: Count = 1000
    detection: Seconds = 3.0
    connect_timeout: Seconds = 5.0
    connect_retry: Seconds = 1.0
    resend: Seconds = 0.2
    max_resends: Count = 15
    stream_window: Count = 1024 * 1024
    history: Count = 10_000
    nodes: Count = 1000
    max_links: Count = 1000

    def __post_init__(self) -> None:
        check_options(self)


class Event(NamedTuple):
    """An event in a simulated network.

    Attributes:
        at: The time, in seconds of the loop's clock.
        kind: The kind of event: of messages `sent`, `lost`, `cut` (by a partition), `copied`,
            `arrived`, `overtaken` (arrived behind a later one) and `gone` (the sender or receiver
            had ended); of links `connected`, `refused`, `closed` and `detected`; of nodes
            `started` and `crashed`; of the network `partition`, `heal` and `faults`.
        source: The node that it comes from, or the nodes on one side.
        target: The node that it goes to, or the nodes on the other side.
        number: The number of the message in the whole network; 0 for other events.
        size: Bytes of the payload.
        check: A checksum of both routes and the payload, so that equal histories are equal runs.
    """

    at: float
    kind: str
    source: str
    target: str
    number: int = 0
    size: int = 0
    check: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The counters of messages from one node to another, or of all messages.

    Attributes:
        sent: Messages that links have sent.
        copied: Messages that a fault has duplicated.
        arrived: Messages and copies that reached the other end.
        lost: Messages and copies lost by a fault.
        cut: Messages and copies lost by a partition.
        gone: Messages and copies dropped because the sender or receiver had crashed or closed.
        overtaken: Messages and copies that arrived behind a later one.
        on_the_way: Messages and copies in transit.
        parts: Parts of the byte streams between brokers that were sent, each by one write.
        resent: Times that such a part was sent again.
    """

    sent: int = 0
    copied: int = 0
    arrived: int = 0
    lost: int = 0
    cut: int = 0
    gone: int = 0
    overtaken: int = 0
    on_the_way: int = 0
    parts: int = 0
    resent: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
