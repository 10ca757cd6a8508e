"""`Topic`: a topic as a program uses it, with functions as subscribers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ...actors import Worker
from ...protocol import AddressLike, Message
from ...protocol.identity import Identity, RoutingScope

if TYPE_CHECKING:
    from ._topic_calls import TopicCalls

__all__ = ["Topic"]

Function: TypeAlias = Callable[[Message], Awaitable[None] | None]
"""A function that receives the publications of a topic."""

F = TypeVar("F", bound=Function)

_logger = logging.getLogger("onward.transports.identity")


class Topic:
    """A topic, of this node or of another one.

    ```python
    prices = identities.topic(identity)


    @prices.subscriber
    def on_price(message: Message) -> None: ...


    await prices.ready()
    ```

    Args:
        identities: The identities of the node.
        identity: The topic.
        scope: How far it may be.

    Attributes:
        identity: The topic.
    """

    def __init__(self, identities: TopicCalls, identity: Identity, scope: RoutingScope) -> None:
        self._identities: Final = identities
        self._scope: Final = scope
        self.identity: Final = identity
        self._asked: Final[set[asyncio.Task[None]]] = set()

    def publish(self, payload: bytes, *, source: AddressLike | None = None) -> None:
        """Publish to it; see `Identities.publish`."""
        self._identities.publish(self.identity, payload, source=source)

    def subscriber(self, function: F) -> F:
        """Subscribe a function: it becomes a worker of the node, which is an engine.

        `ready` says whether the subscription was taken; one that was not is logged.

        Args:
            function: Receives each publication: `def` or `async def`, one after the other. If it
                raises, that is a failure of its worker.
        """
        node = self._identities.node
        worker = node.spawn(lambda: _FunctionWorker(function))
        subscribed = self._identities.subscribe(self.identity, worker, scope=self._scope)
        asked = node.loop.create_task(subscribed)
        asked.add_done_callback(_log_failure)
        self._asked.add(asked)
        return function

    async def ready(self) -> None:
        """Wait until the functions are subscribed.

        Raises:
            TopicRefused: A subscription was refused.
        """
        asked = tuple(self._asked)
        self._asked.clear()
        for each in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(each, BaseException):
                raise each


def _log_failure(asked: asyncio.Task[None]) -> None:
    if not asked.cancelled() and (error := asked.exception()) is not None:
        _logger.error(
            "a function is not subscribed: %s", error, extra={"event": "identity.not_subscribed"}
        )


class _FunctionWorker(Worker):
    """A worker that calls a function for each message."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self._function: Final = function

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Call the function."""
        return self._function(message)
