"""Clients of the edge, a container with a route of links, and programs that are containers."""

from __future__ import annotations

import importlib
from asyncio import sleep
from typing import Any

from onward.actors.dispatch import CircuitLink, CircuitLinkEnd, Dispatcher
from onward.protocol.dispatch import CircuitAttach, DetachKind, Mechanism, Semantics
from onward.transports.amqp import LinkRoute
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.nets import SETTLE, Net, linear
from tests.support.amqp import Container, Edge, Edges

__all__ = ["CIRCUITS", "Chain", "Far", "Program", "dispose", "over_three", "seen", "state"]

CIRCUITS = Semantics(mechanism=Mechanism.LINK)


class Chain:
    """Clients, a container with a route, and what carries bytes between them."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.edges = Edges(dispatcher)
        self.containers: list[Container] = []

    def container(self, *routes: Any, **more: Any) -> Container:
        made = Container(self.dispatcher, *(routes or (LinkRoute("jobs"),)), **more)
        self.containers.append(made)
        return made

    def pump(self) -> None:
        for _ in range(40):
            self.edges.pump()
            for each in self.edges.made:
                if not each.over:
                    each.links.resume()
            for made in self.containers:
                if not made.over:
                    made.pump()

    def cut(self) -> None:
        made: list[Edge | Container] = [*self.edges.made, *self.containers]
        for each in made:
            each.cut()
        assert [each.failures for each in made if each.failures] == []


class Program:
    """A program that is a container of a name, and records what it is told."""

    def __init__(self, dispatcher: Dispatcher, name: str = "jobs", properties: bytes = b"") -> None:
        self._properties = properties
        self.told: list[tuple[Any, ...]] = []
        self.link: CircuitLink
        dispatcher.serve_circuits(name, self.accept)

    def accept(self, attach: CircuitAttach, link: CircuitLink) -> CircuitLinkEnd:
        del attach
        self.link = link
        link.accept(self._properties)
        return self

    def attached(self, properties: bytes) -> None:
        self.told.append(("attached", bool(properties)))

    def refused(self, condition: str, description: str) -> None:
        self.told.append(("refused", condition))

    def flow(self, credit: int, drain: bool) -> None:
        self.told.append(("flow", credit, drain))

    def drained(self, credit: int) -> None:
        self.told.append(("drained", credit))

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        self.told.append(("transfer", tag, len(payload), more, aborted, settled))

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        self.told.append(("disposition", tag, state, settled))

    def unresolved(self, tag: bytes) -> None:
        self.told.append(("unresolved", tag))

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        self.told.append(("down", condition))

    def ready(self) -> None:
        self.told.append(("ready",))


def state(link: Any) -> str:
    """Return the state of a link at the other end, as its peer sees it."""
    for name in ("CLOSED", "ACTIVE", "UNINIT"):
        if link.state & getattr(link, f"REMOTE_{name}"):
            return name.lower()
    raise AssertionError(link.state)


def dispose(delivery: Any, name: str, *, settles: bool = True) -> None:
    proton: Any = importlib.import_module("proton")
    if name == "REJECTED":
        delivery.local.condition = proton.Condition("shop:closed", "come back", {"hour": 9})
    if name == "MODIFIED":
        delivery.local.failed = delivery.local.undeliverable = True
        delivery.local.annotations = {proton.symbol("x-tries"): 3}
    if name == "RECEIVED":
        delivery.local.section_number, delivery.local.section_offset = 1, 12
    if name == "DECLARED":
        delivery.local.data = [b"tx-1"]
        delivery.update(0x33)
    else:
        delivery.update(getattr(proton.Delivery, name))
    if settles:
        delivery.settle()


def seen(delivery: Any) -> Any:
    """Return what a peer sees of the state of a delivery."""
    proton: Any = importlib.import_module("proton")
    remote, name = delivery.remote, delivery.remote_state
    if name == proton.Delivery.REJECTED:
        found = remote.condition
        return found.name, found.description, found.info
    if name == proton.Delivery.MODIFIED:
        return remote.failed, remote.undeliverable, remote.annotations
    if name == proton.Delivery.RECEIVED:
        return remote.section_number, remote.section_offset
    return [bytes(each) for each in remote.data] if name == 0x33 else None


class Far:
    """A client at node a, a container at node c, and node b between them."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.near, self.far = Chain(net.at["a"]), Chain(net.at["c"])

    async def pump(self, seconds: float = SETTLE) -> None:
        for _ in range(20):
            self.near.pump()
            self.far.pump()
            await sleep(seconds / 20)

    def cut(self) -> None:
        self.near.cut()
        self.far.cut()


async def over_three(network: SimulatedNetwork, semantics: Semantics) -> Far:
    net = Net(network)
    await linear(net)
    net.provision("jobs", semantics)
    return Far(net)
