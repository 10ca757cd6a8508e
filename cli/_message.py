"""`onward send` and `onward request`: one message along a route, or through a broker."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from typing import Final

import pykka

from ..actors import Node
from ..protocol import (
    Address,
    LinkLost,
    Message,
    RequestTimeout,
    Route,
    UnknownAddress,
    counted,
    format_route,
)
from ..protocol.broker import parse_address_query
from ..transports import LinkState, LinkStatistics
from ._access import access_of, add_credentials, credentials_for_node
from ._arguments import Commands, no_log, route as route_argument, seconds
from ._context import add_context
from ._join import Membership, Way, add_way, reach_by, way_of
from ._payload import PayloadNotation, add_arguments, payload_of
from ._run import StopRequest, run
from ._show import describe, describe_message, printable
from ._status import CommandError, Status

__all__ = ["add_commands", "request", "send"]

_ROUTE: Final = "the route: addresses TYPE#VALUE with => between, as in '1#127.0.0.1:4000 => echo'"

_SEND: Final = """\
Send one message along a route. The status is 0 once the message has been handed to the connection
at the start of the route; whether a worker has received it then is not known.
"""

_REQUEST: Final = """\
Send one message along a route, or with --broker one request to a destination of a broker; wait
for the answer, and print its payload.
"""

_SEND_STATUS: Final = """\
exit status:
  0  the message has been handed over; whether it arrives is not known
  1  certainly not delivered
  2  the command line is wrong
  3  in doubt: the connection was lost, or too slow, while the message was written
"""

_REQUEST_STATUS: Final = """\
exit status:
  0  the message has been sent; the answer is printed
  1  certainly not delivered; or, with --broker, the answer is an error
  2  the command line is wrong
  3  in doubt: no answer in time, or the connection was lost before one came
"""

_DESTINATION: Final = (
    f"{_ROUTE}; with --broker: tags, as in 'service=orders region=eu', and before them, "
    "if need be, how to choose among destinations that carry them: @multicast, @shard=KEY, "
    "@sticky=KEY, @method=NAME, @no-route=reject, @encrypted"
)

POLL: Final = 0.005
"""Interval at which to check whether a connection has written everything, in seconds."""

PATIENCE: Final = 3
"""Multiple of the timeout in which a slowly reading peer has to read a message. For a peer that
does not read at all, the timeout itself applies."""


def add_commands(commands: Commands) -> None:
    """Add both commands to the parser."""
    for name, help_text, description, status in (
        ("send", "send a message along a route", _SEND, _SEND_STATUS),
        (
            "request",
            "send a message along a route and print the answer",
            _REQUEST,
            _REQUEST_STATUS,
        ),
    ):
        parser = commands.add_parser(
            name,
            help=help_text,
            description=description,
            epilog=status,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "send":
            parser.add_argument("route", metavar="ROUTE", type=route_argument, help=_ROUTE)
        else:
            # Its form depends on --broker, which may come later.
            parser.add_argument("route", metavar="ROUTE", help=_DESTINATION)
            parser.set_defaults(refuse=parser.error)
        add_arguments(parser)
        add_way(parser)
        add_credentials(parser)
        if name == "request":
            parser.add_argument(
                "--broker",
                metavar="URI",
                help="ask through this broker, by any of the URIs it listens at",
            )
            add_context(parser)
        parser.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=seconds,
            default=30.0,
            help="how long to wait (default %(default)g)",
        )
        parser.add_argument(
            "--verbose", action="store_true", help="print the routes of each message to stderr"
        )
        parser.set_defaults(command=_send if name == "send" else _request)


def _send(arguments: argparse.Namespace) -> None:
    payload = payload_of(arguments)
    route: Route = arguments.route
    with no_log("onward"):
        way = way_of(arguments, credentials_for_node(arguments))
        run(lambda stop: stop.unless(send(route, payload, arguments.timeout, way)))
    if arguments.verbose:
        print("sent     ", describe(route, (), payload), file=sys.stderr)


def _request(arguments: argparse.Namespace) -> None:
    if arguments.broker is None:
        _request_along(arguments)
    else:
        _request_through(arguments)


def _request_through(arguments: argparse.Namespace) -> None:
    destination: str = arguments.route
    if arguments.connect is not None or arguments.join:
        flag = "--join" if arguments.join else "--connect"
        raise CommandError(f"{flag} and --broker do not go together", Status.USAGE)
    parse_address_query(destination)  # a malformed query is refused before anything is sent
    payload, access = payload_of(arguments), access_of(arguments)

    async def ask(stop: StopRequest) -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import request_through

        timeout: float = arguments.timeout
        asked = request_through(arguments.broker, destination, payload, timeout, access)
        answer = await stop.unless(asked)
        if arguments.verbose:
            sent = counted(len(payload), "byte")
            print(f"sent      {printable(destination)}  {sent}", file=sys.stderr)
            print(f"answered  {counted(len(answer), 'byte')}", file=sys.stderr)
        _print_answer(arguments.form, answer)

    with no_log("onward"):
        run(ask)


def _request_along(arguments: argparse.Namespace) -> None:
    try:
        route = route_argument(arguments.route)
    except argparse.ArgumentTypeError as error:
        arguments.refuse(f"argument ROUTE: {error}")
        return
    payload = payload_of(arguments)
    way = way_of(arguments, credentials_for_node(arguments))

    async def ask(stop: StopRequest) -> None:
        answer = await stop.unless(request(route, payload, arguments.timeout, way))
        if arguments.verbose:
            print("sent     ", describe(route, answer.onward_route, payload), file=sys.stderr)
            print("answered ", describe_message(answer), file=sys.stderr)
        _print_answer(arguments.form, answer.payload)

    with no_log("onward"):
        run(ask)


def _print_answer(form: PayloadNotation, payload: bytes) -> None:
    try:
        print(form.decode(payload))
    except ValueError as error:
        # An answer came, so the request has not failed.
        print(f"onward request: the answer cannot be read: {error}; as hex:", file=sys.stderr)
        print(payload.hex())


async def request(route: Route, payload: bytes, timeout: float, way: Way | None = None) -> Message:
    """Send a message from a node of its own and return the answer.

    Raises:
        RequestTimeout: Connecting and the answer took longer than the timeout together.
        OnwardError: As `Node.request`.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    async with Node("request") as node:
        _, route = await reach_by(node, route, timeout, way)
        left = max(0.0, deadline - node.loop.time())
        try:
            return await node.request(route, payload, timeout=left)
        except RequestTimeout as error:
            # The error has the time left after connecting; report the command's whole timeout.
            raise RequestTimeout(error.target, f"{timeout:g} s") from error


