"""The method `callout` of a server: a worker that it asks about each peer, by a route."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, TypeAlias

from ..actors import Node
from ..actors.security import Authorization, CalloutAuthenticator
from ..protocol import LOCAL, TAGS, TCP, UDP, WEBSOCKET, Address, AddressError, Route, parse_route
from ..protocol.broker import parse_address_query
from ._arguments import route
from ._audits import is_local
from ._reach import scheme_of
from ._status import CommandError, Status

__all__ = ["NodeOf", "add_callout", "callout_of", "check_callout", "check_rules"]

NodeOf: TypeAlias = Callable[[], Node]
"""Returns the node of a server, which is made after the methods."""

_PLAIN: Final = frozenset({TCP, UDP, WEBSOCKET})
"""The types of addresses that are reached without TLS."""


def add_callout(parser: argparse.ArgumentParser, *, broker: bool) -> None:
    """Add the option of the worker that a broker, or a node without one, asks."""
    where = (
        "a destination, as '32#service=directory', or a worker of a node on this machine, as "
        "'1#127.0.0.1:4000 => directory'"
        if broker
        else "of this node, or of one on this machine, as '1#127.0.0.1:4000 => directory'"
    )
    peers = "clients" if broker else "peers"
    parser.add_argument(
        "--callout",
        metavar="ROUTE",
        type=_of_broker if broker else _of_node,
        help=f"admit {peers} by the answer of a worker, which gets their credentials: {where} "
        "(default: none)",
    )


def _of_broker(text: str) -> str:
    """Return the text of a route to a worker that a broker can ask.

    Raises:
        ArgumentTypeError: It is none.
    """
    hops = route(text)
    first = hops[0]
    if first.type == LOCAL:
        # A broker's own workers are no directory, and the command starts no others.
        raise argparse.ArgumentTypeError(
            f"the broker has no worker {first} to ask: begin with a node, as in 1#127.0.0.1:4000, "
            "or with tags, as in 32#service=directory"
        )
    if first.type == TAGS:
        try:
            parse_address_query(first.value)
        except AddressError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    else:
        _check_transport(first)
    _check_links(hops, "have it connect to the broker by rsocket+tls, and ask it by tags")
    return text


def _of_node(text: str) -> str:
    """Return the text of a route to a worker that a node can ask.

    Raises:
        ArgumentTypeError: It is none.
    """
    hops = route(text)
    if hops[0].type != LOCAL:
        _check_transport(hops[0])
    _check_links(hops, "reach it by a Unix socket, or a tunnel that ends here")
    return text


def _check_transport(first: Address) -> None:
    """Check that a question can be sent to the first address of a route.

    Raises:
        ArgumentTypeError: There is no such transport.
    """
    if scheme_of(first.type) is None:
        raise argparse.ArgumentTypeError(f"no transport has addresses like {first}")


def _check_links(hops: Route, advice: str) -> None:
    """Check that no network can read a question on its way.

    Args:
        hops: The route.
        advice: What to do where one can.

    Raises:
        ArgumentTypeError: One can.
    """
    for each in hops:
        if each.type in _PLAIN and not _is_here(each):
            raise argparse.ArgumentTypeError(
                f"{each} is not on this machine, and no TLS protects the credentials on the way: "
                f"{advice}"
            )


def _is_here(hop: Address) -> bool:
    try:
        return is_local(f"tcp://{hop.value.decode()}")
    except ValueError:  # no UTF-8, or half of the brackets of an IPv6 address
        return False


def callout_of(arguments: argparse.Namespace, node_of: NodeOf) -> CalloutAuthenticator | None:
    """Return the method that asks a worker; `None` if none is named."""
    asked: str | None = arguments.callout
    return None if asked is None else CalloutAuthenticator(node_of, asked)


def check_rules(arguments: argparse.Namespace, authorization: Authorization | None) -> None:
    """Check that rules decide which destination is asked, if one is.

    Raises:
        CommandError: There are none.
    """
    asked: str | None = arguments.callout
    if asked is not None and authorization is None and parse_route(asked)[0].type == TAGS:
        raise CommandError(
            "--callout by tags needs --rules: without them each client can register with these "
            "tags, and gets the credentials of the others",
            Status.USAGE,
        )


def check_callout(node: Node, arguments: argparse.Namespace) -> None:
    """Check that a worker of the node's own that is asked exists.

    Raises:
        CommandError: There is none.
    """
    asked: str | None = arguments.callout
    if asked is None:
        return
    first = parse_route(asked)[0]
    if first.type == LOCAL and not node.has(first):
        text = f"--callout: there is no worker {first} to ask"
        raise CommandError(text, Status.USAGE)
