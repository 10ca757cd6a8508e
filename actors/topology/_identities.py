"""The identity of a node of a running topology, its engines, and the nodes that it joins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...protocol import Address, OnwardError
from ...protocol.topology import (
    IdentityPlan,
    LinkPlan,
    ListenerPlan,
    TopologyPlan,
    engine_name,
)
from .._node import Node
from ..security._own_files import read_own_secret
from ._dispatchers import SIMULATED_EPOCH
from ._errors import TopologyFailed

if TYPE_CHECKING:
    from ...protocol.identity import SigningKey

__all__ = ["ROUTER", "RunningIdentity", "exposes_router"]

ROUTER: Final = Address(0, b"identity")
"""The address of the router, as `onward.actors.identity` has it, which needs an extra."""

_TRANSPORT: Final = "...transports.identity"
"""The module of what gives a node an identity. It is of another layer, and so loaded by its name,
as transports are by their schemes."""


class RunningIdentity:
    """The identity of a node.

    Args:
        topology: The topology.
        plan: The identity.
        identities: What the node does with it, an `Identities`.
        names: The identities of the node and its engines, as text, by their names in the file.
    """

    def __init__(
        self, topology: TopologyPlan, plan: IdentityPlan, identities: Any, names: dict[str, str]
    ) -> None:
        self._topology: Final = topology
        self._plan: Final = plan
        self.identities: Final = identities
        self.names: Final = names

    @classmethod
    async def start(
        cls,
        topology: TopologyPlan,
        name: str,
        node: Node,
        *,
        directory: str = "",
        simulated: bool = False,
    ) -> RunningIdentity | None:
        """Give a node its identity, if it has one.

        Args:
            topology: The topology.
            name: The name of the node.
            node: The node.
            directory: The value of `{dir}` in the paths of files.
            simulated: Whether the node is one of a simulated network, with a clock of its own.

        Raises:
            TopologyFailed: It cannot have it.
        """
        plan = topology.node(name).identity
        if plan is None:
            return None
        if simulated and plan.directory:
            raise TopologyFailed(plan.place, f"{plan.directory} is not part of the simulation")

        def clock() -> float:
            return SIMULATED_EPOCH + node.loop.time()

        try:
            transport: Any = import_module(_TRANSPORT, __package__)
            from ...protocol.identity import derived_engine, identity_text

            key = _key(plan, name, directory, simulated=simulated)
            file = plan.directory.replace("{dir}", directory)
            identities = await transport.Identities.attach(
                node,
                key,
                expose=plan.expose,
                directory=Path(file) if file else None,
                clock=clock if simulated else None,
            )
        except ModuleNotFoundError as error:
            text = f"identities need the extra onward[identity]: {error}"
            raise TopologyFailed(plan.place, text) from error
        except (OnwardError, OSError, ValueError) as error:
            raise TopologyFailed(plan.place, f"cannot have an identity: {error}") from error
        names = {name: identity_text(key.identity)}
        for worker in plan.engines:
            engine = derived_engine(key.identity, worker.value)
            names[engine_name(name, worker)] = identity_text(engine)
        return cls(topology, plan, identities, names)

    async def join(self, link: LinkPlan, address: Address, names: Mapping[str, str]) -> None:
        """Join the node at the other end of a link, if the link says so.

        Args:
            link: The link.
            address: Its address.
            names: The identities that are known, by the names of nodes.

        Raises:
            PeerRefused: The node has not proved its key, or not the one that it has to have.
            BadIdentity: The text of the identity is of none.
        """
        if link.join is None:
            return
        from ...protocol.identity import parse_identity

        text = link.join or names.get(link.to_node, "")
        await self.identities.join(address, identity=parse_identity(text) if text else None)

    def start_engines(self) -> None:
        """Make the workers engines, once they have started."""
        for worker in self._plan.engines:
            self.identities.engine(worker)


def exposes_router(listener: ListenerPlan, topology: TopologyPlan) -> bool:
    """Whether other nodes can join the node of a listener there."""
    special = listener.is_for_broker or listener.is_for_clients
    return topology.node(listener.node).identity is not None and not special


def _key(plan: IdentityPlan, name: str, directory: str, *, simulated: bool) -> SigningKey:
    """Return the key of a node: of its file, of its seed, or one that is made for the run."""
    from ...protocol.identity import SEED_SIZE, SigningKey
    from ..identity import load_key_file, make_key_file

    if plan.key_file:
        words: str | None = None
        if plan.passphrase_file:
            words = read_own_secret(Path(plan.passphrase_file.replace("{dir}", directory)))
        return load_key_file(Path(plan.key_file.replace("{dir}", directory)), words).signing
    if plan.seed or simulated:  # no two runs would be the same with a key of chance
        return SigningKey(sha256(b"onward topology " + (plan.seed or name).encode()).digest())
    if not directory:
        return SigningKey(os.urandom(SEED_SIZE))
    path = Path(directory) / f"{name}.key"  # a node that is started again has it again
    return (load_key_file(path) if path.exists() else make_key_file(path)).signing
