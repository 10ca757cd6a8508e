"""The transport of `amqp://` and `amqps://`: clients and containers, and no links of nodes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from ...actors import Node
from ...actors.dispatch import Dispatcher
from ...actors.security import Authentication
from ...protocol import Address
from ...protocol.options import check_value
from ...protocol.security import UserPassword
from .._base import Listener, Transport
from ..streams._options import Backoff
from ..streams._tls import TlsOptions
from ._container import AmqpContainer
from ._container_links import AutoLink, LinkRoute, Plan, plan_of
from ._options import AmqpOptions, AmqpStatistics
from ._server import AmqpServer

__all__ = ["AmqpListener", "AmqpTransport"]

_LISTEN: Final[dict[str, Any]] = {
    "dispatcher": Dispatcher,
    "options": AmqpOptions,
    "tls": TlsOptions | ssl.SSLContext,
    "authentication": Authentication,
}
_CONNECT: Final[dict[str, Any]] = {
    "dispatcher": Dispatcher,
    "options": AmqpOptions,
    "tls": TlsOptions | ssl.SSLContext | dict[Any, Any],
    "credentials": UserPassword,
    "backoff": Backoff,
    "name": str,
    "links": tuple[Any, ...] | list[Any],
}

PARTS: Final = ("kind", "address", "name")
"""What a link is, as files have it."""


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

    To connect is to make an `AmqpContainer`: a link of AMQP is a producer or a consumer of a name,
    not a link of nodes.

    ```python
    links = [AutoLink("in", "new-orders", "orders"), LinkRoute("jobs", "queue-of-jobs")]
    await node.connect("amqps://broker:5671", dispatcher=dispatcher, links=links)
    ```
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
        dispatcher = _checked(options, _LISTEN)
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
        """Connect to a container, again and again until the worker of it is stopped.

        Args:
            uri: The URI of the container.
            expose: No addresses: a container has links with names.
            **options: `dispatcher`, the `Dispatcher` of the node; `links`, each an `AutoLink`, a
                `LinkRoute` or, as files have them, `(kind, address, name)` with `in`, `out` or
                `route` as kind; and those of `AmqpContainer`. `tls` may be a mapping with the
                fields of `TlsOptions`. `None` stands for the default.

        Returns:
            The address of the worker, an `AmqpContainer`, which need not be connected yet.

        Raises:
            OSError: A certificate cannot be read.
            ValueError: The URI, a certificate or an option is wrong.
            ModuleNotFoundError: The extra `amqp` is not installed.
        """
        dispatcher = _checked(options, _CONNECT)
        if expose:
            raise ValueError("a container has links with names, so there is nothing to expose")
        tls: Any = options.get("tls")
        plans = [_plan(each) for each in options.get("links") or ()]
        made = AmqpContainer(
            uri,
            dispatcher,
            plans,
            options.get("options") or AmqpOptions(),
            tls=TlsOptions(**cast("dict[str, Any]", tls)) if isinstance(tls, dict) else tls,
            credentials=options.get("credentials"),
            backoff=options.get("backoff") or Backoff(),
            name=options.get("name") or "",
        )
        return await self.node.start(lambda: made)

    async def stop(self) -> None:
        """Close every listener."""
        for each in self._listeners:
            await each.close()


def _checked(options: dict[str, Any], known: dict[str, Any]) -> Dispatcher:
    """Check the options of a call, and return the dispatcher among them.

    Raises:
        ValueError: One is not known or of another type, or there is no dispatcher.
    """
    for name, value in options.items():
        if name not in known:
            names = ", ".join(f"{each}=" for each in known)
            raise ValueError(f"unknown option {name!r}; amqp takes {names}")
        check_value(name, value, known[name] | None)
    dispatcher: Dispatcher | None = options.get("dispatcher")
    if dispatcher is None:
        raise ValueError("AMQP needs dispatcher=, the Dispatcher of the node")
    return dispatcher


def _plan(link: object) -> Plan:
    """Return a link of the option `links`.

    Raises:
        ValueError: It is none.
    """
    if isinstance(link, AutoLink | LinkRoute):
        return link
    if isinstance(link, tuple):
        parts = cast("tuple[object, ...]", link)
        if len(parts) == len(PARTS) and all(isinstance(each, str) for each in parts):
            return plan_of(*cast("tuple[str, str, str]", parts))
    raise ValueError(f"a link is an AutoLink, a LinkRoute or ({', '.join(PARTS)}), not {link!r}")
