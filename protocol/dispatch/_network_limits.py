"""Limits of what a node keeps of a network of dispatchers, and its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ..options import Count, Range, Seconds, check_options

__all__ = ["NeighbourCount", "NetworkLimits"]

NeighbourCount: TypeAlias = Annotated[int, Range(least=1, most=240)]
"""Number of neighbours: link states with so many fit into one frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """Limits of what a node keeps of a network of dispatchers, and its times.

    Attributes:
        hello: Time between two hellos to a neighbour, in seconds.
        missed_hellos: Hellos that are missed until the neighbour is lost.
        advertise: Time between two advertisements of a node with links that have not changed for
            `flux`, in seconds.
        advertise_in_flux: The same if they have, in seconds.
        flux: Time for which links that have changed are in flux, in seconds.
        stale: Time without an advertisement of a node after which its link states and names are not
            used any more, in seconds. After as long again the node is forgotten.
        unreachable_hold: Time for which the names of a node without a path to it are kept, in
            seconds. Then they are let go.
        gather: Time for which changes of names are gathered before they are told, in seconds.
        pause: Shortest time between two advertisements on one link, and between two computations of
            the paths, in seconds. What comes in between is gathered.
        ask_timeout: Time for which an answer to a request is awaited, in seconds. Then the next
            advertisement makes another request.
        max_nodes: Nodes of the network, this one included. Beyond: further ones are ignored and
            counted.
        max_neighbours: Links to neighbours. Beyond: a link is closed with that reason.
        max_names: Names of other nodes that are kept, each counted once for each node. Beyond:
            further ones are refused and counted.
        frame_rate: Frames that a neighbour may send each second in the long run. A large answer
            counts as many. Beyond: the neighbour is closed for its flood.
        frame_burst: Frames that a neighbour may send at once. Beyond: as with `frame_rate`.

    Raises:
        ValueError: A value is out of its range.
    """

    hello: Seconds = 1.0
    missed_hellos: Count = 3
    advertise: Seconds = 30.0
    advertise_in_flux: Seconds = 4.0
    flux: Seconds = 20.0
    stale: Seconds = 60.0
    unreachable_hold: Seconds = 1.0
    gather: Seconds = 0.1
    pause: Seconds = 0.02
    ask_timeout: Seconds = 2.0
    max_nodes: Count = 1024
    max_neighbours: NeighbourCount = 64
    max_names: Count = 1_000_000
    frame_rate: Count = 1_000
    frame_burst: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)
