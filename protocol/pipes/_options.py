"""The guarantees and the limits of a pipe: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, TypeAlias

from ..options import Count, Range, Seconds, check_options

__all__ = ["MAX_WINDOW", "Mode", "Ordering", "PipeOptions", "PipeReceiverOptions"]

MAX_WINDOW: Final = 65_536
"""Most messages a window may have: what one confirmation can say is bounded by it."""

Window: TypeAlias = Annotated[int, Range(least=1, most=MAX_WINDOW)]
"""The size of a window, in messages."""


class Ordering(IntEnum):
    """The order in which the receiver hands messages on. The values are those of the wire."""

    NONE = 0
    """As they come."""

    MONOTONIC = 1
    """Only messages that were sent after all those handed on before; others are missed."""

    STRICT = 2
    """As they were sent: what comes early is held back until what is before it has come."""


_CONFIRM: Final = 4


@dataclass(frozen=True, slots=True)
class Mode:
    """The guarantees of a pipe, as its sender requests them in its frames.

    Attributes:
        ordering: The order in which messages are handed on.
        confirm: Whether they are confirmed, sent again when lost, and handed on once at most.
    """

    ordering: Ordering = Ordering.STRICT
    confirm: bool = True

    @property
    def number(self) -> int:
        """The mode as it is on the wire: the ordering, plus 4 if messages are confirmed."""
        return self.ordering | _CONFIRM if self.confirm else int(self.ordering)

    @classmethod
    def of(cls, number: int) -> Mode:
        """Read a mode from the wire.

        Raises:
            ValueError: There is no such mode.
        """
        return cls(Ordering(number & ~_CONFIRM), bool(number & _CONFIRM))


@dataclass(frozen=True, slots=True)
class PipeOptions:
    """Options of the sending end of a pipe.

    Attributes:
        ordering: The order in which messages are handed on.
        confirm: Whether they are confirmed, sent again when lost, and handed on once at most.
        window: Messages sent and not yet confirmed; at most `MAX_WINDOW`. The receiver's own
            window counts too if that is smaller. At the limit nothing more is sent.
        window_bytes: Bytes of them, their routes included; a message that is bigger goes alone.
        queue: Messages that wait to be sent. One more: `PipeFull`.
        max_message: Bytes of one message, its routes included. More: `PayloadTooBig`.
        frame_messages: Messages in one frame.
        frame_bytes: Bytes of messages in one frame; a message that is bigger has one to itself.
        first_timeout: How long to wait for a confirmation before sending again, in seconds, as
            long as the round trip has not been measured. It doubles each time.
        min_timeout: The shortest such time, in seconds.
        max_timeout: The longest such time, in seconds.
        give_up: After how long without a word from the receiver, while one is due, the pipe is
            broken, in seconds.
        keep_alive: After how long without anything to send the receiver is asked whether it is
            there, in seconds; after half of the receiver's `idle_timeout` if that is less.

    Raises:
        ValueError: A limit lets nothing through, or the window is over `MAX_WINDOW`.
    """

    ordering: Ordering = Ordering.STRICT
    confirm: bool = True
    window: Window = 2048
    window_bytes: Count = 4 * 1024 * 1024
    queue: Count = 1024
    max_message: Count = 8 * 1024 * 1024
    frame_messages: Count = 128
    frame_bytes: Count = 16 * 1024
    first_timeout: Seconds = 0.5
    min_timeout: Seconds = 0.02
    max_timeout: Seconds = 2.0
    give_up: Seconds = 30.0
    keep_alive: Seconds = 60.0

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def mode(self) -> Mode:
        """The mode as frames carry it."""
        return Mode(self.ordering, self.confirm)


@dataclass(frozen=True, slots=True)
class PipeReceiverOptions:
    """Options of the receiving end of a pipe.

    Attributes:
        window: Messages received that are not yet handed on, with those missing between them;
            at most `MAX_WINDOW`. What is beyond it is not taken, and sent again if confirmed.
        window_bytes: Bytes of them, their routes included; the first message is always taken.
        gap_timeout: How long a missing message holds the others up, in seconds. Then it is missed.
            Longer than a sender's `give_up`, so that one that lives closes the gap.
        begin_timeout: The same for what is missing before the first message that comes of a pipe
            that is not confirmed: it may have been going on before, with another receiver.
        stall_timeout: How long a full mailbox holds the pipe up, in seconds. Then its messages
            are missed.
        confirm_delay: How long a confirmation may wait for more to confirm, in seconds.
        confirm_messages: Messages after which one is sent at once.
        idle_timeout: After how long without a frame the sender is taken to be gone, in seconds.
            A sender that is confirmed is told, and asks in time.

    Raises:
        ValueError: A limit lets nothing through, or the window is over `MAX_WINDOW`.
    """

    window: Window = 2048
    window_bytes: Count = 4 * 1024 * 1024
    gap_timeout: Seconds = 60.0
    begin_timeout: Seconds = 1.0
    stall_timeout: Seconds = 30.0
    confirm_delay: Seconds = 0.005
    confirm_messages: Count = 256
    idle_timeout: Seconds = 300.0

    def __post_init__(self) -> None:
        check_options(self)
