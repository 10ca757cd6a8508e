"""Connections of a command to and from other nodes: transports and certificates."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import entry_points
from typing import Any, Final, cast

from ..actors import Node
from ..actors.security import Authentication
from ..protocol import (
    LOCAL,
    Address,
    AddressError,
    LinkDown,
    OnwardError,
    Route,
    UnknownAddress,
)
from ..protocol.security import Credentials
from ..protocol.toml import suggestion
from ..transports import StreamTransport, TlsOptions
from ..transports.streams._options import parse_endpoint
from ._status import CommandError, Status

__all__ = [
    "Via",
    "add_tls",
    "add_via",
    "authentication_for",
    "certificates_for",
    "check_place",
    "check_scheme",
    "credentials_for",
    "reach",
    "scheme_of",
    "schemes",
    "tls_of",
    "via_of",
]

_OURS: Final = ("tcp", "tls", "ws", "wss", "uds", "udp")
"""The schemes of nodes without plug-ins, as help names them."""

_NOT_OF_NODES: Final = ("memory", "sim")
"""Schemes of transports within one process."""

_OF_ENDPOINTS: Final = ("tcp", "tls", "udp")
"""The schemes with HOST:PORT behind them, and nothing else but a query."""

_TLS: Final = ("certificate", "key", "authority", "server_name")


@dataclass(frozen=True, slots=True)
class Via:
    """A node to connect to before the route is followed.

    Attributes:
        uri: Its URI.
        tls: The certificates; `None` for the defaults of the scheme.
        credentials: The credentials; `None` for none.
    """

    uri: str
    tls: TlsOptions | None = None
    credentials: Credentials | None = None


def schemes() -> tuple[str, ...]:
    """Return the schemes of nodes, of installed transports too, each with its colon: `tcp:`."""
    installed = {entry.name for entry in entry_points(group="onward.transports")}
    of_nodes = {
        name
        for name in installed.difference(_OURS, _NOT_OF_NODES)
        if not name.startswith("rsocket+")  # those of brokers
    }
    return tuple(f"{name}:" for name in (*_OURS, *sorted(of_nodes)))


def check_scheme(flag: str, scheme: str) -> None:
    """Check that there is a transport for a scheme, which an option names.

    Raises:
        CommandError: There is none.
    """
    known = [each.removesuffix(":") for each in schemes()]
    if scheme not in known:
        there = f"there are: {', '.join(known)}{suggestion(scheme, known)}"
        raise CommandError(f"{flag}: no transport {scheme!r}; {there}", Status.USAGE)


def check_place(uri: str) -> None:
    """Check the place in a URI, so that a mistake is told before it is dialled again and again.

    Raises:
        CommandError: It is not HOST:PORT, and the transport is one that takes this.
    """
    scheme, _, place = uri.removeprefix("rsocket+").partition("://")
    if scheme in _OF_ENDPOINTS:
        try:
            parse_endpoint(place.partition("?")[0])
        except AddressError as error:
            raise CommandError(f"{uri}: {error}", Status.USAGE) from None


def certificates_for(node: Node, uri: str, tls: TlsOptions | None) -> dict[str, Any]:
    """Return the TLS option for the given certificates, if any.

    Raises:
        CommandError: The transport of the URI does not take certificates.
    """
    if tls is None:
        return {}
    if "tls" not in _options_of(node, uri):
        raise CommandError(f"{uri.partition(':')[0]} takes no certificates", Status.USAGE)
    return {"tls": tls}


def authentication_for(
    node: Node, uri: str, authentication: Authentication | None
) -> dict[str, Any]:
    """Return the option for the authentication of peers, if any.

    Raises:
        CommandError: The transport of the URI authenticates no peers.
    """
    if authentication is None:
        return {}
    if not isinstance(node.transport(uri), StreamTransport):
        raise CommandError(f"{uri.partition(':')[0]} takes no principals", Status.USAGE)
    return {"authentication": authentication}


def credentials_for(node: Node, uri: str, credentials: Credentials | None) -> dict[str, Any]:
    """Return the option for the given credentials, if any.

    Raises:
        CommandError: The transport of the URI takes no credentials.
    """
    if credentials is None:
        return {}
    if not isinstance(node.transport(uri), StreamTransport):
        raise CommandError(f"{uri.partition(':')[0]} takes no credentials", Status.USAGE)
    return {"credentials": credentials}


def _options_of(node: Node, uri: str) -> frozenset[str]:
    """Return the names of a transport's options; none if they are unknown."""
    known: Any = getattr(node.transport(uri), "options_class", None)
    return frozenset(field.name for field in fields(known)) if is_dataclass(known) else frozenset()


