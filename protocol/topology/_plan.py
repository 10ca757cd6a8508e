"""A topology as values: what a file says, checked, and with the line of each part.

```
Plan ─┬─ nodes ─┬─ workers      by an address
      │         ├─ listeners    by a name
      │         └─ broker       with its destinations, by the address of a worker
      ├─ links                  from a node to a listener, or to a URI outside
      ├─ requests               what to ask, and what the answer has to be
      └─ simulation ─┬─ the seed, and the faults of links that have none of their own
                     ├─ events       what happens to the network, and when
                     └─ requests     like those above, each at its time
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from .._address import Address
from ..dispatch import DeliveryLimits, Provision, Semantics
from ..options import Count, Size, check_options
from ..toml import Position, suggestion
from ._containers import ContainerPlan
from ._identities import IdentityPlan
from ._simulation import FaultsPlan, RequestPlan, SimulationPlan
from ._values import listener_address

__all__ = [
    "BrokerPlan",
    "ConsumerPlan",
    "DestinationPlan",
    "DispatcherPlan",
    "LinkPlan",
    "ListenerPlan",
    "MailboxPlan",
    "NodePlan",
    "OptionValue",
    "Position",
    "SupervisionPlan",
    "TopologyLimits",
    "TopologyPlan",
    "WorkerPlan",
]

_ANY_PORT: Final = re.compile(r":0(?![0-9])")

OptionValue: TypeAlias = Any
"""The value of an option of a worker: a value of TOML, or an `Address` or `Route` made of it."""


@dataclass(frozen=True, slots=True)
class TopologyLimits:
    """Limits of a topology file. More of anything is a `Problem`.

    Attributes:
        size: Bytes of the file.
        nodes: Nodes.
        workers: Workers of all nodes together.
        listeners: Listeners of all nodes together.
        containers: Containers of AMQP of all nodes together.
        topics: Topics of all nodes together.
        domains: Domains of all nodes together.
        links: Links.
        requests: Requests; so many may those of a simulated run be.
        events: Events of a simulated run.
        depth: Tables and lists that are in one another; so many parts a key with dots may have too.
        problems: Problems that are told; further ones are counted.
    """

    size: Size = 1024 * 1024
    nodes: Size = 256
    workers: Size = 10_000
    listeners: Size = 1000
    containers: Size = 1000
    topics: Size = 1000
    domains: Size = 1000
    links: Size = 1000
    requests: Size = 1000
    events: Size = 1000
    depth: Count = 16
    problems: Count = 100

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class MailboxPlan:
    """The mailbox of a worker; `None`: the default of the runtime.

    Attributes:
        limit: Messages.
        overflow: `fail`, `wait`, `drop-oldest` or `drop-newest`.
    """

    limit: int | None = None
    overflow: str | None = None


@dataclass(frozen=True, slots=True)
class SupervisionPlan:
    """The supervision of a worker; `None`: the default of the runtime.

    Attributes:
        on_failure: `resume`, `restart`, `stop` or `escalate`.
        max_restarts: Restarts within the window.
        within: The window, in seconds.
    """

    on_failure: str | None = None
    max_restarts: int | None = None
    within: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker.

    Attributes:
        place: Its place in the file.
        address: Its primary address; the key it stands under.
        kind: Its kind, by name; empty if it is of a class.
        class_path: Its class as `package.module:Class`; empty if it is of a kind.
        also: Its other addresses.
        makes: Addresses that it makes while it runs, as a relay service does.
        mailbox: Its mailbox.
        supervision: Its supervision.
        options: Its options, by name.
    """

    place: Position
    address: Address
    kind: str = ""
    class_path: str = ""
    also: tuple[Address, ...] = ()
    makes: tuple[Address, ...] = ()
    mailbox: MailboxPlan = field(default=MailboxPlan())
    supervision: SupervisionPlan = field(default=SupervisionPlan())
    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses it is started with, the primary one first."""
        return (self.address, *self.also)


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """One listener.

    Attributes:
        place: Its place in the file.
        node: The name of its node.
        name: Its name, unique on the node.
        uri: The URI it listens at; a port may be 0, and `{dir}` is a directory of the run.
        expose: The addresses that can be reached through it.
        allow: The patterns of what can be reached behind those.
        options: The options of its transport, by name.
        principals: The file of principals, one of which each peer has to be, by its certificate or
            its user; empty: each peer is accepted.
    """

    place: Position
    node: str
    name: str
    uri: str
    expose: tuple[Address, ...] = ()
    allow: tuple[Address, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    principals: str = ""

    @property
    def id(self) -> str:
        """Node and name as `node.name`, which is unique."""
        return f"{self.node}.{self.name}"

    @property
    def address(self) -> Address:
        """An address its worker has beside its own random one: `listener:` and the name."""
        return listener_address(self.name)

    @property
    def is_for_broker(self) -> bool:
        """Whether it is one for RSocket, which a broker has."""
        return self.uri.startswith("rsocket+")

    @property
    def is_for_clients(self) -> bool:
        """Whether it is one for clients of AMQP, which a dispatcher has."""
        return self.uri.startswith(("amqp:", "amqps:"))

    @property
    def is_fixed(self) -> bool:
        """Whether the URI says where it is before it listens: no port 0, no `{dir}`."""
        return not _ANY_PORT.search(self.uri) and "{dir}" not in self.uri


@dataclass(frozen=True, slots=True)
class DestinationPlan:
    """A worker of a node that is a destination of its broker.

    Attributes:
        place: Its place in the file.
        worker: The address of the worker.
        service: The name of the service.
        tags: Its other tags.
    """

    place: Position
    worker: Address
    service: str
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """The broker of a node. Its RSocket listeners are those of the node.

    Attributes:
        place: Its place in the file.
        cluster: The name of its cluster in the file: brokers with the same name form one; empty:
            it is in none.
        zone: Its zone in the cluster; empty: none.
        locality: `prefer` or `even`, see `ClusterOptions`.
        seeds: URIs of brokers of the cluster that are not in the file.
        destinations: The workers that are destinations, in the order of the file.
    """

    place: Position
    cluster: str = ""
    zone: str = ""
    locality: str = "prefer"
    seeds: tuple[str, ...] = ()
    destinations: tuple[DestinationPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """A worker of a node that is a consumer of names.

    Attributes:
        place: Its place in the file.
        worker: The address of the worker.
        names: The names.
        window: Messages of each name that it has at a time.
        accept: When it accepts a message: `reply`, or `handed`, once it is in its mailbox.
    """

    place: Position
    worker: Address
    names: tuple[str, ...]
    window: int = 250
    accept: str = "reply"


@dataclass(frozen=True, slots=True)
class DispatcherPlan:
    """The dispatcher of a node. Its neighbours are at the ends of links with a cost.

    Attributes:
        place: Its place in the file.
        provisions: The provisions of the node, which count in the whole network.
        default: The semantics of names that nothing is provisioned for; `None`: the usual ones.
        consumers: The workers that are consumers, in the order of the file.
        hold_file: The file for messages that are held on disk; empty: none is.
        consume_key: The key of the tag by which destinations of the node's broker consume a name;
            empty: they do not ask for names.
        neighbour_roles: The roles of peers that may be neighbours over links that they have made;
            empty: each peer may that reaches the dispatcher.
        settle_time: Time in which a consumer has to settle a message, in seconds.
        name_slice: Most names that are brought up to date before the loop does other things.
        containers: The containers of AMQP that it connects to, in the order of the file.
    """

    place: Position
    provisions: tuple[Provision, ...] = ()
    default: Semantics | None = None
    consumers: tuple[ConsumerPlan, ...] = ()
    hold_file: str = ""
    consume_key: str = ""
    neighbour_roles: tuple[str, ...] = ()
    settle_time: float = DeliveryLimits().settle_time
    name_slice: int = 200
    containers: tuple[ContainerPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node.

    Attributes:
        place: Its place in the file.
        name: Its name.
        workers: In the order of the file, which is the order they are started in.
        listeners: In the order of the file.
        error_replies: Whether it answers what it cannot deliver with an error reply; for those
            to leave it, a listener or link has the option `error_replies` too.
        broker: Its broker; `None` if it has none.
        dispatcher: Its dispatcher; `None` if it has none.
        identity: Its identity; `None` if it has none.
    """

    place: Position
    name: str
    workers: tuple[WorkerPlan, ...] = ()
    listeners: tuple[ListenerPlan, ...] = ()
    error_replies: bool = False
    broker: BrokerPlan | None = None
    dispatcher: DispatcherPlan | None = None
    identity: IdentityPlan | None = None

    @property
    def broker_listener(self) -> ListenerPlan | None:
        """The first listener for RSocket: other brokers reach the node's broker there."""
        return next((each for each in self.listeners if each.is_for_broker), None)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """One link. The node it comes from knows it by an address, as if it were a worker.

    Attributes:
        place: Its place in the file.
        node: The name of the node that connects.
        address: The address of the link on that node.
        to_node: The name of the node it goes to; empty if that is outside.
        to_listener: The `ListenerPlan.id` it goes to; empty if that is outside.
        uri: The URI it connects to if that is outside; empty otherwise.
        expose: The addresses of the connecting node that the other side can reach.
        allow: The patterns of what it can reach behind those.
        options: The options of its transport, by name.
        faults: Its faults in a simulated network.
        cost: Its cost, if it makes the dispatchers at its ends neighbours.
        join: The identity that the node at the other end has to have, if the nodes at its ends
            join each other; empty: that of the node in the file, or any outside. `None`: they do
            not.
    """

    place: Position
    node: str
    address: Address
    to_node: str = ""
    to_listener: str = ""
    uri: str = ""
    expose: tuple[Address, ...] = ()
    allow: tuple[Address, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    faults: FaultsPlan = field(default=FaultsPlan())
    cost: int | None = None
    join: str | None = None


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """A topology.

    Attributes:
        file: The file's name, as given.
        title: The title.
        nodes: At least one, in the order of the file.
        links: In the order of the file.
        requests: In the order of the file, in which they are made.
        simulation: The settings of a simulated run.
    """

    file: str
    title: str
    nodes: tuple[NodePlan, ...]
    links: tuple[LinkPlan, ...] = ()
    requests: tuple[RequestPlan, ...] = ()
    simulation: SimulationPlan = field(default=SimulationPlan())

    def node(self, name: str) -> NodePlan:
        """Return the node of that name.

        Raises:
            LookupError: There is none; its text names those there are.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        names = [node.name for node in self.nodes]
        raise LookupError(
            f"no node {name!r}; there are: {', '.join(names)}{suggestion(name, names)}"
        )

    def links_from(self, name: str) -> tuple[LinkPlan, ...]:
        """Return the links that the node of that name makes."""
        return tuple(link for link in self.links if link.node == name)

    def links_to(self, listener: str) -> tuple[LinkPlan, ...]:
        """Return the links that are made to a listener, by its `ListenerPlan.id`."""
        return tuple(link for link in self.links if link.to_listener == listener)

    @property
    def listeners(self) -> tuple[ListenerPlan, ...]:
        """The listeners of all nodes."""
        return tuple(each for node in self.nodes for each in node.listeners)

    def peers_of(self, name: str) -> tuple[NodePlan, ...]:
        """Return the nodes with the other brokers of the cluster of a node, by its name."""
        own = self.node(name).broker
        if own is None or not own.cluster:
            return ()
        return tuple(
            node
            for node in self.nodes
            if node.name != name and node.broker is not None and node.broker.cluster == own.cluster
        )

    def start_order(self) -> tuple[str, ...]:
        """Return the names of the nodes so that each comes after those it has links to.

        Where links go round in circles that cannot be; the file's order decides there. The
        workers of the nodes are started in this order, and stopped in the reverse.
        """
        order: dict[str, None] = {}
        for node in self.nodes:
            if node.name in order:
                continue
            # Depth first, on a stack of our own: a chain may be as long as there are nodes.
            path = [node.name]
            seen = {node.name}
            while path:
                later = next(
                    (
                        link.to_node
                        for link in self.links_from(path[-1])
                        if link.to_node and link.to_node not in order and link.to_node not in seen
                    ),
                    None,
                )
                if later is None:
                    order[path.pop()] = None
                else:
                    seen.add(later)
                    path.append(later)
        return tuple(order)
