"""The worker that passes requests to a service's handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol import DeliveryError, Message, ProtocolError, WorkerFailed
from ..._worker import Worker
from .._exchange import Exchange, exchange_of
from ._handlers import ApplicationError, Handlers, Interaction, Request

if TYPE_CHECKING:
    from .._ends import DestinationEnd
    from ._service import Handling

__all__ = ["ServiceWorker"]

FORGET_AT: Final = 64
"""Number of ended requests that may be kept before they are removed."""


class ServiceWorker(Worker):
    """A worker that passes requests to handlers of this node.

    An exchange is connected to its handler for the whole interaction. A plain message is a
    request/response if it has a return route, along which the answer is sent, and otherwise a
    fire-and-forget. When the worker stops, unfinished requests are CANCELED and their handlers
    cancelled.

    Args:
        handlers: The handlers.
    """

    def __init__(self, handlers: Handlers) -> None:
        super().__init__()
        self._handlers = handlers
        self._serving: list[tuple[Exchange | _Reply, DestinationEnd]] = []
        self._forget_at = FORGET_AT

    def handle_message(self, message: Message) -> None:
        """Start the handler for a request, once the request is complete."""
        request = exchange_of(message)
        if request is None:
            reply = _Reply(self, self._handlers, message)
            self._keep(reply, reply.start())
        elif not request.ended and request.whole(lambda: self.handle_message(message)):
            try:
                self._keep(request, request.start(self._handlers.start))
            except ProtocolError as error:
                request.fail(error)

    def _keep(self, request: Exchange | _Reply, handling: DestinationEnd) -> None:
        """Store a request until it has ended, or a little longer."""
        serving = self._serving
        serving.append((request, handling))
        if len(serving) > self._forget_at:
            self._serving = serving = [each for each in serving if not each[1].over]
            self._forget_at = 2 * len(serving) + FORGET_AT

    def on_stop(self) -> None:
        """Cancel the unfinished requests."""
        serving, self._serving = self._serving, []
        for request, handling in serving:
            if not handling.over:
                request.fail(WorkerFailed("the destination"))
                handling.cancel()


class _Reply:
    """An outlet that answers a plain message along its return route."""

    __slots__ = ("_handlers", "_message", "_worker")

    def __init__(self, worker: ServiceWorker, handlers: Handlers, message: Message) -> None:
        self._worker = worker
        self._handlers = handlers
        self._message = message

    def start(self) -> Handling:
        """Start the handler."""
        message = self._message
        answered = bool(message.return_route)
        interaction = Interaction.RESPONSE if answered else Interaction.FIRE_AND_FORGET
        back = message.return_route
        origin = back[0] if back else None
        return self._handlers.start(interaction, Request(message.payload), self, origin)

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send the answer; its metadata, for which a message has no place, are counted."""
        del complete
        if metadata is not None:
            self._handlers.on_left_out()
        try:
            self._worker.reply(self._message, data)
        except DeliveryError as error:
            self._worker.node.dead_letter(self._message, error)

    def error(self, code: int, text: str) -> None:
        """Send the error along the return route; without one, record a dead letter."""
        self._worker.node.lose(self._message, ApplicationError(code, text))

    def fail(self, error: DeliveryError) -> None:
        """Send the requester the error for a worker that stops."""
        self._worker.node.lose(self._message, error)

    def complete(self) -> None:
        """Ignore the call: an answer completes by itself."""

    def request_n(self, n: int) -> None:
        """Ignore the call: a message is no channel."""

    def cancel_input(self) -> None:
        """Ignore the call: a message is no channel."""
