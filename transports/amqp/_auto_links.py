"""Links to a container that the node attaches by itself, and attaches again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from ...actors.dispatch import CircuitContainer, CircuitLink, CircuitLinkEnd, ConsumerRefused
from ...protocol import OnwardError
from ...protocol.dispatch import CircuitAttach, CircuitPool, Refusal
from ...protocol.security import ANONYMOUS
from .._log import SeldomLogger, shown
from ._client_engine import ClientEngine
from ._container_links import AutoLink, LinkRoute, Plan
from ._deliveries import impl_of
from ._incoming import IncomingLink
from ._links import Links
from ._options import AmqpOptions
from ._outgoing import OutgoingLink
from ._port import DispatchPort, Refused, refused
from ._proton import AmqpLink
from ._routed import RoutedLink
from ._routed_in import RoutedIncomingLink
from ._routed_out import RoutedOutgoingLink

__all__ = ["AutoLinks", "LinkOwner"]

_logger = logging.getLogger("onward.transports.amqp")

MAX_REASON: Final = 100
"""Most characters that are kept of the condition by which a container ends a link."""


MAX_UNANSWERED: Final = 8
"""Links of one connection that were given up and that the container still has not answered; then
the connection is closed."""

NOT_ANSWERED: Final = "not answered in time"
"""The reason of such a link."""


class LinkOwner(Protocol):
    """The connection to a container, as its links know it."""

    def link_attached(self, plan: Plan) -> None:
        """Record that the container has attached a link, or serves a name."""
        ...

    def link_ended(self, plan: Plan, reason: str) -> None:
        """Record that a link or a route has ended while the connection is open."""
        ...

    def links_full(self) -> None:
        """Count a link of a client that is refused, as there are `AmqpOptions.max_links`."""
        ...


class AutoLinks(Links):
    """The links of a connection to a container.

    A link is a producer or a consumer of the dispatcher for as long as the container has it
    attached. So a producer of a name with an `out` link alone has no credit without it. A route is
    there for as long as the connection.

    Args:
        engine: The engine of the connection.
        port: The dispatcher.
        options: The limits.
        wake: Called when there is something to send.
        dropped: Called with the reason when a message is dropped.
        fail: Called with an error of a call by the dispatcher: it ends the connection.
        owner: The connection, which is told what becomes of each link.
    """

    def __init__(
        self,
        engine: ClientEngine,
        port: DispatchPort,
        options: AmqpOptions,
        wake: Callable[[], object],
        dropped: Callable[[str], object],
        fail: Callable[[Exception], object],
        owner: LinkOwner,
    ) -> None:
        super().__init__(engine, port, options, ANONYMOUS, wake, dropped, fail)
        self._container: Final = engine
        self._owner: Final = owner
        self._seldom: Final = SeldomLogger(_logger)
        self._plans: dict[AmqpLink, AutoLink] = {}
        self._given_up: set[AmqpLink] = set()
        # The links of the node itself, which have their places also while they are not there.
        self._own: set[AutoLink] = set()
        self._routes: dict[LinkRoute, CircuitContainer] = {}
        # A client has a share of the links of the container, whatever it attaches to.
        self._pool: Final = CircuitPool(("amqp", self._client), options.max_links)

    @property
    def attached(self) -> int:
        """The number of links of the node itself that the container has attached."""
        return sum(impl_of(link) in self._links for link in self._plans)

    @property
    def circuits(self) -> int:
        """The number of links that go through to the container."""
        return len(self._links) - self.attached

    @property
    def routes(self) -> int:
        """The number of names with links that go through to the container."""
        return len(self._routes)

    def begin(self, plan: Plan) -> None:
        """Attach a link, or take the links of a name."""
        if isinstance(plan, LinkRoute):
            self._serve(plan)
            return
        self._own.add(plan)
        link = self._container.attach(plan.address, receives=plan.direction == "in")
        self._plans[link] = plan
        self._wake()

    def give_up(self, plan: AutoLink) -> None:
        """Detach a link that the container has not answered in time."""
        for link in [link for link, each in self._plans.items() if each == plan]:
            del self._plans[link]
            self._given_up.add(link)
            link.condition = self._engine.condition("amqp:link:detach-forced", NOT_ANSWERED)
            link.close()
        self._ended(plan, NOT_ANSWERED)
        if len(self._given_up) >= MAX_UNANSWERED:
            self._engine.close("amqp:resource-limit-exceeded", "links are not answered")
        self._wake()

    def lost(self) -> None:
        """End all links and routes after the connection."""
        routes, self._routes = self._routes, {}
        super().lost()
        for each in routes.values():
            each.close()

    def _serve(self, route: LinkRoute) -> None:
        try:
            made = self._port.serve_circuits(
                route.name,
                partial(self._accept, route),
                ended=lambda error: self._route_ended(route, error),
                pool=self._pool,
            )
        except OnwardError as error:
            told = refused(error)
            why = told.description or told.condition
            if isinstance(error, ConsumerRefused) and error.reason is Refusal.MESSAGES:
                why = 'the name is not provisioned here with mechanism = "link", or not yet'
            self._seldom.log(
                logging.WARNING,
                "route",
                "links of %s do not go through to a container: %s",
                route.name,
                why,
                extra={"event": "amqp.route_refused"},
            )
            self._owner.link_ended(route, told.condition)
        else:
            self._routes[route] = made
            self._owner.link_attached(route)

    def _route_ended(self, route: LinkRoute, error: ConsumerRefused) -> None:
        self._routes.pop(route, None)
        self._owner.link_ended(route, refused(error).condition)

    def _accept(
        self, route: LinkRoute, attach: CircuitAttach, circuit: CircuitLink
    ) -> CircuitLinkEnd:
        """Ask the container for a link, with which the circuit is accepted or refused."""
        kind = RoutedOutgoingLink if attach.producer else RoutedIncomingLink
        try:
            link = self._link_for(route, attach)
        except Refused as error:
            # One of this connection would be attached when it is freed.
            stray = self._container.stray_link
            circuit.refuse(error.condition, error.description)
            return kind(stray, self._host, self._free, accepts=True)
        made = kind(link, self._host, self._free, accepts=True)
        made.begin(circuit)
        self._links[impl_of(link)] = made
        link.open()
        self._wake()
        return made

    def _link_for(self, route: LinkRoute, attach: CircuitAttach) -> AmqpLink:
        if self.circuits >= self._options.max_links - len(self._own):
            self._owner.links_full()
            raise Refused("amqp:resource-limit-exceeded", "too many links")
        address = route.address or route.name
        return self._container.link_as(address, attach.properties, receives=not attach.producer)

    def _attach(self, link: AmqpLink) -> None:
        if isinstance(found := self._links.get(impl_of(link)), RoutedLink):
            found.answered()
            return
        if link in self._given_up:
            return  # its end follows, as of one that is refused
        plan = self._plans.get(link)
        if plan is None:
            self._refuse(link)
            return
        asked = link.remote_source if link.is_receiver else link.remote_target
        if not asked.type:
            # AMQP 1.0, part 2, section 2.6.3: it is refused, and its end follows.
            return
        try:
            self._links[impl_of(link)] = self._bind(link, plan.name)
        except OnwardError as error:
            said = refused(error)
            link.condition = self._engine.condition(said.condition, said.description)
            link.close()
        else:
            self._owner.link_attached(plan)

    def _bind(self, link: AmqpLink, name: str) -> IncomingLink | OutgoingLink:
        # The links are those of the node's own program, which may use each name.
        if link.is_receiver:
            source = IncomingLink(link, self._host)
            source.attach(self._port.open_producer(name, source), anonymous=False)
            return source
        target = OutgoingLink(link, self._host)
        target.attach(self._port.open_consumer(name, target))
        target.flowed()
        return target

    def _refuse(self, link: AmqpLink) -> None:
        (link.target if link.is_receiver else link.source).type = 0
        link.open()
        link.condition = self._engine.condition("amqp:not-allowed", "")
        link.close()

    def _detach(self, link: AmqpLink, *, closed: bool, ended: bool) -> None:
        self._given_up.discard(link)
        plan = self._plans.pop(link, None)
        # Either end may have refused it, or ended it.
        found = link.remote_condition or link.condition
        super()._detach(link, closed=closed, ended=ended)
        if plan is not None:
            told = (found.name if found is not None else None) or "without a reason"
            self._ended(plan, shown(told[:MAX_REASON]))

    def _ended(self, plan: AutoLink, reason: str) -> None:
        _logger.info(
            "the link of %s with %s has ended: %s",
            plan.name,
            plan.address,
            reason,
            extra={"event": "amqp.link_ended"},
        )
        self._owner.link_ended(plan, reason)
