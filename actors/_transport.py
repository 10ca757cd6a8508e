"""The protocols of transports and listeners.

They are structural, so that this package imports nothing of `onward.transports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..protocol import Address, Message

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["Listener", "Transport"]


class Listener(Protocol):
    """A listener, which accepts connections at a URI."""

    @property
    def uri(self) -> str:
        """The URI it listens at, with the actual port."""
        ...

    @property
    def address(self) -> Address:
        """The address of its worker."""
        ...

    async def close(self) -> None:
        """Stop accepting connections."""
        ...


class Transport(Protocol):
    """A transport, which joins nodes; `onward.transports.Transport` is the base class."""

    scheme: ClassVar[str]
    """The scheme of its URIs."""

    address_type: ClassVar[int | None]
    """The type of address it resolves in a route, or `None`."""

    def __init__(self, node: Node) -> None: ...

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        """Accept connections at the URI; only the exposed addresses are reachable."""
        ...

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Connect to the URI and return the address of the link."""
        ...

    def resolve(self, message: Message) -> Message | None:
        """Return the message with its first address replaced, or take it over."""
        ...

    async def stop(self) -> None:
        """Close all listeners and connections."""
        ...
