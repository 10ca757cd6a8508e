"""The choice of the container to which a circuit goes.

It is made once, for the life of the circuit, at each node on the way: so what passes keeps its
order. Load does not count: a circuit without deliveries would never be chosen by it. That is why it
is not the choice of a consumer for a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["CircuitPlace", "place_circuit"]


@dataclass(frozen=True, slots=True)
class CircuitPlace:
    """The place to which a circuit goes.

    Attributes:
        local: Whether it is a container at this node.
        name: The container, or the node that has one.
    """

    local: bool
    name: str


def place_circuit(
    containers: Sequence[str], costs: Mapping[str, int], turn: int
) -> CircuitPlace | None:
    """Choose a container at this node in turn, else, in turn, one of the cheapest nodes.

    Args:
        containers: Containers of the name at this node, in the order of their attaching.
        costs: Nodes that have a container of the name, and what a way there costs.
        turn: How many circuits of the name were placed here before.

    Returns:
        The place; `None` if there is no container.
    """
    if containers:
        return CircuitPlace(local=True, name=containers[turn % len(containers)])
    if not costs:
        return None
    cost = min(costs.values())
    nearest = sorted(node for node, each in costs.items() if each == cost)
    return CircuitPlace(local=False, name=nearest[turn % len(nearest)])
