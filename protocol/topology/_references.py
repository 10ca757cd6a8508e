"""The check of references in a plan: workers exist, addresses are unique, routes lead on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._address import LOCAL, Address, Route
from .._pattern import matches
from ..toml import Path, Problems, suggestion
from ._identity_references import IdentityCheck
from ._kinds import KindOptions, OptionType, local_heads
from ._plan import (
    DispatcherPlan,
    LinkPlan,
    ListenerPlan,
    NodePlan,
    Position,
    TopologyPlan,
    WorkerPlan,
)

__all__ = ["check_references"]


class _Node:
    """The addresses of one node."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.workers: dict[Address, WorkerPlan] = {}
        self.links: dict[Address, LinkPlan] = {}
        self.listeners = {each.address: each for each in plan.listeners}

    def of(self, address: Address) -> WorkerPlan | LinkPlan | ListenerPlan | None:
        return self.workers.get(address) or self.links.get(address) or self.listeners.get(address)

    def has(self, address: Address) -> bool:
        return self.of(address) is not None

    def names(self) -> list[str]:
        return [_name(each) for each in (*self.workers, *self.links)]


class _Check:
    def __init__(
        self, plan: TopologyPlan, kinds: Mapping[str, KindOptions], problems: Problems
    ) -> None:
        self.plan = plan
        self.kinds = kinds
        self.problems = problems
        self.nodes = {node.name: _Node(node) for node in plan.nodes}
        self.listeners = {each.id: each for each in plan.listeners}

    def tell(self, place: Position, below: Path, text: str) -> None:
        """Report a problem of a key below a place in the file."""
        self.problems.add((*place.path, *below), text)

    # --- names ------------------------------------------------------------------------------

    def addresses(self) -> None:
        """Register the addresses of each node, and report those that are taken."""
        for node in self.nodes.values():
            for worker in node.plan.workers:
                self._free(node, worker.address, worker.place, ())
                node.workers.setdefault(worker.address, worker)
                for key, given in (("also", worker.also), ("makes", worker.makes)):
                    for index, address in enumerate(given):
                        self._free(node, address, worker.place, (key, index))
                        node.workers.setdefault(address, worker)
        for link in self.plan.links:
            start = self.nodes.get(link.node)
            if start is not None:
                self._free(start, link.address, link.place, ("as",))
                start.links.setdefault(link.address, link)

    def _free(self, node: _Node, address: Address, place: Position, below: Path) -> None:
        taken = node.of(address)
        if taken is not None:
            where = f"{taken.place.key} (line {taken.place.line})"
            self.tell(place, below, f"the address {_name(address)!r} is that of {where}")

    def uris(self) -> None:
        """Report listeners with the same URI."""
        seen: dict[str, ListenerPlan] = {}
        for listener in self.listeners.values():
            if not listener.is_fixed or not listener.uri:
                continue
            other = seen.setdefault(listener.uri, listener)
            if other is not listener:
                line = other.place.line
                self.tell(listener.place, ("uri",), f"the URI is that of {other.id} (line {line})")

    def exposed(self) -> None:
        """Report exposed addresses that do not exist."""
        for listener in self.listeners.values():
            self._expose(self.nodes[listener.node], listener.expose, listener.place)
        for link in self.plan.links:
            if link.node in self.nodes:
                self._expose(self.nodes[link.node], link.expose, link.place)

    def _expose(self, node: _Node, addresses: Iterable[Address], place: Position) -> None:
        for index, address in enumerate(addresses):
            # What is of another type is up to a rule, which the file does not know.
            if address.type == LOCAL and not node.has(address):
                self._missing(node, address, place, ("expose", index))

    def _missing(self, node: _Node, address: Address, place: Position, below: Path) -> None:
        name, names = _name(address), node.names()
        self.tell(
            place,
            below,
            f"node {node.plan.name!r} has no worker or link {name!r}; "
            f"there are: {', '.join(names) or 'none'}{suggestion(name, names)}",
        )

    def _no_listener(self, node: _Node, address: Address, place: Position, below: Path) -> None:
        name = _name(address).removeprefix("listener:")
        names = [each.name for each in node.plan.listeners]
        self.tell(
            place,
            below,
            f"node {node.plan.name!r} has no listener {name!r}; "
            f"there are: {', '.join(names) or 'none'}{suggestion(name, names)}",
        )

    # --- brokers ----------------------------------------------------------------------------

    def brokers(self) -> None:
        """Report brokers without what they need, and listeners for RSocket without a broker."""
        for node in self.nodes.values():
            broker = node.plan.broker
            if broker is None:
                for listener in node.plan.listeners:
                    if listener.is_for_broker:
                        text = (
                            f"{listener.uri} needs a broker: write [nodes.{node.plan.name}.broker]"
                        )
                        self.tell(listener.place, ("uri",), text)
                continue
            if broker.cluster and node.plan.broker_listener is None:
                text = f"node {node.plan.name!r} has no listener for RSocket, as others need it"
                self.tell(broker.place, ("cluster",), text)
            for destination in broker.destinations:
                if not node.has(destination.worker):
                    self._missing(node, destination.worker, destination.place, ())

    # --- dispatchers ------------------------------------------------------------------------

    def dispatchers(self) -> None:
        """Report what needs a dispatcher, and is not at one, and consumers without a worker."""
        for node in self.nodes.values():
            plan = node.plan.dispatcher
            for listener in node.plan.listeners:
                if plan is None and listener.is_for_clients:
                    self._no_dispatcher(node.plan.name, listener.place, "uri", listener.uri)
            for consumer in () if plan is None else plan.consumers:
                if not node.has(consumer.worker):
                    self._missing(node, consumer.worker, consumer.place, ())
            if plan is not None:
                self._needs(node.plan, plan)
        for request in (*self.plan.requests, *self.plan.simulation.requests):
            start = self.nodes.get(request.node)
            if request.name and start is not None and start.plan.dispatcher is None:
                self._no_dispatcher(request.node, request.place, "name", "a producer")

    def _needs(self, node: NodePlan, plan: DispatcherPlan) -> None:
        """Report keys of a dispatcher that have no effect without others."""
        if plan.consume_key and node.broker is None:
            text = f"it goes with a broker: write [nodes.{node.name}.broker]"
            self.tell(plan.place, ("consume_key",), text)
        if plan.neighbour_roles and not any(each.principals for each in node.listeners):
            text = f"it goes with a listener of {node.name!r} that has principals"
            self.tell(plan.place, ("neighbour_roles",), text)

    def neighbours(self) -> None:
        """Report links with a cost that do not join dispatchers."""
        for link in self.plan.links:
            if link.cost is None:
                continue
            if not link.to_listener:
                self.tell(link.place, ("cost",), "it goes with a link to a node of the file")
            for name in (link.node, link.to_node):
                if name in self.nodes and self.nodes[name].plan.dispatcher is None:
                    self._no_dispatcher(name, link.place, "cost", "a link with a cost")

    def _no_dispatcher(self, node: str, place: Position, key: str, what: str) -> None:
        self.tell(place, (key,), f"{what} needs a dispatcher: write [nodes.{node}.dispatcher]")

    # --- identities -------------------------------------------------------------------------

    def identities(self) -> None:
        """Report what refers to an identity that is not there, or needs one."""
        for node in self.nodes.values():
            plan = node.plan.identity
            if plan is not None:
                self._expose(node, plan.expose, plan.place)
                for service in plan.services:
                    self._expose(node, service.expose, service.place)
        workers = {name: node.workers for name, node in self.nodes.items()}
        IdentityCheck(self.plan, self.problems, workers, self._no_worker).run()

    def _no_worker(self, node: str, address: Address, place: Position, below: Path) -> None:
        self._missing(self.nodes[node], address, place, below)

    # --- routes -----------------------------------------------------------------------------

    def options(self) -> None:
        """Report routes in options of workers that do not begin on their node."""
        for node in self.nodes.values():
            for worker in node.plan.workers:
                kind = self.kinds.get(worker.kind)
                if kind is None:
                    continue
                for name, option in kind.options.items():
                    for head in local_heads(option, worker.options.get(name)):
                        if head.type != LOCAL or node.has(head):
                            continue
                        if option.type is OptionType.LISTENERS:
                            self._no_listener(node, head, worker.place, ("options", name))
                        else:
                            self._missing(node, head, worker.place, ("options", name))

    def requests(self) -> None:
        """Report routes of requests that lead nowhere, as far as the file shows."""
        for request in (*self.plan.requests, *self.plan.simulation.requests):
            node = self.nodes.get(request.node)
            if node is not None:
                self._walk(node, request.route, request.place, bool(request.error))

    def _walk(self, node: _Node, route: Route, place: Position, may_be_refused: bool) -> None:
        through: ListenerPlan | None = None  # it came to the node by that
        first = False
        for step in route:
            if step.type != LOCAL:
                return
            if through is not None and not _lets(through, step, first):
                if not may_be_refused:
                    self._not_exposed(through, step, place, first)
                return
            first = False
            link, worker = node.links.get(step), node.workers.get(step)
            if link is not None:
                if not link.to_listener:
                    return
                node, through = self.nodes[link.to_node], self.listeners[link.to_listener]
                first = True
            elif worker is None:
                if not may_be_refused:
                    self._missing(node, step, place, ("route",))
                return
            else:
                kind = self.kinds.get(worker.kind)
                if kind is None or not kind.passes_on:
                    return

    def _not_exposed(
        self, listener: ListenerPlan, step: Address, place: Position, first: bool
    ) -> None:
        name, names = _name(step), [_name(each) for each in listener.expose]
        if first:
            text = f"{listener.id} does not expose {name!r}; it exposes: "
        else:
            names += [_name(each) for each in listener.allow]
            text = f"{listener.id} does not allow {name!r} next; it exposes and allows: "
        text += f"{', '.join(names) or 'nothing'}{suggestion(name, names)}"
        self.tell(place, ("route",), text)


def _lets(listener: ListenerPlan, step: Address, first: bool) -> bool:
    """Whether what came by a listener may go to a local address: first, or behind another."""
    if step in listener.expose:
        return True
    return not first and any(matches(pattern, step) for pattern in listener.allow)


def check_references(
    plan: TopologyPlan, kinds: Mapping[str, KindOptions], problems: Problems
) -> None:
    """Report references to things that do not exist, and things that exist twice."""
    check = _Check(plan, kinds, problems)
    check.addresses()
    check.uris()
    check.exposed()
    check.brokers()
    check.dispatchers()
    check.neighbours()
    check.identities()
    check.options()
    check.requests()


def _name(address: Address) -> str:
    """Write a local address as the file does, without its type."""
    written = str(address)
    return written.removeprefix("0#")
