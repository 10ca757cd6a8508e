"""The base of the transports of RSocket listeners, and the transport over TCP."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ...actors import Node
from ...actors.broker import Broker
from ...protocol import Address, LinkDown
from ...protocol.options import check_value
from .._base import Transport
from ..streams._options import parse_uri
from ._listener import RSocketListener, TcpListener
from ._options import LinkOptions

__all__ = ["RSocketTcpTransport", "RSocketTransport"]


class RSocketTransport(Transport):
    """A transport of listeners for a broker, over one kind of socket.

    It cannot connect: workers reach RSocket destinations by their tags. A broker may have any
    number of listeners.
    """

    own_options: ClassVar[dict[str, type[Any]]] = {}
    """Options that `listen` takes besides `broker` and `options`, with their types."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._listeners: list[RSocketListener] = []

    @abstractmethod
    def _listener(
        self, uri: str, broker: Broker, options: LinkOptions, own: dict[str, Any]
    ) -> RSocketListener:
        """Return a listener that is not open yet.

        Raises:
            ValueError: The URI is wrong.
        """

    async def listen(
        self, uri: str, *, expose: frozenset[Address], **options: Any
    ) -> RSocketListener:
        """Accept connections for a broker.

        Args:
            uri: The URI to listen at; a port 0 takes a free one.
            expose: Must be empty: only workers registered with the broker can be reached.
            **options: `broker`, the `Broker`; `options`, `LinkOptions`; and the options of the
                kind of socket. `None` stands for the default.

        Raises:
            OSError: The socket cannot be bound.
            ValueError: The URI or an option is wrong.
        """
        known: dict[str, type[Any]] = {"broker": Broker, "options": LinkOptions, **self.own_options}
        for name, value in options.items():
            if name not in known:
                names = ", ".join(f"{each}=" for each in known)
                raise ValueError(f"unknown option {name!r}; {self.scheme} takes {names}")
            if name != "broker":
                check_value(name, value, known[name] | None)
        broker = options.pop("broker", None)
        if not isinstance(broker, Broker) or getattr(broker, "node", None) is not self.node:
            raise ValueError("an RSocket listener needs broker=, a Broker of the same node")
        if expose:
            raise ValueError("register workers with the broker instead of exposing them")
        limits = options.pop("options", None) or LinkOptions()
        listener = self._listener(uri, broker, limits, options)
        await listener.open()
        self._listeners = [each for each in self._listeners if each.open_now]
        self._listeners.append(listener)
        return listener

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Refuse: this transport only listens.

        Raises:
            LinkDown: Always.
        """
        raise LinkDown(uri, "this transport only listens")

    async def stop(self) -> None:
        """Close every listener."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close()


class RSocketTcpTransport(RSocketTransport):
    """Listeners for RSocket over TCP: `rsocket+tcp://host:port`."""

    scheme: ClassVar[str] = "rsocket+tcp"

    def _listener(
        self, uri: str, broker: Broker, options: LinkOptions, own: dict[str, Any]
    ) -> TcpListener:
        host, port = parse_uri(uri, self.scheme)
        return TcpListener(self.node, broker, options, host, port)
