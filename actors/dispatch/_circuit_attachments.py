"""The checks by which circuits are opened and containers attached at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.dispatch import Mechanism, Name, NameKind, Refusal
from ...protocol.security import Principal
from ._access import may_consume, may_produce
from ._circuit_container import CircuitContainer, ContainerEnded
from ._circuit_ends import AcceptCircuit, CircuitLinkEnd
from ._circuit_link import CircuitLink
from ._errors import ConsumerRefused

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["is_circuit", "open_circuit", "serve_circuits"]


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
    client: str,
) -> CircuitLink:
    """Attach an end to a name; see `Dispatcher.open_circuit`."""
    read = core.parse(name)
    semantics = core.provisioning.semantics_of(read)
    may = may_produce if producer else may_consume
    if not may(semantics, principal):
        raise ConsumerRefused(read.text, Refusal.ROLES)
    if not _takes_circuits(core, read):
        raise ConsumerRefused(read.text, Refusal.MESSAGES)
    link = CircuitLink(core.circuits, read, producer, semantics.reattach)
    link.principal = principal
    # An end of the program itself counts for itself.
    link.client = f"client {client}" if client else f"end {core.number()}"
    core.circuits.add(link)
    link.begin(end, properties)
    return link


def serve_circuits(
    core: DispatchCore,
    name: str,
    accept: AcceptCircuit,
    principal: Principal | None,
    ended: ContainerEnded | None,
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
    made = CircuitContainer(core, state, accept, principal, ended)
    try:
        made.attach()
    except ConsumerRefused:
        core.names.tidy(state)
        raise
    return made


def _takes_circuits(core: DispatchCore, name: Name) -> bool:
    semantics = core.provisioning.semantics_of(name)
    return semantics.mechanism is Mechanism.LINK and name.kind in (
        NameKind.MOBILE,
        NameKind.LOCAL,
    )
