"""The outer end of a channel: the worker that the other end sends to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol import Message, Route
from ...protocol.pipes import (
    Confirm,
    Ended,
    Gap,
    Hello,
    PipeClosed,
    PipeOpened,
    PipeOptions,
    PipeReceiverOptions,
    PipeRefused,
    Receiver,
    Unknown,
    Welcome,
    encode_frame,
)
from .._worker import Worker
from ._keeping import Keeping
from ._memory import ReceiverMemory
from ._receiving import ReceivingHalf
from ._sending import SendingHalf

if TYPE_CHECKING:
    from ..sessions._return_routes import ReturnRoutes

__all__ = ["ChannelPeer"]


class ChannelPeer(Worker):
    """The receiver of the other end's frames: of both pipes, and of the handshake.

    Args:
        inner: The channel's worker on this node.
        identity: The identity of the channel.
        sending: The sending half of the channel.
        pipe: The pipe options, for the keepalive times.
        options: The limits of the receiving half.
        idle: The idle time announced to the other end, in milliseconds.
        budget: The bytes that may be held, shared with other ends.
        returns: The return routes of messages sent to the other end.
        on_gap: Called with the numbers of missed messages.
        on_closed: Called when the other end sends nothing more.

    Attributes:
        welcome: A future of the route to the other end and its idle time in milliseconds.
        closed: Whether the other end sends nothing more.
    """

    def __init__(
        self,
        inner: Worker,
        identity: bytes,
        sending: SendingHalf,
        pipe: PipeOptions,
        options: PipeReceiverOptions,
        idle: int,
        budget: ReceiverMemory | None,
        returns: ReturnRoutes,
        *,
        on_gap: Callable[[Gap], object] | None,
        on_closed: Callable[[], object],
    ) -> None:
        super().__init__()
        self.welcome: asyncio.Future[tuple[Route, int]] = inner.node.loop.create_future()
        self.closed = False
        self._inner = inner
        self._channel_id = identity
        self._sending = sending
        self._pipe = pipe
        self._options = options
        self._idle = idle
        self._budget = budget
        self._returns = returns
        self._on_gap = on_gap
        self._on_closed = on_closed
        self._receiving: ReceivingHalf | None = None
        self._keeping: Keeping | None = None

    def on_start(self) -> None:
        """Prepare to receive the pipe of the other end."""
        self._receiving = ReceivingHalf(
            self,
            self._options,
            trace=self._inner.address,
            on_gap=self._on_gap,
            on_closed=self._pipe_closed,
            budget=self._budget,
            returns=self._returns,
        )

    def keep(
        self, limit: float, idle: float, *, at_once: bool, first_limit: float = math.inf
    ) -> None:
        """Start the keepalive of the other end.

        Args:
            limit: The time without a frame after which the other end is gone, in seconds.
            idle: The time without a frame after which it takes this end to be gone, in seconds.
            at_once: Whether to send a keepalive now.
            first_limit: As `limit`, until the first frame of the other end.
        """
        pipe = self._pipe
        self._keeping = Keeping(
            self,
            limit,
            pipe.first_timeout,
            min(pipe.keep_alive, idle / 2),
            ask=self._ask,
            gone=self._inner.stop,
        )
        self._keeping.begin(min(limit, first_limit), at_once=at_once)

    def handle_message(self, message: Message) -> None:
        """Process a frame."""
        receiving = self._receiving
        frame = None if receiving is None else receiving.read(message)
        if receiving is None or frame is None:
            return
        if self._keeping is not None:
            self._keeping.heard(self.node.parts.run_queue.now)
        if isinstance(frame, PipeOpened | Confirm | Ended | Unknown):
            self._sending.receive(frame)
        elif (
            isinstance(frame, Hello | Welcome | PipeRefused) and frame.identity == self._channel_id
        ):
            self._shake_hands(frame, message)
        else:
            receiving.receive(frame, message)

    def _shake_hands(self, frame: Hello | Welcome | PipeRefused, message: Message) -> None:
        welcome = self.welcome
        if isinstance(frame, Hello):
            self.greet(message[1])
        elif not welcome.done():
            if isinstance(frame, Welcome):
                welcome.set_result((message[1], frame.idle))
            else:
                why = f"refused: {frame.reason.name.lower().replace('_', ' ')}"
                welcome.set_exception(PipeClosed(self._inner.address, why))

    def greet(self, route: Route) -> None:
        """Send the handshake's answer with the address of this end."""
        if route:
            self._say(route, encode_frame(Welcome(self._channel_id, self._idle)))

    def _ask(self) -> None:
        if self._sending.route is not None:
            self._say(self._sending.route, encode_frame(Hello(self._channel_id, self._idle)))

    def _say(self, route: Route, frame: bytes) -> None:
        me = self.address
        self.node.parts.router.dispatch_or_lose(Message(route, (me,), frame, me))

    def on_stop(self) -> None:
        """Inform the other end that this end has stopped."""
        if self._receiving is not None:
            self._receiving.stop()

    def _pipe_closed(self, machine: Receiver) -> None:
        # An unconfirmed pipe without traffic goes on with its next frame.
        if machine.over or machine.mode.confirm:
            self.closed = True
            self._on_closed()
