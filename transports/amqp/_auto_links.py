"""Links to a container that the node attaches by itself, and attaches again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from ...protocol import OnwardError
from ...protocol.options import check_options
from ...protocol.security import ANONYMOUS
from ._client_engine import ClientEngine
from ._incoming import IncomingLink
from ._links import Links
from ._options import AmqpOptions
from ._outgoing import OutgoingLink
from ._port import DispatchPort, refused
from ._proton import AmqpLink

__all__ = ["AutoLink", "AutoLinks"]

_logger = logging.getLogger("onward.transports.amqp")


@dataclass(frozen=True, slots=True)
class AutoLink:
    """A link between an address of a container and a name.

    Attributes:
        direction: `in`: messages of the address are sent to the name; `out`: messages to the name
            are sent to the address.
        address: The address, as the container knows it: of a queue, for instance.
        name: The name.
    """

    direction: Literal["in", "out"]
    address: str
    name: str

    def __post_init__(self) -> None:
        check_options(self)
        if not (self.address and self.name):
            raise ValueError("an AutoLink needs an address and a name")


class AutoLinks(Links):
    """The links of a connection to a container.

    A link is a producer or a consumer of the dispatcher for as long as the container has it
    attached. So a producer of a name with an `out` link alone has no credit without it.

    Args:
        engine: The engine of the connection.
        port: The dispatcher.
        options: The limits.
        wake: Called when there is something to send.
        dropped: Called with the reason when a message is dropped.
        fail: Called with an error of a call by the dispatcher: it ends the connection.
        ended: Called with a link that has ended while the connection is open.
    """

    def __init__(
        self,
        engine: ClientEngine,
        port: DispatchPort,
        options: AmqpOptions,
        wake: Callable[[], object],
        dropped: Callable[[str], object],
        fail: Callable[[Exception], object],
        ended: Callable[[AutoLink], object],
    ) -> None:
        super().__init__(engine, port, options, ANONYMOUS, wake, dropped, fail)
        self._client: Final = engine
        self._ended: Final = ended
        self._plans: dict[AmqpLink, AutoLink] = {}

    @property
    def attached(self) -> int:
        """The number of links that the container has attached."""
        return len(self._links)

    def begin(self, plan: AutoLink) -> None:
        """Attach a link."""
        link = self._client.attach(plan.address, receives=plan.direction == "in")
        self._plans[link] = plan
        self._wake()

    def _attach(self, link: AmqpLink) -> None:
        plan = self._plans.get(link)
        if plan is None:
            self._refuse(link)
            return
        asked = link.remote_source if link.is_receiver else link.remote_target
        if not asked.type:
            # AMQP 1.0, part 2, section 2.6.3: it is refused, and its end follows.
            return
        try:
            self._links[link] = self._bind(link, plan.name)
        except OnwardError as error:
            said = refused(error)
            link.condition = self._engine.condition(said.condition, said.description)
            link.close()

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

    def _detach(self, link: AmqpLink, *, closed: bool) -> None:
        plan = self._plans.pop(link, None)
        reason = link.remote_condition
        super()._detach(link, closed=closed)
        if plan is not None:
            _logger.info(
                "the link of %s with %s has ended: %s",
                plan.name,
                plan.address,
                ((reason.name if reason is not None else None) or "without a reason")[:100],
                extra={"event": "amqp.link_ended"},
            )
            self._ended(plan)
