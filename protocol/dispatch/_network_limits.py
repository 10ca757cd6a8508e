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
            the paths, in seconds. What comes in between is gathered. It doubles each time that one
            follows another closely.
        longest_pause: Longest such time, in seconds.
        ask_timeout: Time for which an answer to a request is awaited, in seconds. Then the next
            advertisement makes another request.
        max_ahead: Time by which the start of another node, or its claim to a direct name, may be
            ahead of the clock of this one, in seconds. Beyond: what is told of that node or name is
            refused and counted, and a link to a neighbour with such a start is closed.
        max_nodes: Nodes of the network, this one included, of which each neighbour may tell an
            equal share. Beyond: further ones are ignored and counted, or take the place of nodes of
            a neighbour that has told of more than its share.
        max_neighbours: Links to neighbours. Beyond: a link is closed with that reason.
        max_names: Names of other nodes that are kept, each counted once for each node. Beyond:
            further ones are refused and counted.
        max_names_of_node: Names of one other node that are kept. Beyond: as with `max_names`.
        max_provisions: Provisions of other nodes that are kept, each counted once for each node.
            Beyond: as with `max_names`.
        max_provisions_of_node: Provisions of one other node that are kept. Beyond: as with
            `max_names`.
        frame_rate: Frames that a neighbour may send each second in the long run. Beyond: the
            neighbour is closed for its flood.
        frame_burst: Frames that a neighbour may send at once. Beyond: as with `frame_rate`.
        answer_rate: Bytes of answers that a neighbour gets each second in the long run. Beyond:
            its requests are not answered, and counted.

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
    longest_pause: Seconds = 0.5
    ask_timeout: Seconds = 2.0
    max_ahead: Seconds = 86_400.0
    max_nodes: Count = 1024
    max_neighbours: NeighbourCount = 64
    max_names: Count = 1_000_000
    max_names_of_node: Count = 200_000
    max_provisions: Count = 200_000
    max_provisions_of_node: Count = 100_000
    frame_rate: Count = 1_000
    frame_burst: Count = 10_000
    answer_rate: Count = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)
