"""`Proxy`: a stable address for a fixed route."""

from __future__ import annotations

from typing import ClassVar

from ...protocol import Message, OnwardError, Route, RouteLike, route as route_of
from ..runtime._policy import MailboxOptions, Overflow
from ._two_sided import TwoSidedWorker

__all__ = ["Proxy"]


class Proxy(TwoSidedWorker):
    """Passes every message on along a fixed route, and answers back.

    ```
    [proxy, rest…] <- [back…]             becomes   [route…, rest…] <- [inner, back…]
    [inner, back…] <- [route…, rest…]     becomes   [back…] <- [proxy, rest…]
    ```

    Who sends to the proxy need not know the route, neither to ask nor to answer an answer. If what
    comes back came by another way than the route says (a transport or a rule has put a connection
    in place of a name, for instance), that way is kept, and the proxy on it:

    ```
    [inner, back…] <- [way…]              becomes   [back…] <- [inner, way…]
    ```

    Transparent, it leaves no trace, and answers do not pass it:

    ```
    [proxy, rest…] <- [back…]             becomes   [route…, rest…] <- [back…]
    ```

    What cannot be passed on becomes a dead letter.

    Args:
        route: Where to; what is left of a message's onward route comes behind it.
        transparent: Whether to leave no trace on the return route.

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
        """Pass an answer back, as one from the proxy where it came by the route."""
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
