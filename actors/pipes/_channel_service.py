"""`PipeChannelService`: an address that opens channels on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from ...protocol import Address, Message, OnwardError, Route
from ...protocol.options import check_value
from ...protocol.pipes import Gap, Hello, PipeFrameReader, PipeRefusal, PipeRefused, encode_frame
from .._errors import LimitReached
from .._worker import Worker
from ..access._guard import AccessLike
from ._channel import PipeChannel, PipeChannelOptions
from ._memory import ReceiverMemory

__all__ = ["PipeChannelService"]

_OPTIONS: Final = PipeChannelOptions()
_NO_CHANNEL: Final = "no channel"


class _Answering(PipeChannel):
    """The end of a channel that a service starts."""

    def __init__(
        self,
        hello: Hello,
        route: Route,
        options: PipeChannelOptions,
        budget: ReceiverMemory,
        on_gap: Callable[[Gap], object] | None,
        access: AccessLike | None,
        on_over: Callable[[bytes], object],
    ) -> None:
        super().__init__(route, options, on_gap=on_gap, access=access)
        self.peer = route
        self._hello = hello
        self._budget = budget
        self._on_over = on_over

    async def on_start(self) -> None:
        """Answer the requester of the channel."""
        ends, options = self._join_ends(self._hello.identity), self._options
        ends.sending.route = self.peer
        self.greet()
        # The requester sends a frame as soon as it has the answer; stop soon without one.
        limit, idle = options.receiver.idle_timeout, self._hello.idle / 1000
        ends.outer.keep(limit, idle, at_once=False, first_limit=2 * options.pipe.give_up)

    def greet(self) -> None:
        """Send the address of this end, once it has started."""
        if self._ends is not None:
            self._ends.outer.greet(self.peer)

    def on_stop(self) -> None:
        """Break the directions that have not ended."""
        super().on_stop()
        self._on_over(self._hello.identity)


class PipeChannelService(Worker):
    """A service that starts the other end of a channel for each `PipeChannel` that requests one.

    Args:
        options: The options of the pipes from here, the limits, and the number of channels.
        on_channel: Called, on the node's loop, with the inner address of each new end. Messages
            sent to it are delivered at the end that requested the channel.
        on_gap: Called, on the node's loop, with the numbers of messages that did not arrive.
        access: The access of each end's outer address, as for `Worker.spawn`. Without one,
            channels of the node itself reach every worker of it. Channels from other nodes reach
            the addresses that their links expose or allow, and the return routes of messages
            that went into the channel.
    """

    def __init__(
        self,
        options: PipeChannelOptions = _OPTIONS,
        *,
        on_channel: Callable[[Address], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        access: AccessLike | None = None,
    ) -> None:
        check_value("options", options, PipeChannelOptions)
        super().__init__()
        self._access = access
        self._options = options
        self._on_channel = on_channel
        self._on_gap = on_gap
        self._reader = PipeFrameReader()
        self._budget = ReceiverMemory(options.held_bytes)
        self._channels: dict[bytes, _Answering] = {}
        self._peers = Counter[Address]()
        self._retired: dict[bytes, None] = {}

    @property
    def channels(self) -> tuple[Address, ...]:
        """The inner addresses of the ends started here that have not stopped."""
        return tuple(channel.address for channel in self._channels.values())

    def handle_message(self, message: Message) -> None:
        """Answer a request for a channel; answer a repeated one again."""
        try:
            frame = self._reader.read(message[2])
            if not isinstance(frame, Hello) or not message[1] or frame.identity in self._retired:
                self.node.dead_letter(message, _NO_CHANNEL)
                return
            known = self._channels.get(frame.identity)
            if known is None:
                self._make(frame, message[1])
            else:
                known.greet()
        except OnwardError as error:
            self.node.lose(message, error)

    def _make(self, hello: Hello, back: Route) -> None:
        options = self._options
        if len(self._channels) >= options.channels:
            self._refuse(hello, back, PipeRefusal.FULL)
            raise LimitReached("channels", options.channels)
        if self._peers[back[0]] >= options.channels_per_peer:
            self._refuse(hello, back, PipeRefusal.PEER_FULL)
            raise LimitReached("channels_per_peer", options.channels_per_peer)
        made = _Answering(
            hello, back, options, self._budget, self._on_gap, self._access, self._is_over
        )
        self._channels[hello.identity] = made
        self._peers[back[0]] += 1
        address = self.spawn(lambda: made)
        if self._on_channel is not None:
            self._on_channel(address)

    def _refuse(self, hello: Hello, back: Route, reason: PipeRefusal) -> None:
        frame = encode_frame(PipeRefused(hello.identity, reason))
        self.node.parts.router.dispatch_or_lose(Message(back, (self.address,), frame, self.address))

    def _is_over(self, identity: bytes) -> None:
        made = self._channels.pop(identity)
        first = made.peer[0]
        self._peers[first] -= 1
        if not self._peers[first]:
            del self._peers[first]
        self._retired[identity] = None
        if len(self._retired) > self._options.retired:
            del self._retired[next(iter(self._retired))]
