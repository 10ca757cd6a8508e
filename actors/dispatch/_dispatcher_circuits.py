"""`DispatcherCircuits`: a dispatcher with its circuits, links of one producer and one consumer."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from ...protocol.dispatch import CircuitPool
from ...protocol.security import Principal
from ._circuit_attachments import (
    attach_consumer,
    attach_producer,
    is_circuit,
    open_circuit,
    serve,
    serve_circuits,
)
from ._circuit_consumer import CircuitConsumer
from ._circuit_container import CircuitContainer, ContainerEnded
from ._circuit_ends import AcceptCircuit, CircuitLinkEnd
from ._circuit_link import CircuitLink
from ._circuit_producer import CircuitProducer
from ._circuit_worker import CircuitHandler
from ._core import DispatchCore

__all__ = ["DispatcherCircuits"]


class DispatcherCircuits:
    """A dispatcher with its circuits; see `Dispatcher`.

    Args:
        core: Its parts.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core

    async def attach_producer(
        self, name: str, *, properties: bytes = b"", principal: Principal | None = None
    ) -> CircuitProducer:
        """Attach a producer to a name of circuits: what it sends goes to one consumer, in order.

        Args:
            name: The name.
            properties: What the other end is told, at most 16 KiB.
            principal: The principal that sends; `None` for this program itself.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name is for other roles, or takes messages.
            CircuitClosed: There is no container, or it has refused.
        """
        return await attach_producer(self._core, name, properties, principal)

    async def attach_consumer(
        self,
        name: str,
        *,
        window: int = 10,
        properties: bytes = b"",
        principal: Principal | None = None,
    ) -> CircuitConsumer:
        """Attach a consumer to a name of circuits, for what one producer sends.

        Args:
            name: The name.
            window: Deliveries that it has at a time; 0: it asks for them by `grant`.
            properties: What the other end is told, at most 16 KiB.
            principal: The principal that consumes; `None` for this program itself.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name is for other roles, or takes messages.
            CircuitClosed: There is no container, or it has refused.
        """
        return await attach_consumer(self._core, name, window, properties, principal)

    def serve(
        self,
        name: str,
        handler: CircuitHandler,
        *,
        window: int = 10,
        principal: Principal | None = None,
        ended: ContainerEnded | None = None,
    ) -> CircuitContainer:
        """Attach a container to a name of circuits, with a handler that each circuit is given to.

        Args:
            name: The name.
            handler: It gets a `CircuitConsumer` for a producer that attaches, and a
                `CircuitProducer` for a consumer. The circuit is closed once it returns.
            window: Deliveries that each consumer has at a time; 0: it asks for them by `grant`.
            principal: As of `serve_circuits`, as is the next one.
            ended: It is told why the container has ended.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: As of `serve_circuits`.
        """
        return serve(self._core, name, handler, window, principal, ended)

    def is_circuit(self, name: str) -> bool:
        """Whether a name takes circuits, and no messages.

        Raises:
            BadName: The name cannot be read.
        """
        return is_circuit(self._core, name)

    def open_circuit(
        self,
        name: str,
        end: CircuitLinkEnd,
        *,
        producer: bool,
        properties: bytes = b"",
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> CircuitLink:
        """Attach an end to a name of circuits, for a transport with links of its own.

        Args:
            name: The name.
            end: It is told what becomes of it; perhaps before this returns.
            producer: Whether it is the producer.
            properties: What the other end is told, at most 16 KiB.
            principal: The principal that it is for; `None` for this program itself.
            client: The connection that it is for, with which it is counted for
                `CircuitLimits.max_peer_circuits` and, unless its principal is known,
                `CircuitLimits.max_share`.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name is for other roles, or takes messages.
            CircuitFrameError: The properties are too long.
        """
        return open_circuit(self._core, name, end, producer, properties, principal, client)

    def serve_circuits(
        self,
        name: str,
        accept: AcceptCircuit,
        *,
        principal: Principal | None = None,
        ended: ContainerEnded | None = None,
        pool: CircuitPool | None = None,
    ) -> CircuitContainer:
        """Attach a container to a name of circuits, for a transport with links of its own.

        Args:
            name: The name.
            accept: Gives an end to each circuit that is asked for, by producers and by consumers.
            principal: The principal that serves, which needs a role of the consumers of the name;
                `None` for this program itself.
            ended: It is told why the container has ended, if that is not by `close`.
            pool: The circuits of which each source has a share, if several containers have them
                together; by default those of this one, `CircuitLimits.max_peer_circuits`.

        Raises:
            BadName: The name cannot be read.
            ConsumerRefused: The name takes no further container, is for other roles, or takes
                messages.
        """
        return serve_circuits(self._core, name, accept, principal, ended, pool)
