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
    put_references,
)
from .._node import Node
from ..security._own_files import read_own_secret
from ._dispatchers import SIMULATED_EPOCH
from ._errors import TopologyFailed

if TYPE_CHECKING:
    from ...protocol.identity import Identity, SigningKey
    from ..identity import IdentityKeys

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
        names: The identities of the node and its engines, as text, by their names in the file;
            and those of other nodes that are known by their seeds.
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
            from ...protocol.identity import RelayPolicy, parse_relay_rules

            names = _seeded(topology, simulated=simulated)
            rules = [put_references(each, names) for each in plan.relay]
            keys = _keys(plan, name, directory, simulated=simulated)
            file = plan.directory.replace("{dir}", directory)
            identities = await transport.Identities.attach(
                node,
                keys,
                expose=plan.expose,
                directory=Path(file) if file else None,
                clock=clock if simulated else None,
                relay=parse_relay_rules(rules) if rules else RelayPolicy(),
            )
        except ModuleNotFoundError as error:
            text = f"identities need the extra onward[identity]: {error}"
            raise TopologyFailed(plan.place, text) from error
        except (OnwardError, OSError, ValueError) as error:
            raise TopologyFailed(plan.place, f"cannot have an identity: {error}") from error
        return cls(topology, plan, identities, names | _names(name, plan, keys.identity))

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

    async def start_engines(self, names: Mapping[str, str]) -> None:
        """Make the workers engines, once they have started, and reserve at relays.

        Args:
            names: The identities that are known, by the names of nodes.

        Raises:
            TopologyFailed: A relay gives no reservation.
        """
        from ...protocol.identity import parse_identity

        for worker in self._plan.engines:
            self.identities.engine(worker)
        for relay in self._plan.reserve:
            try:
                await self.identities.reserve(parse_identity(names[relay]))
            except OnwardError as error:
                text = f"cannot reserve at {relay}: {error}"
                raise TopologyFailed(self._plan.place, text) from error


def exposes_router(listener: ListenerPlan, topology: TopologyPlan) -> bool:
    """Whether other nodes can join the node of a listener there."""
    special = listener.is_for_broker or listener.is_for_clients
    return topology.node(listener.node).identity is not None and not special


def _names(name: str, plan: IdentityPlan, own: Identity) -> dict[str, str]:
    """Return the identities of a node and its engines, as text, by their names in the file."""
    from ...protocol.identity import derived_engine, identity_text

    engines = {
        engine_name(name, each): identity_text(derived_engine(own, each.value))
        for each in plan.engines
    }
    return {name: identity_text(own)} | engines


def _seeded(topology: TopologyPlan, *, simulated: bool) -> dict[str, str]:
    """Return the identities that are known before their nodes run."""
    names: dict[str, str] = {}
    for node in topology.nodes:
        if node.identity is not None:
            key = _seed_key(node.identity, node.name, simulated=simulated)
            names |= {} if key is None else _names(node.name, node.identity, key.identity)
    return names


def _seed_key(plan: IdentityPlan, name: str, *, simulated: bool) -> SigningKey | None:
    """Return the key that is made of a seed; in a simulated network the name is one."""
    from ...protocol.identity import SigningKey

    # No two runs would be the same with a key of chance.
    seed = plan.seed or (name if simulated and plan.is_made else "")
    if not seed:
        return None
    return SigningKey(sha256(b"onward topology " + seed.encode()).digest())


def _keys(
    plan: IdentityPlan, name: str, directory: str, *, simulated: bool
) -> SigningKey | IdentityKeys:
    """Return the keys of a node: of its file, of its seed, or some that are made for the run."""
    from ...protocol.identity import SEED_SIZE, SigningKey
    from ..identity import load_key_file, make_key_file

    if plan.key_file:
        words: str | None = None
        if plan.passphrase_file:
            words = read_own_secret(Path(plan.passphrase_file.replace("{dir}", directory)))
        return load_key_file(Path(plan.key_file.replace("{dir}", directory)), words)
    seeded = _seed_key(plan, name, simulated=simulated)
    if seeded is not None:
        return seeded
    if not directory:
        return SigningKey(os.urandom(SEED_SIZE))
    path = Path(directory) / f"{name}.key"  # a node that is started again has it again
    return load_key_file(path) if path.exists() else make_key_file(path)
