"""What the workers of a node ask its router for: control records, as messages to `ROUTER`.

The requester is the engine of the worker that has sent the message, as the node knows it. No field
of a record says it, and what another node has sent is of no engine of this one, whichever worker
has passed it on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol import Message, OnwardError
from ...protocol.identity import (
    BadRecord,
    ControlRecord,
    is_link_frame,
    parse_control,
    serialize_control,
)
from .._worker import Worker
from ._engines import Engine

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["Answer", "LocalRequests"]

Answer: TypeAlias = Callable[[ControlRecord], object]
"""Receives the response to a request, at once or later."""

_Handler: TypeAlias = Callable[[Engine | None, Any, Answer], object]


class LocalRequests:
    """The requests of the workers of a node to its router.

    Args:
        router: The router.
        worker: Its worker.
    """

    __slots__ = ("_handlers", "_router", "_worker")

    def __init__(self, router: Router, worker: Worker) -> None:
        self._router: Final = router
        self._worker: Final = worker
        self._handlers: Final[dict[type[ControlRecord], _Handler]] = {}

    def serve(self, kind: type[ControlRecord], handler: _Handler) -> None:
        """Serve the requests of a kind.

        Args:
            kind: The type of the record.
            handler: Receives the engine that asks, `None` for what is no engine of this node; the
                record; and what to call with the response.
        """
        self._handlers[kind] = handler

    def take(self, message: Message) -> bool:
        """Take a message, if it is a request of this node; return whether it was one."""
        source, payload = message.source, message.payload
        if is_link_frame(payload):
            return False
        worker = None if source is None else self._worker.node.parts.table.worker_at(source)
        if worker is not None and worker.leaves_node:
            return False  # of another node, which has to prove its key first
        try:
            record = parse_control(payload)
        except BadRecord:
            return False
        handler = self._handlers.get(type(record))
        if handler is None:
            return False
        context = message.context
        engine = None
        if source is not None and (context is None or context.outside is None):
            engine = self._router.engines.at(source)
        handler(engine, record, lambda response: self._answer(message, response))
        return True

    def _answer(self, message: Message, response: ControlRecord) -> None:
        own, back = message.to, message.return_route
        try:
            self._worker.send(back, serialize_control(response), return_route=(own,))
        except OnwardError:
            # It asks again if it wants to know.
            self._router.counts["responses that a worker did not take"] += 1
