"""Connections of a broker that this side opens: it sends SETUP, and has the odd stream ids."""

from __future__ import annotations

import logging

from onward.actors.broker import Broker
from onward.protocol.rsocket import Setup
from onward.protocol.security import PeerIdentity
from onward.transports._log import SeldomLogger
from onward.transports.rsocket import LinkOptions
from onward.transports.rsocket._link import Link
from onward.transports.rsocket._shared import Shared
from onward.transports.rsocket._worker import ConnectionWorker

__all__ = ["opened_link"]

_LOGGER = logging.getLogger("onward.transports.rsocket")


async def opened_link(
    broker: Broker, setup: Setup, options: LinkOptions | None = None, *, peer: str
) -> Link:
    """Return a connection that relays for a broker; its socket is yet to be opened."""
    node = broker.node
    worker = ConnectionWorker()
    await node.start(lambda: worker)
    options = options or LinkOptions()
    seldom, shared = SeldomLogger(_LOGGER, node.loop.time), Shared(node.loop, options)
    link = Link(worker, broker, options, seldom, shared, _on_closed, setup)
    link.source, link.identity = peer, PeerIdentity(source=peer, peer=peer)
    worker.attach(link)
    return link


def _on_closed(link: Link) -> None:
    link.worker.stop()
