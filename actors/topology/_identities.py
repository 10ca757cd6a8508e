"""The identity of a node of a running topology: its engines, topics, domains, and what it joins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...protocol import Address, OnwardError
from ...protocol.topology import (
    DomainPlan,
    IdentityPlan,
    LinkPlan,
    ListenerPlan,
    Position,
    SubscriptionPlan,
    TopologyPlan,
    put_references,
)
from .._node import Node
from ._dispatchers import SIMULATED_EPOCH
from ._errors import TopologyFailed
from ._identity_keys import group_keys, keys_of, names_of, seeded

if TYPE_CHECKING:
    from ...protocol.identity import Identity, JoinRequest, RoutingScope, SigningKey

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
        keys: The keys of its topics and domains, by their names in the file.
        names: The identities of the node, its engines, topics and domains, as text, by their names
            in the file; and those of others that are known by their seeds.
    """

    def __init__(
        self,
        topology: TopologyPlan,
        plan: IdentityPlan,
        identities: Any,
        keys: dict[str, SigningKey],
        names: dict[str, str],
    ) -> None:
        self._topology: Final = topology
        self._plan: Final = plan
        self._keys: Final = keys
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
            from ...protocol.identity import RelayPolicy, identity_text, parse_relay_rules

            names = seeded(topology, simulated=simulated)
            rules = [put_references(each, names) for each in plan.relay]
            keys = keys_of(plan.key, name, directory, simulated=simulated)
            groups = group_keys(plan, directory, simulated=simulated)
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
            text = "an identity needs the extra: install onward[identity]"
            raise TopologyFailed(plan.place, text) from error
        except (OnwardError, OSError, ValueError) as error:
            raise TopologyFailed(plan.place, f"cannot have an identity: {error}") from error
        names |= names_of(name, plan, keys.identity)
        names |= {each: identity_text(key.identity) for each, key in groups.items()}
        return cls(topology, plan, identities, groups, names)

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
        """Make the workers engines, once they have started, and what other nodes look for.

        It reserves at relays, signs the members of domains, serves domains and creates topics.

        Args:
            names: The identities that are known, by their names in the file.

        Raises:
            TopologyFailed: A relay gives no reservation, or something cannot be made.
        """
        plan, place = self._plan, self._plan.place
        for worker in plan.engines:
            self.identities.engine(worker)
        for relay in plan.reserve:
            try:
                await self.identities.reserve(_known(names, relay))
            except (OnwardError, LookupError) as error:
                raise _failed(place, f"cannot reserve at {relay}", error) from error
        for domain in plan.domains:
            self._found(domain, names)
        for service in plan.services:
            try:
                for name in service.domains:
                    domain_of = _known(names, name)
                    self.identities.serve(domain_of, service.worker, expose=service.expose)
            except (OnwardError, LookupError) as error:
                raise _failed(service.place, "cannot serve", error) from error
        for topic in plan.topics:
            try:
                self.identities.create_topic(
                    self._keys[topic.name],
                    engine=topic.engine,
                    scope=_scope(topic.scope, names),
                    publishers=[_known(names, each) for each in topic.publishers],
                )
            except (OnwardError, LookupError) as error:
                raise _failed(topic.place, "cannot be created", error) from error

    def _found(self, domain: DomainPlan, names: Mapping[str, str]) -> None:
        try:
            admitted = {_known(names, each) for each in domain.admit}
            members = [_known(names, each) for each in domain.members]

            def admit(request: JoinRequest) -> bool:
                return domain.admits_all or request.requestor in admitted

            self.identities.found_domain(self._keys[domain.name], members or None, admit=admit)
        except (OnwardError, LookupError, ValueError) as error:
            raise _failed(domain.place, "cannot have members", error) from error

    async def subscribe(self, names: Mapping[str, str]) -> None:
        """Join the domains and subscribe the workers, once other nodes have what is asked for.

        A subscription waits for its topic for 30 seconds.

        Args:
            names: The identities that are known, by their names in the file.

        Raises:
            TopologyFailed: A domain does not let the node in, or a topic takes no subscription.
        """
        for name in self._plan.join:
            await self._join_domain(name, names)
        asked = [
            asyncio.ensure_future(self._subscribe(each, topic, names))
            for each in self._plan.subscriptions
            for topic in each.topics
        ]
        try:
            await asyncio.gather(*asked)
        finally:
            for each in asked:
                each.cancel()

    async def _join_domain(self, name: str, names: Mapping[str, str]) -> None:
        from ...protocol.identity import ResultCode

        founder = next(
            node.name
            for node in self._topology.nodes
            if node.identity is not None
            and any(each.name == name for each in node.identity.domains)
        )
        try:
            domain, via = _known(names, name), _known(names, founder)
            code = await self.identities.join_domain(domain, via)
        except (OnwardError, LookupError) as error:
            raise _failed(self._plan.place, f"cannot join {name}", error) from error
        if code not in {ResultCode.OK, ResultCode.EXISTS}:
            raise TopologyFailed(
                self._plan.place, f"cannot join {name}: {founder} says {code.name}"
            )

    async def _subscribe(
        self, plan: SubscriptionPlan, topic: str, names: Mapping[str, str]
    ) -> None:
        try:
            scope = _scope(plan.scope, names)
            await self.identities.subscribe(_known(names, topic), plan.worker, scope=scope)
        except (OnwardError, LookupError) as error:
            raise _failed(plan.place, f"cannot subscribe to {topic}", error) from error


def _failed(place: Position, what: str, error: Exception) -> TopologyFailed:
    return TopologyFailed(place, f"{what}: {error}")


class _Unknown(LookupError):
    """An identity that is not known yet, as its node is started by another command."""

    def __str__(self) -> str:
        return f"the identity of {self.args[0]} is not known here: give it a seed"


def _known(names: Mapping[str, str], name: str) -> Identity:
    """Return the identity of a name of the file.

    Raises:
        LookupError: It is not known.
    """
    from ...protocol.identity import parse_identity

    if name not in names:
        raise _Unknown(name)
    return parse_identity(names[name])


def _scope(scope: str, names: Mapping[str, str]) -> RoutingScope:
    """Return a scope; raises as `_known`."""
    from ...protocol.identity import SCOPE_ANY, SCOPE_LOCAL, RoutingScope, ScopeKind

    if scope == "any":
        return SCOPE_ANY
    return SCOPE_LOCAL if scope == "local" else RoutingScope(ScopeKind.DOMAIN, _known(names, scope))


def exposes_router(listener: ListenerPlan, topology: TopologyPlan) -> bool:
    """Whether other nodes can join the node of a listener there."""
    special = listener.is_for_broker or listener.is_for_clients
    return topology.node(listener.node).identity is not None and not special
