"""What a transport is: the class to derive from to join nodes in a way of your own.

A transport makes *links*. A link is a worker at each end of a connection; the two act like
one worker that is on both nodes. What one is sent, less its own address at the front of the
onward route, comes out of the other, with its own address at the front of the return route.
`Link` does all of that except moving a message from one end to the other, so a transport is
a subclass of `Link` that moves messages, and a subclass of `Transport` that makes links:

    class QueueLink(Link):
        def transmit(self, message):              # towards the other end
            self.outbox.put_nowait(message)

        def something_came(self, message):        # from the other end
            self.arrive((message,))

    class QueueTransport(Transport):
        scheme = "queue"

        async def connect(self, uri, *, expose, **options):
            return await self.node.start(lambda: QueueLink(expose=expose))

        async def listen(self, uri, *, expose, **options): ...

Give it to one node with `node.add_transport(QueueTransport)`, or to every node by an entry
point in the group `onward.transports` whose name is the scheme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ..protocol import Message, UnknownAddressType

if TYPE_CHECKING:
    from ..actors import Node
    from ..protocol import Address

__all__ = ["Listener", "Transport"]


class Listener(ABC):
    """Something that accepts connections; made by `Transport.listen`."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where it listens, as others have to write it: a port 0 is the real one here."""

    @property
    @abstractmethod
    def address(self) -> Address:
        """The address of its worker."""

    @abstractmethod
    async def close(self) -> None:
        """Stop listening and close the connections it has accepted. Idempotent."""


class Transport(ABC):
    """What joins a node to others. A node makes one of each class when first needed.

    All methods are called on the node's loop.

    Args:
        node: The node it belongs to.

    Attributes:
        node: The node it belongs to.
    """

    scheme: ClassVar[str]
    """The scheme of the URIs it takes, as in `scheme://...`."""

    address_type: ClassVar[int | None] = None
    """The type of the addresses `resolve` takes, or `None` if it takes none."""

    # `options_class`, if a transport has it, is a dataclass whose fields are the options of
    # `listen` and `connect`: topology files are checked against it before anything is started.

    def __init__(self, node: Node) -> None:
        self.node = node

    @abstractmethod
    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        """Accept connections.

        Args:
            uri: Where.
            expose: What the other ends may send to; see `Gate`.
            **options: The transport's own.

        Raises:
            OSError: It cannot be listened there.
            ValueError: The URI or an option is wrong.
        """

    @abstractmethod
    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Connect, and return the address of the link's worker once it is usable.

        Args:
            uri: Where to.
            expose: What the other end may send to; see `Gate`.
            **options: The transport's own.

        Raises:
            LinkDown: There is nobody, or nobody who speaks the same.
            ValueError: The URI or an option is wrong.
        """

    def resolve(self, message: Message) -> Message | None:
        """Replace the first onward address, which is of `address_type`, by a link's address.

        It must not wait: open a link and let it keep the message until it is up.

        Returns:
            The message to route on, or `None` if it has been taken over.

        Raises:
            DeliveryError: It cannot be done; the sender gets the error.
        """
        raise UnknownAddressType(message.to)

    @abstractmethod
    async def stop(self) -> None:
        """Close every listener and link. The node calls it once, when it stops."""
