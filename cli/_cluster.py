"""The options of a broker for its cluster, and its part in it."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from ..actors import Node
from ..actors.broker import Broker
from ..actors.cluster import Cluster, ClusterOptions
from ..protocol import AddressError
from ..protocol.broker import Key, parse_key
from ..protocol.cluster import ClusterLimits, java_places
from ..protocol.security import BearerToken, Credentials
from ..transports import TlsOptions
from ..transports.rsocket import PeerDialler, PeerOptions, seed_addresses
from ._arguments import positive, seconds, word
from ._process import Place
from ._reach import check_place, tls_of
from ._status import CommandError, Status

__all__ = [
    "Clustering",
    "add_cluster",
    "advertised",
    "attach_cluster",
    "clustering_of",
    "hint",
    "told_clients",
]

_logger: Final = logging.getLogger("onward.cli")

_OPTIONS: Final = ClusterOptions()
_LIMITS: Final = _OPTIONS.limits


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options of a cluster."""
    parser.add_argument(
        "--cluster-seed",
        metavar="URI",
        action="append",
        default=[],
        help="form a cluster with the broker at this URI, one that it listens at: each broker's "
        "clients reach the destinations of all; a host name may stand for several, and is looked "
        "up again every 30 s; with ?proxy=PORT a Java broker, as in "
        "rsocket+tcp://host:7001?proxy=8001: its port for brokers, and the one for clients; may be "
        "repeated",
    )
    parser.add_argument(
        "--cluster-advertise",
        metavar="URI",
        help="form a cluster, and tell other brokers to reach this one here; the id of the broker "
        "is made of it, so that it is the same after a restart; port 0 stands for that of the "
        "first --listen (default, with --cluster-seed: the first --listen, unless it is for all "
        "interfaces, and another id at each start)",
    )
    parser.add_argument(
        "--cluster-clients",
        metavar="URI",
        help="where clients reach this broker; those of all brokers can learn of it then, if they "
        "may request service=onward.brokers; port 0 as for --cluster-advertise (default: clients "
        "are told nothing)",
    )
    parser.add_argument(
        "--cluster-allow",
        metavar="PATTERN",
        action="append",
        default=[],
        help="connect to brokers that others have told of if their URI matches this pattern, as in "
        "'rsocket+tls://*.brokers.example:7001'; may be repeated (default: to seeds only)",
    )
    parser.add_argument(
        "--cluster-token",
        metavar="FILE",
        type=Path,
        help="the token to show to other brokers, in a file that is read at each connection "
        "(default: none; with TLS they are shown --certificate as well)",
    )
    parser.add_argument(
        "--cluster-name",
        metavar="NAME",
        default="",
        help="the name of this broker for the operators of others (default: none)",
    )
    parser.add_argument(
        "--cluster-locality",
        type=word("prefer", "even"),
        choices=("prefer", "even"),
        default=_OPTIONS.locality,
        help="which destinations get requests: those at this broker while one of them can take "
        "them, or all alike (default %(default)s)",
    )
    parser.add_argument(
        "--cluster-hold",
        metavar="SECONDS",
        type=seconds,
        default=_LIMITS.peer_hold,
        help="how long the routes of a broker are kept, hidden, when the connection to it is lost "
        "(default %(default)g)",
    )
    parser.add_argument(
        "--cluster-max-peers",
        metavar="N",
        type=positive,
        default=_LIMITS.max_peers,
        help="other brokers that this one has connections with at a time (default %(default)d)",
    )
    parser.add_argument(
        "--cluster-zone",
        metavar="NAME",
        default="",
        help="the zone of this broker, if there are several: a full mesh within each, and one "
        "connection of each broker to each other zone (default: one mesh without a name)",
    )
    parser.add_argument(
        "--cluster-group-without",
        metavar="KEY",
        type=tag_key,
        action="append",
        default=[],
        help="do not tell other zones of tags with this key, as each names one destination; may be "
        "repeated (default: of RouteId and InstanceName alone)",
    )
    parser.add_argument(
        "--cluster-max-gateways",
        metavar="N",
        type=positive,
        default=_LIMITS.max_gateways,
        help="connections to brokers of other zones, and as many again from them (default "
        "%(default)d)",
    )
    parser.add_argument(
        "--cluster-ready",
        metavar="N",
        type=positive,
        help="count as ready only once the routes of so many other brokers are known after the "
        "start (default: at once)",
    )


