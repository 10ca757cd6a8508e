"""The path of the picture of what surrounds a broker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from itertools import islice
from typing import Final

from ...actors._node_report import link_figures
from ...actors.broker import Broker
from ...actors.broker._management import service_statistics
from ...actors.monitoring import Monitor
from ...actors.monitoring._surroundings import Surroundings, Traffic, picture_of
from ...protocol import counted
from ...protocol.drawing import draw
from ._messages import HttpRequest, HttpResponse
from ._paths import AdminPaths

__all__ = ["add_topology", "picture_response", "surroundings_of"]

SLICE: Final = 256
"""Connections, or workers, that are looked at before the loop does other things."""

RESERVED: Final = "onward."
"""The prefix of the broker's own services, which are not drawn."""


def add_topology(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the path of the picture, which is SVG. One picture is made at a time."""
    turn = asyncio.Lock()

    async def picture(_: HttpRequest) -> HttpResponse:
        async with turn:
            return await picture_response(await surroundings_of(monitor))

    paths.add("/api/v1/topology", picture)


async def picture_response(found: Surroundings) -> HttpResponse:
    """Return the picture of what surrounds a broker. Only one is to be made at a time.

    The layout takes some time when there are many boxes. Many requests for it would take all
    threads, and reloads and look-ups of names wait for one.
    """
    return _svg(await asyncio.to_thread(lambda: draw(picture_of(found))))


async def surroundings_of(monitor: Monitor) -> Surroundings:
    """Return what surrounds the broker of a monitor."""
    node, broker = monitor.node, monitor.broker
    peers: list[tuple[str, str]] = []
    for number, cell in enumerate(node.parts.table.cells(), 1):
        figures = link_figures(cell.worker)
        if figures is not None and "peer" in figures:
            peers.append((str(figures["peer"]), type(cell.worker).__name__))
        if number % SLICE == 0:
            await asyncio.sleep(0)
    if monitor.cluster is not None:
        peers += [
            (row.name or row.uri or row.peer, f"{row.state}, {counted(row.routes, 'route', ',')}")
            for row in monitor.cluster.peers()
        ]
    listeners: dict[str, int] = {}
    requesters: dict[str, Traffic] = {}
    services: dict[str, Traffic] = {}
    if broker is not None:
        await _look_at_connections(broker, listeners, requesters)
        for each in await service_statistics(broker, asyncio.Lock()):  # it has its turn already
            if not each.service.startswith(RESERVED):
                services[each.service] = Traffic(each.destinations, each.requests)
    return Surroundings(node.name, listeners, requesters, services, peers)


async def _look_at_connections(
    broker: Broker, listeners: dict[str, int], requesters: dict[str, Traffic]
) -> None:
    """Count the connections of each listener, and the traffic of those that send requests."""
    for uri, listener in broker.listeners():
        listeners[uri] = 0
        rows = listener.connections()
        while part := list(islice(rows, SLICE)):
            listeners[uri] += len(part)
            for row in part:
                # One without a service can do nothing else.
                if row["requests"] or not row["service"]:
                    requesters.setdefault(row["service"], Traffic()).add(row["requests"])
            await asyncio.sleep(0)


def _svg(text: str) -> HttpResponse:
    """Return a picture. Its own style, and nothing else, may have an effect where it is opened."""
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    digest = hashlib.sha256((style[1] if style else "").encode()).digest()
    policy = f"default-src 'none'; style-src 'sha256-{base64.b64encode(digest).decode()}'"
    headers = {"content-security-policy": f"{policy}; frame-ancestors 'none'"}
    return HttpResponse(text.encode(), "image/svg+xml", headers=headers)
