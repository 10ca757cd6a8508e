"""One node of a running topology, started in steps.

`Topology` takes the steps in one process; the parent of the processes takes them otherwise. The
steps are the same, so a file runs both ways:

1. `open`: start the node.
2. `listen`: start its broker, its dispatcher and its identity, if it has them, open its listeners,
   and return their ports.
3. `link`: open its links, once all nodes listen. Each gets its name, as one more address. Its
   broker dials the others of its cluster, its dispatcher joins its neighbours, and its router other
   nodes with identities.
4. `start_workers`: start its workers, once all links are up and the workers at their other ends
   have started. So a worker may send to another node at its start. Then some of them become
   destinations of its broker, consumers of names, or engines, and its dispatcher connects to
   containers. Its router reserves at relays, serves domains and creates topics.
5. `subscribe`: join domains and subscribe workers to topics, once the workers of all nodes have
   started: two nodes may each have a topic of the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from ...protocol import Address, DeliveryError, LinkDown, OnwardError
from ...protocol.topology import (
    LinkPlan,
    ListenerPlan,
    OptionValue,
    Position,
    RequestPlan,
    TopologyPlan,
    put_identities,
)
from .._node import Node
from ..security import (
    Authentication,
    CertificateAuthenticator,
    PasswordAuthenticator,
    PrincipalsFile,
    TokenAuthenticator,
    UnixAuthenticator,
)
from ..tracing import HopTracer
from ._brokers import SIMULATED, RunningBroker
from ._dispatchers import RunningDispatcher, exposed_by
from ._errors import TopologyFailed
from ._identities import ROUTER, RunningIdentity, exposes_router
from ._load import Factories, mailbox_of, supervision_of

__all__ = ["RequestOutcome", "RunningNode"]

RETRY: Final = 0.2
"""Delay before another attempt to connect to a listener that is not open yet, in seconds."""

NODE_OPTIONS: Final = frozenset({"error_replies"})
"""Options of listeners and links that the node handles, for every transport."""

PAUSE: Final = 0.05
"""Delay before a request with an unexpected outcome is repeated, in seconds."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The outcome of a request of a topology.

    Attributes:
        request: The request.
        ok: Whether the outcome is as expected.
        told: The answer's payload, or why there was none, as a text for readers.
        seconds: The time of all attempts together, in seconds of the loop's clock.
    """

    request: RequestPlan
    ok: bool
    told: str
    seconds: float

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        # The clocks of some loops have a resolution of a millisecond.
        took = f"{self.seconds * 1000:.0f} ms" if self.seconds >= 0.001 else "< 1 ms"
        return f"{verdict}  {self.request.place}  {self.told}  {took}"


class RunningNode:
    """One node of a plan.

    Args:
        plan: The whole plan.
        name: The name of the node.
        factories: The factories of its workers.
        node: The node, open already; by default one is made and opened.
        directory: The value of `{dir}` in a URI.
        faults: The faults of links that have none of their own, a dataclass, in a simulated
            network, where listeners are names. `None` if the network is not simulated.

    Attributes:
        node: The node.
        broker: Its broker, once it listens; `None` if it has none.
        dispatcher: Its dispatcher, once it listens; `None` if it has none.
        identity: Its identity, once it listens; `None` if it has none.
        identities: The identities of all nodes and their engines, as text, by their names in the
            file: its own once it listens, others from `link` on.
    """

    def __init__(
        self,
        plan: TopologyPlan,
        name: str,
        factories: Factories,
        *,
        node: Node | None = None,
        directory: str = "",
        faults: Any = None,
    ) -> None:
        self._plan = plan
        self._part = plan.node(name)
        self.node = node or Node(name, error_replies=self._part.error_replies)
        self._factories = factories
        self._is_open = node is not None
        self._directory = directory
        self._faults = faults
        self._simulated = faults is not None
        self.broker: RunningBroker | None = None
        self.dispatcher: RunningDispatcher | None = None
        self.identity: RunningIdentity | None = None
        self.identities: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The node's name."""
        return self._part.name

    async def open(self) -> None:
        """Start the node, and its tracer, which sends hop reports to requesters of traces."""
        self.node.add_instrument(self._tracer())
        if not self._is_open:
            self._is_open = True
            await self.node.__aenter__()
        # All nodes listen before the first worker starts, and each takes the time it takes.
        self.node.parts.guards.exposures.expected = frozenset(
            address for worker in self._part.workers for address in worker.addresses
        )

    def _tracer(self) -> HopTracer:
        if not self._simulated:
            return HopTracer(self.node)

        # With the machine's own time in the reports, no two runs would be the same.
        def clock() -> int:
            return round(self.node.loop.time() * 1e9)

        return HopTracer(self.node, wall_clock=clock, clock=clock)

    async def listen(self, uris: Mapping[str, str] | None = None) -> dict[str, str]:
        """Open the listeners.

        Args:
            uris: The URIs to listen at, by `ListenerPlan.id`, in place of those of the plan: those
                of an earlier run, which other nodes have links to.

        Returns:
            The URI of each, with its actual port, by `ListenerPlan.id`.

        Raises:
            TopologyFailed: One cannot be opened.
        """
        self.broker = await RunningBroker.start(
            self._plan, self.name, self.node, simulated=self._simulated
        )
        self.dispatcher = await RunningDispatcher.start(
            self._plan,
            self.name,
            self.node,
            None if self.broker is None else self.broker.broker,
            directory=self._directory,
            simulated=self._simulated,
        )
        self.identity = await RunningIdentity.start(
            self._plan,
            self.name,
            self.node,
            directory=self._directory,
            simulated=self._simulated,
        )
        if self.identity is not None:
            self.identities.update(self.identity.names)
        earlier = uris or {}
        made_at: dict[str, str] = {}
        for listener in self._part.listeners:
            if self._simulated and listener.is_for_clients:
                raise TopologyFailed(listener.place, f"{listener.uri} is not part of a simulation")
            uri = earlier.get(listener.id) or self._uri(listener)
            try:
                made = await self.node.listen(
                    uri,
                    expose=self._exposed_by(listener),
                    allow=listener.allow,
                    **self._options(listener),
                    **self._parts_of(listener),
                    **self._principals_of(listener),
                )
                self.node.add_address(made.address, listener.address)
            except Exception as error:
                # A transport may be a third party's, which may raise any exception.
                raise _failed(listener.place, f"cannot listen at {uri}", error) from error
            made_at[listener.id] = made.uri
        return made_at

    def _exposed_by(self, listener: ListenerPlan) -> tuple[Address, ...]:
        exposed = exposed_by(listener, self._plan)
        return (*exposed, ROUTER) if exposes_router(listener, self._plan) else exposed

    def _parts_of(self, listener: ListenerPlan) -> dict[str, Any]:
        """Return the broker or dispatcher that a listener is for, as options."""
        if listener.is_for_clients and self.dispatcher is not None:
            return {"dispatcher": self.dispatcher.dispatcher}
        return {} if self.broker is None else self.broker.options_of(listener)

    def _principals_of(self, listener: ListenerPlan) -> dict[str, Any]:
        """Return the authentication of the peers of a listener, as an option.

        Raises:
            OSError: The file of principals cannot be read.
            FileError: It has problems.
        """
        # As certificates, principals are no part of a simulated network.
        if not listener.principals or self._simulated:
            return {}
        file = PrincipalsFile(listener.principals.replace("{dir}", self._directory))
        methods = (
            CertificateAuthenticator(file),
            UnixAuthenticator(file),
            TokenAuthenticator(file),
            PasswordAuthenticator(file),
        )
        return {"authentication": Authentication(methods)}

    def _uri(self, listener: ListenerPlan) -> str:
        if self._simulated:
            return f"{SIMULATED if listener.is_for_broker else 'sim'}://{listener.id}"
        return listener.uri.replace("{dir}", quote(self._directory))

    def _options(self, plan: ListenerPlan | LinkPlan) -> dict[str, OptionValue]:
        """Return the options, without those of a transport that is not used."""
        if not self._simulated:
            return dict(plan.options)
        options = {name: value for name, value in plan.options.items() if name in NODE_OPTIONS}
        if isinstance(plan, LinkPlan) and (given := plan.faults.given()):
            # For this link alone: there may be others between the same nodes.
            options["faults"] = replace(self._faults, **given)
        return options

    async def link(
        self,
        uris: Mapping[str, str],
        identities: Mapping[str, str] | None = None,
        *,
        patience: float = 0.0,
    ) -> None:
        """Open the links.

        Args:
            uris: The URIs of the listeners, by `ListenerPlan.id`.
            identities: The identities of other nodes and their engines, as far as they are known.
            patience: The time for which connecting to a closed listener is repeated, for each link,
                in seconds.

        Raises:
            TopologyFailed: One cannot be opened.
        """
        self.identities.update(identities or {})
        if self.broker is not None:
            self.broker.join(self._plan, uris)
        for link in self._plan.links_from(self.name):
            if link.to_listener and link.to_listener not in uris:
                raise TopologyFailed(link.place, f"the URI of {link.to_listener} is not known")
            if self._simulated and not link.to_listener:
                raise TopologyFailed(link.place, f"{link.uri} is not part of the simulation")
            uri = uris[link.to_listener] if link.to_listener else link.uri
            try:
                own = await self._connect(uri, link, patience)
                self.node.add_address(own, link.address)
                if self.dispatcher is not None:
                    await self.dispatcher.join(link, own)
                if self.identity is not None:
                    await self.identity.join(link, own, self.identities)
            except Exception as error:
                raise _failed(link.place, f"cannot connect to {uri}", error) from error

    async def _connect(
        self,
        uri: str,
        link: LinkPlan,
        patience: float,
    ) -> Address:
        options = self._options(link)
        deadline = self.node.loop.time() + patience
        while True:
            try:
                return await self.node.connect(uri, expose=link.expose, allow=link.allow, **options)
            except LinkDown:
                if self.node.loop.time() >= deadline:
                    raise
            await asyncio.sleep(min(RETRY, patience))

    async def start_workers(self) -> None:
        """Start the workers, in the order of the file.

        Raises:
            TopologyFailed: One does not start.
        """
        for worker in self._part.workers:
            try:
                await self.node.start(
                    self._factories[self.name, worker.address],
                    address=worker.addresses,
                    mailbox=mailbox_of(worker.mailbox),
                    supervision=supervision_of(worker.supervision),
                )
            except Exception as error:
                # A worker's own code runs here, which may raise any exception.
                raise _failed(worker.place, "cannot start", error) from error
        self.node.parts.guards.exposures.expected = frozenset()
        if self.broker is not None:
            self.broker.register()
        if self.dispatcher is not None:
            await self.dispatcher.consume()
        if self.identity is not None:
            await self.identity.start_engines(self.identities)

    async def subscribe(self) -> None:
        """Join domains, and subscribe workers to topics, once all nodes have started their workers.

        Raises:
            TopologyFailed: The node cannot join a domain, or a worker is not subscribed.
        """
        if self.identity is not None:
            await self.identity.subscribe(self.identities)

    async def ask(self, request: RequestPlan) -> RequestOutcome:
        """Make one request of the plan, and repeat it if the plan says so."""
        clock = self.node.loop.time
        began = clock()
        while True:
            ok, told = await self._ask(request)
            now = clock()
            left = began + request.within - now
            if ok or left <= 0:
                return RequestOutcome(request, ok, told, now - began)
            await asyncio.sleep(min(PAUSE, left))

    async def _ask(self, request: RequestPlan) -> tuple[bool, str]:
        if request.name and self.dispatcher is not None:
            return await self.dispatcher.produce(request)
        try:
            route = put_identities(request.route, self.identities)
            answer = await self.node.request(route, request.payload, timeout=request.timeout)
        except DeliveryError as error:
            # An error reply of another node carries its reason as a detail.
            return request.error in {error.reason, error.detail} - {""}, str(error)
        except OnwardError as error:
            return False, str(error)
        told = _text(answer.payload)
        if request.error:
            return False, f"{told!r} instead of {request.error!r}"
        if request.expect is not None and answer.payload != request.expect:
            return False, f"{told!r} instead of {_text(request.expect)!r}"
        return True, repr(told)

    async def stop(self, timeout: float = 5.0) -> None:
        """Stop the node: workers, links, listeners. Idempotent.

        Args:
            timeout: The longest time it may take, in seconds.
        """
        await self.node.stop(timeout=timeout)


def _failed(place: Position, what: str, error: Exception) -> TopologyFailed:
    told = str(error) or type(error).__name__
    return TopologyFailed(place, f"{what}: {told}")


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "backslashreplace")
