"""The identity of the node of a command: its key file, its engines, and the nodes that it joins."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..actors import LimitReached, Listener, Node
from ..actors._log import SeldomLogger
from ..actors.security import Authentication
from ..protocol import LOCAL, Address, OnwardError, UnknownAddress
from ._arguments import address
from ._identity import KeySource, check_advertised
from ._join import NodeToJoin, join_node
from ._listen import NO_LISTENER
from ._reach import check_scheme, tls_of
from ._service import Service
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..protocol.identity import Identity, RelayPolicy
    from ..transports.identity import Identities

__all__ = ["FIRST", "LONGEST", "NodeIdentity", "add_identity", "identity_of"]

FIRST: Final = 0.5
LONGEST: Final = 30.0
"""Seconds between two attempts to join a node for the first time: FIRST, then twice as long each
time, at most LONGEST. A link that is lost later is joined again by the router; one that this node
has closed is made again after LONGEST."""

_logger: Final = logging.getLogger("onward.cli")
"""Each node that cannot be reached has lines of its own: one alone would hide the others."""


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Add the options of the identity of a node."""
    group = parser.add_argument_group("identity")
    group.add_argument(
        "--identity",
        metavar="FILE",
        help="give the node the identity of this key file, which `onward identity new` makes: "
        "other nodes that reach a listener can then join it, and send to it and to its engines by "
        "36#node:... and 36#engine:... (default: none)",
    )
    group.add_argument(
        "--passphrase-file",
        metavar="FILE",
        help="the passphrase of an encrypted key file; it is asked for by default",
    )
    group.add_argument(
        "--engine",
        metavar="NAME",
        type=address,
        action="append",
        default=[],
        help="make a worker an engine, which has an identity of its own, for which the node signs; "
        "may be repeated",
    )
    group.add_argument(
        "--identity-expose",
        metavar="NAME",
        type=address,
        action="append",
        default=[],
        help="let other identities send to a worker by '36#node:... => NAME'; engines need not be "
        "among them; may be repeated",
    )
    group.add_argument(
        "--identity-directory",
        metavar="FILE",
        help="remember in this file what the node knows of identities, bans included, which "
        "`onward lookup` prints; it is made if it is not there (default: in memory)",
    )
    group.add_argument(
        "--advertise",
        metavar="URI",
        action="append",
        default=[],
        help="tell other nodes that they reach this one at URI; may be repeated (default: they "
        "reach it over its own links)",
    )
    group.add_argument(
        "--dial",
        metavar="SCHEME",
        action="append",
        default=[],
        help="open links for messages to nodes that are not joined, over the addresses of this "
        "scheme in their adverts, such as tcp: an advert can name any host; may be repeated "
        "(default: none)",
    )
    group.add_argument(
        "--identity-anonymous",
        action="store_true",
        help="do not let relays learn that a message is of this node, but for the first one, which "
        "has the link: each layer is signed by a key for one use; relays that allow from:IDENTITY "
        "refuse it",
    )
    group.add_argument(
        "--reserve",
        metavar="IDENTITY",
        action="append",
        default=[],
        help="reserve at this relay, which is joined, so that other nodes reach this one through "
        "it; may be repeated",
    )
    group.add_argument(
        "--relay-policy",
        metavar="RULE",
        action="append",
        default=[],
        help="relay for other nodes, which seal their messages so that this one cannot read them: "
        "from:IDENTITY what a node sends, to:IDENTITY what is sent to it, reserved what is sent to "
        "nodes with a reservation here, any everything; with exit besides also to engines of "
        "other nodes, in the clear for this one; may be repeated (default: nothing)",
    )
    group.add_argument(
        "--join",
        metavar="URI[=IDENTITY]",
        action="append",
        default=[],
        help="join the node at URI, again and again until it is there; with IDENTITY, no other "
        "node than the one that proves this key; may be repeated",
    )


def identity_of(arguments: argparse.Namespace) -> NodeIdentity | None:
    """Return the identity of the node of a command; `None` if none is given.

    Raises:
        CommandError: An option needs `--identity`, or is wrong; or the key file cannot be used.
        MissingExtra: The extra for identities is not installed.
    """
    if arguments.identity is not None:
        return NodeIdentity(arguments)
    for given, flag in (
        (arguments.engine, "--engine"),
        (arguments.identity_expose, "--identity-expose"),
        (arguments.identity_directory, "--identity-directory"),
        (arguments.relay_policy, "--relay-policy"),
        (arguments.reserve, "--reserve"),
        (arguments.advertise, "--advertise"),
        (arguments.dial, "--dial"),
        (arguments.identity_anonymous, "--identity-anonymous"),
        (arguments.join, "--join"),
        (arguments.passphrase_file, "--passphrase-file"),
    ):
        if given:
            raise CommandError(f"{flag} needs --identity", Status.USAGE)
    return None


