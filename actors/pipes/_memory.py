"""State that receivers of pipes share: a budget of bytes, and the pipes that are over."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from ...protocol import Context, Message
from ...protocol.pipes import (
    IDENTITY_SIZE,
    Abort,
    End,
    Frame,
    Mode,
    OpenPipe,
    Ordering,
    PipeData,
    Receiver,
)

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["ReceiverMemory", "Retired", "mode_of", "outside_of", "random_bytes"]


def random_bytes(node: Node, size: int = IDENTITY_SIZE) -> bytes:
    """Return random bytes, at most 64, from the source of the node's random addresses."""
    return blake2b(node.random_address().value, digest_size=size).digest()


def outside_of(message: Message) -> Context | None:
    """Return the context that limits a message from another node, without its other parts."""
    context = message[4]
    if context is None or context[4] is None:
        return None
    return Context(outside=context[4])


def mode_of(frame: Frame) -> Mode | None:
    """Return the mode of a frame that may open a pipe, or `None` for one that may not."""
    if isinstance(frame, OpenPipe) or (
        isinstance(frame, PipeData | End) and not frame.mode.confirm
    ):
        return frame.mode
    return None


class ReceiverMemory:
    """A limit on the bytes that several receivers hold; half of it may be held back for a gap.

    Attributes:
        limit: The most bytes held.
        used: The bytes held now.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Retired:
    """The pipes that are over or idle, and the progress of each.

    A confirmed pipe is over: its sender is told so when it sends again. The sender of
    an unconfirmed one cannot be told: the pipe goes on where it was,
    unless its sender has ended or broken it.

    Args:
        limit: The most pipes remembered. The oldest is forgotten.
    """

    __slots__ = ("_known", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[bytes, tuple[int, bool]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._known

    def keep(self, machine: Receiver) -> None:
        """Remember a pipe."""
        known = self._known
        known.pop(machine.identity, None)
        known[machine.identity] = machine.next_number, machine.over or machine.mode.confirm
        if len(known) > self._limit:
            del known[next(iter(known))]

    def forget(self, identity: bytes) -> None:
        """Forget a pipe, because it goes on."""
        self._known.pop(identity, None)

    def begin(self, frame: OpenPipe | PipeData | End | Abort) -> int | None:
        """Return the message number at which a frame opens a pipe that is not open.

        Returns:
            The number of the first message, or `None` if the frame opens no pipe.
        """
        if mode_of(frame) is None:
            return None
        begin, is_over = self._known.get(frame.identity, (1, False))
        if is_over or (isinstance(frame, PipeData) and begin > 1 and not self._left(frame, begin)):
            return None
        return begin

    def lost(self, frame: OpenPipe | PipeData | End | Abort) -> tuple[Message, ...]:
        """Return the messages of a frame that opens no pipe and that no other report covers."""
        if not isinstance(frame, PipeData) or frame.mode.confirm:
            return ()
        begin, _ = self._known.get(frame.identity, (1, False))
        return self._left(frame, begin)

    @staticmethod
    def _left(frame: PipeData, begin: int) -> tuple[Message, ...]:
        """Return a frame's messages from a number on; unordered messages have no numbers."""
        if frame.mode.ordering is Ordering.NONE:
            return frame.messages
        return frame.messages[max(0, begin - frame.first) :]
