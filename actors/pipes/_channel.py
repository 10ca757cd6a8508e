"""`PipeChannel`: two pipes, one each way, that were introduced by a handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from ...protocol import Address, Message, OnwardError, Route, RouteLike
from ...protocol.pipes import (
    Broken,
    Confirm,
    Ended,
    FrameReader,
    Gap,
    Hello,
    Missed,
    Opened,
    PipeClosed,
    PipeOptions,
    PipeReceiverOptions,
    RoundTrip,
    Unknown,
    Welcome,
    encode_frame,
)
from .._errors import LimitReached
from .._policy import Mailbox
from .._worker import Worker
from ..access._guard import AccessLike
from ._receiving import Receiving
from ._sending import Sending

__all__ = ["PipeChannel", "PipeChannelOptions", "PipeChannelService"]

_PIPE: Final = PipeOptions()
_RECEIVER: Final = PipeReceiverOptions()


@dataclass(frozen=True, slots=True)
class PipeChannelOptions:
    """How the two ends of a channel work, and how many a service may have.

    Attributes:
        pipe: What the pipe from this end promises, and its limits. Its timeouts are also those of
            the handshake.
        receiver: The limits of the pipe that ends here.
        channels: Channels of one `PipeChannelService`. What asks for one more becomes a dead
            letter; who asks tries again, and gives up some time.
    """

    pipe: PipeOptions = _PIPE
    receiver: PipeReceiverOptions = _RECEIVER
    channels: int = 1000


_OPTIONS: Final = PipeChannelOptions()


class PipeChannel(Worker):
    """One end of a channel: what is sent here comes out of the other end, and the other way round.

    It has an *inner* address, its own, for the workers of its node, and an *outer* one for the
    other end. What comes out of a channel has the inner address of that end at the front of the
    return route: so an answer goes back through the channel, and request and answer work with
    workers that know nothing of it.

    ```
    node.request("channel => echo", ...)

    app ── [channel, echo] ──▶ channel ═══════════▶ outer ── [echo] ←[inner, app] ──▶ echo
                                 outer ◀═══════════ inner ◀── [inner, app] ──────────┘
    ```

    `await node.start(lambda: channel)` returns when the other end has answered. When a pipe of the
    channel breaks or the other end stops, this end stops too, once it has reported what is in
    doubt: whoever needs it again starts another.

    Args:
        route: The way to a `PipeChannelService`.
        options: What its pipes promise, and their limits.
        on_missed: Is told of messages the other end went on without.
        on_broken: Is told when the pipe to the other end broke.
        on_gap: Is told of numbers of messages that did not come.
        access: Of the outer address, as for `Worker.spawn`: its `outgoing` says what may come out
            of the channel here.

    The hooks are called on the node's loop; what they raise is logged.
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
        super().__init__()
        self._access = access
        self._route = route
        self._options = options
        self._on_missed = on_missed
        self._told_broken = on_broken
        self._on_gap = on_gap
        self._ends: _Ends | None = None

    async def on_start(self) -> None:
        """Find the other end.

        Raises:
            PipeClosed: Nobody answered in the time of `give_up`.
        """
        ends = self._join_ends()
        loop, pipe = self.node.loop, self._options.pipe
        identity = bytes.fromhex(self.node.random_address().value.decode())
        hello = encode_frame(Hello(identity))
        timing = RoundTrip(pipe.first_timeout, pipe.min_timeout, pipe.max_timeout)
        give_up = loop.time() + pipe.give_up
        route = self.node.route_of(self._route)
        welcome = ends.outer.welcome_for(identity)
        while not welcome.done():
            left = give_up - loop.time()
            if left <= 0:
                raise PipeClosed(self.address, f"no answer in {pipe.give_up:g} s")
            self.node.carry_or_bury(Message(route, ends.sending.back, hello, self.address))
            await asyncio.wait((welcome,), timeout=min(left, timing.timeout()))
            timing.back_off()
        ends.sending.route = welcome.result()

    def _join_ends(self) -> _Ends:
        sending = Sending(
            self,
            self._options.pipe,
            on_missed=self._on_missed,
            on_broken=self._broken,
            on_closed=self._half_closed,
        )
        outer = _Outer(self, sending, self._options.receiver, self._on_gap)
        limit = self._options.pipe.window + self._options.receiver.window
        address = self.spawn(lambda: outer, mailbox=Mailbox(limit), access=self._access)
        sending.back = (address,)
        self._ends = _Ends(sending, outer)
        return self._ends

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Put a message into the channel, or wait until there is room."""
        sending = self._pipes.sending
        try:
            if sending.machine.room <= 0:
                return self._when_room(message)
            sending.accept(message)
        except OnwardError as error:
            self.node.lose(message, error)
        return None

    async def _when_room(self, message: Message) -> None:
        sending = self._pipes.sending
        await sending.room()
        try:
            sending.accept(message)
        except OnwardError as error:
            self.node.lose(message, error)

    async def end(self, timeout: float = 30.0) -> None:
        """Have all that came here confirmed, end the channel, and stop this worker.

        The other end does the same with what it has. Call it on the node's loop, and not from a
        handler of this worker.

        Args:
            timeout: How long it may take, in seconds.

        Raises:
            PipeBroken: It took longer: what is in doubt has been reported.
        """
        await self._pipes.sending.end(timeout)

    def _broken(self, broken: Broken) -> None:
        if self._told_broken is not None:
            self._told_broken(broken)
        self.stop()

    def _half_closed(self) -> None:
        self.stop()

    def other_end_closed(self) -> None:
        """End this direction too: nothing more comes from the other."""
        machine = self._pipes.sending.machine
        machine.end(self.node.loop.time())
        self._pipes.sending.flush()

    def on_stop(self) -> None:
        """Break what is not at its end."""
        if self._ends is not None:
            self._ends.sending.abort()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Break the channel."""
        self.on_stop()

    @property
    def _pipes(self) -> _Ends:
        if self._ends is None:
            raise RuntimeError(f"{type(self).__name__} has not started yet")
        return self._ends


