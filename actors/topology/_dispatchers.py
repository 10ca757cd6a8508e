"""The dispatcher of a node of a running topology, and its part in a network of dispatchers."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Final
from urllib.parse import quote

from ...protocol import Address, OnwardError
from ...protocol.dispatch import DeliveryLimits, Semantics
from ...protocol.security import Principal
from ...protocol.topology import LinkPlan, ListenerPlan, RequestPlan, TopologyPlan
from .._node import Node
from ..broker import Broker
from ..dispatch import DISPATCH, Accept, Dispatcher, DispatchOptions, Producer
from ._containers import connect_container
from ._errors import TopologyFailed

__all__ = ["RunningDispatcher", "exposed_by"]

_ACCEPTS: Final = {"reply": Accept.REPLY, "handed": Accept.HANDED}

SIMULATED_EPOCH: Final = 1e9
"""The time since the Unix epoch at which the clock of a simulated network is 0, in seconds."""


def exposed_by(listener: ListenerPlan, topology: TopologyPlan) -> tuple[Address, ...]:
    """Return what a listener exposes: with neighbours that join it, the dispatcher as well."""
    joins = any(each.cost is not None for each in topology.links_to(listener.id))
    return (*listener.expose, DISPATCH) if joins else listener.expose


class RunningDispatcher:
    """The dispatcher of a node.

    Args:
        topology: The topology.
        name: The name of the node.
        dispatcher: The dispatcher.
        directory: The value of `{dir}` in the paths of files.

    Attributes:
        dispatcher: As given.
    """

    def __init__(
        self, topology: TopologyPlan, name: str, dispatcher: Dispatcher, directory: str
    ) -> None:
        self._topology: Final = topology
        self._name: Final = name
        self._directory: Final = directory
        self.dispatcher: Final = dispatcher

    @classmethod
    async def start(
        cls,
        topology: TopologyPlan,
        name: str,
        node: Node,
        broker: Broker | None,
        *,
        directory: str = "",
        simulated: bool = False,
    ) -> RunningDispatcher | None:
        """Start the dispatcher of a node, with its provisions.

        Args:
            topology: The topology.
            name: The name of the node.
            node: The node.
            broker: Its broker, for names that are provisioned by tags.
            directory: The value of `{dir}` in the path of the file for messages on hold.
            simulated: Whether the node is one of a simulated network, with a clock of its own.

        Raises:
            TopologyFailed: It cannot be started, or does not serve what is provisioned.
        """
        plan = topology.node(name).dispatcher
        if plan is None:
            return None
        if simulated and plan.hold_file:
            raise TopologyFailed(plan.place, f"{plan.hold_file} is not part of the simulation")
        for container in plan.containers if simulated else ():
            raise TopologyFailed(container.place, f"{container.uri} is not part of the simulation")
        costs = [each.cost for each in topology.links if each.to_node == name and each.cost]
        options = DispatchOptions(
            node_name=name,
            default=plan.default or Semantics(),
            hold_file=plan.hold_file.replace("{dir}", quote(directory)),
            cost=min(costs, default=1),
            consume_key=plan.consume_key,
            # As certificates, principals are no part of a simulated network.
            neighbour_roles=() if simulated else plan.neighbour_roles,
            name_slice=plan.name_slice,
            deliveries=DeliveryLimits(settle_time=plan.settle_time),
        )

        def clock() -> float:
            return SIMULATED_EPOCH + node.loop.time()

        step = "start"
        try:
            made = await Dispatcher.attach(
                node,
                options,
                broker=broker,
                principal_of=partial(_principal_of, node),
                clock=clock if simulated else None,
            )
            for each in plan.provisions:
                step = f"provision {each.pattern.written}"
                made.provision(each.pattern.written, each.semantics)
        except (OnwardError, OSError) as error:
            raise TopologyFailed(plan.place, f"cannot {step}: {error}") from error
        return cls(topology, name, made, directory)

    async def join(self, link: LinkPlan, address: Address) -> None:
        """Make the node at the other end of a link a neighbour, if the link has a cost."""
        if link.cost is not None:
            await self.dispatcher.neighbour(address, link.cost, name=link.to_node)

    async def consume(self) -> None:
        """Make the workers consumers, once they have started, and connect to the containers.

        Raises:
            TopologyFailed: One cannot be a consumer, or be connected to.
        """
        plan = self._topology.node(self._name).dispatcher
        for each in () if plan is None else plan.consumers:
            for name in each.names:
                try:
                    await self.dispatcher.consume(
                        name, each.worker, window=each.window, accept=_ACCEPTS[each.accept]
                    )
                except OnwardError as error:
                    text = f"cannot be a consumer of {name}: {error}"
                    raise TopologyFailed(each.place, text) from error
        for container in () if plan is None else plan.containers:
            await connect_container(self.dispatcher, container, self._directory)

    async def produce(self, request: RequestPlan) -> tuple[bool, str]:
        """Send the messages of a request as a producer of its name.

        Returns:
            Whether each has the outcome that it has to have, and how many have which.
        """
        try:
            producer = await self.dispatcher.produce(request.name)
        except OnwardError as error:
            return request.outcome == "refused", str(error)
        ended = Counter[str]()
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(request.messages):
                    if number and request.every:
                        await asyncio.sleep(request.every)
                    sent = tasks.create_task(_send(producer, request, ended))
                    if not request.every:
                        await sent
        finally:
            producer.close()
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(ended.items()))
        as_wanted = request.outcome == "any" or ended[request.outcome] == request.messages
        return as_wanted, told


def _principal_of(node: Node, link: Address) -> Principal | None:
    """Return the principal of the peer of a link; `None` if its listener has no principals."""
    cell = node.parts.table.cell_at(link)
    found: object = None if cell is None else getattr(cell.worker, "principal", None)
    return found if isinstance(found, Principal) else None


async def _send(producer: Producer, request: RequestPlan, ended: Counter[str]) -> None:
    try:
        outcome = await producer.send(request.payload, timeout=request.timeout)
    except OnwardError as error:
        ended[str(error)] += 1
    else:
        ended[type(outcome).__name__.lower()] += 1
