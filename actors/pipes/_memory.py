"""What the ends of pipes keep in common: bytes they may hold, and pipes that are over."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from ...protocol import Context, Message
from ...protocol.pipes import (
    IDENTITY_SIZE,
    Abort,
    Data,
    End,
    Frame,
    Mode,
    Open,
    Ordering,
    Receiver,
)

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Budget", "Retired", "mode_of", "outside_of", "random_bytes"]


def random_bytes(node: Node, size: int = IDENTITY_SIZE) -> bytes:
    """Return random bytes, at most 64, from where the node's addresses come from."""
    return blake2b(node.random_address().value, digest_size=size).digest()


def outside_of(message: Message) -> Context | None:
    """Return a context of what a message from outside may do, and of nothing else."""
    context = message[4]
    if context is None or context[4] is None:
        return None
    return Context(outside=context[4])


def mode_of(frame: Frame) -> Mode | None:
    """Return the mode of a frame that may open a pipe: without a mode it may not."""
    if isinstance(frame, Open) or (isinstance(frame, Data | End) and not frame.mode.confirm):
        return frame.mode
    return None


class Budget:
    """Bytes that several receivers may hold together; half of them may be held back for a gap.

    Attributes:
        limit: How many.
        used: How many they hold.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Retired:
    """Pipes that are over here, or that nothing was heard of for long; and how far they had come.

    One that is confirmed is over: its sender is told so when it comes again. One that is not cannot
    be told, so it goes on where it was, unless its sender has ended or broken it.

    Args:
        limit: How many are remembered. The oldest is forgotten.
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
        """Remember a pipe no more: it goes on."""
        self._known.pop(identity, None)

    def begin(self, frame: Open | Data | End | Abort) -> int | None:
        """Tell whether a frame opens a pipe here that is not open.

        Returns:
            The number of the message it begins with, or `None`.
        """
        if mode_of(frame) is None:
            return None
        begin, is_over = self._known.get(frame.identity, (1, False))
        if is_over or (isinstance(frame, Data) and begin > 1 and not self._left(frame, begin)):
            return None
        return begin

    def lost(self, frame: Open | Data | End | Abort) -> tuple[Message, ...]:
        """Return the messages of a frame that opens no pipe which nobody will hear of otherwise."""
        if not isinstance(frame, Data) or frame.mode.confirm:
            return ()
        begin, _ = self._known.get(frame.identity, (1, False))
        return self._left(frame, begin)

    @staticmethod
    def _left(frame: Data, begin: int) -> tuple[Message, ...]:
        """Return a frame's messages from a number on; without an order there are no numbers."""
        if frame.mode.ordering is Ordering.NONE:
            return frame.messages
        return frame.messages[max(0, begin - frame.first) :]