def tag_key(text: str) -> Key:
    """Read the key of a tag.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        return parse_key(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Clustering:
    """The part of a broker in a cluster, as its options ask for it.

    Attributes:
        options: The options of the cluster.
        advertise: The URI that others are told; `None` for that of the first listener.
        clients: The URI that clients are told; `None` for none.
        tls: The certificates for the brokers that it connects to.
        token: The file of the token that it shows them; `None` for none.
        broker_id: The id of the broker; `None` for one that is made at each start.
    """

    options: ClusterOptions
    advertise: str | None = None
    clients: str | None = None
    tls: TlsOptions | None = None
    token: Path | None = None
    broker_id: UUID | None = None

    async def credentials(self) -> Credentials:
        """Return what is shown to another broker now.

        Raises:
            OSError: The file cannot be read.
        """
        if self.token is None:
            raise AssertionError("there is no token")
        data = await asyncio.to_thread(self.token.read_bytes)
        return BearerToken(data.rstrip(b"\r\n"))


def clustering_of(arguments: argparse.Namespace) -> Clustering | None:
    """Return the part of a broker in a cluster; `None` if it is in none.

    Raises:
        CommandError: The options do not go together.
        ValueError: A value is out of its range.
    """
    place: Place | None = getattr(arguments, "place", None)
    if place is None and not arguments.cluster_seed and arguments.cluster_advertise is None:
        if arguments.cluster_allow or arguments.cluster_token or arguments.cluster_clients:
            raise CommandError(
                "--cluster-allow, --cluster-clients and --cluster-token go with --cluster-seed or "
                "--cluster-advertise",
                Status.USAGE,
            )
        return None
    told = [each for each in (arguments.cluster_advertise, arguments.cluster_clients) if each]
    for uri in (*arguments.cluster_seed, *told):
        if not uri.startswith("rsocket+"):
            raise CommandError(f"{uri!r} does not start with rsocket+", Status.USAGE)
        check_place(uri)
    for seed in arguments.cluster_seed:
        java_places(seed)
    limits = ClusterLimits(
        peer_hold=arguments.cluster_hold,
        max_peers=arguments.cluster_max_peers,
        max_gateways=arguments.cluster_max_gateways,
    )
    others = () if place is None else place.others
    name: str = arguments.cluster_name
    if place is not None:
        name = f"{name or 'process'}-{place.index}"
    advertise: str | None = arguments.cluster_advertise
    if arguments.processes > 1 and (advertise is not None or arguments.cluster_seed):
        if advertise is None or not urlsplit(advertise).port:
            raise CommandError(
                "a cluster of brokers with --processes needs --cluster-advertise with a port: that "
                "of process 0; the others have those after it",
                Status.USAGE,
            )
        if place is not None:
            advertise = of_process(advertise, place.index)
    elif place is not None:
        advertise = place.peer()
    options = ClusterOptions(
        seeds=(*others, *arguments.cluster_seed),
        advertise="" if place is None or advertise is None else advertise,
        allowed_peers=tuple(arguments.cluster_allow),
        name=name,
        zone=arguments.cluster_zone,
        group_keys=tuple(arguments.cluster_group_without),
        locality=arguments.cluster_locality,
        ready_peers=arguments.cluster_ready or 0,
        limits=limits,
    )
    broker_id = None if place is None else UUID(place.broker_id)
    if advertise is not None and arguments.cluster_advertise is not None:
        broker_id = lasting_id(advertise) or broker_id
    tls = tls_of(arguments, listens=False)
    token: Path | None = arguments.cluster_token
    return Clustering(options, advertise, arguments.cluster_clients, tls, token, broker_id)


def lasting_id(uri: str) -> UUID | None:
    """Return the id of the broker that others reach at a URI: the same after each restart.

    `None` for port 0, which is another port at each start. Two brokers that advertise one URI have
    one id, and refuse each other.
    """
    return None if urlsplit(uri).port == 0 else uuid5(NAMESPACE_URL, uri)


def ids_of(arguments: argparse.Namespace) -> list[str]:
    """Return the ids of the brokers of all processes, which those in their places have after them.

    With an address for other machines they are those that each process makes of its own.
    """
    advertise: str | None = arguments.cluster_advertise
    return [
        str(uuid4() if advertise is None else lasting_id(of_process(advertise, index)) or uuid4())
        for index in range(arguments.processes)
    ]


async def attach_cluster(
    node: Node, broker: Broker, clustering: Clustering | None
) -> Cluster | None:
    """Start the cluster of a broker; it dials no other one before `Cluster.join`.

    Raises:
        BrokerFrameError: A text of the options is too long.
    """
    if clustering is None:
        return None
    options = clustering.options
    dialler = PeerDialler(
        broker,
        None if clustering.token is None else clustering.credentials,
        PeerOptions(tls=clustering.tls, connect_timeout=options.connect_timeout),
    )
    return await Cluster.attach(
        node, broker, options, connect=dialler.connect, resolve=seed_addresses
    )


def of_process(uri: str, index: int, host: str | None = None) -> str:
    """Return the URI of a process by that of process 0.

    Args:
        uri: The URI of process 0.
        index: The number of the process, by which the port is higher.
        host: Another host for it.
    """
    parts = urlsplit(uri)
    own = host or parts.netloc.rpartition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{own}:{(parts.port or 0) + index}"))


def advertised(clustering: Clustering | None, listener: str) -> str:
    """Return the URI that other brokers are told; empty if there is none.

    Args:
        clustering: The part of the broker in the cluster.
        listener: The URI of its first listener, with the real port.
    """
    given = None if clustering is None else clustering.advertise
    if given is not None:
        return _with_port(given, listener)
    bound = urlsplit(listener).hostname
    try:
        return "" if bound is not None and ip_address(bound).is_unspecified else listener
    except ValueError:
        return listener


def hint(clustering: Clustering, listeners: Sequence[str]) -> None:
    """Log what looks like a mistake in the options of a cluster.

    Args:
        clustering: The part of the broker in the cluster.
        listeners: The URIs of its listeners, with the real ports.
    """
    own = advertised(clustering, listeners[0])
    if not own:
        _logger.warning(
            "%s is for all interfaces, which is no address: others are told none, and only brokers "
            "that have this one as a seed dial it; give --cluster-advertise",
            listeners[0],
            extra={"event": "cluster.no_address", "listener": listeners[0]},
        )
    seeds = clustering.options.seeds
    for seed in dict.fromkeys(seeds):
        if seed in (own, *listeners):
            # All brokers may have one list of seeds; with none but itself one is alone.
            level = logging.INFO if {*seeds} - {own, *listeners} else logging.WARNING
            _logger.log(
                level,
                "the seed %s is this broker itself: it is not dialled",
                seed,
                extra={"event": "cluster.own_seed"},
            )


def told_clients(clustering: Clustering | None, listener: str) -> str:
    """Return the URI that clients are told; empty if they are told none. See `advertised`."""
    given = None if clustering is None else clustering.clients
    return "" if given is None else _with_port(given, listener)


def _with_port(given: str, listener: str) -> str:
    """Return a URI, with the port of a listener in place of port 0."""
    place, real = urlsplit(given), urlsplit(listener)
    if place.port != 0 or real.port is None:
        return given
    host = place.netloc.rpartition(":")[0]
    return urlunsplit(place._replace(netloc=f"{host}:{real.port}"))
