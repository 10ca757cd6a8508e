"""The `sim` transport: links over the simulated network of the event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from ...protocol import (
    Address,
    AddressError,
    LinkDown,
    Message,
    NodeStopped,
    OnwardError,
    UnknownAddress,
    WorkerStopped,
    counted,
)
from .._base import Transport
from ..streams._listening import Listeners, WorkerListener
from ._faults import Faults
from ._link import DiallingLink, SimulatedListenerWorker
from ._network import network_of

if TYPE_CHECKING:
    from ...actors import Node
    from ._network import SimulatedNetwork

__all__ = ["SIMULATED", "SimulatedListener", "SimulatedTransport", "host_of"]

SIMULATED: Final = 240
"""The address type of the simulated network: `240#b` is the host `b`."""


class SimulatedListener(WorkerListener[SimulatedListenerWorker]):
    """A host name of the simulated network: a `Listener`."""


class SimulatedTransport(Transport):
    """A transport between simulated nodes: `node.listen("sim://b")`, `node.connect("sim://b")`.

    An address `240#b` in a route uses the link to host `b`, or opens one. The network is that of
    the node's event loop; if there is none, one without faults and with seed 0 is made.
    """

    scheme: ClassVar[str] = "sim"
    address_type: ClassVar[int | None] = SIMULATED

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.network: SimulatedNetwork = network_of(node.loop)
        self._place = self.network.place(node)
        self._listeners = Listeners(node, SimulatedListener)
        self._resolved: dict[str, DiallingLink] = {}

    async def listen(
        self, uri: str, *, expose: frozenset[Address] = frozenset(), **options: Any
    ) -> SimulatedListener:
        """Accept connections to a host name, which may be any text.

        Raises:
            OSError: The name is in use in this network.
            NodeStopped: The node stopped meanwhile.
            ValueError: The URI is not `sim://host`.
            TypeError: There is no such option.
        """
        host = _host(uri, options)
        return await self._listeners.start(
            SimulatedListenerWorker(self._place, host, expose, self._listeners.forget)
        )

    async def connect(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        faults: Faults | None = None,
        **options: Any,
    ) -> Address:
        """Connect to a host name, which takes the latency in both directions.

        Args:
            uri: The URI to connect to: `sim://host`.
            expose: The addresses that the other end may send to.
            faults: The faults of this link in each direction; by default those of the network
                between the two nodes.
            **options: Must be empty.

        Raises:
            LinkDown: There is no listener, or a partition is in between.
            ValueError: The URI is not `sim://host`.
            TypeError: There is no such option, or `faults` has the wrong type.
        """
        # Not all callers check their types.
        if not isinstance(faults, Faults | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{faults!r} are no Faults")
        link = self._new_link(_host(uri, options), expose, faults)
        address = self.node.random_address()
        try:
            await self.node.start(lambda: link, address=address)
        except WorkerStopped:
            raise NodeStopped(self.node.name) from None
        except OnwardError:
            self._place.links.pop(link, None)  # not started, as when the node stops
            raise
        except asyncio.CancelledError:
            link.abandon()  # its address would be lost
            if self.node.has(address):
                await self.node.stop_worker(address)
            raise
        if link.error is not None:
            with suppress(UnknownAddress):  # already stopped
                await self.node.stop_worker(address)
            raise link.error
        return address

    def resolve(self, message: Message) -> Message:
        """Replace `240#b` by the address of the link to host `b`, opened if necessary.

        Raises:
            AddressError: The value is not a host name.
            LinkDown: There are too many links.
        """
        try:
            host = message.to.value.decode("ascii")
        except UnicodeDecodeError:
            raise AddressError(message.to, "not a host name") from None
        link = self._resolved.get(host)
        if link is None or link.over:
            link = self._new_link(host, frozenset())
            made = link
            try:
                self.node.spawn(lambda: made)
            except OnwardError:
                self._place.links.pop(made, None)  # not started, as when the node stops
                raise
            self._resolved[host] = link
        return message.redirect(link.address)

    async def stop(self) -> None:
        """Close every listener and link."""
        await self._listeners.close()
        for link in list(self._place.links):
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)

    def _new_link(
        self, host: str, expose: frozenset[Address], faults: Faults | None = None
    ) -> DiallingLink:
        if len(self._place.links) >= self.network.options.max_links:
            raise LinkDown(host, f"{counted(self.network.options.max_links, 'link')} already")
        for each in [host for host, link in self._resolved.items() if link.over]:
            del self._resolved[each]
        return DiallingLink(self._place, host, expose, faults)


def _host(uri: str, options: dict[str, Any]) -> str:
    if options:
        raise TypeError(f"no such option: {', '.join(sorted(options))}")
    return host_of(uri, "sim")


def host_of(uri: str, scheme: str) -> str:
    """Return the host name in a URI of the simulated network.

    Raises:
        ValueError: The URI is not `scheme://host`.
    """
    parts = urlsplit(uri)
    if parts.scheme != scheme or not parts.netloc or parts.path or parts.query or parts.fragment:
        raise ValueError(f"{uri!r} is not {scheme}://host")
    return parts.netloc
