"""What clients are told of the brokers of a cluster.

A client asks with a request/response to a service of each broker. A push, or a stream with each
change, would have to be remembered for each client, and a stream that is open would hold up the
drain of a broker. A request has an answer, a credit and a time, is subject to the rules as any
other, and costs nothing while no client asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from ...protocol.cluster import PeerInfo, serialize_infos
from ..broker import Handlers, Request

if TYPE_CHECKING:
    from ._cluster import Cluster

__all__ = ["clients_service", "list_for_clients"]

_VALID: Final = 1.0
"""Seconds for which an answer is sent again before it is made anew."""


def clients_service(cluster: Cluster) -> Handlers:
    """Return the handlers of the service by which clients learn of other brokers."""
    handlers = Handlers()
    made_at, answer = -inf, b""

    @handlers.response
    async def brokers(_request: Request) -> bytes:
        nonlocal made_at, answer
        now = cluster.node.loop.time()
        if now - made_at >= _VALID:
            made_at, answer = now, list_for_clients(cluster.brokers_for_clients())
        return answer

    return handlers


def list_for_clients(infos: Iterable[PeerInfo]) -> bytes:
    """Return the brokers that have a URI for clients, without what is for brokers and operators.

    Args:
        infos: The brokers; the one that is asked is the first.
    """
    return serialize_infos(
        replace(info, cluster_uri="", instance=0, name="", max_batch=None, others=())
        for info in infos
        if info.proxy_uri
    )
