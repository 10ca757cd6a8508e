"""What surrounds a broker, as a picture: requesters, services, and the peers of links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final

from ...protocol import counted
from ...protocol.drawing import Arrow, Box, Picture, Row, lay_out

__all__ = ["Surroundings", "picture_of"]

MAX_BOXES: Final = 25
"""The maximum number of requesters, of services, and of peers that are drawn: the busiest."""

WITHOUT: Final = "no service"


@dataclass(slots=True)
class Traffic:
    """The traffic of a service, or of requesters that have the same service.

    Attributes:
        peers: The destinations or connections.
        requests: Requests since the start.
    """

    peers: int = 0
    requests: int = 0

    def add(self, requests: int, peers: int = 1) -> None:
        """Add a destination or a connection."""
        self.peers += peers
        self.requests += requests


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a broker at one moment.

    Attributes:
        node: The name of its node.
        listeners: The connections by the URI of the listener.
        requesters: The connections that send requests, by the service that they are of, or none.
        services: The destinations by service.
        peers: The other ends of links, each with the kind of its link; peer brokers, each with its
            state.
    """

    node: str
    listeners: Mapping[str, int] = field(default_factory=dict[str, int])
    requesters: Mapping[str, Traffic] = field(default_factory=dict[str, Traffic])
    services: Mapping[str, Traffic] = field(default_factory=dict[str, Traffic])
    peers: Iterable[tuple[str, str]] = ()


def picture_of(found: Surroundings) -> Picture:
    """Return the picture of what surrounds a broker, or a node without one.

    Requesters lead to the broker, and the broker to the services: a service with destinations that
    send requests themselves has both arrows. Peers of links are outlines.
    """
    own = f"node {_shown(found.node)}"
    listeners = [
        Row(_shown(uri), counted(number, "connection", ","))
        for uri, number in found.listeners.items()
    ]
    boxes = {own: Box(own, uris=listeners)}
    arrows: list[Arrow] = []
    for name, traffic, left in _busiest(found.requesters):
        box = boxes.setdefault(name, Box(name))
        box.rows.append(Row(counted(traffic.peers, "requester", ","), left))
        arrows.append(Arrow(name, own, counted(traffic.requests, "request", ",")))
    for name, traffic, left in _busiest(found.services):
        box = boxes.setdefault(name, Box(name))
        box.rows.append(Row(counted(traffic.peers, "destination", ","), left))
        arrows.append(Arrow(own, name, counted(traffic.requests, "request", ",")))
    for peer, kind in sorted(set(found.peers))[:MAX_BOXES]:
        name = f"peer {_shown(peer)}"
        boxes.setdefault(name, Box(name, outside=True))
        arrows.append(Arrow(own, name, kind))
    return lay_out(f"Around {own}", boxes.values(), arrows)


def _busiest(traffic: Mapping[str, Traffic]) -> Iterable[tuple[str, Traffic, str]]:
    """Yield the busiest with their names, then all others together."""
    names = nlargest(MAX_BOXES, traffic, key=lambda name: (traffic[name].requests, name))
    for name in sorted(names):
        yield f"service={_shown(name)}" if name else WITHOUT, traffic[name], ""
    others = traffic.keys() - set(names)
    if others:
        rest = Traffic()
        for name in others:
            rest.add(traffic[name].requests, traffic[name].peers)
        yield "other services", rest, f"of {counted(len(others), 'service', ',')}"


def _shown(text: str) -> str:
    """Return a text of a peer without characters that are not seen, or turn others round."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)
