"""The message model: an onward route, a return route, and a payload that stays unchanged.

The first onward address is the worker that gets the message, and it stays there while the
worker handles it. A worker that forwards takes itself off the onward route and puts itself
on the return route; a worker that replies swaps the two.

A message is a named tuple. A frozen dataclass takes four times as long to make, and each hop
between two workers makes one message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ._address import MAX_ROUTE_LENGTH, Address, Route, format_route
from ._errors import EmptyRoute, PayloadNotBytes, RouteError, RouteTooLong

__all__ = ["Context", "Message", "Outside", "check_bytes"]

_Fields: TypeAlias = "tuple[Route, Route, bytes, Address | None, Context | None]"

# What a NamedTuple's own constructor calls, without the detour.
_new: Final = cast("Callable[[type[Message], _Fields], Message]", tuple.__new__)


def check_bytes(payload: object) -> None:
    """Check the type of a payload.

    Raises:
        PayloadNotBytes: It is not `bytes`. A `bytearray` or a `memoryview` is not: it could
            change while the message waits.
    """
    # Routing protocol, Message format: "Payload contains binary data, the router MUST NOT change
    # the payload".
    if not isinstance(payload, bytes):
        raise PayloadNotBytes(type(payload).__name__)


class Outside(NamedTuple):
    """The restrictions on a message that arrived from another node.

    They apply to that message's onward route. A worker that reuses the context for a message along
    a route of its own removes them first: `context._replace(outside=None)`.

    Attributes:
        given: Number of addresses at the end of the onward route that the other node chose.
            Workers and rules of this node put the addresses in front of them.
        allows: Whether the message may be sent to an address that the other node chose.
    """

    given: int
    allows: Callable[[Address], bool]

    def __eq__(self, other: object) -> bool:
        """Whether both have the same number of addresses; `allows` is not compared."""
        return isinstance(other, Outside) and self[0] == other[0]

    def __ne__(self, other: object) -> bool:
        """Whether the two are unequal; the inherited method would compare all fields."""
        return not self == other

    def __hash__(self) -> int:
        return hash(self[0])

    def __repr__(self) -> str:
        """Return a text that does not differ between processes."""
        return f"Outside(given={self[0]})"


class Context(NamedTuple):
    """The part of a message that is local to one node and not in the payload.

    Attributes:
        deadline: Time at which the message expires, in seconds of the node's loop clock, or
            `None`.
        trace: The wire's tracing text (Ockam's fourth field), or `None`.
        meta: Data that a transport or worker attaches, for this node only.
        hops: Number of times the message was passed on without an address added to the return
            route; counted by the node, for its loop guard.
        outside: The restrictions of a message from another node, set by the link it arrived
            over. `None` for a message of this node, and for an answer.
    """

    deadline: float | None = None
    trace: str | None = None
    meta: Any = None
    hops: int = 0
    outside: Outside | None = None


class Message(NamedTuple):
    """A routed message.

    Attributes:
        onward_route: The addresses yet to visit; the first is the worker that has the message.
        return_route: The addresses along which a reply is sent, in the order of the way back.
            A sender may forge it: never decide access by it.
        payload: The sender's bytes. Routers, forwarders and transports do not change them.
        source: The primary address of the local worker that sent it, set by the node only;
            `None` if code outside of workers sent it. It never crosses a wire.
        context: The part that is local to the node, or `None`.
    """

    onward_route: Route
    return_route: Route
    payload: bytes
    source: Address | None = None
    context: Context | None = None

    @property
    def to(self) -> Address:
        """The address that the message was delivered to.

        Raises:
            EmptyRoute: The onward route is empty.
        """
        if not self[0]:
            raise EmptyRoute
        # Routing protocol, Workers and message passing: "In the received message, the first element
        # of the onward route will be the worker own address."
        return self[0][0]

    def forward(self, own: Address | None = None) -> Message:
        """Return the message as the current worker passes it on.

        Args:
            own: The address to leave on the return route; the one it was delivered to
                by default.

        Raises:
            EmptyRoute: There is no further step.
            RouteTooLong: The return route is at `MAX_ROUTE_LENGTH`.
        """
        onward, back, payload, _, context = self
        if len(onward) < 2:
            raise _lost(EmptyRoute(), self)
        if len(back) >= MAX_ROUTE_LENGTH:
            raise _lost(RouteTooLong(len(back) + 1, MAX_ROUTE_LENGTH), self)
        me = onward[0]
        # Routing protocol, Workers and message passing: "Onward route should have the worker own
        # address removed" and "Workers own address should be added to the return route".
        return _new(Message, (onward[1:], (own or me, *back), payload, me, context))

    def step(self) -> Message:
        """Return the message passed on without a trace: the return route stays as it is.

        Raises:
            EmptyRoute: There is no further step.
        """
        onward, back, payload, _, context = self
        if len(onward) < 2:
            raise _lost(EmptyRoute(), self)
        return _new(Message, (onward[1:], back, payload, onward[0], context))

    def reply(self, payload: bytes, own: Address | None = None) -> Message:
        """Return the answer to the message, to go back along its return route.

        Args:
            payload: The answer's bytes.
            own: The address the answer comes from; the one the message was delivered to
                by default.

        Raises:
            EmptyRoute: The message has no return route.
        """
        onward, back, _, _, context = self
        if not back:
            raise _lost(EmptyRoute(), self)
        me = onward[0]
        if context is not None and context[4] is not None:
            context = context._replace(outside=None)  # it goes where the return route says
        # Routing protocol, Workers and message passing: "To reply to a message, a worker routes a
        # response with return route as an onward route and vice versa".
        return _new(Message, (back, (own or me,), payload, me, context))

    def redirect(self, *onward: Address) -> Message:
        """Return the message with its first onward address replaced by these.

        Raises:
            EmptyRoute: Nothing is left to send to.
            RouteTooLong: The onward route would be over `MAX_ROUTE_LENGTH`.
        """
        route = (*onward, *self[0][1:])
        if not route:
            raise _lost(EmptyRoute(), self)
        if len(route) > MAX_ROUTE_LENGTH:
            raise _lost(RouteTooLong(len(route), MAX_ROUTE_LENGTH), self)
        return _new(Message, (route, self[1], self[2], self[3], self[4]))

    def __str__(self) -> str:
        onward, back = format_route(self[0]), format_route(self[1])
        payload = cast("tuple[object, ...]", self)[2]
        if not isinstance(payload, bytes):
            return f"[{onward}] <- [{back}] {type(payload).__name__} in place of bytes"
        size = len(payload)
        return f"[{onward}] <- [{back}] {size} {'byte' if size == 1 else 'bytes'}"


def _lost(error: RouteError, message: Message) -> RouteError:
    """Attach the message that cannot be sent to an error, and return the error."""
    error.lost = message
    return error
