"""The transport of `amqp://` and `amqps://`: listeners for clients, and no links of nodes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, ClassVar, Final

from ...actors import Node
from ...actors.dispatch import Dispatcher
from ...actors.security import Authentication
from ...protocol import Address, LinkDown
from ...protocol.options import check_value
from .._base import Listener, Transport
from ..streams._tls import TlsOptions
from ._options import AmqpOptions, AmqpStatistics
from ._server import AmqpServer

__all__ = ["AmqpListener", "AmqpTransport"]

_KNOWN: Final[dict[str, Any]] = {
    "dispatcher": Dispatcher,
    "options": AmqpOptions,
    "tls": TlsOptions | ssl.SSLContext,
    "authentication": Authentication,
}


class AmqpListener(Listener):
    """A listener for clients of AMQP 1.0; made by `node.listen`.

    Args:
        node: The node.
        server: Its worker.
        address: The address of the worker.
    """

    def __init__(self, node: Node, server: AmqpServer, address: Address) -> None:
        self._node: Final = node
        self._server: Final = server
        self._address: Final = address

    @property
    def uri(self) -> str:
        """The URI to connect to, with the actual port if port 0 was given."""
        return self._server.uri

    @property
    def address(self) -> Address:
        """The address of its worker."""
        return self._address

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of its certificates again; see `Listener.prepare_reload`."""
        return self._server.prepare_reload(tls)

    async def close(self) -> None:
        """Stop listening, and close the connections: a client is told, and then cut. Idempotent."""
        if self._node.has(self._address):
            await self._node.stop_worker(self._address)

    def statistics(self) -> AmqpStatistics:
        """Return the figures at this moment."""
        return self._server.statistics()


class AmqpTransport(Transport):
    """The transport of `amqp://host:port`, and of `amqps://host:port` with TLS.

    ```python
    dispatcher = await Dispatcher.attach(node)
    listener = await node.listen("amqp://127.0.0.1:5672", dispatcher=dispatcher)
    ```

    It cannot connect: a link of AMQP is a producer or a consumer of a name, not a link of nodes.
    """

    scheme: ClassVar[str] = "amqp"

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._listeners: list[AmqpListener] = []

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> AmqpListener:
        """Accept clients, which send to names of a dispatcher, and receive from them.

        Args:
            uri: The URI to listen at; a port 0 takes a free one.
            expose: No addresses: clients reach names, and `Semantics.access` has the roles of each.
            **options: `dispatcher`, the `Dispatcher` of the node; `options`, an `AmqpOptions`;
                `tls`, the encryption, which `amqps` needs; `authentication`, an `Authentication`,
                without which each client is admitted. `None` stands for the default.

        Raises:
            OSError: The socket cannot be bound, or a certificate cannot be read.
            ValueError: The URI, a certificate or an option is wrong.
            ModuleNotFoundError: The extra `amqp` is not installed.
        """
        for name, value in options.items():
            if name not in _KNOWN:
                names = ", ".join(f"{each}=" for each in _KNOWN)
                raise ValueError(f"unknown option {name!r}; amqp takes {names}")
            check_value(name, value, _KNOWN[name] | None)
        dispatcher = options.get("dispatcher")
        if dispatcher is None:
            raise ValueError("a listener of AMQP needs dispatcher=, the Dispatcher of the node")
        if expose:
            raise ValueError("clients of AMQP reach names, so there are no addresses to expose")
        server = AmqpServer(
            uri,
            dispatcher,
            options.get("options") or AmqpOptions(),
            tls=options.get("tls"),
            authentication=options.get("authentication"),
        )
        address = await self.node.start(lambda: server)
        made = AmqpListener(self.node, server, address)
        self._listeners = [each for each in self._listeners if self.node.has(each.address)]
        self._listeners.append(made)
        return made

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Refuse: this transport only listens.

        Raises:
            LinkDown: Always.
        """
        raise LinkDown(uri, "this transport only listens")

    async def stop(self) -> None:
        """Close every listener."""
        for each in self._listeners:
            await each.close()
