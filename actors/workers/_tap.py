"""`Tap`: a forwarder that shows somebody what passes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar, Final

from ...protocol import (
    LOCAL,
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    Message,
    OnwardError,
    Route,
    RouteLike,
    RouteTooLong,
    route as route_of,
)
from .._worker import Worker
from ..runtime._policy import MailboxOptions, Overflow

__all__ = ["Tap", "TapStatistics"]

COPY: Final = Address(LOCAL, b"onward.copy")
"""What the return route of a copy consists of. No worker has it, so nobody can answer a copy."""

_logger = logging.getLogger("onward.actors")


@dataclass(frozen=True, slots=True)
class TapStatistics:
    """What a tap has counted."""

    copied: int
    """Copies sent to the observer."""

    lost: int
    """Copies the observer could not be sent. Each is a dead letter, with the reason."""


class Tap(Worker):
    """Passes every message on, and sends a copy of it to an observer.

    ```
    [tap, next…] <- [back…]        becomes        [next…] <- [tap, back…]
                                   and            [observer…] <- [copy, copy…]
    ```

    The message itself goes first, so it is the same whether the observer keeps up or not. A copy
    has the payload, and nobody can answer it: its return route is the name `onward.copy`, which
    no worker has, once and once again for each address on that of the message. An observer on
    this node finds the whole message, as it came, in the copy's `context.meta`. Copies wait in
    the observer's mailbox, or for the link towards it; what is over their limits is lost, and
    counted.

    Answers pass the tap on their way back, and are copied too. Taps that show each other what
    passes do not go on for ever: on one node a copy is not copied again, and from node to node
    its return route grows each time, to the limit of `MAX_ROUTE_LENGTH`.

    Args:
        observer: Where copies go.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, observer: RouteLike) -> None:
        super().__init__()
        self._observer: Route = route_of(observer)
        self._copied = 0
        self._lost = 0

    def statistics(self) -> TapStatistics:
        """Return what has been counted."""
        return TapStatistics(self._copied, self._lost)

    def handle_message(self, message: Message) -> None:
        """Pass it on, and show it."""
        try:
            self.forward(message)
        except OnwardError as error:
            self.node.lose(message, error)
        context = message[4]
        if context is None or not isinstance(context.meta, Message):
            self._show(message)

    def _show(self, message: Message) -> None:
        length = len(message.return_route) + 1
        back = (COPY,) * length
        copy = Message(self._observer, back, message.payload, None, Context(meta=message))
        try:
            if length > MAX_ROUTE_LENGTH:
                raise RouteTooLong(length, MAX_ROUTE_LENGTH)
            self.send(self._observer, message.payload, return_route=back, context=copy.context)
        except OnwardError as error:
            self._lost += 1
            self.node.dead_letter(copy, error)
        except Exception:
            # A rule of somebody's on the way to the observer must not hurt who is observed.
            _logger.exception("%s cannot reach its observer", self.address)
            self._lost += 1
            self.node.dead_letter(copy, "observer failed")
        else:
            self._copied += 1
