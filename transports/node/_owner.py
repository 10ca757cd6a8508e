"""The interface of a link towards its socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...protocol import Address, Context, Message
    from ._socket import WireSocket

__all__ = ["Owner"]


class Owner(Protocol):
    """The callbacks of a link, called by its socket on the loop."""

    address: Address
    """The address of the link."""

    stamp: Context | None
    """The context for received messages without a tracing text."""

    def socket_open(self, wire_socket: WireSocket) -> None:
        """Handle a connected socket; nothing has been received yet."""
        ...

    def socket_ready(self, wire_socket: WireSocket) -> None:
        """Handle the peer's greeting: it speaks this protocol."""
        ...

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """Handle the loss of the socket. Called once, ready or not."""
        ...

    def not_sent(self, messages: Sequence[Message], reason: str) -> None:
        """Handle messages that the closed socket accepted and certainly did not write."""
        ...

    def deliver(self, messages: Sequence[Message]) -> None:
        """Deliver received messages that have the link's address on the return route."""
        ...

    def passed_over(self, count: int) -> None:
        """Count received messages with an unusable route."""
        ...
