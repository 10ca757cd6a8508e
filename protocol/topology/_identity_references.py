"""The check of references of identities: engines, topics, domains, and the nodes that join."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from .._address import Address
from ..toml import Path, Position, Problems, suggestion
from ._identities import IdentityPlan, engine_name, identity_names, references_of
from ._identity_groups import SCOPES
from ._plan import TopologyPlan

__all__ = ["IdentityCheck"]

Missing: TypeAlias = Callable[[str, Address, Position, Path], None]


class IdentityCheck:
    """A check of all that refers to an identity, or needs one.

    Args:
        plan: The plan.
        problems: The problems of the file, to add to.
        workers: The addresses of the workers of each node, by its name.
        missing: Reports that a node, by its name, has no such worker.
    """

    def __init__(
        self,
        plan: TopologyPlan,
        problems: Problems,
        workers: Mapping[str, Collection[Address]],
        missing: Missing,
    ) -> None:
        self._plan: Final = plan
        self._problems: Final = problems
        self._workers: Final = workers
        self._missing: Final = missing
        self._nodes: Final = {
            node.name: node.identity for node in plan.nodes if node.identity is not None
        }
        plans = self._nodes.values()
        self._topics: Final = [topic.name for each in plans for topic in each.topics]
        self._domains: Final = {
            domain.name: node for node, each in self._nodes.items() for domain in each.domains
        }
        self._engines: Final = [
            engine_name(node, engine)
            for node, each in self._nodes.items()
            for engine in each.engines
        ]

    def run(self) -> None:
        """Report all that is wrong."""
        self._names()
        for node, plan in self._nodes.items():
            self._own_workers(node, plan)
            self._relays(plan)
            self._own_topics(plan)
            self._own_domains(node, plan)
        self._links()
        self._requests()

    def _tell(self, place: Position, below: Path, text: str) -> None:
        self._problems.add((*place.path, *below), text)

    def _known(
        self, name: str, names: Iterable[str], what: str, place: Position, below: Path
    ) -> bool:
        """Report a name that is none of those there are; return whether it is one."""
        there = list(names)
        if name in there:
            return True
        text = f"{what}; there are: {', '.join(there) or 'none'}{suggestion(name, there)}"
        self._tell(place, below, text)
        return False

    def _names(self) -> None:
        """Report topics and domains with a name that is taken."""
        taken = {node.name: node.place for node in self._plan.nodes}
        for plan in self._nodes.values():
            for each in plan.groups:
                other = taken.setdefault(each.name, each.place)
                if other is not each.place:
                    text = f"the name {each.name!r} is that of {other.key} (line {other.line})"
                    self._tell(each.place, (), text)

    def _own_workers(self, node: str, plan: IdentityPlan) -> None:
        """Report what is to be an engine, or to serve, and is no worker of the node."""
        wanted: list[tuple[Address, Position, Path]] = [
            (worker, plan.place, ("engines", index)) for index, worker in enumerate(plan.engines)
        ]
        wanted += [(each.engine, each.place, ("engine",)) for each in plan.topics]
        wanted += [(each.worker, each.place, ()) for each in plan.subscriptions]
        wanted += [(each.worker, each.place, ()) for each in plan.services]
        for worker, place, below in wanted:
            if worker not in self._workers[node]:
                self._missing(node, worker, place, below)

    def _relays(self, plan: IdentityPlan) -> None:
        """Report relays without an identity, and rules about nodes that are not known so early."""
        for index, name in enumerate(plan.reserve):
            self._has_identity(name, plan.place, ("reserve", index))
        known = [name for name, each in self._nodes.items() if each.key.seed]
        for index, rule in enumerate(plan.relay):
            for name in references_of(rule):
                told = f"no node {name!r} has an identity with a seed, which is known before"
                self._known(name, known, told, plan.place, ("relay", index))

    def _has_identity(self, name: str, place: Position, below: Path) -> None:
        self._known(name, self._nodes, f"no node {name!r} has an identity", place, below)

    # --- topics -------------------------------------------------------------------------------

    def _own_topics(self, plan: IdentityPlan) -> None:
        """Report unknown topics, scopes and publishers."""
        publishers = [*self._nodes, *self._engines]
        for topic in plan.topics:
            self._scope(topic.scope, topic.place)
            for index, name in enumerate(topic.publishers):
                told = f"no node or engine {name!r} has an identity"
                self._known(name, publishers, told, topic.place, ("publishers", index))
        subscribed: set[tuple[Address, str]] = set()
        for each in plan.subscriptions:
            self._scope(each.scope, each.place)
            for name in each.topics:
                self._known(name, self._topics, f"no topic {name!r}", each.place, ("topic",))
                if (each.worker, name) in subscribed:
                    self._tell(each.place, ("topic",), f"it names {name!r} twice")
                subscribed.add((each.worker, name))

    def _scope(self, scope: str, place: Position) -> None:
        names = [*SCOPES, *self._domains]
        self._known(scope, names, f"no scope {scope!r}", place, ("scope",))

    # --- domains ------------------------------------------------------------------------------

    def _own_domains(self, node: str, plan: IdentityPlan) -> None:
        """Report unknown domains and members, and nodes that cannot ask to join."""
        for domain in plan.domains:
            for key, names in (("members", domain.members), ("admit", domain.admit)):
                for index, name in enumerate(names):
                    self._has_identity(name, domain.place, (key, index))
        served: dict[str, Address] = {}
        for service in plan.services:
            for name in service.domains:
                told = f"no domain {name!r}"
                self._known(name, self._domains, told, service.place, ("domain",))
                if served.setdefault(name, service.worker) != service.worker:
                    text = f"the domain {name!r} is served by {_name(served[name])!r}"
                    self._tell(service.place, ("domain",), text)
        for index, name in enumerate(plan.join):
            below: Path = ("join", index)
            if self._known(name, self._domains, f"no domain {name!r}", plan.place, below):
                self._joins(node, self._domains[name], name, plan.place, below)

    def _joins(self, node: str, founder: str, domain: str, place: Position, below: Path) -> None:
        """Report a node that asks to join where it has no link to."""
        if node == founder:
            self._tell(place, below, f"{domain!r} is a domain of this node; it goes in its members")
            return
        ends = {node, founder}
        if not any(
            each.join is not None and {each.node, each.to_node} == ends for each in self._plan.links
        ):
            text = f"no link with join is between {node!r} and {founder!r}, which has {domain!r}"
            self._tell(place, below, text)

    # --- links and requests -------------------------------------------------------------------

    def _links(self) -> None:
        """Report nodes without an identity that are to join."""
        names = {node.name for node in self._plan.nodes}
        for link in self._plan.links:
            for name in (link.node, link.to_node) if link.join is not None else ():
                if name in names and name not in self._nodes:
                    text = f"to join needs identities: write [nodes.{name}.identity]"
                    self._tell(link.place, ("join",), text)

    def _requests(self) -> None:
        """Report routes that name an identity which is not in the file."""
        # In the order of the file: each node, and then its engines.
        names = [
            name
            for node, plan in self._nodes.items()
            for name in (node, *(engine_name(node, each) for each in plan.engines))
        ]
        names += [*self._topics, *self._domains]
        for request in (*self._plan.requests, *self._plan.simulation.requests):
            for name in identity_names(request.route):
                told = f"no node, engine, topic or domain {name!r} has an identity"
                self._known(name, names, told, request.place, ("route",))


def _name(address: Address) -> str:
    return str(address).removeprefix("0#")
