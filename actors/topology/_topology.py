"""All nodes of a topology in one process, on one event loop."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol, Self

from ...protocol.topology import TopologyPlan
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
    """

    def __init__(self, plan: TopologyPlan) -> None:
        self.plan = plan
        self.uris: dict[str, str] = {}
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
        it has links to. When a part cannot be started, those started before are stopped.

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
        directory = ""
        if network is None and any("{dir}" in each.uri for each in self.plan.listeners):
            directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="onward-"))
        for node in self.plan.nodes:
            own: Node | None = None
            if network is not None:
                own = await network.node(node.name, error_replies=node.error_replies)
            running = RunningNode(
                self.plan,
                node.name,
                made,
                node=own,
                directory=directory,
                faults=None if network is None else network.faults,
            )
            self._running[node.name] = running
            await running.open()
            if opened is not None:
                await opened(running.node)
        for running in self._running.values():
            self.uris.update(await running.listen())
        for running in self._running.values():
            await running.link(self.uris)
        for name in self.plan.start_order():
            await self._running[name].start_workers()

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
        """Return the brokers of all nodes."""
        found = (running.broker for running in self._running.values())
        return tuple(each for each in found if each is not None)

    async def check(self) -> tuple[RequestOutcome, ...]:
        """Make the requests of the plan, one after the other."""
        return tuple(
            [await self._running[request.node].ask(request) for request in self.plan.requests]
        )

    async def stop(self, timeout: float = 5.0) -> None:
        """Stop all parts, in the reverse order. Idempotent.

        Args:
            timeout: The longest time for each node, in seconds.
        """
        for name in reversed(self.plan.start_order()):
            if name in self._running:
                await self._running[name].stop(timeout)
        await self._stack.aclose()
