"""`PipeChannel`: two pipes, one in each direction, set up by a handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from ...protocol import Message, OnwardError, Route, RouteLike
from ...protocol.options import Count, Size, check_options, check_value
from ...protocol.pipes import (
    Broken,
    Gap,
    Hello,
    Missed,
    PipeBroken,
    PipeClosed,
    PipeOptions,
    PipeReceiverOptions,
    RoundTrip,
    encode_frame,
)
from .._worker import Worker
from ..access._guard import AccessLike
from ..routing._given import as_route
from ..runtime._policy import MailboxOptions
from ..sessions._return_routes import ReturnRoutes
from ._channel_peer import ChannelPeer
from ._memory import ReceiverMemory, random_bytes
from ._sending import SendingHalf

__all__ = ["Ends", "PipeChannel", "PipeChannelOptions"]

_PIPE: Final = PipeOptions()
_RECEIVER: Final = PipeReceiverOptions()


@dataclass(frozen=True, slots=True)
class PipeChannelOptions:
    """Options of the two ends of a channel, and limits of a channel service.

    Attributes:
        pipe: The options of the pipe from this end. Its timeouts also apply to the handshake and
            to keepalives.
        receiver: The limits of the pipe to this end. An end that receives nothing for
            `idle_timeout` stops. An end of a service that has never received a frame stops after
            twice `give_up`, if that is less.
        max_returns: Return routes of messages sent into an end that it remembers, so that replies
            reach workers that are not exposed. The least recently used are forgotten.
        channels: Channels of one `PipeChannelService`. A request for one more becomes a dead
            letter, and the requester is told.
        channels_per_peer: Channels with the same first address on their return routes: the
            connection that they use.
        held_bytes: Bytes that all ends of a service together hold back or have not handed on,
            besides a frame of at most 16 KiB for each. Half of it is for messages that wait for
            a missing one. Frames above the limit are dropped; a confirmed pipe sends them again.
        retired: Closed channels that a service remembers, so that a late request does not open
            them again.
    """

    pipe: PipeOptions = _PIPE
    receiver: PipeReceiverOptions = _RECEIVER
    max_returns: Count = 1000
    channels: Count = 1000
    channels_per_peer: Count = 500
    held_bytes: Count = 64 * 1024 * 1024
    retired: Size = 1000

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def idle_milliseconds(self) -> int:
        """The time without a frame after which this end takes the other to be gone."""
        return max(1, int(1000 * self.receiver.idle_timeout))


_OPTIONS: Final = PipeChannelOptions()


class PipeChannel(Worker):
    """One end of a channel: messages sent to it are delivered at the other end, and vice versa.

    It has an *inner* address, its own, for the workers of its node, and an *outer* one for the
    other end. A message that leaves a channel has the inner address of that end at the front of
    its return route. So a reply goes back through the channel, and requests work with workers
    that do not know of it.

    ```
    node.request("channel => echo", ...)

    app ── [channel, echo] ──▶ channel ═══════════▶ outer ── [echo] ←[inner, app] ──▶ echo
                                 outer ◀═══════════ inner ◀── [inner, app] ──────────┘
    ```

    `await node.start(lambda: channel)` returns when the other end has answered. When a pipe of the
    channel breaks or the other end stops, this end reports the messages in doubt and stops; start
    another to go on. Each end sends a keepalive after `keep_alive` without a frame, and takes the
    other to be gone after `idle_timeout`.

    Args:
        route: The route to a `PipeChannelService`.
        options: The options of its pipes, and their limits.
        on_missed: Called with messages that the other end skipped.
        on_broken: Called when the pipe to the other end broke.
        on_gap: Called with the numbers of messages that did not arrive.
        access: The access of the outer address, as for `Worker.spawn`. Its `outgoing` controls
            the messages that leave the channel here.

    The hooks are called on the node's loop; an exception of a hook is logged.
    """

    def __init__(
        self,
        route: RouteLike,
        options: PipeChannelOptions = _OPTIONS,
        *,
        on_missed: Callable[[Missed], object] | None = None,
        on_broken: Callable[[Broken], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        access: AccessLike | None = None,
    ) -> None:
        check_value("options", options, PipeChannelOptions)
        super().__init__()
        self._access = access
        self._route = route
        self._options = options
        self._on_missed = on_missed
        self._told_broken = on_broken
        self._on_gap = on_gap
        self._budget: ReceiverMemory | None = None
        self._returns = ReturnRoutes(frozenset(), options.max_returns)
        self._noted: Route = ()
        self._ends: Ends | None = None

    async def on_start(self) -> None:
        """Shake hands with the other end.

        Raises:
            PipeClosed: No answer within `give_up`, or there are too many channels.
        """
        identity = random_bytes(self.node)
        ends = self._join_ends(identity)
        loop, pipe = self.node.loop, self._options.pipe
        hello = encode_frame(Hello(identity, self._options.idle_milliseconds))
        timing = RoundTrip(pipe.first_timeout, pipe.min_timeout, pipe.max_timeout)
        give_up = loop.time() + pipe.give_up
        route = as_route(self._route)
        welcome = ends.outer.welcome
        while not welcome.done():
            left = give_up - loop.time()
            if left <= 0:
                raise PipeClosed(self.address, f"no answer in {pipe.give_up:g} s")
            self.node.parts.router.dispatch_or_lose(
                Message(route, ends.sending.back, hello, self.address)
            )
            await asyncio.wait((welcome,), timeout=min(left, timing.timeout()))
            timing.back_off()
        ends.sending.route, idle = welcome.result()
        ends.outer.keep(self._options.receiver.idle_timeout, idle / 1000, at_once=True)

    def _join_ends(self, identity: bytes) -> Ends:
        sending = SendingHalf(
            self,
            self._options.pipe,
            on_missed=self._on_missed,
            on_broken=self._broken,
            on_closed=self._look_whether_over,
            tell=True,
        )
        outer = ChannelPeer(
            self,
            identity,
            sending,
            self._options.pipe,
            self._options.receiver,
            self._options.idle_milliseconds,
            self._budget,
            self._returns,
            on_gap=self._on_gap,
            on_closed=self._other_end_closed,
        )
        limit = self._options.pipe.window + self._options.receiver.window
        address = self.spawn(lambda: outer, mailbox=MailboxOptions(limit), access=self._access)
        sending.back = (address,)
        self._ends = Ends(sending, outer, self.node.loop.create_future())
        return self._ends

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Put a message into the channel, or wait until there is room."""
        sending = self._pipes.sending
        back = message[1]
        if back is not self._noted:
            self._noted = back
            self._returns.note(back, self.node.parts.table.is_request)
        try:
            if sending.machine.room <= 0:
                return self._when_room(message)
            sending.accept(message)
        except OnwardError as error:
            self.node.lose(message, error)
        return None

    async def _when_room(self, message: Message) -> None:
        sending = self._pipes.sending
        try:
            if not await sending.room():
                raise PipeClosed(self.address, "it was stopped")
            sending.accept(message)
        except OnwardError as error:
            self.node.lose(message, error)

    async def end(self, timeout: float = 30.0) -> None:
        """Wait until all messages are confirmed, end the channel, and stop this worker.

        The other end does the same; its last messages are delivered here before this worker stops.
        Messages in the mailbox at the call are sent too. Call it on the node's loop, and not from a
        handler of this worker.

        Args:
            timeout: The longest time it may take, in seconds.

        Raises:
            PipeBroken: It took longer. The messages in doubt have been reported.
        """
        ends = self._pipes
        ends.sending.end()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ends.over)
        except TimeoutError:
            ends.sending.abort()
            self.stop()
            raise PipeBroken(self.address, f"not at its end in {timeout:g} s") from None

    def _broken(self, broken: Broken) -> None:
        if self._told_broken is not None:
            self._told_broken(broken)
        self.stop()

    def _other_end_closed(self) -> None:
        """End this direction too: the other end sends nothing more."""
        self._pipes.sending.end()
        self._look_whether_over()

    def _look_whether_over(self) -> None:
        """Stop when both directions have ended."""
        ends = self._pipes
        if ends.outer.closed and ends.sending.closed:
            self.stop()

    def on_stop(self) -> None:
        """Break the directions that have not ended."""
        if self._ends is not None:
            self._ends.sending.abort()
            if not self._ends.over.done():
                self._ends.over.set_result(None)

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Break the channel."""
        self.on_stop()

    @property
    def _pipes(self) -> Ends:
        if self._ends is None:
            raise RuntimeError(f"{type(self).__name__} has not started yet")
        return self._ends


@dataclass(frozen=True, slots=True)
class Ends:
    """The two halves of one end of a channel; `over` is done when the worker stops."""

    sending: SendingHalf
    outer: ChannelPeer
    over: asyncio.Future[None]
