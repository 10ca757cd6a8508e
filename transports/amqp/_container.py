"""A connection to a container of AMQP, with links between its addresses and names."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Collection
from types import TracebackType
from typing import Final

from ...actors import Worker
from ...protocol.security import UserPassword
from .._log import SeldomLogger
from ..streams._endpoint import is_loopback
from ..streams._options import Backoff, parse_uri
from ..streams._tls import TlsOptions, client_context
from ..streams._tls_context import TlsContext
from ._auto_links import AutoLinks
from ._client_engine import ClientEngine, Login
from ._container_links import (
    AmqpLinkState,
    AmqpLinkStatistics,
    AutoLink,
    LinkRecord,
    LinkRoute,
    Plan,
)
from ._container_rows import (
    AmqpContainerState,
    AmqpContainerStatistics,
    forget_container,
    report_container,
)
from ._options import AmqpOptions
from ._port import DispatchPort
from ._proton import load_proton
from ._sasl import Mechanism
from ._stream import AmqpStream

__all__ = ["AmqpContainer"]

_logger = logging.getLogger("onward.transports.amqp")

_OPTIONS: Final = AmqpOptions()
_BACKOFF: Final = Backoff()


class AmqpContainer(Worker):
    """A worker with a connection to a container of AMQP 1.0, which it makes again and again.

    ```python
    links = [AutoLink("in", "new-orders", "orders"), AutoLink("out", "sent-bills", "bills")]
    await node.start(lambda: AmqpContainer("amqps://broker:5671", dispatcher, links))
    ```

    A `LinkRoute` is a name of the mechanism `LINK`: the container is its consumer, and a link of a
    client anywhere in the network goes through to it, with its credit, states and end.

    Each link is attached as soon as the connection is open, and again after a wait if it ends or is
    refused. While a link is not there, a name has one producer or one consumer less; what is
    unsettled when it ends is in doubt.

    Args:
        uri: `amqp://host:port` or `amqps://host:port`.
        dispatcher: The dispatcher of the node.
        links: The links, and the names with links that go through to it, each once.
        options: The limits.
        tls: The encryption of `amqps`; by default with the authorities of the system.
        credentials: The name and the password; `None` for a certificate, or nothing.
        backoff: The waits between attempts.
        name: The name of the container for an operator; by default its URI.

    Raises:
        ValueError: The URI, a certificate or the links are wrong, or a password would be sent
            without TLS to another machine.
        OSError: A certificate cannot be read.
        ModuleNotFoundError: The extra `amqp` is not installed.
    """

    def __init__(
        self,
        uri: str,
        dispatcher: DispatchPort,
        links: Collection[AutoLink | LinkRoute],
        options: AmqpOptions = _OPTIONS,
        *,
        tls: TlsOptions | ssl.SSLContext | None = None,
        credentials: UserPassword | None = None,
        backoff: Backoff = _BACKOFF,
        name: str = "",
    ) -> None:
        super().__init__()
        scheme = uri.partition(":")[0]
        if scheme not in ("amqp", "amqps"):
            raise ValueError(f"{uri!r} is not amqp://host:port or amqps://host:port")
        secure = scheme == "amqps"
        if tls is not None and not secure:
            raise ValueError(f"certificates go with amqps://, not with {uri}")
        if len(set(links)) != len(links) or len(links) > options.max_links:
            raise ValueError(f"{len(links)} links are two of a kind, or over {options.max_links}")
        host, port = parse_uri(uri, scheme)
        if credentials is not None and not (secure or is_loopback(host)):
            raise ValueError("a password is sent with TLS only: use amqps://")
        self.options = options
        self.port = dispatcher
        self.proton = load_proton()
        self.seldom = SeldomLogger(_logger)
        self.links: Final = tuple(links)
        self.dropped: Final = Counter[str]()
        self.backoff: Final = backoff
        self.name: Final = name or uri
        self.records: Final = {plan: LinkRecord() for plan in self.links}
        self._uri: Final = uri
        self._address: Final = host, port
        self._context = TlsContext(tls or TlsOptions(), client_context) if secure else None
        named = tls.server_name if isinstance(tls, TlsOptions) else None
        self._certified: Final = named or host  # the name that its certificate must have
        self._login: Final = _login(host, tls, credentials)
        self._state = AmqpContainerState.WAITING
        self._since = time.time()
        self._attempts = 0
        self._reason = ""
        self._detail = ""  # what the container has said of it
        self._stream: _ContainerStream | None = None
        self._connected = 0
        self._refused = 0
        self._unanswered = 0
        self._reasons: Final = Counter[str]()
        self._task: asyncio.Task[None] | None = None

    @property
    def login(self) -> Login:
        """The credentials that the container is shown."""
        return self._login

    def on_start(self) -> None:
        """Begin to connect."""
        report_container(self.node, self)
        self._task = self.node.loop.create_task(self._run())

    async def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection: a container that is made in its place has one of its own."""
        del exception_type, exception_value, traceback
        await self.on_stop()

    async def on_stop(self) -> None:
        """Close the connection, and make no other one."""
        forget_container(self.node, self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._stream is not None:
            self._stream.shut("amqp:connection:forced", "the node stops")
            await self._stream.gone()

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._attempts += 1
            self._change(AmqpContainerState.CONNECTING)
            before, self._detail = self._connected, ""
            reason = await self._connect()
            self._stream = None
            self._reason = f"{reason}: {self._detail}" if self._detail else reason
            self._change(AmqpContainerState.WAITING)
            for record in self.records.values():
                record.ended("the connection was lost")
            self._reasons[reason] += 1
            attempt = 0 if self._connected > before else attempt + 1
            self.seldom.log(
                logging.WARNING,
                "container",
                "the connection to %s is not there: %s",
                self._uri,
                reason,
                extra={"event": "amqp.container_lost"},
            )
            await asyncio.sleep(self.backoff.wait(attempt))

    def _change(self, state: AmqpContainerState) -> None:
        self._state, self._since = state, time.time()

    async def _connect(self) -> str:
        """Connect, and return the reason of the end once it has come."""
        host, port = self._address
        tls = self._context
        if tls is not None:
            tls.refresh()
        try:
            async with asyncio.timeout(self.options.open_timeout):
                _, stream = await self.node.loop.create_connection(
                    lambda: _ContainerStream(self),
                    host,
                    port,
                    ssl=None if tls is None else tls.current,
                    server_hostname=None if tls is None else self._certified,
                )
        except TimeoutError:
            return "not reached in time"
        except ssl.SSLError as error:
            return f"no TLS: {error.reason}"
        except OSError as error:
            return error.strerror or "not reached"
        self._stream = stream
        await stream.gone()
        self._detail = stream.told
        return stream.closed

    def opened(self) -> None:
        """Record that the container has opened the connection."""
        self._connected += 1
        self._attempts = 0
        self._change(AmqpContainerState.OPEN)
        _logger.info("connected to %s", self._uri, extra={"event": "amqp.container_connected"})

    def full(self) -> None:
        """Count a link of a client that was refused."""
        self._refused += 1

    def not_answered(self) -> None:
        """Count a link that the container has not answered."""
        self._unanswered += 1

    def statistics(self) -> AmqpContainerStatistics:
        """Return the figures at this moment."""
        stream = self._stream
        return AmqpContainerStatistics(
            self._uri,
            self._state,
            0 if stream is None else stream.attached,
            0 if stream is None else stream.circuits,
            self._refused,
            self._connected,
            dict(self._reasons),
            dict(self.dropped),
            self.name,
            self._since,
            self._attempts,
            self._reason,
            sum(isinstance(each, AutoLink) for each in self.links),
            0 if stream is None else stream.routes,
            self._unanswered,
        )

    def link_statistics(self) -> list[AmqpLinkStatistics]:
        """Return the figures of each link and route at this moment, in the order of `links`."""
        return [record.statistics(self.name, plan) for plan, record in self.records.items()]


class _ContainerStream(AmqpStream):
    """A connection to a container."""

    def __init__(self, container: AmqpContainer) -> None:
        engine = ClientEngine(
            container.proton, container.node.name, container.options, container.login
        )
        super().__init__(container, engine)
        self._container: Final = container
        self._attempts = Counter[Plan]()
        self._began: dict[Plan, float] = {}
        self._auto = AutoLinks(
            engine,
            container.port,
            container.options,
            self._wake,
            self._drop,
            self._fail,
            self,
        )

    @property
    def told(self) -> str:
        """The condition with which the container has closed the connection."""
        return self._engine.told

    @property
    def attached(self) -> int:
        """The number of links of the node itself that the container has attached."""
        return self._auto.attached

    @property
    def circuits(self) -> int:
        """The number of links that go through to the container."""
        return self._auto.circuits

    @property
    def routes(self) -> int:
        """The number of names with links that go through to the container."""
        return self._auto.routes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what opens the connection."""
        super().connection_made(transport)
        self._links = self._auto
        self._turn()

    def data_received(self, data: bytes) -> None:
        """Read what the container sends."""
        if not self.closed:
            self._engine.receive(data)
            self._turn()

    def _opened(self) -> None:
        super()._opened()
        self._container.opened()
        # The links of the node itself come first, so that circuits leave them their places.
        for each in sorted(self._container.links, key=_is_route):
            self._start(each)

    def links_full(self) -> None:
        """Count a link of a client that was refused."""
        self._container.full()

    def link_attached(self, plan: Plan) -> None:
        """Record that the container has attached a link, or serves a name."""
        self._container.records[plan].attached()
        self._stop_timer(f"link {plan}")

    def link_ended(self, plan: Plan, reason: str) -> None:
        """Attach a link or serve a route again, after a wait."""
        record = self._container.records[plan]
        there = record.state is AmqpLinkState.ATTACHED
        record.ended(reason)
        if there and self._loop.time() - self._began[plan] > self._container.backoff.longest:
            self._attempts[plan] = 0  # it was there for so long
        wait = self._container.backoff.wait(self._attempts[plan])
        self._attempts[plan] += 1
        self._set_timer(f"link {plan}", wait, lambda: self._begin(plan))

    def _begin(self, plan: Plan) -> None:
        if not self.closed:
            self._start(plan)
            self._turn()

    def _start(self, plan: Plan) -> None:
        self._began[plan] = self._loop.time()
        self._container.records[plan].begin()
        if isinstance(plan, AutoLink):
            wait = self._container.options.attach_timeout
            self._set_timer(f"link {plan}", wait, lambda: self._give_up(plan))
        self._auto.begin(plan)

    def _give_up(self, plan: AutoLink) -> None:
        self._container.not_answered()
        self._auto.give_up(plan)
        self._turn()

    def _drop(self, reason: str) -> None:
        self._container.dropped[reason] += 1

    def _lost(self) -> None:
        """Leave it to the container's task, which waits for the end."""


def _is_route(plan: Plan) -> bool:
    return isinstance(plan, LinkRoute)


def _login(
    host: str, tls: TlsOptions | ssl.SSLContext | None, credentials: UserPassword | None
) -> Login:
    """Return what a container is shown: a password, or the certificate if there is one."""
    if credentials is not None:
        return Login(host, Mechanism.PLAIN, credentials.username, credentials.password)
    if isinstance(tls, TlsOptions) and tls.certificate is not None:
        return Login(host, Mechanism.EXTERNAL)
    return Login(host)
