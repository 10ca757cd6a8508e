"""The methods by which a worker passes messages on, answers and sends its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    EmptyRoute,
    MailboxFull,
    Message,
    OnwardError,
    Route,
    RouteLike,
    RouteTooLong,
    check_bytes,
    counted,
)
from ._errors import RoutingLoop
from .routing._given import as_route, check_payload
from .routing._router import Router
from .runtime._host import HostedActor
from .runtime._room_elsewhere import hand_over_later

if TYPE_CHECKING:
    from ._node import Node
    from .access._guard import OutboundGuard
    from .runtime._cell import Cell

__all__ = ["Sending"]

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

LONG_ROUTE: Final = MAX_ROUTE_LENGTH * 3 // 4
"""Addresses of a return route at which instruments are told of a message."""

COUNTED: Final = tuple(Context(hops=hops) for hops in range(MAX_ROUTE_LENGTH + 1))
"""Contexts with only a count of hops; making one would take as long as half a hop."""


class Sending(HostedActor):
    """The sending methods of `Worker`.

    The source of each message is the worker's primary address and cannot be forged.

    Attributes:
        node: The node it runs on.
        address: Its primary address.
    """

    node: Node
    address: Address
    _out: Router | OutboundGuard  # the router, or the guard of a controlled worker

    def _use(self, node: Node, out: Router | OutboundGuard) -> None:
        self.node = node
        self._out = out

    def _join(self, cell: Cell) -> None:
        self._cell = cell
        self.address = cell.addresses[0]

    def _send_through(self, guard: OutboundGuard) -> None:
        below = self._out
        if isinstance(below, Router):
            self._out = guard
        else:
            below.settle(guard)  # it checks already, or a traced message is in hand

    def forward(
        self, message: Message, own: Address | None = None, payload: bytes | None = None
    ) -> None:
        """Pass a message on, moving this worker's address from the onward to the return route.

        Args:
            message: The message, as it came to this worker.
            own: The address to leave on the return route; the one it came to by default.
            payload: Another payload in place of the message's own.

        If a handler lets one of these errors through, the message is lost with that error, and
        the worker has not failed. A handler that has had an effect which must not be repeated
        should catch `NotDelivered`, which tells the sender that it is safe to send again.

        Raises:
            EmptyRoute: There is no further address.
            RouteTooLong: The return route is at its limit.
            AccessDenied: An access control denies it.
            PayloadNotBytes: The payload was replaced by one that is not `bytes`.
            PayloadTooBig: The other payload is over the node's limit.
            DeliveryError: As `Node.route`.
        """
        # Not keyword-only: CPython calls functions with such parameters a tenth slower.
        if payload is not None:
            self._pass_on_changed(message, payload, partial(self.forward, own=own))
            return
        # Message.forward and Router.dispatch in one: this is the most frequent path, and the two
        # calls would be a fifth of it. Adding tuples is cheaper than unpacking them.
        onward, back, payload, _, context = message
        if type(payload) is not bytes:
            check_bytes(payload)
        rest = onward[1:]
        try:
            if not rest:
                raise EmptyRoute
            if len(back) >= LONG_ROUTE:
                self._look_at_length(message)
            back = (own or onward[0],) + back  # noqa: RUF005
            forwarded = _new(Message, (rest, back, payload, self.address, context))
            out = self._out
            target = out.table.get(rest[0])
            if target is None:
                out.dispatch(forwarded)
                return
            queue = target.queue
            # A message with counted bytes has a context: see `Mailbox.load`.
            if (
                queue is None
                or len(queue) >= target.limit
                or (context is not None and len(payload) > target.heavy)
            ):
                target.put(forwarded)
                return
        except MailboxFull as full:
            self._hand_over_later(full, message)
            return
        except OnwardError as error:
            error.lost = message
            raise
        queue.append(forwarded)
        if not target.scheduled:
            target.scheduled = True
            out.schedule(target)

    def _pass_on_changed(
        self, message: Message, payload: bytes, pass_on: Callable[[Message], None]
    ) -> None:
        """Pass a message on with another payload, its size checked and its bytes counted."""
        if type(payload) is not bytes:
            check_bytes(payload)  # not in the `try`, as this is a failure of the worker
        try:
            check_payload(payload, self.node.limits)
            # With a context, `forward` and `step` check if the payload's bytes must be counted.
            context = message[4] or COUNTED[0]
            pass_on(message._replace(payload=payload, context=context))
        except OnwardError as error:
            error.lost = message
            raise

    def _hand_over_later(
        self, full: MailboxFull, came: Message, lost: Message | None = None
    ) -> None:
        """Queue a message for a full mailbox, if it may wait."""
        cell = self._cell
        try:
            if cell is None:
                raise full
            hand_over_later(cell, full, came)
        except OnwardError as error:
            error.lost = lost or came
            raise

    def _look_at_length(self, message: Message) -> None:
        length = len(message[1])
        instruments = self.node.parts.run_queue.instruments
        if instruments is not None:
            instruments.long_route(message)
        if length >= MAX_ROUTE_LENGTH:
            raise RouteTooLong(length + 1, MAX_ROUTE_LENGTH)

    def redirect(
        self,
        message: Message,
        route: RouteLike,
        own: Address | None = None,
        payload: bytes | None = None,
    ) -> None:
        """Pass a message on along another route, such as that of a relay, a proxy or a session.

        This worker's address is removed from the onward route, `route` is put in front of the
        rest, and the worker's address is put on the return route, as with `forward`.

        Args:
            message: The message, as it came to this worker.
            route: The route to put in front.
            own: The address to leave on the return route; the one it came to by default.
            payload: Another payload in place of the message's own.

        Raises:
            EmptyRoute: There is no further address.
            RouteTooLong: One of the routes is at its limit.
            PayloadNotBytes: The payload was replaced by one that is not `bytes`.
            PayloadTooBig: The other payload is over the node's limit.
            DeliveryError: As `Node.route`.
        """
        if payload is not None:
            changed = partial(self.redirect, route=route, own=own)
            self._pass_on_changed(message, payload, changed)
            return
        onward, back, payload, _, context = message
        if type(payload) is not bytes:
            check_bytes(payload)
        try:
            onward = (*as_route(route), *onward[1:])
            if not onward:
                raise EmptyRoute
            if len(onward) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(len(onward), MAX_ROUTE_LENGTH)
            if len(back) >= LONG_ROUTE:
                self._look_at_length(message)
            back = (own or message[0][0], *back)
            self._out.dispatch(_new(Message, (onward, back, payload, self.address, context)))
        except MailboxFull as full:
            self._hand_over_later(full, message)
        except OnwardError as error:
            error.lost = message
            raise

    def step(self, message: Message, payload: bytes | None = None) -> None:
        """Pass a message on without a change of its return route.

        Args:
            message: The message, as it came to this worker.
            payload: Another payload in place of the message's own.

        Raises:
            EmptyRoute: There is no further address.
            RoutingLoop: It was passed on without a trace too often.
            PayloadNotBytes: The payload was replaced by one that is not `bytes`.
            PayloadTooBig: The other payload is over the node's limit.
            DeliveryError: As `Node.route`.
        """
        if payload is not None:
            self._pass_on_changed(message, payload, self.step)
            return
        # In one, as `forward`. The sending address is passed, as the return route may be forged.
        onward, back, payload, source, context = message
        if type(payload) is not bytes:
            check_bytes(payload)
        rest = onward[1:]
        try:
            if not rest:
                raise EmptyRoute
            if source is not None or context is not None:
                context = self._count_hop(message)
            stepped = _new(Message, (rest, back, payload, self.address, context))
            out = self._out
            target = out.table.get(rest[0])
            if target is None:
                out.dispatch_from(onward[0], stepped)
                return
            queue = target.queue
            if (
                queue is None
                or len(queue) >= target.limit
                or (context is not None and len(payload) > target.heavy)
            ):
                target.put(stepped)
                return
        except MailboxFull as full:
            self._hand_over_later(full, message)
            return
        except OnwardError as error:
            error.lost = message
            raise
        queue.append(stepped)
        if not target.scheduled:
            target.scheduled = True
            out.schedule(target)

    def _count_hop(self, message: Message) -> Context | None:
        """Return the context of a message that is passed on without a trace, with its hops counted.

        A loop of such hops does not make the return route longer, so it is ended by the count.
        The count begins with the first message that came from another worker.
        """
        context = message[4]
        if context is None:
            return None if message[3] is None else COUNTED[1]
        hops = context[3]
        if hops >= self.node.limits.hops:
            raise RoutingLoop(message.to, f"passed on {counted(hops, 'time')} without a trace")
        if hops < MAX_ROUTE_LENGTH and context is COUNTED[hops]:
            return COUNTED[hops + 1]
        # Not `_replace`, which takes longer than the rest of a hop.
        return _new(Context, (context[0], context[1], context[2], hops + 1, context[4]))

    def reply(self, message: Message, payload: bytes, own: Address | None = None) -> None:
        """Answer a message along its return route.

        The rest of the onward route behind this worker is dropped. That is counted, as
        `routes_cut`, and reported by diagnostics.

        Args:
            message: The message, as it came to this worker.
            payload: The answer.
            own: The address the answer comes from; the one the message came to by default.

        Raises:
            EmptyRoute: The message has no return route.
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the node's limit.
            DeliveryError: As `Node.route`.
        """
        onward, back, _, _, context = message
        if type(payload) is not bytes:
            check_bytes(payload)  # not in the `try`, as this is a failure of the worker
        if context is not None and context[3]:
            # The hops of an answer are counted anew.
            context = _new(Context, (context[0], context[1], context[2], 0, None))
        answer = _new(Message, (back, (own or onward[0],), payload, self.address, context))
        if len(onward) > 1:
            self.node.parts.undeliverable.route_cut(message)
        try:
            if not back:
                raise EmptyRoute
            size = len(payload)
            if size > self.node.limits.payload:
                check_payload(payload, self.node.limits)
            # `dispatch_answer`, as in `forward`.
            out = self._out
            target = out.table.get(back[0])
            if target is None:
                out.dispatch_answer(answer)
                return
            queue = target.queue
            if queue is None or len(queue) >= target.limit or size > target.heavy:
                target.put(answer)
                return
        except MailboxFull as full:
            self._hand_over_later(full, message, answer)
            return
        except OnwardError as error:
            error.lost = answer if back else message
            raise
        queue.append(answer)
        if not target.scheduled:
            target.scheduled = True
            out.schedule(target)

    def send(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike | None = None,
        context: Context | None = None,
    ) -> None:
        """Send a new message.

        Args:
            route: The onward route.
            payload: The payload.
            return_route: The return route; this worker by default.
            context: The context of the message inside the node.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the node's limit.
            DeliveryError: As `Node.route`.
        """
        node = self.node
        back: Route = (self.address,) if return_route is None else as_route(return_route)
        if type(payload) is not bytes or len(payload) > node.limits.payload:
            check_payload(payload, node.limits)
        message = _new(Message, (as_route(route), back, payload, self.address, context))
        # A given return route may be forged.
        self._out.dispatch_from(self.address if return_route is None else None, message)

    async def send_wait(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike | None = None,
        context: Context | None = None,
    ) -> None:
        """Send a new message; wait for room where the mailbox's policy is to wait."""
        node = self.node
        back: Route = (self.address,) if return_route is None else as_route(return_route)
        check_payload(payload, node.limits)
        message = Message(as_route(route), back, payload, self.address, context)
        await self._out.dispatch_wait(message, self.address if return_route is None else None)

    def route(self, message: Message) -> None:
        """Send a complete message; its source is set to this worker.

        Raises:
            RouteTooLong: One of its routes is over the limit.
            RoutingLoop: It was passed on without a trace too often.
            PayloadNotBytes: Its payload is not `bytes`.
            DeliveryError: As `Node.route`.
        """
        onward, back, payload, _, _ = message
        if type(payload) is not bytes:
            check_bytes(payload)
        try:
            if len(onward) > MAX_ROUTE_LENGTH or len(back) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            context = self._count_hop(message)
            routed = _new(Message, (onward, back, payload, self.address, context))
            self._out.dispatch_from(None, routed)  # the sending address is unknown
        except MailboxFull as full:
            self._hand_over_later(full, message)
        except OnwardError as error:
            error.lost = message
            raise

    def _route_now(self, message: Message) -> None:
        """Send a message as `route`, but never wait for room.

        For messages that are useless later, and for workers that have another route.

        Raises:
            DeliveryError: As `route`.
        """
        onward, back, payload, _, _ = message
        try:
            if len(onward) > MAX_ROUTE_LENGTH or len(back) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            context = self._count_hop(message)
            routed = _new(Message, (onward, back, payload, self.address, context))
            self._out.dispatch_from(None, routed)
        except OnwardError as error:
            error.lost = message
            raise

    def request(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a message and await the answer. See `Node.request`."""
        out, requests = self._out, self.node.parts.requests
        if isinstance(out, Router):
            return requests.request(self.address, route, payload, timeout, context)
        return out.request(requests, self.address, route, payload, timeout, context)
