"""`onward node`: a node with a few workers that other nodes can reach."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Protocol, TypeAlias

from ..actors import DeadLetter, DiagnosticsOptions, Listener, Node, Worker
from ..actors.routing._router import from_code
from ..actors.security import Authentication
from ..actors.services import ManagementService
from ..actors.tracing import HopTracer
from ..protocol import LOCAL, NAME, Address, EmptyRoute, Message, OnwardError, counted
from ._admin import add_admin, admin_of, administered
from ._arguments import Commands, address
from ._authentication import add_peers, authentication_of_peers
from ._callout import check_callout
from ._config import Configure, add_config
from ._event_log import add_event_log, attach, check_event_log, node_name, total
from ._listen import NO_LISTENER, listen
from ._logs import LogWriter, add_server_log, server_log
from ._node_identity import NodeIdentity, add_identity, identity_of
from ._reach import add_tls, authentication_for, certificates_for, schemes, tls_of
from ._reconfigure import Reconfiguration
from ._run import Interrupted, StopRequest, run
from ._service import Service
from ._show import describe_message, printable
from ._status import CommandError, Status

__all__ = [
    "DEFAULT_URI",
    "KINDS",
    "MANAGEMENT",
    "NodePart",
    "add_commands",
    "add_options",
    "run_node",
    "serve",
]

DEFAULT_URI: Final = "tcp://127.0.0.1:4000"

MANAGEMENT: Final = Address(LOCAL, b"management")
"""The address of the management service, where there is one."""

Tell: TypeAlias = Callable[[str], object]

_DESCRIPTION: Final = """\
Run a node with some workers. A worker is NAME=KIND, and KIND is one of

  echo     reply with the payload that came
  forward  pass the message on along its onward route (also called hop)
  print    print the payload, and do not reply

Only exposed workers can be reached from outside. Prints `listening URI` once connections are
accepted, and a line of totals after Ctrl-C or SIGTERM. With --identity the lines `identity TEXT`
and, for each engine, `engine TEXT WORKER` come before.
"""

_EPILOG: Final = """\
example:
  onward node --worker relay=forward --worker echo=echo --expose relay --allow echo
  onward request '1#127.0.0.1:4000 => relay => echo' hello
  onward node --identity node.key --worker orders=echo --engine orders
"""


class Joining(Protocol):
    """Part of a node beside its workers, by which it joins other nodes."""

    async def start(self, node: Node, service: Service) -> list[Address]:
        """Start it before anything listens; return what is exposed to peers."""
        ...

    async def listen(self, authentication: Authentication | None) -> list[Listener]:
        """Listen for peers of its own kind; return the listeners."""
        ...

    def join(self) -> None:
        """Connect to other nodes, now that the node listens."""

    async def close(self) -> None:
        """End what it still does."""


class NodePart(Joining, Protocol):
    """A part that a node of a command of its own runs beside its workers.

    Attributes:
        node_name: The name of the node.
    """

    node_name: str


class VerboseEcho(Worker):
    """A worker that replies with the payload of each message."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def handle_message(self, message: Message) -> None:
        """Reply, if there is a return route."""
        self._tell(f"{self.address}  {describe_message(message)}")
        if message.return_route:
            self.node.parts.router.dispatch_or_lose(from_code(message.reply(message.payload)))
        else:
            self.node.dead_letter(message, EmptyRoute())


class VerboseForward(Worker):
    """A worker that passes messages on along their onward routes."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def handle_message(self, message: Message) -> None:
        """Pass a message on. It comes from outside, so a bad one is no failure of the worker."""
        self._tell(f"{self.address}  {describe_message(message)}")
        try:
            self.node.parts.router.dispatch_or_lose(from_code(message.forward()))
        except OnwardError as error:
            self.node.dead_letter(message, error)


class VerbosePrint(Worker):
    """A worker that prints payloads."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def handle_message(self, message: Message) -> None:
        """Print a payload as text, on one line: it comes from outside."""
        self._tell(f"{self.address}  {describe_message(message)}")
        print(printable(message.payload.decode("utf-8", "backslashreplace")), flush=True)


