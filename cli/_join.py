"""The nodes that a command joins, to send to identities."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..actors import Node
from ..protocol import IDENTITY, Address, LinkDown, Route, UnknownAddress
from ..protocol.security import Credentials
from ..transports import TlsOptions
from ._identity import KeySource
from ._identity_rows import need_extra
from ._reach import (
    Via,
    add_via,
    certificates_for,
    check_place,
    credentials_for,
    reach,
    schemes,
    tls_of,
    via_of,
)
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..actors.identity import IdentityKeys
    from ..protocol.identity import Identity, SigningKey
    from ..transports.identity import Identities

__all__ = ["Membership", "NodeToJoin", "Way", "add_way", "join_node", "reach_by", "way_of"]


class NodeToJoin(NamedTuple):
    """A node to join.

    Attributes:
        uri: Where it listens.
        identity: The identity that it must have; `None`: any.
    """

    uri: str
    identity: Identity | None = None

    @classmethod
    def parse(cls, text: str) -> NodeToJoin:
        """Return what `URI[=IDENTITY]` says.

        Raises:
            CommandError: It is neither, or the URI is not that of a node.
        """
        from ..protocol.identity import BadIdentity, parse_identity

        uri, mark, written = text.rpartition("=")
        identity: Identity | None = None
        try:
            identity = parse_identity(written) if mark else None
        except BadIdentity as error:
            if "?" not in uri:
                raise CommandError(f"--join {text!r}: {error}", Status.USAGE) from None
            # A query of a URI has a `=` too.
        if identity is None:
            uri = text
        if not uri.startswith(known := schemes()):
            raise CommandError(
                f"--join: {uri!r} does not start with {', '.join(known)}", Status.USAGE
            )
        check_place(uri)
        return cls(uri, identity)


@dataclass(frozen=True, slots=True)
class Membership:
    """An identity to send by, and the nodes to join for that.

    Attributes:
        key: The keys of the identity, or that to sign with alone.
        nodes: The nodes, at least one.
        tls: The certificates; `None` for the defaults of the scheme.
        credentials: The credentials; `None` for none.
    """

    key: SigningKey | IdentityKeys
    nodes: tuple[NodeToJoin, ...]
    tls: TlsOptions | None = None
    credentials: Credentials | None = None


Way = Via | Membership
"""A node to connect to before the route is followed, or nodes to join."""


def add_way(parser: argparse.ArgumentParser) -> None:
    """Add the options of a node to connect to first, or of nodes to join."""
    add_via(parser)
    parser.add_argument(
        "--join",
        metavar="URI[=IDENTITY]",
        action="append",
        default=[],
        help="join the node at URI, so that ROUTE can begin with an identity, as in "
        "36#engine:...; with IDENTITY, no other node than the one that proves this key; may be "
        "repeated",
    )
    parser.add_argument(
        "--identity",
        metavar="FILE",
        help="with --join: send by the identity of this key file (default: by one that is made "
        "for this command)",
    )
    parser.add_argument(
        "--passphrase-file",
        metavar="FILE",
        help="the passphrase of an encrypted key file; it is asked for by default",
    )


def way_of(arguments: argparse.Namespace, credentials: Credentials | None = None) -> Way | None:
    """Return the node to connect to first, or the nodes to join; `None` if none is given.

    Args:
        arguments: The options.
        credentials: The credentials for the node.

    Raises:
        CommandError: The options do not go together, or one is wrong; or the key file cannot be
            used.
        MissingExtra: The extra for identities is not installed.
    """
    file: str | None = arguments.identity
    if not arguments.join:
        if file is not None:
            raise CommandError("--identity needs --join", Status.USAGE)
        return via_of(arguments, credentials)
    if arguments.connect is not None:
        raise CommandError("--connect and --join do not go together", Status.USAGE)
    need_extra()
    source = None if file is None else KeySource(file, arguments)
    nodes = tuple(NodeToJoin.parse(each) for each in arguments.join)
    from ..protocol.identity import SEED_SIZE, SigningKey

    key = SigningKey(os.urandom(SEED_SIZE)) if source is None else source.keys
    return Membership(key, nodes, tls_of(arguments, listens=False), credentials)


async def reach_by(
    node: Node,
    route: Route,
    timeout: float,
    way: Way | None = None,
    attached: Callable[[Identities], object] | None = None,
) -> tuple[tuple[Address, ...], Route]:
    """Connect to the start of a route, or join nodes; a refusal is known before a message is sent.

    Args:
        node: The node to connect.
        route: The route.
        timeout: The longest time for that, in seconds.
        way: A node to connect to first, or the nodes to join.
        attached: Receives the identities of the node, before it joins any.

    Returns:
        The links that there are now, and the route.

    Raises:
        CommandError: The URI or a certificate of a node is wrong, an identity of the route is
            mistyped, or no node is joined, and the route begins with an identity.
        LinkDown: A connection failed.
        PeerRefused: A node has not proved its key, or not the one that is expected.
        OnwardError: As `reach`.
    """
    if way is None and route and route[0].type == IDENTITY:
        raise CommandError(
            f"no node is joined that knows the way to {route[0]}: add --join URI", Status.USAGE
        )
    if not isinstance(way, Membership):
        link, route = await reach(node, route, timeout, way)
        return () if link is None else (link,), route
    from ..transports.identity import Identities

    _check_identities(route)
    identities = await Identities.attach(node, way.key)
    if attached is not None:
        attached(identities)
    links: list[Address] = []
    for to in way.nodes:
        try:
            async with asyncio.timeout(timeout):
                links.append(await join_node(identities, node, to, way.tls, way.credentials))
        except TimeoutError:
            raise LinkDown(to.uri.partition("://")[2], "it has not joined in time") from None
    return tuple(links), route


def _check_identities(route: Route) -> None:
    """Check the identities of a route before a node is joined.

    Raises:
        CommandError: One is mistyped, or the last one is of a node, with no worker behind it.
    """
    from ..protocol.identity import BadIdentity, DestinationKind, parse_target

    for at, each in enumerate(route, 1):
        if each.type != IDENTITY:
            continue
        try:
            kind = parse_target(each.value.decode("utf-8", "replace")).destination.kind
        except BadIdentity as error:
            raise CommandError(str(error), Status.USAGE) from None
        if at == len(route) and kind in {DestinationKind.NODE, DestinationKind.RELAY}:
            raise CommandError(
                f"{each} leads to no worker: add one, as in '36#node:... => NAME'", Status.USAGE
            )


async def join_node(
    identities: Identities,
    node: Node,
    to: NodeToJoin,
    tls: TlsOptions | None,
    credentials: Credentials | None = None,
) -> Address:
    """Join a node, and return the link to it, which is closed if the node is not to be joined.

    Raises:
        CommandError: The transport takes no certificates or credentials, and there are some.
        PeerRefused: As `Identities.join`.
        LinkDown: There is no connection.
    """
    from ..actors.identity import ROUTER, PeerRefused

    secured = to.uri.startswith(("tls:", "wss:"))
    options = certificates_for(node, to.uri, tls if secured else None)
    options |= credentials_for(node, to.uri, credentials)
    link = await node.connect(to.uri, expose=[ROUTER], **options)
    try:
        await identities.join(link, identity=to.identity)
    except BaseException as error:
        with suppress(UnknownAddress):
            await node.stop_worker(link)
        if isinstance(error, PeerRefused):
            raise PeerRefused(to.uri, error.reason) from None
        raise
    return link
