"""What the Java reference broker says to other brokers, and reads: its frames and its addresses.

It has two listeners. The one for brokers takes BROKER_INFO as the data of SETUP, and frames as the
data of requests; the one for clients takes BROKER_INFO as metadata of SETUP, and the requests that
brokers forward to each other. All frames are in the reference dialect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

from ..broker import (
    MAX_VALUE_SIZE,
    BrokerFrameError,
    BrokerInfo,
    Dialect,
    RouteAdd,
    WellKnownKey,
    format_id,
)
from ._errors import ClusterFrameError
from ._info import PeerInfo

__all__ = [
    "ROUTE_JOIN_ROUTE",
    "java_info",
    "java_places",
    "java_route",
    "parse_java_route",
    "with_seed_uri",
]

ROUTE_JOIN_ROUTE: Final = "cluster.route-join"
"""The route by which the Java broker tells of a new route, and is told of one."""

PROXY: Final = "proxy"
"""The parameter in the URI of a seed that says that it is a Java broker."""

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_PLAIN: Final = {"tcp": "rsocket+tcp", "ws": "rsocket+ws", "wss": "rsocket+wss"}
"""The schemes of the Java broker, and what they are here."""


def java_places(uri: str) -> tuple[str, str] | None:
    """Return the addresses of a Java broker by the URI of a seed, or of an allowed peer.

    Args:
        uri: As `rsocket+tcp://host:7001?proxy=8001`: the address for brokers, and the port for
            clients.

    Returns:
        The URI for brokers and that for clients; `None` if the URI has no such parameter.

    Raises:
        ValueError: The port is none, or the URI has other parameters.
    """
    parts = urlsplit(uri)
    ports = parse_qs(parts.query, keep_blank_values=True).get(PROXY)
    if ports is None:
        return None
    digits = ports[0]
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else 0
    if parts.query != f"{PROXY}={digits}" or not 0 < port < 2**16 or parts.port is None:
        raise ValueError(f"{uri!r} is not rsocket+tcp://HOST:PORT?{PROXY}=PORT")
    host = parts.netloc.rpartition(":")[0]
    cluster = parts._replace(query="")
    return urlunsplit(cluster), urlunsplit(cluster._replace(netloc=f"{host}:{port}"))


def with_seed_uri(info: PeerInfo) -> PeerInfo:
    """Return the facts of a broker with the URI by which it is dialled from here.

    The Java broker tells two URIs, as `tcp://host:7001` and `tcp://host:8001`. They become one
    where the host is the same, and not too long for both. All others are returned as they are.
    """
    try:
        cluster, proxy = urlsplit(info.cluster_uri), urlsplit(info.proxy_uri)
        port = proxy.port
    except ValueError:
        return info
    scheme = _PLAIN.get(cluster.scheme)
    if info.version or scheme is None or (cluster.hostname != proxy.hostname) or port is None:
        return info
    uri = urlunsplit(cluster._replace(scheme=scheme, query=f"{PROXY}={port}"))
    # One that is too long could be told to no other broker, nor the list that it is in.
    return replace(info, cluster_uri=uri) if len(uri.encode()) <= MAX_VALUE_SIZE else info


def java_info(info: PeerInfo) -> bytes:
    """Write the BROKER_INFO of this broker for a Java broker: its id and its addresses.

    Both are the same, as one listener takes brokers and clients; a Java broker may pass them on to
    others of its kind.
    """
    found = [plain for plain, own in _PLAIN.items() if info.cluster_uri.startswith(own + "://")]
    uri = f"{found[0]}://{urlsplit(info.cluster_uri).netloc}".encode() if found else b""
    places = ((int(key), uri) for key in (WellKnownKey.BROKER_PROXY_URI, _CLUSTER_URI) if uri)
    return BrokerInfo(info.broker_id, info.timestamp, tuple(places)).serialize(Dialect.REFERENCE)


_CLUSTER_URI: Final = WellKnownKey.BROKER_CLUSTER_URI


def java_route(route: RouteAdd) -> bytes:
    """Write a route of this broker for a Java broker.

    Raises:
        BrokerFrameError: It has a tag that cannot be written in the reference dialect.
    """
    # The Java broker compares texts, and its clients write a route id like this.
    pin = (_ROUTE_ID, f"Id{{{format_id(route.route_id)}}}")
    tags = (*(tag for tag in route.tags if tag[0] != _ROUTE_ID), pin)
    return replace(route, tags=tags).serialize(Dialect.REFERENCE)


def parse_java_route(data: bytes) -> RouteAdd:
    """Read a route of a Java broker.

    Raises:
        ClusterFrameError: It is none.
    """
    try:
        return RouteAdd.parse(data, Dialect.REFERENCE)
    except BrokerFrameError as error:
        raise ClusterFrameError(f"ROUTE_JOIN, {error}") from None