def add_tls(parser: argparse.ArgumentParser, *, listens: bool) -> None:
    """Add the options of certificates to a parser."""
    parser.add_argument("--certificate", metavar="FILE", help="our certificate, in PEM, for TLS")
    parser.add_argument(
        "--key", metavar="FILE", help="its key, in PEM, if it is not in the same file"
    )
    parser.add_argument(
        "--authority",
        metavar="FILE",
        help="the authorities of the clients' certificates, in PEM"
        if listens
        else "the authorities to trust, in PEM (default: those of the system)",
    )
    if listens:
        parser.add_argument(
            "--client-certificates",
            choices=("optional", "required"),
            help="whether clients may come without a certificate (default with --authority: "
            "required)",
        )
    else:
        parser.add_argument(
            "--server-name",
            metavar="NAME",
            help="the name in the peer's certificate, if it is not the host",
        )


def add_via(parser: argparse.ArgumentParser) -> None:
    """Add the option of a node to connect to first, and those of certificates."""
    parser.add_argument(
        "--connect",
        metavar="URI",
        help="connect to this node first, by tcp, tls, ws, wss, uds, udp or an installed "
        "transport; ROUTE goes on from there",
    )
    add_tls(parser, listens=False)


def tls_of(arguments: argparse.Namespace, *, listens: bool) -> TlsOptions | None:
    """Return the options of certificates; `None` if none is given.

    Raises:
        CommandError: They do not go together.
    """
    given: dict[str, Any] = {
        name: value for name in _TLS if (value := getattr(arguments, name, None)) is not None
    }
    if listens:
        client: str | None = getattr(arguments, "client_certificates", None)
        if "authority" in given:
            given["client"] = client or "required"
        elif client is not None:
            raise CommandError("--client-certificates needs --authority", Status.USAGE)
    if not given:
        return None
    try:
        return TlsOptions(**given)
    except ValueError as error:
        raise CommandError(f"--{error}", Status.USAGE) from None


def via_of(arguments: argparse.Namespace, credentials: Credentials | None = None) -> Via | None:
    """Return the node to connect to first; `None` if none is given.

    Args:
        arguments: The options.
        credentials: The credentials for the node.

    Raises:
        CommandError: There are certificates or credentials and no node, or the URI is not that of
            a node.
    """
    tls = tls_of(arguments, listens=False)
    uri: str | None = arguments.connect
    if uri is None:
        if tls is not None:
            raise CommandError("certificates are for --connect", Status.USAGE)
        if credentials is not None:
            raise CommandError("credentials are for --connect or --broker", Status.USAGE)
        return None
    if not uri.startswith(known := schemes()):
        raise CommandError(f"{uri!r} does not start with {', '.join(known)}", Status.USAGE)
    return Via(uri, tls, credentials)


async def reach(
    node: Node, route: Route, timeout: float, via: Via | None = None
) -> tuple[Address | None, Route]:
    """Connect to the start of a route, so that a refusal is known before a message is sent.

    Args:
        node: The node to connect.
        route: The route.
        timeout: The longest time for that, in seconds.
        via: A node to connect to first.

    Returns:
        The link, if the route starts with one now, and the route.

    Raises:
        AddressError: The start of the route is not an address to connect to.
        CommandError: The URI or a certificate of the node to connect to first is wrong.
        LinkDown: The connection failed.
        UnknownAddress: The route begins with a worker of the command's own node, which has none.
    """
    if via is not None:
        link = await _connect(node, via, timeout)
        return link, (link, *route)
    first = route[0]
    if first.type == LOCAL:
        raise UnknownAddress(first, _begin_with(first))
    scheme = scheme_of(first.type)
    if scheme is None:
        return None, route
    try:
        where = first.value.decode()
    except UnicodeDecodeError:
        raise AddressError(first, "the value is not text") from None
    return await _connect(node, Via(f"{scheme}://{where}"), timeout), route


def _begin_with(first: Address) -> str:
    """Return the hint for a route that begins with a worker."""
    name = first.value.decode("utf-8", "replace")
    if re.fullmatch(r"[\w.-]+:[0-9]{1,5}", name):
        return f"to reach a node at this host and port, write `1#{name}`"
    return "begin with a node, as in 1#127.0.0.1:4000, or name one by --connect"


def scheme_of(address_type: int) -> str | None:
    """Return the scheme of the transport of an address type, which is registered for both."""
    for entry in entry_points(group="onward.address_types", name=str(address_type)):
        with contextlib.suppress(Exception):  # a broken plug-in is logged when it is used
            return cast("str", entry.load().scheme)
    return None


async def _connect(node: Node, via: Via, timeout: float) -> Address:
    uri = via.uri
    # The socket has its own timeout for a peer that does not read, and 0 is not valid there.
    wanted: dict[str, Any] = {"reconnect": False, "write_timeout": max(timeout, 0.001)}
    known = _options_of(node, uri)
    options = {name: value for name, value in wanted.items() if name in known}
    options |= certificates_for(node, uri, via.tls)
    options |= credentials_for(node, uri, via.credentials)
    try:
        async with asyncio.timeout(timeout):
            return await node.connect(uri, **options)
    except TimeoutError:
        raise LinkDown(uri.partition("://")[2], "no connection in time") from None
    except OnwardError:
        raise
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot connect to {uri}: {error}", Status.USAGE) from None
