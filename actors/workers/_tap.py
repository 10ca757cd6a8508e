"""`Tap`: a forwarder that copies messages to an observer."""

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
"""The address in the return route of a copy. No worker has it, so a copy cannot be answered."""

_logger = logging.getLogger("onward.actors")


@dataclass(frozen=True, slots=True)
class TapStatistics:
    """The counters of a tap."""

    copied: int
    """Copies sent to the observer."""

    lost: int
    """Copies that could not be sent. Each is a dead letter, with the reason."""


class Tap(Worker):
    """A worker that passes every message on, and sends a copy of it to an observer.

    ```
    [tap, next…] <- [back…]        becomes        [next…] <- [tap, back…]
                                   and            [observer…] <- [copy, copy…]
    ```

    The message is sent before the copy, so a slow observer does not affect it. A copy has the
    payload and cannot be answered: its return route has only addresses `onward.copy`, which no
    worker has, and is one address longer than that of the message. An observer on this node
    finds the whole message in the copy's `context.meta`. Copies wait in the observer's mailbox,
    or for the link towards it; copies over those limits are lost, and counted.

    Answers pass the tap too, and are copied. Taps that observe each other do not loop: on one
    node a copy is not copied again, and between nodes its return route grows each time, to the
    limit of `MAX_ROUTE_LENGTH`.

    Args:
        observer: The route of the copies.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, observer: RouteLike) -> None:
        super().__init__()
        self._observer: Route = route_of(observer)
        self._copied = 0
        self._lost = 0

    def statistics(self) -> TapStatistics:
        """Return the counters."""
        return TapStatistics(self._copied, self._lost)

    def handle_message(self, message: Message) -> None:
        """Pass a message on, and copy it to the observer."""
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
            # An error of a rule on the observer's route must not affect the message.
            _logger.exception(
                "%s cannot reach its observer", self.address, extra={"event": "observer.failed"}
            )
            self._lost += 1
            self.node.dead_letter(copy, "observer failed")
        else:
            self._copied += 1
