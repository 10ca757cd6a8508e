"""`onward dispatch`: a node that dispatches messages by name, alone or in a network."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..actors import Listener, Node
from ..actors._log import SeldomLogger
from ..actors.dispatch import (
    DISPATCH,
    Accept,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    HoldStoreFailed,
    HoldStoreInUse,
)
from ..actors.dispatch._served import read_served
from ..actors.security import Authentication
from ..protocol import LOCAL, Address, OnwardError, UnknownAddress
from ..protocol.dispatch import (
    MAX_COST,
    BadName,
    DeliveryLimits,
    DispatchError,
    check_node_name,
)
from ..protocol.toml import FileError
from ..transports import link_principals
from ._arguments import Commands, address, positive, seconds
from ._authentication import authenticates
from ._config import Configure, add_config
from ._containers import Containers, read_containers
from ._listen import listen
from ._logs import server_log
from ._node import NodePart, add_options, run_node
from ._reach import certificates_for, check_place, schemes, tls_of
from ._service import Service
from ._status import CommandError, Status

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Run a node that dispatches messages by name: `34#orders` in a route is sent to the consumers of
`orders`, wherever in the network they are. It joins other such nodes, its neighbours, and peers
of its listener can join it. What names mean is in the file of --addresses, which is read anew at
SIGHUP; without it each name is balanced.

A peer can be a neighbour, which can send to all names; so listen where only peers are that may, or
let in peers with --principals, of which only those with the role neighbour can be neighbours.
Names are reached by other peers if they are exposed. Consumers are workers of the node, as of
`onward node`: one of the kind echo accepts a message by its reply, others as they get it.
"""

_EPILOG: Final = """\
example:
  onward dispatch --name a --listen tcp://127.0.0.1:4001 --expose 34#orders
  onward dispatch --name b --listen tcp://127.0.0.1:4002 --neighbour tcp://127.0.0.1:4001 \\
    --worker shop=echo --consume orders=shop
  onward request '1#127.0.0.1:4001 => 34#orders' hello
  onward dispatch --amqp amqp://127.0.0.1:5672
"""

_DIGITS: Final = 9
_ROLE: Final = "neighbour"
FIRST: Final = 0.5
LONGEST: Final = 30.0
"""Seconds between two attempts to reach a neighbour for the first time: FIRST, then twice as long
each time, at most LONGEST. A link that is lost later connects again by itself; one that this node
has closed is made again after LONGEST."""
JOINED: Final = 10.0
"""Seconds in which a neighbour that is connected has to join; later a line of the log says so."""

_logger: Final = logging.getLogger("onward.cli")
"""Each node that cannot be reached has lines of its own: one alone would hide the others."""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "dispatch",
        help="run a node that dispatches messages by name, alone or in a network",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "dispatch")
    group = parser.add_argument_group("names")
    group.add_argument(
        "--name",
        metavar="NAME",
        default="dispatch",
        help="the name of the node in the network, which no other has (default %(default)s)",
    )
    group.add_argument(
        "--neighbour",
        metavar="[NAME@]URI[=COST]",
        type=_neighbour,
        action="append",
        default=[],
        help="join the node at URI, over a link of this cost (default 1); with NAME, no other node "
        "than the one of this name; may be repeated",
    )
    group.add_argument(
        "--neighbour-role",
        metavar="ROLE",
        action="append",
        default=[],
        help="let peers with this role be neighbours, and no others; may be repeated (default: "
        "with --principals or the like the role neighbour, else each peer may)",
    )
    group.add_argument(
        "--cost",
        metavar="COST",
        type=positive,
        default=1,
        help="the cost of links that other nodes have made to this one (default %(default)s)",
    )
    group.add_argument(
        "--addresses",
        metavar="FILE",
        type=Path,
        help="read from this file what names mean (default: all are balanced)",
    )
    group.add_argument(
        "--hold-file",
        metavar="FILE",
        help="hold messages of names that hold on disk in this file (default: no name can)",
    )
    group.add_argument(
        "--settle-time",
        metavar="SECONDS",
        type=seconds,
        default=DeliveryLimits().settle_time,
        help="the time in which a consumer has to settle a message; later it is in doubt, and a "
        "client of AMQP loses its link (default %(default)s)",
    )
    group.add_argument(
        "--consume",
        metavar="NAME=WORKER",
        type=_consumer,
        action="append",
        default=[],
        help="make a worker a consumer of a name; may be repeated",
    )
    group.add_argument(
        "--amqp",
        metavar="URI",
        action="append",
        default=[],
        help="let clients of AMQP 1.0 use the names: listen for them at amqp://HOST:PORT, or at "
        "amqps://HOST:PORT with TLS; may be repeated",
    )
    group.add_argument(
        "--containers",
        metavar="FILE",
        type=Path,
        help="connect to the containers of AMQP 1.0 in this file, with links between their "
        "addresses and names",
    )
    add_config(parser, "dispatch", _command)


