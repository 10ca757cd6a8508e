"""The checks by which circuits are opened and containers attached at a node."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from ...protocol.dispatch import (
    CircuitAttach,
    CircuitFrameError,
    CircuitPool,
    Mechanism,
    Name,
    NameKind,
    Refusal,
)
from ...protocol.options import Size, check_value
from ...protocol.security import Principal
from ._access import may_consume, may_produce
from ._circuit_consumer import CircuitConsumer
from ._circuit_container import CircuitContainer, ContainerEnded
from ._circuit_ends import AcceptCircuit, CircuitLinkEnd
from ._circuit_link import CircuitLink
from ._circuit_producer import CircuitProducer
from ._circuit_worker import CircuitHandler, CircuitWorker
from ._errors import ConsumerRefused

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = [
    "attach_consumer",
    "attach_producer",
    "is_circuit",
    "open_circuit",
    "serve",
    "serve_circuits",
]


def is_circuit(core: DispatchCore, name: str) -> bool:
    """Whether a name takes circuits; see `Dispatcher.is_circuit`."""
    return _takes_circuits(core, core.parse(name))


def open_circuit(
    core: DispatchCore,
    name: str,
    end: CircuitLinkEnd,
    producer: bool,
    properties: bytes,
    principal: Principal | None,
    client: Hashable,
) -> CircuitLink:
    """Attach an end to a name; see `Dispatcher.open_circuit`."""
    link = _opened(core, name, producer=producer, principal=principal, client=client)
    _begin(core, link, end, properties)
    return link


def _opened(
    core: DispatchCore, name: str, *, producer: bool, principal: Principal | None, client: Hashable
) -> CircuitLink:
    read = core.parse(name)
    semantics = core.provisioning.semantics_of(read)
    may = may_produce if producer else may_consume
    if not may(semantics, principal):
        raise ConsumerRefused(read.text, Refusal.ROLES)
    if not _takes_circuits(core, read):
        raise ConsumerRefused(read.text, Refusal.MESSAGES)
    link = CircuitLink(core.circuits, read, producer, semantics.reattach)
    link.principal, link.connection = principal, client
    # An end of the program itself counts for itself.
    link.client = ("end", core.number()) if client is None else ("client", client)
    core.circuits.add(link)
    return link


def _begin(core: DispatchCore, link: CircuitLink, end: CircuitLinkEnd, properties: bytes) -> None:
    """Attach an end, and forget one that cannot be attached."""
    try:
        link.begin(end, properties)
    except CircuitFrameError:
        core.circuits.forget(link)
        raise


def serve_circuits(
    core: DispatchCore,
    name: str,
    accept: AcceptCircuit,
    principal: Principal | None,
    ended: ContainerEnded | None,
    pool: CircuitPool | None = None,
) -> CircuitContainer:
    """Attach a container to a name; see `Dispatcher.serve_circuits`."""
    read = core.parse(name)
    if not may_consume(core.provisioning.semantics_of(read), principal):
        raise ConsumerRefused(read.text, Refusal.ROLES)
    if not _takes_circuits(core, read):
        raise ConsumerRefused(read.text, Refusal.MESSAGES)
    state = core.names.find(read)
    if state is None:
        raise ConsumerRefused(read.text, Refusal.NAMES)
    made = CircuitContainer(core, state, accept, principal, ended, pool)
    try:
        made.attach()
    except ConsumerRefused:
        core.names.tidy(state)
        raise
    return made


async def attach_producer(
    core: DispatchCore, name: str, properties: bytes, principal: Principal | None
) -> CircuitProducer:
    """Attach a producer of a program; see `Dispatcher.attach_producer`."""
    link = _opened(core, name, producer=True, principal=principal, client=None)
    end = CircuitProducer(link, core)
    _begin(core, link, end, properties)
    await end.ready_to_use()
    return end


async def attach_consumer(
    core: DispatchCore, name: str, window: int, properties: bytes, principal: Principal | None
) -> CircuitConsumer:
    """Attach a consumer of a program; see `Dispatcher.attach_consumer`."""
    check_value("window", window, Size)
    link = _opened(core, name, producer=False, principal=principal, client=None)
    end = CircuitConsumer(link, window, core.options.circuits.max_delivery)
    _begin(core, link, end, properties)
    await end.ready_to_use()
    return end


def serve(
    core: DispatchCore,
    name: str,
    handler: CircuitHandler,
    window: int,
    principal: Principal | None,
    ended: ContainerEnded | None,
) -> CircuitContainer:
    """Attach a container with a handler; see `Dispatcher.serve`."""
    check_value("window", window, Size)

    def accept(_attach: CircuitAttach, link: CircuitLink) -> CircuitProducer | CircuitConsumer:
        end: CircuitProducer | CircuitConsumer
        if link.producer:
            end = CircuitProducer(link, core)
        else:
            end = CircuitConsumer(link, window, core.options.circuits.max_delivery)
        core.worker.spawn(lambda: CircuitWorker(handler, end))
        link.accept()
        return end

    return serve_circuits(core, name, accept, principal, ended)


def _takes_circuits(core: DispatchCore, name: Name) -> bool:
    semantics = core.provisioning.semantics_of(name)
    return semantics.mechanism is Mechanism.LINK and name.kind in (
        NameKind.MOBILE,
        NameKind.LOCAL,
    )
