"""What a link is to the socket that serves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...protocol import Address, Context, Message
    from ._socket import WireSocket

__all__ = ["Owner"]


class Owner(Protocol):
    """What a socket tells the link it belongs to. All calls are on the loop."""

    address: Address
    """The link's own address."""

    stamp: Context | None
    """The context of messages that are read and have no tracing text."""

    def socket_open(self, wire_socket: WireSocket) -> None:
        """The socket is connected; the peer has not said anything yet."""
        ...

    def socket_ready(self, wire_socket: WireSocket) -> None:
        """The peer has greeted us: it speaks the same."""
        ...

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """The socket is gone; called once, ready or not."""
        ...

    def not_sent(self, messages: Sequence[Message], reason: str) -> None:
        """The socket is gone, and these messages it took were certainly not written."""
        ...

    def deliver(self, messages: Sequence[Message]) -> None:
        """The peer has sent messages; they have the link's address on the return route."""
        ...

    def passed_over(self, count: int) -> None:
        """The peer has sent messages that have a route no node can use."""
        ...
