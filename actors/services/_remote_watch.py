"""`RemoteWatch`: a watch for the end of a worker of another node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Self

from ...protocol import (
    LOCAL,
    Address,
    AddressLike,
    Message,
    OnwardError,
    RouteLike,
    UnknownAddress,
    address as address_of,
    is_error_reply,
)
from ...protocol.options import check_value
from ...protocol.services import (
    ServiceError,
    WatchNotice,
    WatchRequest,
    WatchState,
    decode_watch_notice,
    encode_watch_request,
)
from .._worker import Worker
from ..routing._given import as_route
from ._options import RemoteWatchOptions

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["RemoteWatch", "WatchEnd", "WatchOutcome"]

_OPTIONS: Final = RemoteWatchOptions()
_logger: Final = logging.getLogger("onward.actors.services")


class WatchOutcome(Enum):
    """The reason why a watch has ended."""

    STOPPED = auto()
    """The worker has stopped."""

    REFUSED = auto()
    """The other node has no such worker, or does not let it be watched."""

    TOO_MANY = auto()
    """The other node had no room for the watch until the time without another answer was over."""

    FORGOTTEN = auto()
    """The other node, or its service, has stopped or was started anew, or the watch expired there:
    it is unknown whether the worker has stopped."""

    LINK_LOST = auto()
    """The link to the other node has stopped: it is unknown whether the worker has stopped."""

    NO_ANSWER = auto()
    """The other node has not answered in time: it is unknown whether the worker has stopped."""

    CLOSED = auto()
    """The watch was closed."""


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """The end of a watch.

    Attributes:
        address: The watched address.
        outcome: The reason.
        detail: More about the reason; may be empty.
    """

    address: Address
    outcome: WatchOutcome
    detail: str = ""

    def __str__(self) -> str:
        reason = self.outcome.name.lower().replace("_", " ")
        return f"{self.address}: {reason}" + (f" ({self.detail})" if self.detail else "")


_NOTICES: Final = {
    WatchState.STOPPED: WatchOutcome.STOPPED,
    WatchState.REFUSED: WatchOutcome.REFUSED,
    WatchState.FORGOTTEN: WatchOutcome.FORGOTTEN,
}


class RemoteWatch(Worker):
    """A watch for the end of a worker of another node, which runs a `WatchService`.

    ```python
    watch = await RemoteWatch.on(node, "1#10.0.0.7:4000 => watch", "orders", ended)
    ```

    It asks the service for the state of the worker every `interval`. It ends once, with one of the
    outcomes of `WatchOutcome`, and stops then. A connection that is lost and made again does not
    end it, if that takes less than `timeout`.

    Args:
        route: The route to the service.
        watched: The address of the worker on the other node.
        ended: Function called once with the end, on the loop. It must not block; its exceptions
            are logged. `None` for no function.
        options: Its times.
    """

    def __init__(
        self,
        route: RouteLike,
        watched: AddressLike,
        ended: Callable[[WatchEnd], object] | None = None,
        *,
        options: RemoteWatchOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, RemoteWatchOptions)
        super().__init__()
        self._route = route
        self._watched = address_of(watched)
        self._ended = ended
        self._options = options
        self._token = b""
        self._is_known = False
        self._answered = 0.0
        self._too_many = False
        self._unwatch: Callable[[], None] | None = None
        self._first = asyncio.Event()
        self._over = asyncio.Event()
        self._end: WatchEnd | None = None

    @classmethod
    async def on(
        cls,
        node: Node,
        route: RouteLike,
        watched: AddressLike,
        ended: Callable[[WatchEnd], object] | None = None,
        *,
        address: AddressLike | None = None,
        **options: Any,
    ) -> Self:
        """Start a watch on a node.

        Args:
            node: The node.
            route: As for the class.
            watched: As for the class.
            ended: As for the class.
            address: The address of the watch itself; a random one by default.
            **options: As for the class.
        """
        watch = cls(route, watched, ended, **options)
        await node.start(lambda: watch, address=address)
        return watch

    @property
    def end(self) -> WatchEnd | None:
        """Its end, or `None` as long as it goes on."""
        return self._end

    async def until_known(self) -> WatchEnd | None:
        """Wait until the other node has answered that the worker is alive, or for the end.

        Returns:
            The end, if the watch has ended.
        """
        await self._first.wait()
        return self._end

    async def until_ended(self) -> WatchEnd:
        """Wait for the end, and return it."""
        await self._over.wait()
        if self._end is None:
            raise AssertionError("unexpected end of a watch")
        return self._end

    def close(self) -> None:
        """End the watch without a call of its function. Idempotent."""
        self._ended = None
        self._finish(WatchOutcome.CLOSED)

    def on_start(self) -> None:
        """Begin to watch."""
        self._token = self.node.random_address().value
        self._answered = self.node.loop.time()
        self._watch_link()
        self.every(self._options.interval, self._ask)
        self.after(self._options.timeout, self._look_at_clock)
        self._ask()

    def on_stop(self) -> None:
        """End the watch without a call of its function, if it has not ended."""
        self.close()

    def handle_message(self, message: Message) -> None:
        """Handle the answer of the service."""
        if is_error_reply(message):
            return  # the next request may be answered
        try:
            notice = decode_watch_notice(message.payload)
        except ServiceError:
            notice = None
        if notice is None or notice.token != self._token:
            self.node.dead_letter(message, "not of this watch")
            return
        self._take(notice)

    def _take(self, notice: WatchNotice) -> None:
        self._too_many = notice.state is WatchState.TOO_MANY
        if self._too_many:
            return  # the next request may find room
        self._answered = self.node.loop.time()
        outcome = _NOTICES.get(notice.state)
        if outcome is not None:
            self._finish(outcome)
        else:
            self._is_known = True
            self._first.set()

    def _ask(self) -> None:
        request = WatchRequest(self._token, self._watched, self._is_known)
        try:
            self.send(self._route, encode_watch_request(request))
        except OnwardError as error:
            error.lost = None  # the time without an answer tells it

    def _look_at_clock(self) -> None:
        left = self._answered + self._options.timeout - self.node.loop.time()
        if left > 0:
            self.after(left, self._look_at_clock)
        else:
            outcome = WatchOutcome.TOO_MANY if self._too_many else WatchOutcome.NO_ANSWER
            self._finish(outcome, f"for {self._options.timeout:g} s")

    def _watch_link(self) -> None:
        """Watch the first address of the route, if it is a link or another worker of this node."""
        route = as_route(self._route)
        # A link for an address of another type is made anew by the next request.
        if route and route[0].type == LOCAL:
            try:
                self._unwatch = self.node.watch(route[0], self._link_stopped)
            except UnknownAddress:
                self._finish(WatchOutcome.LINK_LOST, f"there is no worker {route[0]}")

    def _link_stopped(self) -> None:
        self._finish(WatchOutcome.LINK_LOST)

    def _finish(self, outcome: WatchOutcome, detail: str = "") -> None:
        if self._end is not None:
            return
        self._end = end = WatchEnd(self._watched, outcome, detail)
        if self._unwatch is not None:
            self._unwatch()
        self._first.set()
        self._over.set()
        self.stop()
        if self._ended is not None:
            try:
                self._ended(end)
            except Exception:
                _logger.exception(
                    "the function of a watch of %s failed",
                    self._watched,
                    extra={"event": "hook.failed"},
                )
