"""The messages of a node, from outside of its workers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ..protocol import (
    Address,
    Context,
    Message,
    OnwardError,
    RouteLike,
    check_bytes,
)
from ._parts import Parts
from .routing._router import from_code

__all__ = ["NodeMessages"]


class NodeMessages:
    """A node that messages are sent to; see `Node`.

    Attributes:
        parts: The parts of the node.
    """

    parts: Parts

    def send(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message. Safe from any thread.

        Args:
            route: The onward route.
            payload: The payload.
            return_route: The return route; none by default.
            context: The context of the message inside the node.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            DeliveryError: As `route`.
        """
        router = self.parts.router
        message = router.message_of(route, payload, return_route, context)
        context = message[4]
        if context is None or context[4] is None:
            router.dispatch(message)
        else:
            router.dispatch_outside(message)

    async def send_wait(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message as `send`, but wait for room where the mailbox's policy is to wait."""
        router = self.parts.router
        await router.dispatch_outside_wait(router.message_of(route, payload, return_route, context))

    def route(self, message: Message) -> None:
        """Deliver a message to the worker at its first onward address.

        Safe from any thread; it never waits. When it returns, the message is in a mailbox,
        or a rule has taken it over, or an overflow policy has dropped it. The message counts as
        sent from outside of workers, whatever its `source`; workers use `Worker.route`.

        Raises:
            EmptyRoute: There is no onward address.
            UnknownAddress: No worker has the address.
            UnknownAddressType: There is no rule for the type of the address.
            MailboxFull: The worker does not keep up.
            AccessDenied: An access control denies it.
            RoutingLoop: Rules rewrote it too often.
            PayloadNotBytes: Its payload is not `bytes`.
            NodeStopped: The node has not started, or has stopped.
        """
        if type(message[2]) is not bytes:
            check_bytes(message[2])
        if message[3] is not None:
            message = from_code(message)
        context = message[4]
        if context is None or context[4] is None:
            self.parts.router.dispatch(message)
        else:
            self.parts.router.dispatch_outside(message)

    async def route_wait(self, message: Message) -> None:
        """Deliver a message as `route`, but wait for room where the mailbox's policy is to wait.

        Raises:
            MailboxFull: The policy is another one, or too many senders wait already.
            DeliveryError: As `route`.
        """
        check_bytes(message[2])
        await self.parts.router.dispatch_outside_wait(from_code(message))

    def request(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a message and wait for the answer.

        The return route is a mailbox of this one request, with a random address.

        Args:
            route: The onward route.
            payload: The payload.
            timeout: Time to wait, in seconds. It becomes the message's deadline, after
                which no worker of the node handles it.
            context: The context of the message inside the node; its deadline is kept, if it has
                one.

        Returns:
            The first answer. A further one is for an unknown address.

        Raises:
            RequestTimeout: No answer came in time; the message may still have been handled.
            MailboxFull: There was no room, or none in time where the policy is to wait.
            TooManyRequests: The node waits for as many answers as it may.
            NodeStopped: The node stopped.
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            Refused: An error reply came; the message was certainly not handed over.
            GivenUp: An error reply came; the message was handed over, or may have been.
            DeliveryError: As `route`.
        """
        return self.parts.requests.request(None, route, payload, timeout, context)

    def fail_request(self, address: Address, error: OnwardError) -> bool:
        """Raise an error in a waiting request, in place of an answer. Call it on the loop.

        For rules and transports that learn that no answer will come.

        Args:
            address: The mailbox of the request: the last address of its return route.
            error: The error that `request` raises.

        Returns:
            Whether a request waits there.
        """
        return self.parts.undeliverable.fail_request(address, error)

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and report the error to its sender.

        A request of this node raises the error. Any other sender gets an error reply, if the
        node sends them. If the message is the answer to a request of this node, that request
        raises `GivenUp`. For rules and workers that have taken a message over and cannot deliver
        it. Safe from any thread.

        Args:
            message: The message.
            error: The cause; the request raises it.
        """
        self.parts.undeliverable.lose(message, error)

    def answer_error(self, message: Message, reason: str, *, certain: bool = True) -> bool:
        """Report to the sender of a message that it will not be handled. Safe from any thread.

        A request of this node raises `Refused` or `GivenUp`. Any other sender gets an error
        reply, if the node sends them and the message has a return route.

        Args:
            message: The message, as it came to the worker.
            reason: The reason, in a few words that may be disclosed to any peer.
            certain: Whether the message has certainly had no effect, so that it is safe to
                send it again.

        Returns:
            Whether the error is reported.
        """
        return self.parts.undeliverable.answer_error(message, reason, certain=certain)

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Count and keep a message that cannot be delivered. Safe from any thread.

        Args:
            message: The message.
            reason: A few words, the same for the same cause, or the error.
        """
        self.parts.undeliverable.dead_letter(message, reason)
