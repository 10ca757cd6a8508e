"""`Proxy`: a stable address for a fixed route."""

from __future__ import annotations

from typing import ClassVar

from ...protocol import Message, OnwardError, Route, RouteLike, route as route_of
from ..runtime._policy import MailboxOptions, Overflow
from ._two_sided import TwoSidedWorker

__all__ = ["Proxy"]


class Proxy(TwoSidedWorker):
    """A worker that passes every message on along a fixed route, and answers back.

    ```
    [proxy, rest…] <- [back…]             becomes   [route…, rest…] <- [inner, back…]
    [inner, back…] <- [route…, rest…]     becomes   [back…] <- [proxy, rest…]
    ```

    Senders to the proxy need not know the route, neither for requests nor for replies to answers.
    If the return route of an answer does not begin with the fixed route (a transport or a rule
    may have replaced a name by a connection), it is kept, with the proxy in front:

    ```
    [inner, back…] <- [other…]            becomes   [back…] <- [inner, other…]
    ```

    A transparent proxy is not on the return route, so answers do not pass it:

    ```
    [proxy, rest…] <- [back…]             becomes   [route…, rest…] <- [back…]
    ```

    A message that cannot be passed on becomes a dead letter.

    Args:
        route: The fixed route, put in front of the rest of a message's onward route.
        transparent: Whether to leave the return route unchanged.

    Raises:
        ValueError: The route is empty.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, route: RouteLike, *, transparent: bool = False) -> None:
        super().__init__()
        self._route: Route = route_of(route)
        self._transparent = transparent
        if not self._route:
            raise ValueError("a proxy needs a route")

    def handle_outer(self, message: Message) -> None:
        """Pass a message on along the route."""
        if not self._transparent:
            self.redirect(message, self._route, self._inner)
            return
        onward, back, payload, source, context = message
        self.route(Message((*self._route, *onward[1:]), back, payload, source, context))

    def handle_inner(self, message: Message) -> None:
        """Pass an answer back, with the proxy in place of the fixed route."""
        onward, back, payload, source, context = message
        length = len(self._route)
        if len(onward) < 2 or back[:length] != self._route:
            self.forward(message)
            return
        back = (self._outer, *back[length:])
        try:
            self.route(Message(onward[1:], back, payload, source, context))
        except OnwardError as error:
            self.node.lose(message, error)
