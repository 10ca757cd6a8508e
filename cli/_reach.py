"""How a command reaches another node, or is reached: the transport, and the certificates."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from typing import Any, Final

from ..actors import Node
from ..protocol import TCP, UDP, UDS, WEBSOCKET, Address, AddressError, LinkDown, OnwardError, Route
from ..transports import TlsOptions
from ._status import CommandError, Status

__all__ = ["SCHEMES", "Via", "add_tls", "add_via", "reach", "tls_of", "via_of"]

SCHEMES: Final = ("tcp:", "tls:", "ws:", "wss:", "uds:", "udp:")
"""How the URIs of nodes begin."""

_BY_TYPE: Final = {TCP: "tcp", UDP: "udp", WEBSOCKET: "ws", UDS: "uds"}
"""The transports whose addresses are what is in their URIs."""

_TLS: Final = ("certificate", "key", "authority", "server_name")


@dataclass(frozen=True, slots=True)
class Via:
    """A node to go by first.

    Attributes:
        uri: Where it listens.
        tls: With which certificates; `None`: as the scheme says.
    """

    uri: str
    tls: TlsOptions | None = None


def add_tls(parser: argparse.ArgumentParser, *, listens: bool) -> None:
    """Add the options of certificates to a parser."""
    parser.add_argument("--certificate", metavar="FILE", help="our certificate, in PEM, for TLS")
    parser.add_argument(
        "--key", metavar="FILE", help="its key, in PEM, if it is not in the same file"
    )
    parser.add_argument(
        "--authority",
        metavar="FILE",
        help="take only peers that have a certificate of these authorities, in PEM"
        if listens
        else "the authorities to trust, in PEM (default: those of the system)",
    )
    if not listens:
        parser.add_argument(
            "--server-name",
            metavar="NAME",
            help="the name in the peer's certificate, if it is not the host",
        )


def add_via(parser: argparse.ArgumentParser) -> None:
    """Add the option of a node to go by first, and those of certificates."""
    parser.add_argument(
        "--connect",
        metavar="URI",
        help="connect there first, by tcp, tls, ws, wss, uds or udp; ROUTE goes on from there",
    )
    add_tls(parser, listens=False)


def tls_of(arguments: argparse.Namespace, *, listens: bool) -> TlsOptions | None:
    """Return what the options of certificates say; `None`: nothing.

    Raises:
        CommandError: They do not go together.
    """
    given: dict[str, Any] = {
        name: value for name in _TLS if (value := getattr(arguments, name, None)) is not None
    }
    if not given:
        return None
    try:
        return TlsOptions(**given, require_client=listens and "authority" in given)
    except ValueError as error:
        raise CommandError(f"--{error}", Status.USAGE) from None


def via_of(arguments: argparse.Namespace) -> Via | None:
    """Return the node to go by first; `None`: there is none.

    Raises:
        CommandError: There are certificates and no node, or no URI of a node.
    """
    tls = tls_of(arguments, listens=False)
    uri: str | None = arguments.connect
    if uri is None:
        if tls is not None:
            raise CommandError("certificates are for --connect", Status.USAGE)
        return None
    if not uri.startswith(SCHEMES):
        raise CommandError(f"{uri!r} does not start with {', '.join(SCHEMES)}", Status.USAGE)
    return Via(uri, tls)


async def reach(
    node: Node, route: Route, timeout: float, via: Via | None = None
) -> tuple[Address | None, Route]:
    """Connect to where a route starts, so that a refusal is known before anything is sent.

    Args:
        node: The node to connect.
        route: The route.
        timeout: How long that may take, in seconds.
        via: A node to go by first.

    Returns:
        The link, if the route starts with one now, and the route.

    Raises:
        AddressError: It does not start with what can be connected to.
        CommandError: The node to go by first cannot be, as the URI or a certificate is wrong.
        LinkDown: Nobody is there.
    """
    if via is not None:
        link = await _connect(node, via.uri, timeout, via.tls)
        return link, (link, *route)
    first = route[0]
    scheme = _BY_TYPE.get(first.type)
    if scheme is None:
        return None, route
    try:
        where = first.value.decode()
    except UnicodeDecodeError:
        raise AddressError(first, "the value is not text") from None
    return await _connect(node, f"{scheme}://{where}", timeout, None), route


async def _connect(node: Node, uri: str, timeout: float, tls: TlsOptions | None) -> Address:
    options: dict[str, Any] = {}
    if not uri.startswith("udp:"):
        # The socket itself gives up on a peer that does not read; for it no time is no value.
        options.update(reconnect=False, write_timeout=max(timeout, 0.001), tls=tls)
    try:
        async with asyncio.timeout(timeout):
            return await node.connect(uri, **options)
    except TimeoutError:
        raise LinkDown(uri.partition("://")[2], "no connection in time") from None
    except OnwardError:
        raise
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot connect to {uri}: {error}", Status.USAGE) from None