class NodeIdentity:
    """The identity of the node of a command.

    Args:
        arguments: The options of the command.

    Raises:
        CommandError: An option is wrong, or the key file cannot be used.
        MissingExtra: The extra for identities is not installed.

    Attributes:
        node: The node, once it has started.
        identities: Its identities.
    """

    node: Node
    identities: Identities

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._source: Final = KeySource(arguments.identity, arguments)
        self._arguments: Final = arguments
        self._policy: Final = _policy_of(arguments)
        self._relays: Final = [_relay(each) for each in arguments.reserve]
        self._nodes: Final = [NodeToJoin.parse(each) for each in arguments.join]
        self._engines: Final[dict[Address, Identity]] = {}
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self._seldom: Final = SeldomLogger(_logger)
        # How many nodes were not tried yet: a relay may be one of them.
        self._untried = len(self._nodes)
        self._tried: Final = asyncio.Event()
        reaches = self._nodes or arguments.dial
        if self._relays and arguments.listen == NO_LISTENER and not reaches:
            # A node that listens may be joined by the relay, and one that dials may reach it.
            raise CommandError(
                "--reserve needs a link to the relay: add --join URI=IDENTITY", Status.USAGE
            )
        for worker in arguments.engine:
            if worker.type != LOCAL:
                raise CommandError(f"--engine: {worker} is not a local address", Status.USAGE)
        for scheme in arguments.dial:
            check_scheme("--dial", scheme)
        for each in arguments.advertise:
            check_advertised("--advertise", each)

    async def start(self, node: Node, service: Service) -> list[Address]:
        """Give the node its identity, and its workers theirs; return what is exposed to peers.

        Raises:
            CommandError: There is no worker to make an engine, or to expose.
        """
        from ..actors.identity import ROUTER, IdentityOptions
        from ..transports.identity import Identities

        given = self._arguments
        for each in (*given.engine, *given.identity_expose):
            if each.type == LOCAL and not node.has(each):
                flag = "--engine" if each in given.engine else "--identity-expose"
                raise CommandError(f"{flag}: there is no worker {each}", Status.USAGE)
        self.node = node
        path: str | None = given.identity_directory
        self.identities = await Identities.attach(
            node,
            self._source.keys,
            IdentityOptions(anonymous=given.identity_anonymous, dials=tuple(given.dial)),
            expose=given.identity_expose,
            allow=given.allow,
            directory=None if path is None else Path(path),
            relay=self._policy,
        )
        for each in given.advertise:
            try:
                self.identities.advertise(each)
            except (ValueError, LimitReached) as error:
                raise CommandError(f"--advertise: {error}", Status.USAGE) from None
        for worker in dict.fromkeys(given.engine):
            self._engines[worker] = self.identities.engine(worker)
        service.reloads.add("identity", self._prepare)
        self._print()
        return [ROUTER]

    async def _prepare(self) -> Callable[[], object]:
        keys = await asyncio.to_thread(self._source.reload)
        return lambda: self.identities.reload(keys)

    def _print(self) -> None:
        from ..protocol.identity import identity_text

        print("identity", identity_text(self.identities.own), flush=True)
        for worker, identity in self._engines.items():
            print("engine", identity_text(identity), worker, flush=True)

    async def listen(self, authentication: Authentication | None) -> list[Listener]:
        """Listen at no place of its own: other nodes come by the listener of the node."""
        return []

    def join(self) -> None:
        """Join the nodes, again and again until each is there."""
        if not self._nodes:
            self._tried.set()
        for each in self._nodes:
            self._tasks.append(asyncio.get_running_loop().create_task(self._reach(each)))
        for relay in self._relays:
            self._tasks.append(asyncio.get_running_loop().create_task(self._reserve(relay)))

    async def _reserve(self, relay: Identity) -> None:
        """Reserve at a relay, again and again until it gives a reservation, which lasts then."""
        wait = FIRST
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                await self._tried.wait()
        while True:
            try:
                await self.identities.reserve(relay)
            except OnwardError as error:
                self._seldom.log(
                    logging.WARNING,
                    f"unreserved {relay.hex()}",
                    "cannot reserve: %s%s",
                    error,
                    "" if self._nodes else "; no --join names it, so it has to join this node",
                    extra={"event": "identity.unreserved"},
                )
            else:
                return
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST)

    async def _reach(self, to: NodeToJoin) -> None:
        wait = FIRST
        while True:
            try:
                link = await self._connect(to)
            except (OnwardError, OSError, ValueError, CommandError) as error:
                self._seldom.log(
                    logging.WARNING,
                    f"unreachable {to.uri}",
                    "the node at %s cannot be joined: %s",
                    to.uri,
                    error,
                    extra={"event": "identity.unreachable"},
                )
            else:
                await self._until_closed(link)
                wait = LONGEST
                self._seldom.log(
                    logging.WARNING,
                    f"again {to.uri}",
                    "the link to the node at %s is closed; it is joined again in %g s",
                    to.uri,
                    wait,
                    extra={"event": "identity.again"},
                )
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST)

    async def _connect(self, to: NodeToJoin) -> Address:
        tls = tls_of(self._arguments, listens=False)
        try:
            return await join_node(self.identities, self.node, to, tls)
        finally:
            self._untried -= 1
            if self._untried == 0:
                self._tried.set()

    async def _until_closed(self, link: Address) -> None:
        closed = asyncio.Event()
        try:
            unwatch = self.node.watch(link, closed.set)
        except UnknownAddress:
            return
        try:
            await closed.wait()
        finally:
            unwatch()

    async def close(self) -> None:
        """End the attempts to join nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _relay(text: str) -> Identity:
    """Return the identity of a relay.

    Raises:
        CommandError: It is none.
    """
    from ..protocol.identity import BadIdentity, parse_identity

    try:
        return parse_identity(text)
    except BadIdentity as error:
        raise CommandError(f"--reserve: {error}", Status.USAGE) from None


def _policy_of(arguments: argparse.Namespace) -> RelayPolicy | None:
    """Return what the node relays; `None` for nothing.

    Raises:
        CommandError: A rule is wrong.
    """
    from ..protocol.identity import parse_relay_rules

    if not arguments.relay_policy:
        return None
    try:
        return parse_relay_rules(arguments.relay_policy)
    except ValueError as error:
        raise CommandError(f"--relay-policy: {error}", Status.USAGE) from None
