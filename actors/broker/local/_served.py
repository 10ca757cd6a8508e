"""The worker that stands for a service: handlers of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol import DeliveryError, Message, ProtocolError, WorkerFailed
from ..._worker import Worker
from .._exchange import Exchange, exchange_of
from ._handlers import ApplicationError, Handlers, Interaction, Request

if TYPE_CHECKING:
    from ._service import Handling

__all__ = ["ServiceWorker"]

FORGET_AT: Final = 64
"""How many requests that are over may be kept before they are looked for."""


class ServiceWorker(Worker):
    """Hand requests to handlers of this node.

    A request that came in frames is joined to its handler, with all that belongs to its
    interaction. A plain message is a request/response if it has a return route, along which the
    answer goes, and otherwise a fire-and-forget. When the worker stops, requests in hand are
    CANCELED and their handlers are cancelled.

    Args:
        handlers: The handlers.
    """

    def __init__(self, handlers: Handlers) -> None:
        super().__init__()
        self._handlers = handlers
        self._serving: list[tuple[Exchange | _Reply, Handling]] = []
        self._forget_at = FORGET_AT

    def handle_message(self, message: Message) -> None:
        """Start the handler for one request, once the request is whole."""
        request = exchange_of(message)
        if request is None:
            reply = _Reply(self, self._handlers, message)
            self._keep(reply, reply.start())
        elif not request.ended and request.whole(lambda: self.handle_message(message)):
            try:
                self._keep(request, request.serve(self._handlers))
            except ProtocolError as error:
                request.fail(error)

    def _keep(self, request: Exchange | _Reply, handling: Handling) -> None:
        """Keep a request for as long as it is not over, and a little longer."""
        serving = self._serving
        serving.append((request, handling))
        if len(serving) > self._forget_at:
            self._serving = serving = [each for each in serving if not each[1].over]
            self._forget_at = 2 * len(serving) + FORGET_AT

    def on_stop(self) -> None:
        """End what is in hand."""
        serving, self._serving = self._serving, []
        for request, handling in serving:
            if not handling.over:
                request.fail(WorkerFailed("the destination"))
                handling.cancel()


class _Reply:
    """Answers a plain message along its return route."""

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
        """Send the answer; a message has no place for metadata, which are counted."""
        del complete
        if metadata is not None:
            self._handlers.on_left_out()
        try:
            self._worker.reply(self._message, data)
        except DeliveryError as error:
            self._worker.node.dead_letter(self._message, error)

    def error(self, code: int, text: str) -> None:
        """Raise the error where the request was made; otherwise it is a dead letter."""
        self._worker.node.lose(self._message, ApplicationError(code, text))

    def fail(self, error: DeliveryError) -> None:
        """Tell the requester that the worker stops."""
        self._worker.node.lose(self._message, error)

    def complete(self) -> None:
        """Do nothing: an answer completes by itself."""

    def request_n(self, n: int) -> None:
        """Do nothing: a message is no channel."""

    def cancel_input(self) -> None:
        """Do nothing: a message is no channel."""
