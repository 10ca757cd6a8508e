"""Options of a dispatcher: plain values, each with a name, a unit and a default."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.broker import parse_key
from ...protocol.dispatch import (
    MAX_COST,
    CircuitLimits,
    DeliveryLimits,
    DispatchLimits,
    NetworkLimits,
    Semantics,
    check_node_name,
)
from ...protocol.options import Count, Seconds, check_options

__all__ = ["DispatchOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """Options of a dispatcher.

    Attributes:
        node_name: The name of the node in the network of dispatchers; empty: that of the node.
        default: The semantics of names that nothing is known of.
        max_names: Names of which a node keeps a state: those with consumers, producers, messages
            or consumers at other nodes. Beyond: a message for another one is released, and another
            consumer or producer is refused.
        name_slice: Most names and ends of circuits that are brought up to date after a change of
            the network or of provisions before the loop does other things.
        anonymous_window: Messages of an anonymous producer that have no outcome yet. Beyond: a
            further send waits.
        max_waiting: Sends of one producer that wait for credit. Beyond: a further one raises
            `LimitReached`.
        outcome_timeout: Time for which the outcome of a message that was sent without a producer
            and without a deadline is awaited, in seconds. Then it is in doubt.
        hold_file: The file for messages of names that hold on disk; empty: no name does. One
            process at a time has it open.
        max_held_on_disk: Messages in that file, of all names. Beyond: a further one is released.
        max_held_bytes_on_disk: Payloads in that file, in bytes. Beyond: the same.
        cost: The cost of a link to a neighbour that has dialled. Both ends should have the same.
        neighbour_roles: The roles of peers that may be neighbours over links that they have made;
            empty: each peer may that reaches the dispatcher. They need `principal_of`, as of
            `Dispatcher.attach`.
        consume_key: The key of the tag by which destinations of the broker consume a name, such as
            `consume` for `consume=orders`; empty: they do not ask for names.
        limits: Limits of names and provisions.
        deliveries: Limits of the deliveries of each name.
        circuits: Limits and times of circuits.
        network: Limits and times of the network.

    Raises:
        ValueError: A value is out of its range.
        BadName: The name of the node cannot be one of a network.
        AddressError: The key cannot be read.
    """

    node_name: str = ""
    default: Semantics = field(default_factory=Semantics)
    max_names: Count = 100_000
    name_slice: Count = 200
    anonymous_window: Count = 250
    max_waiting: Count = 1_000
    outcome_timeout: Seconds = 300.0
    hold_file: str = ""
    max_held_on_disk: Count = 100_000
    max_held_bytes_on_disk: Count = 1024 * 1024 * 1024
    cost: Count = 1
    neighbour_roles: tuple[str, ...] = ()
    consume_key: str = ""
    limits: DispatchLimits = field(default_factory=DispatchLimits)
    deliveries: DeliveryLimits = field(default_factory=DeliveryLimits)
    circuits: CircuitLimits = field(default_factory=CircuitLimits)
    network: NetworkLimits = field(default_factory=NetworkLimits)

    def __post_init__(self) -> None:
        check_options(self)
        if self.node_name:
            check_node_name(self.node_name)
        if self.consume_key:
            parse_key(self.consume_key)
        if self.cost > MAX_COST:
            raise ValueError(f"a cost is at most {MAX_COST}, not {self.cost}")