class Neighbour(NamedTuple):
    """A node to join.

    Attributes:
        uri: Where it listens.
        cost: The cost of the link.
        name: The name that it must have; empty: any.
    """

    uri: str
    cost: int = 1
    name: str = ""

    def __str__(self) -> str:
        """Return it as it is written on the command line."""
        return f"{self.name}{'@' if self.name else ''}{self.uri}={self.cost}"


def _neighbour(text: str) -> Neighbour:
    name, at, rest = text.partition("@")
    if not at or "/" in name:
        # No name: a URI may have an `@` too, behind its `//`.
        name, rest = "", text
    elif not name:
        raise argparse.ArgumentTypeError(f"there is no name before the @ of {text!r}")
    uri, mark, cost = rest.rpartition("=")
    # A query of a URI may have a `=` too.
    if not mark or not (cost.isascii() and cost.isdigit() and 0 < len(cost) <= _DIGITS):
        return Neighbour(rest, name=name)
    if not 1 <= int(cost) <= MAX_COST:
        raise argparse.ArgumentTypeError(f"a cost is 1 to {MAX_COST}, not {cost}")
    return Neighbour(uri, int(cost), name)


def _consumer(text: str) -> tuple[str, Address]:
    name, mark, worker = text.rpartition("=")
    if not (mark and name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=WORKER")
    return name, address(worker)


def _command(arguments: argparse.Namespace, read: Configure) -> None:
    with server_log(arguments) as log:
        part = Dispatching(arguments)
        run_node(arguments, read, log, part)


class Dispatching(NodePart):
    """The dispatcher of the node of the command.

    Args:
        arguments: The options of the command.

    Raises:
        CommandError: An option is wrong, or the file of addresses.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.node_name = arguments.name
        self._arguments: Final = arguments
        self._tasks: list[asyncio.Task[None]] = []
        self._seldom = SeldomLogger(_logger)
        self._dispatcher: Dispatcher | None = None
        path: Path | None = arguments.containers
        self._containers: Final = None if path is None else Containers(path)
        try:
            deliveries = DeliveryLimits(settle_time=arguments.settle_time)
        except ValueError as error:
            raise CommandError(f"--settle-time: {error}", Status.USAGE) from error
        try:
            check_node_name(arguments.name)  # empty stands for that of the node in a program
            self._options: Final = DispatchOptions(
                node_name=arguments.name,
                cost=arguments.cost,
                hold_file=arguments.hold_file or "",
                neighbour_roles=_neighbour_roles(arguments),
                deliveries=deliveries,
            )
        except BadName as error:
            raise CommandError(f"--name: {error}", Status.USAGE) from error
        except ValueError as error:
            raise CommandError(f"--cost: {error}", Status.USAGE) from error
        for uri, _, name in arguments.neighbour:
            try:
                check_node_name(name or "any")
            except BadName as error:
                raise CommandError(f"--neighbour: {error}", Status.USAGE) from error
            if not uri.startswith(known := schemes()):
                raise CommandError(f"{uri!r} does not start with {', '.join(known)}", Status.USAGE)
            check_place(uri)
        kinds = dict(arguments.worker)
        for name, worker in arguments.consume:
            if worker.type != LOCAL or worker not in kinds:
                text = f"there is no worker {worker} to consume {name}"
                raise CommandError(text, Status.USAGE)
        self._kinds: Final[dict[Address, str]] = kinds

    def check(self) -> None:
        """Check the files of addresses and of containers without a dispatcher.

        Raises:
            CommandError: One has faults, or says what this node does not serve.
        """
        if self._arguments.containers is not None:
            try:
                read_containers(self._arguments.containers)
            except FileError as error:
                raise CommandError(f"{error}", Status.USAGE) from error
        if self._arguments.addresses is None:
            return
        try:
            read_served(self._read(), str(self._arguments.addresses), self._options)
        except (DispatchError, FileError) as error:
            raise CommandError(f"{error}", Status.USAGE) from error

    async def start(self, node: Node, service: Service) -> list[Address]:
        """Start the dispatcher and its consumers; return what is exposed to peers."""
        try:
            dispatcher = self._dispatcher = await Dispatcher.attach(
                node, self._options, principal_of=link_principals(node)
            )
        except (HoldStoreInUse, HoldStoreFailed) as error:
            raise CommandError(f"--hold-file: {error}") from error
        if self._arguments.addresses is not None:
            self._load(self._read())
            service.reloads.add("addresses", self._prepare)
        if self._containers is not None:
            try:
                self._containers.start(node, dispatcher)
            except FileError as error:
                raise CommandError(f"{error}", Status.USAGE) from error
            service.reloads.add("containers", self._containers.prepare)
        for name, worker in self._arguments.consume:
            accept = Accept.REPLY if self._kinds[worker] == "echo" else Accept.HANDED
            try:
                await dispatcher.consume(name, worker, accept=accept)
            except (DispatchError, ConsumerRefused) as error:
                raise CommandError(f"--consume {name}: {error}", Status.USAGE) from error
        return [DISPATCH]

    def _read(self) -> str:
        path: Path = self._arguments.addresses
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise CommandError(f"cannot read {path}: {reason}") from error
        return content

    def _load(self, content: str) -> None:
        try:
            self._running().load(content, str(self._arguments.addresses))
        except (DispatchError, FileError) as error:
            raise CommandError(f"{error}", Status.USAGE) from error

    async def _prepare(self) -> Callable[[], object]:
        content = await asyncio.to_thread(self._read)
        return lambda: self._load(content)

    async def listen(self, authentication: Authentication | None) -> list[Listener]:
        """Listen for clients of AMQP; return the listeners."""
        made: list[Listener] = []
        dispatcher = self._running()
        tls = tls_of(self._arguments, listens=True)
        for uri in self._arguments.amqp:
            options = {
                "dispatcher": dispatcher,
                "authentication": authentication,
                "tls": tls if uri.startswith("amqps:") else None,
            }
            try:
                made.append(await listen(dispatcher.node, uri, ("amqp:", "amqps:"), **options))
            except ModuleNotFoundError as error:
                raise CommandError(f"--amqp: {error.msg}", Status.USAGE) from error
        return made

    def join(self) -> None:
        """Connect to the neighbours, again and again until each is there."""
        for each in self._arguments.neighbour:
            self._tasks.append(asyncio.get_running_loop().create_task(self._reach(*each)))

    async def _reach(self, uri: str, cost: int, name: str) -> None:
        wait = FIRST
        while True:
            try:
                link = await self._join(uri, cost, name)
            except (OnwardError, OSError, ValueError, CommandError) as error:
                self._seldom.log(
                    logging.WARNING,
                    f"unreachable {uri}",
                    "neighbour %s cannot be reached: %s",
                    uri,
                    error,
                    extra={"event": "neighbour.unreachable"},
                )
            else:
                await self._until_closed(uri, link)
                wait = LONGEST
                self._seldom.log(
                    logging.WARNING,
                    f"again {uri}",
                    "the link to neighbour %s is closed; it is joined again in %g s",
                    uri,
                    wait,
                    extra={"event": "neighbour.again"},
                )
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST)

    async def _join(self, uri: str, cost: int, name: str) -> Address:
        dispatcher = self._running()
        tls = tls_of(self._arguments, listens=False)
        options = certificates_for(dispatcher.node, uri, tls if _is_secure(uri) else None)
        link = await dispatcher.node.connect(uri, expose=[DISPATCH], **options)
        return await dispatcher.neighbour(link, cost, name=name)

    async def _until_closed(self, uri: str, link: Address) -> None:
        """Wait until this node has closed a link; warn if its peer does not become a neighbour."""
        dispatcher, closed = self._running(), asyncio.Event()
        try:
            unwatch = dispatcher.node.watch(link, closed.set)
        except UnknownAddress:
            return
        try:
            # `wait_for` of Python 3.11 can miss that it is cancelled, as the link is closed.
            with suppress(TimeoutError):
                async with asyncio.timeout(JOINED):
                    await closed.wait()
            text = str(link)
            if not (closed.is_set() or any(each.link == text for each in dispatcher.nodes())):
                self._seldom.log(
                    logging.WARNING,
                    f"silent {uri}",
                    "%s does not become a neighbour: see its log; either it dispatches no "
                    "names, or another node has the name of this one, or this one may not be "
                    "its neighbour",
                    uri,
                    extra={"event": "neighbour.silent"},
                )
            # One that has joined may be away later: that is told of the link.
            await closed.wait()
        finally:
            unwatch()

    def _running(self) -> Dispatcher:
        if self._dispatcher is None:
            raise AssertionError("used before the start")
        return self._dispatcher

    async def close(self) -> None:
        """End the attempts to reach neighbours."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._containers is not None:
            await self._containers.close()


def _neighbour_roles(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the roles of neighbours: that they are for all peers is only so if all are alike."""
    if arguments.neighbour_role or not authenticates(arguments):
        return tuple(arguments.neighbour_role)
    return (_ROLE,)


def _is_secure(uri: str) -> bool:
    return uri.startswith(("tls:", "wss:"))
