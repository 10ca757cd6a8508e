"""Base classes of transports and listeners, for nodes joined over a medium of your own.

A transport makes *links*. A link is a pair of workers, one at each end of a connection. A message
sent to one end leaves the other: without the near end's address at the front of its onward route,
and with the far end's address at the front of its return route. `Link` implements this, except
for moving a message to the other end. So a transport is a subclass of `Link` that moves messages,
and a subclass of `Transport` that makes links:

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

Give it to one node with `node.add_transport(QueueTransport)`, or to every node with an entry
point in the group `onward.transports`, named after the scheme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..protocol import Message, UnknownAddressType

if TYPE_CHECKING:
    from ..actors import Node
    from ..protocol import Address
    from .streams._tls import TlsOptions

__all__ = ["Listener", "Transport"]


class Listener(ABC):
    """An object that accepts connections; made by `Transport.listen`."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The URI to connect to, with the actual port if port 0 was given."""

    @property
    @abstractmethod
    def address(self) -> Address:
        """The address of its worker."""

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of its certificates again; return the function that puts them in use.

        Args:
            tls: Other files, in place of those named before; `None`: the same.

        Raises:
            OSError: A file cannot be read; those in use stay.
            ValueError: A file has the wrong contents; those in use stay.
        """
        return lambda: None

    def reload(self) -> None:
        """Read the files of its certificates again, for later connections.

        Raises:
            OSError: As for `prepare_reload`.
            ValueError: As for `prepare_reload`.
        """
        self.prepare_reload()()

    @abstractmethod
    async def close(self) -> None:
        """Stop listening and close the connections it has accepted. Idempotent."""


class Transport(ABC):
    """A factory of links and listeners for one scheme. A node makes one of each class on first use.

    All methods are called on the node's event loop.

    Args:
        node: The node that the transport belongs to.

    Attributes:
        node: The node that the transport belongs to.
    """

    scheme: ClassVar[str]
    """The scheme of its URIs, as in `scheme://...`."""

    address_type: ClassVar[int | None] = None
    """The type of the addresses that `resolve` accepts, or `None`."""

    # A transport may have `options_class`, a dataclass with the options of `listen` and `connect`
    # as fields. Topology files are checked against it before anything is started.

    def __init__(self, node: Node) -> None:
        self.node = node

    @abstractmethod
    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        """Accept connections.

        Args:
            uri: The URI to listen at.
            expose: The addresses that the other ends may send to; see `Gate`.
            **options: The options of the transport.

        Raises:
            OSError: The URI cannot be listened at.
            ValueError: The URI or an option is wrong.
        """

    @abstractmethod
    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Connect, and return the address of the link's worker once it is usable.

        Args:
            uri: The URI to connect to.
            expose: The addresses that the other end may send to; see `Gate`.
            **options: The options of the transport.

        Raises:
            LinkDown: There is no listener, or it does not speak this protocol.
            ValueError: The URI or an option is wrong.
        """

    def resolve(self, message: Message) -> Message | None:
        """Replace the first onward address, which has the type `address_type`, by a link's address.

        Must not block: open a link, and let it keep the message until it is up.

        Returns:
            The message to route on, or `None` if the transport has kept it.

        Raises:
            DeliveryError: The message cannot be delivered; the sender receives the error.
        """
        raise UnknownAddressType(message.to)

    @abstractmethod
    async def stop(self) -> None:
        """Close every listener and link. The node calls it once, when it stops."""
