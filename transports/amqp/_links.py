"""The links of one connection: those by which a client sends, and those by which it receives.

A link of a client that sends is a producer of the dispatcher, and gets its credit. One of a
client that receives is a consumer, which takes as many messages as the client has given credit for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

from ...protocol import OnwardError
from ...protocol.security import Principal
from ._attaches import read_attach
from ._deliveries import Pointer, impl_of
from ._engine import AmqpEngine, DeliveryChanged, EngineEvent, Flowed, LinkAttached, LinkDetached
from ._incoming import IncomingLink
from ._link_base import LinkHost
from ._options import AmqpOptions
from ._outgoing import OutgoingLink
from ._port import DispatchPort, Refused, refused
from ._proton import COORDINATOR, AmqpLink
from ._routed import RoutedLink
from ._routed_in import RoutedIncomingLink
from ._routed_out import RoutedOutgoingLink

__all__ = ["Links"]

_logger = logging.getLogger("onward.transports.amqp")

AnyLink: TypeAlias = IncomingLink | OutgoingLink | RoutedIncomingLink | RoutedOutgoingLink

TRANSACTIONS: Final = "$coordinator"
"""The name of the container that has the transactions, if it is one of circuits."""

FIRST: Final = 0
"""The mode of a receiver that settles at once, without waiting for the sender."""


_CLIENTS: Final = count(1)


class Links:
    """The links of one connection.

    Args:
        engine: Its engine.
        port: The dispatcher.
        options: The limits.
        principal: The client.
        wake: Called when there is something to send.
        dropped: Called with the reason when a message is dropped.
        fail: Called with an error of a call by the dispatcher: it ends the connection.
    """

    def __init__(
        self,
        engine: AmqpEngine,
        port: DispatchPort,
        options: AmqpOptions,
        principal: Principal,
        wake: Callable[[], object],
        dropped: Callable[[str], object],
        fail: Callable[[Exception], object],
    ) -> None:
        self._engine = engine
        self._port = port
        self._options = options
        self._principal = principal
        self._wake = wake
        self._dropped = dropped
        self._host = LinkHost(engine, options, wake, self._drop, fail)
        self._client = f"amqp-{next(_CLIENTS)}"
        self._links: dict[Pointer, AnyLink] = {}

    def handle(self, event: EngineEvent) -> None:
        """Handle an event of the engine."""
        match event:
            case DeliveryChanged(pointer, delivery):
                if (found := self._links.get(pointer)) is not None:
                    found.changed(delivery)
            case LinkAttached(link):
                self._attach(link)
            case LinkDetached(link, closed, ended):
                self._detach(link, closed=closed, ended=ended)
            case Flowed(link):
                if (found := self._links.get(impl_of(link))) is not None:
                    found.flowed()
            case _:
                pass

    def resume(self) -> None:
        """Pass credit on again that was held back for bytes that the client had not read."""
        for each in tuple(self._links.values()):
            each.resume()

    def lost(self) -> None:
        """End all links after the connection: what was sent and is unsettled is in doubt."""
        links, self._links = self._links, {}
        for each in links.values():
            each.gone()

    def _attach(self, link: AmqpLink) -> None:
        try:
            try:
                self._links[impl_of(link)] = self._made(link)
            except OnwardError as error:
                raise refused(error) from error
        except Refused as error:
            # AMQP 1.0, part 2, section 2.6.3: a link that is refused is answered with an attach
            # "with null for the source or target", and then closed.
            (link.target if link.is_receiver else link.source).type = 0
            link.open()
            link.condition = self._engine.condition(error.condition, error.description)
            link.close()

    def _made(self, link: AmqpLink) -> AnyLink:
        """Return a new link, tied to a circuit if its name is one of circuits."""
        asked = link.remote_target if link.is_receiver else link.remote_source
        name = TRANSACTIONS if asked.type == COORDINATOR else asked.address
        if name and not asked.dynamic and self._port.is_circuit(name):
            return self._route(link, name)
        return self._receive(link) if link.is_receiver else self._send(link)

    def _route(self, link: AmqpLink, name: str) -> AnyLink:
        made = (RoutedIncomingLink if link.is_receiver else RoutedOutgoingLink)(
            link, self._host, self._free
        )
        circuit = self._port.open_circuit(
            name,
            made,
            producer=link.is_receiver,
            properties=read_attach(self._engine.proton, link, self._host.window),
            principal=self._principal,
            client=self._client,
        )
        made.begin(circuit)
        return made

    def _free(self, link: AmqpLink) -> None:
        found = self._links.pop(impl_of(link), None)
        if found is not None:
            found.gone()
            self._engine.free(link)

    def _receive(self, link: AmqpLink) -> IncomingLink:
        asked = link.remote_target
        if asked.type == COORDINATOR:
            raise Refused("amqp:not-implemented", "there are no transactions")
        name = self._port.temporary_name() if asked.dynamic else asked.address or None
        made = IncomingLink(link, self._host)
        made.attach(
            self._port.open_producer(name, made, self._principal, self), anonymous=name is None
        )
        link.target.address = name
        link.target.dynamic = asked.dynamic
        link.source.address = link.remote_source.address
        link.rcv_settle_mode = FIRST
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.max_message_size = self._options.max_message
        link.open()
        return made

    def _send(self, link: AmqpLink) -> OutgoingLink:
        # Only the name of the source is answered. AMQP 1.0, part 3, section 3.5.3: the filters in
        # the answer are those "actually in place", and here are none.
        asked = link.remote_source
        name = self._port.temporary_name() if asked.dynamic else asked.address
        if not name:
            raise Refused("amqp:invalid-field", "a source needs a name")
        made = OutgoingLink(link, self._host)
        link.source.address = name
        link.source.dynamic = asked.dynamic
        link.target.address = link.remote_target.address
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.max_message_size = self._options.max_message
        made.attach(self._port.open_consumer(name, made, self._principal, self))
        link.open()
        return made

    def _detach(self, link: AmqpLink, *, closed: bool, ended: bool) -> None:
        found = self._links.get(impl_of(link))
        if isinstance(found, RoutedLink) and not ended and found.detach(closed=closed):
            return  # the other end answers
        self._links.pop(impl_of(link), None)
        if found is not None:
            found.gone()
        if closed:
            link.close()
        else:
            link.detach()
        self._engine.free(link)
        self._wake()

    def _drop(self, reason: str) -> None:
        self._dropped(reason)
        _logger.debug(
            "a message was dropped: %s",
            reason,
            extra={"event": "amqp.message_dropped", "reason": reason},
        )
