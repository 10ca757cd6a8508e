"""Dispatchers of a simulated network, with consumers and producers at any of them."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from typing import Final

from onward.actors import Node
from onward.actors.dispatch import (
    DISPATCH,
    Accept,
    Dispatcher,
    DispatchOptions,
    Producer,
)
from onward.protocol import Address
from onward.protocol.dispatch import CircuitLimits, NetworkLimits, Outcome, Semantics
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.kept import Kept

SETTLE: Final = 10.0
"""Time in which all nodes know all links and names, in seconds of the virtual clock."""


class Net:
    """Dispatchers of a simulated network.

    Args:
        network: The network.
        error_replies: Whether a sender is told of errors.
        outcome_timeout: As of `DispatchOptions`.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        *,
        error_replies: bool = False,
        outcome_timeout: float = DispatchOptions().outcome_timeout,
    ) -> None:
        self.network = network
        self.error_replies = error_replies
        self.outcome_timeout = outcome_timeout
        self.nodes: dict[str, Node] = {}
        self.at: dict[str, Dispatcher] = {}
        self.links: dict[tuple[str, str], Address] = {}

    async def start(
        self,
        *names: str,
        cost: int = 1,
        default: Semantics | None = None,
        circuits: CircuitLimits | None = None,
        name_slice: int = 200,
        network: NetworkLimits | None = None,
    ) -> None:
        for name in names:
            node = await self.network.node(name, error_replies=self.error_replies)
            self.nodes[name] = node
            options = DispatchOptions(
                cost=cost,
                outcome_timeout=self.outcome_timeout,
                default=default or Semantics(),
                circuits=circuits or CircuitLimits(),
                name_slice=name_slice,
                network=network or NetworkLimits(),
            )
            self.at[name] = await Dispatcher.attach(node, options)
            await node.listen(f"sim://{name}", expose=[DISPATCH])

    async def join(self, a: str, b: str, cost: int = 1) -> None:
        self.links[a, b] = await self.at[a].neighbour(f"sim://{b}", cost)

    async def cut(self, a: str, b: str) -> None:
        await self.nodes[a].stop_worker(self.links.pop((a, b)))

    async def restart(self, name: str) -> None:
        """Crash a node, and start it again with nothing of what it had."""
        await self.network.crash(name)
        await sleep(SETTLE)
        node = self.nodes[name] = await self.network.restart(name)
        self.at[name] = await Dispatcher.attach(node)
        await node.listen(f"sim://{name}", expose=[DISPATCH])

    def provision(self, name: str, semantics: Semantics) -> None:
        for dispatcher in self.at.values():
            dispatcher.provision(name, semantics)

    async def keep(self, at: str, name: str, window: int = 250) -> Kept:
        kept = Kept()
        kept.consumer = await self.at[at].consume(name, kept, window=window, accept=Accept.SELF)
        return kept

    @property
    def unsettled(self) -> int:
        """The copies at all nodes that have no outcome yet."""
        return sum(each.statistics().unsettled for each in self.at.values())


def make_narrow(net: Net, at: str, link: Address) -> None:
    """Let one message wait for a link at a time."""
    cell = net.nodes[at].parts.table.cell_at(link)
    assert cell is not None
    cell.most = cell.limit = 1


async def linear(net: Net) -> None:
    """Join a, b and c in a row."""
    await net.start("a", "b", "c")
    await net.join("a", "b")
    await net.join("b", "c")


async def triangle(net: Net) -> None:
    await net.start("a", "b", "c")
    await net.join("a", "b")
    await net.join("b", "c")
    await net.join("a", "c")


async def sent(producer: Producer, number: int) -> list[asyncio.Task[Outcome]]:
    """Send messages of which none is settled yet."""
    tasks: list[asyncio.Task[Outcome]] = []
    for each in range(number):
        tasks.append(asyncio.create_task(producer.send(b"%d" % each)))
        await sleep(0.1)
    return tasks


async def ended(tasks: list[asyncio.Task[Outcome]]) -> list[Outcome]:
    return list(await asyncio.gather(*tasks))
