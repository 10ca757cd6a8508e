"""Rows about the names and the network of a dispatcher, for its operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from heapq import merge
from typing import Any

from ...protocol.dispatch import Ages, Network, Provisions, RoutingPattern
from ..runtime._slices import Slices
from ._core import DispatchCore
from ._name_state import NameState

__all__ = [
    "ADDRESSES",
    "AGES",
    "CONTAINERS",
    "CONTAINER_LINKS",
    "DISPATCHER",
    "NETWORK",
    "DispatcherStatistics",
    "NameStatistics",
    "NetworkNode",
    "age_figures",
    "ages_of",
    "json_rows",
    "name_rows",
    "network_rows",
    "statistics_of",
]

ADDRESSES = "addresses"
"""The question about names."""
NETWORK = "network"
"""The question about the network."""
CONTAINERS = "containers"
"""The question about connections to containers, which a transport answers if it has some."""
CONTAINER_LINKS = "container-links"
"""The question about their links, each with its name."""
DISPATCHER = "dispatcher"
"""The question about the dispatcher as a whole."""
AGES = "ages"
"""The question about what has waited for long."""

_SLICE = 1000  # names between two rests, a few milliseconds


@dataclass(frozen=True, slots=True)
class DispatcherStatistics:
    """A dispatcher at one moment.

    Attributes:
        names: Number of names with a state.
        unsettled: Number of messages that have no outcome yet, those on hold included.
        producers: Number of producers.
        neighbours: Number of neighbours.
        nodes: Number of other nodes that can be reached.
        outcomes: Messages that have their outcome, since the start, by the outcome.
        counts: What was dropped, refused or ignored since the start, by its reason.
        on_disk: Number of messages in the file of messages on hold.
        left_on_disk: Number of those that are in the file alone: there is no room for them, or
            their name does not hold on disk now.
        circuits: Number of circuits that this node is a part of.
    """

    names: int
    unsettled: int
    producers: int
    neighbours: int
    nodes: int
    outcomes: dict[str, int]
    counts: dict[str, int]
    on_disk: int = 0
    left_on_disk: int = 0
    circuits: int = 0


@dataclass(frozen=True, slots=True)
class NameStatistics:
    """A name at a node, at one moment.

    Attributes:
        name: The name.
        routing: Its routing pattern.
        provision: The pattern that decides for it, of any node; empty: it has the default.
        consumers: Its consumers here, standbys included.
        nodes: The other nodes with consumers that there is a path to.
        producers: Its producers here.
        in_flight: Messages that have no outcome yet.
        accepted: Messages with this outcome, as are the next three, since its state was made.
        rejected: Messages that a consumer has refused for good.
        released: Messages that no consumer took.
        modified: Messages that are in doubt.
        held: Messages on hold.
        dead_letters: Messages that were dropped.
        circuits: Its circuits that this node is a part of.
        oldest: The time for which a consumer here or the next node has had the oldest message
            without an outcome, in seconds.
        stuck: Messages that one has had for longer than `DeliveryLimits.stuck_time`.
        blocked_consumers: Consumers without credit for which a message has waited as long.
        blocked_producers: Producers of the name without credit that have sent nothing for as long.
    """

    name: str
    routing: RoutingPattern
    provision: str
    consumers: int
    nodes: int
    producers: int
    in_flight: int
    accepted: int
    rejected: int
    released: int
    modified: int
    held: int
    dead_letters: int
    circuits: int = 0
    oldest: float = 0.0
    stuck: int = 0
    blocked_consumers: int = 0
    blocked_producers: int = 0


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """A node of the network, as another one sees it.

    Attributes:
        node: Its name.
        cost: The cost of the path to it; 0 for the node itself; `None`: there is no path.
        next_hop: The neighbour that messages to it are sent to first; empty: there is no path, or
            it is the node itself.
        link: The link to it, if it is a neighbour; empty for others.
        names: Names that it has told of.
        peers: Its own neighbours, and the cost of each.
    """

    node: str
    cost: int | None
    next_hop: str
    link: str
    names: int
    peers: dict[str, int] = field(default_factory=dict)


def statistics_of(core: DispatchCore, network: Network) -> DispatcherStatistics:
    """Return the figures of a dispatcher at this moment."""
    stored = core.stored
    return DispatcherStatistics(
        len(core.names.states),
        core.totals.unsettled + len(core.fast.open),
        len(core.attachments.producers),
        len(network.neighbours()),
        len(core.paths.nodes),
        dict(core.replies.outcomes + Counter(accepted=core.fast.accepted)),
        dict(core.counts + network.counts + core.circuits.counts()),
        0 if stored is None else len(stored.store),
        0 if stored is None else stored.left,
        core.circuits.open_circuits,
    )


def ages_of(core: DispatchCore) -> Slices[Ages]:
    """Return what has waited for long, of all names and of the anonymous producers, in slices."""
    oldest, stuck, consumers, now = 0.0, 0, 0, core.now()
    before = now - core.options.deliveries.stuck_time
    producers = core.attachments.blocked_anonymous(before)
    states = tuple(core.names.states.values())
    for at in range(0, len(states), _SLICE):
        for state in states[at : at + _SLICE]:
            ages = state.get_ages(now)
            oldest = max(oldest, ages.oldest)
            stuck += ages.stuck
            consumers += ages.consumers
            producers += ages.producers
        yield
    return Ages(oldest, stuck, consumers, producers)


def age_figures(core: DispatchCore) -> Slices[dict[str, Any]]:
    """Return the same as a mapping, for the metrics of the node."""
    ages = yield from ages_of(core)
    return ages._asdict()


def name_rows(core: DispatchCore, provisions: Provisions) -> Slices[list[NameStatistics]]:
    """Return a row for each name that has a state, by name, in slices."""
    states, now = tuple(core.names.states.values()), core.now()
    parts: list[list[NameStatistics]] = []
    for at in range(0, len(states), _SLICE):
        part = [_name_row(each, provisions, now) for each in states[at : at + _SLICE]]
        parts.append(sorted(part, key=_name_of))
        yield
    rows: list[NameStatistics] = []
    for row in merge(*parts, key=_name_of):
        rows.append(row)
        if len(rows) % _SLICE == 0:
            yield
    return rows


def _name_of(row: NameStatistics) -> str:
    return row.name


def _name_row(state: NameState, provisions: Provisions, now: float) -> NameStatistics:
    figures, ages = state.statistics(), state.get_ages(now)
    provision = provisions.provision_of(state.name)
    return NameStatistics(
        state.name.text,
        state.semantics.pattern,
        "" if provision is None else str(provision.pattern),
        len(state.consumers),
        state.nodes,
        state.producers,
        figures.unsettled - (figures.held - figures.held_settled),
        figures.accepted,
        figures.rejected,
        figures.released,
        figures.modified,
        figures.held,
        state.dropped,
        state.circuits,
        ages.oldest,
        ages.stuck,
        ages.consumers,
        ages.producers,
    )


def network_rows(core: DispatchCore, network: Network) -> list[NetworkNode]:
    """Return a row for each node that is known, this one first."""
    paths, states = core.paths, network.link_states()
    links = {node: str(link) for link, node in network.neighbours().items()}
    others = sorted({*states, *paths.nodes} - {core.own})
    own = sum(state.announced is not None for state in core.names.states.values())
    rows = [NetworkNode(core.own, 0, "", "", own, states.get(core.own, {}))]
    rows += (
        NetworkNode(
            node,
            paths.cost(node),
            paths.next_hop(node) or "",
            links.get(node, ""),
            len(network.names_of(node)),
            states.get(node, {}),
        )
        for node in others
    )
    return rows


def json_rows(
    rows: Iterable[DispatcherStatistics | NetworkNode],
) -> list[dict[str, Any]]:
    """Return rows as mappings, for a report of the node."""
    return [asdict(each) for each in rows]
