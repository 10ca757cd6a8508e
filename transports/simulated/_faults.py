"""What goes wrong between two nodes, how far a simulation may grow, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from ...protocol.options import Count, Probability, Seconds, SecondsOrZero, check_options

__all__ = ["NO_FAULTS", "Event", "Faults", "SimulationOptions", "Traffic"]


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to messages from one node to another; all of it drawn from the seed.

    A link keeps messages in order, unless `reorder` says otherwise.

    Attributes:
        latency: Shortest and longest time on the way, in seconds; evenly distributed.
        loss: How likely a message is lost: 0 to 1.
        duplicate: How likely a message comes twice: 0 to 1.
        reorder: How likely a message may be overtaken by later ones: 0 to 1. It takes up to
            `reorder_by` longer.
        reorder_by: Longest extra time of a message that may be overtaken, in seconds.

    Raises:
        ValueError: A probability is not one, or a time is negative or without an end.
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
"""A millisecond each way, and nothing else."""


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How far a simulated network may grow, and the times of its links.

    Attributes:
        window: Messages of a link on the way in one direction, those included that wait for
            room in a mailbox; at so many the link takes no more from its own mailbox.
        detection: How long until the other end of a link learns that a node has crashed, or
            that a link was closed behind a partition, in seconds.
        connect_timeout: How long connecting through a partition is tried, in seconds; then
            `LinkDown`.
        connect_retry: How long from one try to the next, in seconds.
        history: Events kept; older ones are forgotten, and still counted.
        nodes: Nodes by different names. More: `LimitReached`.
        max_links: Ends of links on one node. More: `LinkDown` for who connects.

    Raises:
        ValueError: A number is not positive, or has no end.
    """

    window: Count = 1000
    detection: Seconds = 3.0
    connect_timeout: Seconds = 5.0
    connect_retry: Seconds = 1.0
    history: Count = 10_000
    nodes: Count = 1000
    max_links: Count = 1000

    def __post_init__(self) -> None:
        check_options(self)


class Event(NamedTuple):
    """Something that happened in a simulated network.

    Attributes:
        at: When, in seconds of the loop's clock.
        kind: What: of messages `sent`, `lost`, `cut` (by a partition), `copied`, `arrived`,
            `overtaken` (arrived behind a later one) and `gone` (nobody was there any more); of
            links `connected`, `refused`, `closed` and `detected`; of nodes `started` and
            `crashed`; of the network `partition`, `heal` and `faults`.
        source: The node it comes from, or those on one side.
        target: The node it goes to, or those on the other.
        number: Which message: the number of its sending in the whole network; 0 for all else.
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
    """What became of the messages from one node to another, or of all.

    Attributes:
        sent: Messages that links have sent.
        copied: Messages that were sent a second time by a fault.
        arrived: Messages and copies that came to the other end.
        lost: Messages and copies lost by a fault.
        cut: Messages and copies lost by a partition.
        gone: Messages and copies whose sender or receiver had crashed or closed the link.
        overtaken: Messages and copies, of those that arrived, that came behind a later one.
        on_the_way: Messages and copies on the way now.
    """

    sent: int = 0
    copied: int = 0
    arrived: int = 0
    lost: int = 0
    cut: int = 0
    gone: int = 0
    overtaken: int = 0
    on_the_way: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
