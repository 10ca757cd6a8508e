"""`PipeService`: an address for pipes of many senders, each with its own receiver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...protocol import Address, Message, OnwardError
from ...protocol.options import Count, Size, check_options, check_value
from ...protocol.pipes import (
    Abort,
    End,
    Gap,
    OpenPipe,
    PipeClosed,
    PipeData,
    PipeFrameReader,
    PipeReceiverOptions,
    PipeRefusal,
    PipeRefused,
    answer_to_stranger,
    encode_frame,
    frame_identity,
)
from .._errors import LimitReached
from .._worker import Worker
from ..access._guard import AccessLike
from ._memory import ReceiverMemory, Retired, outside_of
from ._receiver import PipeReceiver

__all__ = ["PipeService", "PipeServiceOptions"]

_RECEIVER: Final = PipeReceiverOptions()


@dataclass(frozen=True, slots=True)
class PipeServiceOptions:
    """Limits of a pipe service.

    Attributes:
        receivers: Pipes open at once. A frame that would open one more becomes a dead letter,
            and its sender is told.
        receivers_per_peer: Pipes with the same first address on their return routes: the
            connection that they use.
        held_bytes: Bytes that all receivers together hold back or have not handed on, besides a
            frame of at most 16 KiB for each. Half of it is for messages that wait for a missing
            one. Frames above the limit are dropped; a confirmed pipe sends them again.
        retired: Closed pipes that are remembered, so that a late frame opens none again, and an
            unconfirmed one goes on where it was.
        receiver: The limits of each receiver. It is stopped after its `idle_timeout` without a
            frame.
    """

    receivers: Count = 1000
    receivers_per_peer: Count = 500
    held_bytes: Count = 64 * 1024 * 1024
    retired: Size = 1000
    receiver: PipeReceiverOptions = _RECEIVER

    def __post_init__(self) -> None:
        check_options(self)


_OPTIONS: Final = PipeServiceOptions()


class PipeService(Worker):
    """A service that starts a `PipeReceiver` for each pipe that comes to its address.

    ```
    PipeSender 1 ══▶ ┌─────────┐ ──▶ PipeReceiver 1 ──▶ the workers of its messages
    PipeSender 2 ══▶ │ service │ ──▶ PipeReceiver 2 ──▶
                     └─────────┘
    ```

    Args:
        options: Its limits.
        access: The access of each receiver, as for `Worker.spawn`:
            `Access(outgoing=to_next("printer"))` limits its pipes to one worker. Without one, pipes
            of the node itself reach every worker of it, and those from other nodes reach the
            addresses that their links expose or allow.
        on_gap: Called, on the node's loop, with the numbers of missed messages.
    """

    def __init__(
        self,
        options: PipeServiceOptions = _OPTIONS,
        *,
        access: AccessLike | None = None,
        on_gap: Callable[[Gap], object] | None = None,
    ) -> None:
        check_value("options", options, PipeServiceOptions)
        super().__init__()
        self._options = options
        self._access = access
        self._on_gap = on_gap
        self._receivers: dict[bytes, Address] = {}
        self._workers: dict[bytes, tuple[PipeReceiver, Address | None]] = {}
        self._peers = Counter[Address | None]()
        self._retired = Retired(options.retired)
        self._budget = ReceiverMemory(options.held_bytes)
        self._reader = PipeFrameReader()

    @property
    def receivers(self) -> dict[bytes, Address]:
        """The address of the receiver of each open pipe, by the pipe's identity."""
        return dict(self._receivers)

    def handle_message(self, message: Message) -> None:
        """Pass a frame to the receiver of its pipe; start one for a pipe that it opens."""
        try:
            identity = frame_identity(message[2])
            receiver = self._receivers.get(identity)
            if receiver is None:
                receiver = self._made(identity, message)
            if receiver is not None:
                context = outside_of(message)
                frame = Message((receiver,), message[1], message[2], self.address, context)
                self.node.parts.router.dispatch(frame)
        except OnwardError as error:
            self.node.lose(message, error)

    def _made(self, identity: bytes, message: Message) -> Address | None:
        frame = self._reader.read(message[2])
        if not isinstance(frame, OpenPipe | PipeData | End | Abort):
            self.node.dead_letter(message, PipeClosed.reason)
            return None
        if self._retired.begin(frame) is None:
            for lost in self._retired.lost(frame):
                self.node.lose(lost, PipeClosed(self.address))
            self._answer(message, answer_to_stranger(frame))
            return None
        peer = message[1][0] if message[1] else None
        options = self._options
        if len(self._receivers) >= options.receivers:
            self._answer(message, encode_frame(PipeRefused(identity, PipeRefusal.FULL)))
            raise LimitReached("receivers", options.receivers)
        if self._peers[peer] >= options.receivers_per_peer:
            self._answer(message, encode_frame(PipeRefused(identity, PipeRefusal.PEER_FULL)))
            raise LimitReached("receivers_per_peer", options.receivers_per_peer)
        made = PipeReceiver(options.receiver, on_gap=self._on_gap, on_closed=self._closed)
        made._retired, made._budget = self._retired, self._budget
        self._receivers[identity] = self.spawn(lambda: made, access=self._access)
        self._workers[identity] = made, peer
        self._peers[peer] += 1
        return made.address

    def _answer(self, message: Message, frame: bytes | None) -> None:
        if frame is not None and message[1]:
            self.node.parts.router.dispatch_or_lose(
                Message(message[1], (self.address,), frame, self.address)
            )

    def _closed(self, identity: bytes) -> None:
        """Forget and stop a receiver after its pipe is over, or idle."""
        self._receivers.pop(identity)
        made, peer = self._workers.pop(identity)
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]
        made.stop()
