"""The `rsocket+sim` transport: brokers of a simulated network, their listeners and links."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..rsocket import PeerDialler, RSocketTransport
from ..streams._dial import Dialler
from ..streams._tls import TlsOptions
from ._network import network_of
from ._streams import SimulatedEndpoint
from ._transport import host_of

if TYPE_CHECKING:
    from ...actors import Node
    from ...actors.broker import Broker
    from ...actors.cluster import ConnectPeer

__all__ = ["SimulatedRSocketTransport"]


class SimulatedRSocketTransport(RSocketTransport):
    """Listeners for RSocket over simulated byte streams: `rsocket+sim://host`.

    Brokers dial each other by the same URIs. All but the socket is as over TCP: the handshakes, the
    frames, KEEPALIVE and the limits. The network is that of the node's event loop, as for
    `SimulatedTransport`.
    """

    scheme: ClassVar[str] = "rsocket+sim"
    schemes: ClassVar[Mapping[str, bool]] = {"rsocket+sim": False}

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._place = network_of(node.loop).place(node)

    def endpoint(
        self, uri: str, scheme: str, own: dict[str, Any], *, secure: bool
    ) -> SimulatedEndpoint:
        """Return the endpoint of `rsocket+sim://host`."""
        return SimulatedEndpoint(self._place, host_of(uri, scheme))

    def peer_dialler(self, broker: Broker) -> ConnectPeer:
        """Return what dials other brokers of the network for one."""
        return PeerDialler(broker, dialler=self._dialler).connect

    def _dialler(
        self, uri: str, _tls: TlsOptions | ssl.SSLContext | None, timeout: float, _address: str = ""
    ) -> Dialler:
        return Dialler(SimulatedEndpoint(self._place, host_of(uri, self.scheme)), None, timeout)
