"""All nodes of a topology in one process, on one event loop."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import combinations, product
from typing import Any, Protocol, Self

from ...protocol.topology import EventKind, EventPlan, RequestPlan, TopologyPlan
from .._node import Node
from ._brokers import RunningBroker
from ._kinds import KINDS, WorkerKind
from ._load import Factories, factories
from ._running import RequestOutcome, RunningNode

__all__ = ["Network", "Topology"]


class Network(Protocol):
    """The interface of a simulated network; `onward.transports.simulated` has one."""

    @property
    def faults(self) -> Any:
        """The faults of links that have none of their own, a dataclass."""
        ...

    async def node(self, name: str, *, error_replies: bool) -> Node:
        """Start a node of the network."""
        ...

    async def crash(self, name: str) -> None:
        """End a node as `kill -9` does."""

    async def restart(self, name: str) -> Node:
        """Start a node again that has crashed."""
        ...

    def partition(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Lose all that the nodes of two groups send each other."""

    def heal(self, one: Iterable[str] | None = None, other: Iterable[str] = ()) -> None:
        """End all partitions, or those between the nodes of two groups."""

    def set_faults(self, one: str, other: str, faults: Any) -> None:
        """Replace the faults between two nodes."""


class Topology:
    """A topology that runs in this process; made by `start`.

    ```python
    plan = read(Path("two.toml").read_bytes(), "two.toml")
    async with await Topology.start(plan) as topology:
        answer = await topology.node("near").request("far => echo", b"hi")
        outcomes = await topology.check()
    ```

    Attributes:
        plan: The plan that runs.
        uris: The URIs of the listeners, by `ListenerPlan.id`.
        identities: The identities of nodes and engines, as text, by their names in the file.
    """

    def __init__(self, plan: TopologyPlan) -> None:
        self.plan = plan
        self.uris: dict[str, str] = {}
        self.identities: dict[str, str] = {}
        self._made: Factories = {}
        self._network: Network | None = None
        self._directory = ""
        self._began = 0.0
        self._killed: set[str] = set()
        self._running: dict[str, RunningNode] = {}
        self._stack = AsyncExitStack()

    @classmethod
    async def start(
        cls,
        plan: TopologyPlan,
        *,
        kinds: Mapping[str, WorkerKind] = KINDS,
        network: Network | None = None,
        opened: Callable[[Node], Awaitable[None]] | None = None,
    ) -> Self:
        """Start all parts of a plan.

        Listeners come first, then links, then workers, those of a node after those of the nodes
        it has links to, and then subscriptions to topics of identities. When a part cannot be
        started, those started before are stopped.

        Args:
            plan: The plan.
            kinds: The kinds of worker it was read with.
            network: A simulated network for the nodes, with the faults of the links in the plan.
                All listeners are then names in it, and the options of listeners and links do not
                matter: they are those of transports.
            opened: Called with each node before it has any workers: for example, to attach an
                event log.

        Raises:
            TopologyError: A class of a worker cannot be used.
            TopologyFailed: A part cannot be started; the error names it.
        """
        made = factories(plan, kinds=kinds)
        topology = cls(plan)
        try:
            await topology._start(made, network, opened)
        except BaseException:
            await topology.stop()
            raise
        return topology

    async def _start(
        self,
        made: Factories,
        network: Network | None,
        opened: Callable[[Node], Awaitable[None]] | None,
    ) -> None:
        self._made, self._network = made, network
        if network is None and _needs_directory(self.plan):
            made_for = tempfile.TemporaryDirectory(prefix="onward-")
            self._directory = self._stack.enter_context(made_for)
        for node in self.plan.nodes:
            own: Node | None = None
            if network is not None:
                own = await network.node(node.name, error_replies=node.error_replies)
            running = await self._open(node.name, own)
            if opened is not None:
                await opened(running.node)
        for running in self._running.values():
            self.uris.update(await running.listen())
            self.identities.update(running.identities)
        for running in self._running.values():
            await running.link(self.uris, self.identities)
        for name in self.plan.start_order():
            await self._running[name].start_workers()
        for name in self.plan.start_order():
            await self._running[name].subscribe()
        self._began = asyncio.get_running_loop().time()

    async def _open(self, name: str, own: Node | None) -> RunningNode:
        running = self._running[name] = RunningNode(
            self.plan,
            name,
            self._made,
            node=own,
            directory=self._directory,
            faults=None if self._network is None else self._network.faults,
        )
        await running.open()
        return running

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.stop()

    def node(self, name: str) -> Node:
        """Return the node with a name.

        Raises:
            KeyError: There is none.
        """
        return self._running[name].node

    def brokers(self) -> tuple[RunningBroker, ...]:
        """Return the brokers of all nodes, but those that have been killed."""
        up = (running for name, running in self._running.items() if name not in self._killed)
        found = (running.broker for running in up)
        return tuple(each for each in found if each is not None)

    async def check(
        self, told: Callable[[EventPlan], object] | None = None
    ) -> tuple[RequestOutcome, ...]:
        """Make the requests of the plan, one after the other.

        In a simulated network the events of the plan happen meanwhile, and the requests of the
        simulation are made, each at its time. It ends after the last of all these.

        Args:
            told: Called with each event, when it has happened.

        Returns:
            The outcomes: of the requests in the order of the plan, then of those of the simulation.

        Raises:
            TopologyFailed: A node that has been killed cannot be started again.
        """
        network, simulation = self._network, self.plan.simulation
        if network is None:
            return await self._ask_all()
        try:
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(self._ask_all())
                timed = [tasks.create_task(self._ask_at(each)) for each in simulation.requests]
                tasks.create_task(self._happen(network, told))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return (*asked.result(), *(each.result() for each in timed))

    async def _ask_all(self) -> tuple[RequestOutcome, ...]:
        return tuple(
            [await self._running[request.node].ask(request) for request in self.plan.requests]
        )

    async def _ask_at(self, request: RequestPlan) -> RequestOutcome:
        await self._until(request.at)
        return await self._running[request.node].ask(request)

    async def _until(self, at: float) -> None:
        """Wait for a time in seconds since all parts have started."""
        await asyncio.sleep(self._began + at - asyncio.get_running_loop().time())

    # --- events -------------------------------------------------------------------------------

    async def _happen(self, network: Network, told: Callable[[EventPlan], object] | None) -> None:
        for event in self.plan.simulation.in_order():
            await self._until(event.at)
            if event.kind is EventKind.KILL:
                self._killed.add(event.node)
                await network.crash(event.node)
            elif event.kind is EventKind.RESTART:
                await self._restart(network, event.node)
            else:
                self._change(network, event)
            if told is not None:
                told(event)

    async def _restart(self, network: Network, name: str) -> None:
        """Start a node again that has been killed, with all its parts."""
        running = await self._open(name, await network.restart(name))
        await running.listen()
        await running.link(self.uris, self.identities)
        await running.start_workers()
        await running.subscribe()
        self._killed.discard(name)

    def _change(self, network: Network, event: EventPlan) -> None:
        one, other = event.sides
        if event.kind is EventKind.CUT:
            network.partition(one, other)
            return
        faults = network.faults
        if event.kind is EventKind.SLOW:
            faults = replace(faults, **event.faults.given())
        elif one:
            network.heal(one, other)
        else:
            network.heal()
        # What is healed has the faults of the network again.
        every = combinations((node.name for node in self.plan.nodes), 2)
        for here, there in product(one, other) if one else every:
            network.set_faults(here, there, faults)

    async def stop(self, timeout: float = 5.0) -> None:
        """Stop all parts, in the reverse order. Idempotent.

        Args:
            timeout: The longest time for each node, in seconds.
        """
        for name in reversed(self.plan.start_order()):
            if name in self._running:
                await self._running[name].stop(timeout)
        await self._stack.aclose()


def _needs_directory(plan: TopologyPlan) -> bool:
    """Whether a file is made for the run: a socket, or a key."""
    made = any(each.identity is not None and each.identity.makes_keys for each in plan.nodes)
    return made or any("{dir}" in each.uri for each in plan.listeners)