async def send(route: Route, payload: bytes, timeout: float, way: Way | None = None) -> None:
    """Send a message from a node of its own, and wait until it has left the node.

    Raises:
        CommandError: It became a dead letter.
        LinkLost: The connection was lost, or slower than the timeout.
        OnwardError: As `Node.send`.
    """
    async with Node("send") as node:
        links, route = await reach_by(node, route, timeout, way)
        node.send(route, payload)
        if isinstance(way, Membership):
            await _given_to_links(node, route, timeout)
        for link in links:
            await _written(node, link, PATIENCE * timeout)
        for worker in node.statistics().workers:
            with suppress(UnknownAddress):  # it has ended with another one
                await node.stop_worker(worker.address)
        for letter in node.dead_letters.recent:
            raise CommandError(f"{letter.reason}: {format_route(route)}")


async def _given_to_links(node: Node, route: Route, timeout: float) -> None:
    """Wait until a message to an identity has a way, and is given to the link of its node.

    Raises:
        CommandError: No way is known in time.
    """
    from ..transports.identity import Correspondent

    try:
        async with asyncio.timeout(timeout):
            while True:
                if not node.statistics(workers=False).pending:
                    break
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise CommandError(f"no way is known to {route[0]}") from None
    for worker in node.statistics().workers:
        if worker.kind == Correspondent.__name__:
            await node.stop_worker(worker.address)


async def _written(node: Node, link: Address, timeout: float) -> None:
    """Wait until a link has taken its messages and its socket has written them.

    Raises:
        LinkLost: The connection was lost, or it took too long.
    """
    # A call through the proxy is a turn of the link's worker: earlier messages come before it.
    proxy = node.ref(link).proxy()
    try:
        async with asyncio.timeout(timeout):
            while True:
                figures: LinkStatistics = await proxy.statistics()
                if figures.state is not LinkState.UP:
                    raise LinkLost(figures.peer, figures.reason)
                if figures.pending == 0:
                    return
                await asyncio.sleep(POLL)
    except pykka.ActorDeadError:
        raise LinkLost(link, "while the message was written") from None
    except TimeoutError:
        raise LinkLost(link, "the message could not be written in time") from None