KINDS: Final[dict[str, Callable[[Tell], Worker]]] = {
    "echo": VerboseEcho,
    "forward": VerboseForward,
    "hop": VerboseForward,
    "print": VerbosePrint,
}


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "node",
        help="run a node with some workers",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "node")
    add_config(parser, "node", _command)


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options of a node, for each command that runs one.

    Args:
        parser: The parser of the command.
        name: The name of the node, by default.
    """
    parser.add_argument(
        "--listen",
        metavar="URI",
        default=DEFAULT_URI,
        help="where to listen, by tcp, tls, ws, wss, uds, udp or an installed transport; port 0 "
        f"is any free one; {NO_LISTENER}: nowhere, the node only connects to others (default "
        "%(default)s)",
    )
    add_tls(parser, listens=True)
    add_peers(parser)
    parser.add_argument(
        "--worker",
        metavar="NAME=KIND",
        type=_worker,
        action="append",
        default=[],
        help="start a worker; may be repeated",
    )
    parser.add_argument(
        "--expose",
        metavar="NAME",
        type=address,
        action="append",
        default=[],
        help="let a worker be reached from outside; may be repeated",
    )
    parser.add_argument(
        "--allow",
        metavar="PATTERN",
        type=address,
        action="append",
        default=[],
        help="where exposed workers may pass on messages from outside, besides exposed "
        "workers: a worker, or an address such as '1#10.0.0.*:4000'; may be repeated",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print the routes of each message a worker gets"
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="report each hop of a traced message to its sender, `onward trace`",
    )
    parser.add_argument(
        "--management",
        metavar="URI",
        nargs="?",
        const="",
        help="let `onward workers`, `onward links` and `onward dead-letters` look into the node: "
        "peers at URI, such as uds:///run/node.sock, and without one all peers, can read the names "
        "and routes of its workers, and change nothing (default: off)",
    )
    parser.add_argument("--quiet", action="store_true", help="print no totals at the end")
    add_identity(parser)
    add_admin(parser, broker=False)
    add_event_log(parser, name)
    add_server_log(parser)


def _worker(text: str) -> tuple[Address, str]:
    name, mark, kind = text.rpartition("=")
    if not mark or kind not in KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=KIND with a KIND of {', '.join(KINDS)}"
        )
    own = address(name)
    if own.type != LOCAL:
        raise argparse.ArgumentTypeError(f"{own} is not a local address")
    return own, kind


def _command(arguments: argparse.Namespace, read: Configure) -> None:
    with server_log(arguments) as log:
        run_node(arguments, read, log)


def run_node(
    arguments: argparse.Namespace, read: Configure, log: LogWriter, part: NodePart | None = None
) -> None:
    """Run a node as a service, with a configuration that a reload reads anew.

    Args:
        arguments: The options of the command.
        read: Reads them anew.
        log: The log of the process.
        part: What the node runs beside its workers.

    Raises:
        CommandError: It cannot run with these options.
    """
    check_event_log(arguments)
    identity = identity_of(arguments)  # before the loop: it may ask for a passphrase
    service, running = Service(), Reconfiguration(arguments, read)
    if arguments.config is not None:
        # The first part: the others read the files that it names.
        service.reloads.add("configuration", running.prepare)
    signals = {**service.signals(), "SIGUSR1": log.reopen}
    run(lambda stop: serve(stop, arguments, service, running, part, identity), signals)


async def serve(
    stop: StopRequest,
    arguments: argparse.Namespace,
    service: Service | None = None,
    running: Reconfiguration | None = None,
    part: NodePart | None = None,
    identity: NodeIdentity | None = None,
) -> None:
    """Run a node until it is asked to stop.

    Args:
        stop: The request to stop.
        arguments: The options of the command.
        service: Its ties to the system; by default those of the process.
        running: Its configuration, which a reload reads anew; `None` for one that stays.
        part: What the node runs beside its workers.
        identity: Its identity; `None` for none.

    Raises:
        CommandError: It cannot listen, or a worker to expose does not exist.
        AddressInUse: Two workers have one name.
    """

    def tell(line: str) -> None:
        if arguments.verbose:
            print(line, flush=True)

    def tell_dead(letter: DeadLetter) -> None:
        tell(f"dropped ({letter.reason})  {describe_message(letter.message)}")

    service = service or Service()
    parts = [each for each in (part, identity) if each is not None]
    name = node_name(arguments, "node" if part is None else part.node_name)
    newest = None if running is None else running.newest
    diagnostics = DiagnosticsOptions(hold=5.0, block=1.0)
    node = Node(name, diagnostics=diagnostics, error_replies=part is not None)
    authentication = authentication_of_peers(arguments, lambda: node, newest)
    if authentication is not None:
        service.reloads.add("authentication", authentication.prepare_reload)
    admin = admin_of(arguments)
    async with AsyncExitStack() as stack:
        if authentication is not None:
            stack.push_async_callback(authentication.close)
        await stack.enter_async_context(node)
        if arguments.trace:
            node.add_instrument(HopTracer(node))
        node.dead_letters.subscribe(tell_dead)
        try:
            await stop.unless(_start(node, arguments, tell, names=part is not None))
            more = await stop.unless(_start_parts(node, parts, service))
            async with administered(node, None, admin, service) as started:
                listeners = await stop.unless(
                    _listen(node, arguments, authentication, more, names=part is not None)
                )
                for each in parts:
                    listeners += await stop.unless(each.listen(authentication))
                shared_tls = None if running is None else running.shared_tls
                for listener in listeners:
                    service.reloads_certificates(listener, shared_tls)
                started(listeners)
                for each in parts:
                    stack.push_async_callback(each.close)
                    each.join()
                with service.serving("listening"):
                    await stop.wait()
        except Interrupted:
            return
        service.notifier.stopping(0.0, "stopping")
    if not arguments.quiet:
        print(_totals(node) + total(node), flush=True)


async def _start(node: Node, arguments: argparse.Namespace, tell: Tell, *, names: bool) -> None:
    await attach(node, arguments)
    for own, kind in arguments.worker:
        await node.start(partial(KINDS[kind], tell), address=own)
    for exposed in arguments.expose:
        if exposed.type == LOCAL and not node.has(exposed):
            hint = (
                f"; a name is exposed by --expose '{Address(NAME, exposed.value)}'" if names else ""
            )
            raise CommandError(f"there is no worker {exposed} to expose{hint}", Status.USAGE)
    check_callout(node, arguments)
    if arguments.management is not None:
        await node.start(ManagementService, address=MANAGEMENT)


async def _start_parts(node: Node, parts: Sequence[Joining], service: Service) -> list[Address]:
    exposed: list[Address] = []
    for part in parts:
        exposed += await part.start(node, service)
    return exposed


async def _listen(
    node: Node,
    arguments: argparse.Namespace,
    authentication: Authentication | None,
    more: list[Address],
    *,
    names: bool,
) -> list[Listener]:
    tls = tls_of(arguments, listens=True)
    management: str | None = arguments.management
    expose = [*arguments.expose, *more, *([MANAGEMENT] if management == "" else [])]
    # With names a client has to know that no consumer took a message.
    places = {"expose": expose, "allow": arguments.allow, "error_replies": names}
    listeners = list[Listener]()
    if arguments.listen != NO_LISTENER:
        options = certificates_for(node, arguments.listen, tls)
        options |= authentication_for(node, arguments.listen, authentication)
        listeners.append(await listen(node, arguments.listen, schemes(), **places, **options))
    if management:
        secured = management.startswith(("tls:", "wss:"))
        options = certificates_for(node, management, tls if secured else None)
        options |= authentication_for(node, management, authentication)
        listeners.append(await listen(node, management, schemes(), expose=[MANAGEMENT], **options))
    return listeners


def _totals(node: Node) -> str:
    figures = node.statistics(workers=False)
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in figures.dead_letter_reasons.items()
    )
    return (
        f"stopped: {counted(figures.handled, 'message')} handled, dead letters: {reasons or 'none'}"
    )
