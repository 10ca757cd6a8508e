"""What goes wrong between two nodes, how far a simulation may grow, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import Final, NamedTuple

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

    latency: tuple[float, float] = (0.001, 0.001)
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_by: float = 0.1

    def __post_init__(self) -> None:
        shortest, longest = self.latency
        if not (0 <= shortest <= longest and isfinite(longest)):
            raise ValueError(f"a latency of {shortest} to {longest} seconds cannot be")
        for name in ("loss", "duplicate", "reorder"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is a probability, and {value} is none")
        if not (self.reorder_by >= 0 and isfinite(self.reorder_by)):
            raise ValueError(f"reorder_by is a time, and {self.reorder_by} seconds is none")


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

    window: int = 1000
    detection: float = 3.0
    connect_timeout: float = 5.0
    connect_retry: float = 1.0
    history: int = 10_000
    nodes: int = 1000
    max_links: int = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value > 0 and isfinite(value)):
                raise ValueError(f"{field.name} has to be more than 0, and finite")


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
