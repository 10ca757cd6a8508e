"""The base class of stream transports: everything except the addressing of their sockets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ...protocol import (
    Address,
    AddressError,
    LinkDown,
    Message,
    PayloadTooBig,
)
from ...protocol.options import check_value
from .._base import Transport
from ..streams._dial import Dialler
from ..streams._endpoint import Endpoint
from ..streams._listening import Listeners
from ..streams._options import StreamOptions
from ..streams._passed_sockets import passed_socket
from ..streams._tls import TlsOptions, server_context
from ..streams._tls_context import TlsContext
from ._dialled import DialledLinks
from ._link_statistics import LinkStatistics
from ._stream_dialled import DialledLink
from ._stream_listener import ListenerWorker, StreamListener

if TYPE_CHECKING:
    from ...actors import Node
    from ...actors.security import Authentication
    from ..streams._credentials import CredentialsSource, ShownCredentials

__all__ = ["StreamTransport"]


class StreamTransport(Transport):
    """A transport over byte-stream connections; the base class of `tcp` and similar transports.

    - `listen` accepts connections.
    - `connect` opens one and keeps it open: a lost connection is opened again after a wait, under
      the same link address.
    - An address of its type in a route uses the link to that peer, or opens a link that is closed
      when idle.

    The options of `listen` and `connect` are the attributes of `options_class`; `options=` gives
    them all at once.

    Attributes:
        options: The options of links that are opened by an address.
        max_dialled: The maximum number of links to other nodes; more are refused with `LinkDown`.
    """

    schemes: ClassVar[Mapping[str, bool]]
    """The URI schemes, and whether each of them requires TLS."""

    options_class: ClassVar[type[StreamOptions]] = StreamOptions
    """The class of the transport's options."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.options = self.options_class(reconnect=False, heartbeat=None)
        self.max_dialled = 1000
        self._listeners = Listeners(node, StreamListener)
        self._dialled = DialledLinks[DialledLink](node)

    @abstractmethod
    def endpoint(self, uri: str, scheme: str, options: Any) -> Endpoint:
        """Return the endpoint of a URI.

        Args:
            uri: The URI.
            scheme: Its scheme, one of `schemes`.
            options: The options, of `options_class`.

        Raises:
            ValueError: The URI is wrong.
        """

    @abstractmethod
    def endpoint_of(self, value: str, options: Any) -> Endpoint:
        """Return the endpoint of the value of an address.

        Raises:
            AddressError: The value is wrong.
        """

    async def listen(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        options: Any = None,
        authentication: Authentication | None = None,
        **changes: Any,
    ) -> StreamListener:
        """Accept connections; port 0 selects a free port.

        Args:
            uri: The URI to listen at.
            expose: The addresses that the peers may send to; see `Gate`.
            authentication: The authentication of peers, by what the transport has verified and
                by the credentials that a peer shows; nothing else of it is read before. `None`:
                each peer is accepted.
            options: The options, of `options_class`; the defaults if not given.
            **changes: Single options, which replace those in `options`.

        Raises:
            OSError: The URI cannot be listened at, or a certificate cannot be read.
            NodeStopped: The node stopped meanwhile.
            ValueError: The URI or a certificate is wrong.
            TypeError: There is no such option.
        """
        scheme, chosen = self._chosen(uri, options, changes)
        uri, passed = passed_socket(uri)
        endpoint = self.endpoint(uri, scheme, chosen)
        endpoint.passed = passed
        context = None if chosen.tls is None else TlsContext(chosen.tls, server_context)
        shown = self._shown_scheme(scheme, context)
        worker = ListenerWorker(
            shown, endpoint, context, expose, chosen, self._listeners.forget, authentication
        )
        return await self._listeners.start(worker)

    async def connect(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        options: Any = None,
        credentials: CredentialsSource | None = None,
        **changes: Any,
    ) -> Address:
        """Connect, and connect again whenever the connection is lost.

        Args:
            uri: The URI to connect to.
            expose: The addresses that the peer may send to; see `Gate`.
            options: The options, of `options_class`; the defaults if not given.
            credentials: The credentials to show to a listener with authentication, or an
                asynchronous function that returns those of a new connection. The link is
                connected once the listener has accepted them. `None`: none, as Ockam's nodes.
            **changes: Single options, which replace those in `options`.

        Returns:
            The address of the link.

        Raises:
            LinkDown: There is no listener, it does not speak this protocol, it refuses the
                credentials or asks for none, or there are too many links.
            BadCredentials: The credentials are too long, or empty.
            OSError: A certificate cannot be read.
            ValueError: The URI or a certificate is wrong.
            TypeError: There is no such option.
        """
        scheme, chosen = self._chosen(uri, options, changes)
        presented = None
        if credentials is not None:
            # Late: without credentials a node needs none of it.
            from ..streams._credentials import ShownCredentials

            presented = ShownCredentials(credentials)
        link = self._open(self.endpoint(uri, scheme, chosen), expose, chosen, presented)
        try:
            await link.first_attempt()
        except BaseException:
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)
            raise
        return link.address

    def resolve(self, message: Message) -> Message:
        """Replace an address of its type by that of the link to the peer, opened if necessary.

        Raises:
            AddressError: The value is wrong.
            PayloadTooBig: The payload alone is larger than a frame may be.
            LinkDown: There are too many links.
        """
        if len(message[2]) > self.options.max_frame:
            raise PayloadTooBig(len(message[2]), self.options.max_frame)
        try:
            peer = message[0][0].value.decode()
        except UnicodeDecodeError:
            raise AddressError(message[0][0], "the value is not text") from None
        link = self._dialled.by_peer.get(peer)
        if link is None:
            endpoint = self.endpoint_of(peer, self.options)
            with self._dialled.lock:
                # Another thread may have opened it, and one peer may be written in several ways.
                link = self._dialled.by_peer.get(endpoint.peer)
                try:
                    link = link or self._open(endpoint, frozenset(), self.options)
                except (OSError, ValueError) as error:  # raised for its certificates
                    raise LinkDown(peer, str(error)) from error
        return message.redirect(link.address)

    def statistics(self) -> tuple[LinkStatistics, ...]:
        """Return the statistics of the links to other nodes, oldest first."""
        return tuple(link.statistics() for link in self._dialled)

    async def stop(self) -> None:
        """Close every listener and link."""
        await self._listeners.close()
        for link in self._dialled:
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)
            await link.disconnected()

    def _chosen(
        self, uri: str, options: StreamOptions | None, changes: dict[str, Any]
    ) -> tuple[str, StreamOptions]:
        """Return the scheme of a URI, and the options with TLS added if the scheme requires it."""
        scheme = uri.partition("://")[0]
        if scheme not in self.schemes:
            raise ValueError(f"{uri!r} is not {self.scheme}://…")
        check_value("options", options, self.options_class | None)
        chosen = replace(options or self.options_class(), **changes)
        if self.schemes[scheme] and chosen.tls is None:
            chosen = replace(chosen, tls=TlsOptions())
        return scheme, chosen

    def _shown_scheme(self, scheme: str, context: TlsContext | None) -> str:
        if context is None:
            return scheme
        return next((name for name, secure in self.schemes.items() if secure), scheme)

    def _open(
        self,
        endpoint: Endpoint,
        expose: frozenset[Address],
        options: StreamOptions,
        credentials: ShownCredentials | None = None,
    ) -> DialledLink:
        dialler = Dialler(endpoint, options.tls, options.tls_timeout)
        dialler.credentials = credentials
        link = DialledLink(dialler, expose, options, self._dialled.forget)
        link.scheme = self.scheme
        self._dialled.open(link, self.max_dialled, options.mailbox)
        return link