@dataclass(frozen=True, slots=True)
class _Ends:
    sending: Sending
    outer: _Outer


class _Outer(Worker):
    """Takes in what the other end of a channel sends: of both pipes, and of the handshake."""

    def __init__(
        self,
        inner: PipeChannel,
        sending: Sending,
        options: PipeReceiverOptions,
        on_gap: Callable[[Gap], object] | None,
    ) -> None:
        super().__init__()
        self._inner = inner
        self._sending = sending
        self._options = options
        self._on_gap = on_gap
        self._receiving: Receiving | None = None
        self._channel_id = b""
        self._welcome: asyncio.Future[Route] | None = None
        self._stopping = False

    def on_start(self) -> None:
        """Be ready for the pipe of the other end."""
        self._receiving = Receiving(
            self,
            self._options,
            trace=self._inner.address,
            on_gap=self._on_gap,
            on_closed=self._closed,
        )

    def welcome_for(self, identity: bytes) -> asyncio.Future[Route]:
        """Return what will be the way to the other end of a channel of this identity."""
        self._channel_id = identity
        self._welcome = self._inner.node.loop.create_future()
        return self._welcome

    def handle_message(self, message: Message) -> None:
        """Take in a frame."""
        receiving = self._receiving
        frame = None if receiving is None else receiving.read(message)
        if receiving is None or frame is None:
            return
        if isinstance(frame, Opened | Confirm | Ended | Unknown):
            self._sending.receive(frame)
        elif isinstance(frame, Welcome):
            welcome = self._welcome
            if welcome is not None and not welcome.done() and frame.identity == self._channel_id:
                welcome.set_result(message[1])
        else:
            receiving.receive(frame, message)

    def on_stop(self) -> None:
        """Tell the other end that nobody is here any more."""
        self._stopping = True
        if self._receiving is not None:
            self._receiving.stop()

    def _closed(self, _: bytes) -> None:
        if not self._stopping:
            self._inner.other_end_closed()


class _Answering(PipeChannel):
    """The end of a channel that a service makes."""

    def __init__(
        self,
        identity: bytes,
        route: Route,
        options: PipeChannelOptions,
        on_gap: Callable[[Gap], object] | None,
        access: AccessLike | None,
        on_over: Callable[[bytes], object],
    ) -> None:
        super().__init__(route, options, on_gap=on_gap, access=access)
        self._channel_id = identity
        self._peer = route
        self._on_over = on_over

    async def on_start(self) -> None:
        """Answer who asked."""
        self._join_ends().sending.route = self._peer
        self.welcome()

    def welcome(self) -> None:
        """Say where this end is, once it has started."""
        if self._ends is None:
            return
        outer = self._ends.sending.back
        self.node.carry_or_bury(
            Message(self._peer, outer, encode_frame(Welcome(self._channel_id)), outer[0])
        )

    def on_stop(self) -> None:
        """Break what is not at its end."""
        super().on_stop()
        self._on_over(self._channel_id)


class PipeChannelService(Worker):
    """Makes the other ends of channels: one for each `PipeChannel` that asks here.

    Args:
        options: What the pipes from here promise, the limits, and how many channels there may be.
        on_channel: Is called, on the node's loop, with the inner address of each new end: what is
            sent there comes out of the end that asked.
        on_gap: Is told, on the node's loop, of the numbers of messages that did not come.
        access: Of the outer address of each end, as for `Worker.spawn`. Without one, whoever can
            reach the service can send to every worker of the node.
    """

    def __init__(
        self,
        options: PipeChannelOptions = _OPTIONS,
        *,
        on_channel: Callable[[Address], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        access: AccessLike | None = None,
    ) -> None:
        super().__init__()
        self._access = access
        self._options = options
        self._on_channel = on_channel
        self._on_gap = on_gap
        self._reader = FrameReader()
        self._channels: dict[bytes, _Answering] = {}

    @property
    def channels(self) -> tuple[Address, ...]:
        """The inner addresses of the ends made here that have not stopped."""
        return tuple(channel.address for channel in self._channels.values())

    def handle_message(self, message: Message) -> None:
        """Answer who asks for a channel; who asks again is answered again."""
        try:
            frame = self._reader.read(message[2])
            if not isinstance(frame, Hello) or not message[1]:
                self.node.dead_letter(message, "no channel")
                return
            known = self._channels.get(frame.identity)
            if known is not None:
                known.welcome()
                return
            if len(self._channels) >= self._options.channels:
                raise LimitReached("channels", self._options.channels)
        except OnwardError as error:
            self.node.lose(message, error)
            return
        made = _Answering(
            frame.identity, message[1], self._options, self._on_gap, self._access, self._is_over
        )
        self._channels[frame.identity] = made
        address = self.spawn(lambda: made)
        if self._on_channel is not None:
            self._on_channel(address)

    def _is_over(self, identity: bytes) -> None:
        self._channels.pop(identity, None)
