"""`PipeService`: an address at which pipes of many senders end, each with a receiver of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...protocol import Address, Message, OnwardError
from ...protocol.pipes import (
    Data,
    FrameReader,
    Gap,
    Open,
    PipeReceiverOptions,
    frame_identity,
)
from .._errors import LimitReached
from .._worker import Worker
from ..access._guard import AccessLike
from ._receiver import PipeReceiver
from ._receiving import unknown

__all__ = ["PipeService", "PipeServiceOptions"]

_RECEIVER: Final = PipeReceiverOptions()


@dataclass(frozen=True, slots=True)
class PipeServiceOptions:
    """How far a service of pipes may grow.

    Attributes:
        receivers: Pipes open at once. What would open one more becomes a dead letter; its sender
            tries again, and gives up some time.
        retired: Pipes that are over and are remembered, so that a frame of theirs that comes late
            opens none again.
        receiver: The limits of each receiver. One whose sender is gone is stopped after its
            `idle_timeout`.
    """

    receivers: int = 1000
    retired: int = 1000
    receiver: PipeReceiverOptions = _RECEIVER


_OPTIONS: Final = PipeServiceOptions()


class PipeService(Worker):
    """Makes a `PipeReceiver` for each sender whose pipe comes to its address.

    ```
    PipeSender 1 ══▶ ┌─────────┐ ──▶ PipeReceiver 1 ──▶ the workers its messages are for
    PipeSender 2 ══▶ │ service │ ──▶ PipeReceiver 2 ──▶
                     └─────────┘
    ```

    Args:
        options: Its limits.
        access: Of each receiver, as for `Worker.spawn`. Without one, whoever can reach the service
            can send to every worker of the node: `Access(outgoing=to_next("printer"))` lets its
            pipes hand on to one only.
        on_gap: Is told, on the node's loop, of the numbers of messages that were missed.
    """

    def __init__(
        self,
        options: PipeServiceOptions = _OPTIONS,
        *,
        access: AccessLike | None = None,
        on_gap: Callable[[Gap], object] | None = None,
    ) -> None:
        super().__init__()
        self._options = options
        self._access = access
        self._on_gap = on_gap
        self._receivers: dict[bytes, Address] = {}
        self._workers: dict[bytes, PipeReceiver] = {}
        self._retired: dict[bytes, None] = {}
        self._reader = FrameReader()

    @property
    def receivers(self) -> dict[bytes, Address]:
        """The address of the receiver of each pipe that is open, by the pipe's identity."""
        return dict(self._receivers)

    def handle_message(self, message: Message) -> None:
        """Give a frame to the receiver of its pipe, and make one for a pipe that is opened."""
        try:
            identity = frame_identity(message[2])
            receiver = self._receivers.get(identity)
            if receiver is None:
                receiver = self._made(identity, message)
            if receiver is not None:
                self.node.carry(Message((receiver,), message[1], message[2], self.address))
        except OnwardError as error:
            self.node.lose(message, error)

    def _made(self, identity: bytes, message: Message) -> Address | None:
        frame = self._reader.read(message[2])
        opens = isinstance(frame, Open) or (isinstance(frame, Data) and not frame.mode.confirm)
        if not opens or identity in self._retired:
            answer = unknown(frame)
            if answer is None:
                self.node.dead_letter(message, "pipe closed")
            elif message[1]:
                self.node.carry_or_bury(Message(message[1], (self.address,), answer, self.address))
            return None
        if len(self._receivers) >= self._options.receivers:
            raise LimitReached("receivers", self._options.receivers)
        made = PipeReceiver(self._options.receiver, on_gap=self._on_gap, on_closed=self._closed)
        self._receivers[identity] = self.spawn(lambda: made, access=self._access)
        self._workers[identity] = made
        return made.address

    def _closed(self, identity: bytes) -> None:
        """Forget a receiver, and stop it: its pipe is over."""
        self._receivers.pop(identity)
        self._retired[identity] = None
        if len(self._retired) > self._options.retired:
            del self._retired[next(iter(self._retired))]
        self._workers.pop(identity).stop()
