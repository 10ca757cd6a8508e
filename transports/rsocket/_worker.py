"""The worker that stands for one RSocket connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...actors import Worker
from ...actors.broker import exchange_of
from ...actors.broker._exchange import refuse_copy
from ...protocol import TAGS, Message, NotDelivered, ProtocolError
from ._local import LocalRequests
from ._request import FrameExchange

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["ConnectionWorker"]


class ConnectionWorker(Worker):
    """The worker that receives the messages routed to a connection.

    There are three kinds: requests of other connections, relayed to this peer; answers of workers
    to requests of this peer, with the stream as the second address of their onward route; and
    messages of workers that selected this peer by its tags. For a peer broker, the latter have the
    query as the second address.

    Attributes:
        link: The connection; `None` once it has ended.
    """

    is_connection: ClassVar[bool] = True
    has_flows: ClassVar[bool] = False  # requests are counted, and there may be many connections

    def __init__(self) -> None:
        super().__init__()
        self.link: Link | None = None
        self._local: LocalRequests | None = None

    def attach(self, link: Link) -> None:
        """Set the worker's connection."""
        self.link = link
        self._local = LocalRequests(link, self)

    def detach(self) -> None:
        """Release the connection, which has ended.

        The two refer to each other; without this they would wait for the cycle collector.
        """
        self.link = self._local = None

    @property
    def local(self) -> LocalRequests:
        """The requests between the peer and workers of this node."""
        if self._local is None:
            raise AssertionError("the worker has no connection")
        return self._local

    def handle_message(self, message: Message) -> None:
        """Relay a request, send an answer to the peer, or send the message as a request."""
        link = self.link
        exchange = exchange_of(message)
        onward = message[0]
        try:
            if link is None:
                raise NotDelivered("the destination", "it has just left")
            if len(onward) > 1 and not (onward[1].type == TAGS and link.to_broker):
                self.local.answer(message)
            elif isinstance(exchange, FrameExchange):
                if exchange.kept:
                    exchange.hand_to(link)
                elif not exchange.ended:
                    refuse_copy(self.node, message)
            else:
                self.local.ask(message)
        except (NotDelivered, ProtocolError) as error:
            if isinstance(exchange, FrameExchange):
                exchange.fail(error)
            elif message.return_route:
                self.node.fail_request(message.return_route[0], error)
            self.node.dead_letter(message, error)

    def on_stop(self) -> None:
        """Close the connection with its worker."""
        if self.link is not None:
            self.link.close("stopped", "the broker stops")
