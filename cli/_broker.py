"""`onward broker`: route the requests of RSocket clients by tags."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, cast
from uuid import UUID

from ..actors import DiagnosticsOptions, LimitReached, Node
from ..actors.broker import (
    MANAGEMENT_SERVICE,
    Broker,
    BrokerOptions,
)
from ..actors.cluster import Cluster
from ..actors.security import Authentication
from ..actors.tracing import HopTracer
from ..protocol import LOCAL
from ..protocol.broker import SnapshotRoute
from ..transports.rsocket import (
    LeaseOptions,
    LinkOptions,
    ResumeOptions,
    RSocketListener,
    UnixOptions,
    WebSocketOptions,
)
from ._access import add_access
from ._admin import Admin, add_admin, administered
from ._arguments import Commands, address, octal, positive, seconds, size, word
from ._authentication import add_authentication
from ._broker_plan import DEFAULT_URI, Listening, plan_of
from ._cluster import Clustering, add_cluster, advertised, attach_cluster, told_clients
from ._config import Configure, add_config
from ._context import add_context
from ._event_log import add_event_log, attach, node_name, total
from ._listen import listen
from ._logs import LogWriter, add_server_log, server_log
from ._process import Place, Process, Totals
from ._processes import run_processes
from ._reach import add_tls
from ._reconfigure import Reconfiguration
from ._rules import add_rules, reload_of
from ._run import Interrupted, StopRequest, run
from ._service import Service, drain, operations_of
from ._snapshots import load_routes
from ._status import CommandError, Status

__all__ = ["DEFAULT_URI", "Listening", "add_broker", "add_command", "serve"]

_OPTIONS: Final = BrokerOptions()
_DRAIN: Final = _OPTIONS.drain
_LINKS: Final = LinkOptions()
_RESUME: Final = ResumeOptions()
_LEASE: Final = LeaseOptions()
_WEBSOCKET: Final = WebSocketOptions()
_UNIX: Final = UnixOptions()

EXPECT_SLICE: Final = 1000
"""Routes that are expected in one step: some 10 milliseconds of the loop's time."""

_LISTENING: Final = Listening()

_DESCRIPTION: Final = """\
Run a broker: RSocket clients connect to it and register as destinations with tags. The broker
routes their requests to destinations that carry the requested tags. Prints `listening URI` for
each listener once all of them accept connections, and a line of totals at the end. SIGTERM lets the
connections end for up to 25 seconds, Ctrl-C for 2, SIGUSR2 for --drain-timeout; a second SIGTERM or
Ctrl-C stops at once. SIGHUP reads certificates and the like anew.
"""


def add_command(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "broker", help="route requests of RSocket clients by tags", description=_DESCRIPTION
    )
    parser.add_argument(
        "--listen",
        metavar="URI",
        action="append",
        help="where to listen: rsocket+tcp://host:port, rsocket+ws://host:port/path or "
        "rsocket+unix:///path, rsocket+tls and rsocket+wss with TLS; may be repeated; port 0 is "
        "any free one "
        f"(default {DEFAULT_URI})",
    )
    add_tls(parser, listens=True)
    add_authentication(parser)
    add_rules(parser)
    _add_listening(parser)
    parser.add_argument(
        "--no-route-timeout",
        metavar="SECONDS",
        type=seconds,
        default=_OPTIONS.waiting.no_route_timeout,
        help="how long a request without its own limit waits for a destination; 0 rejects "
        "at once (default %(default)s)",
    )
    parser.add_argument(
        "--max-wait",
        metavar="SECONDS",
        type=seconds,
        default=_OPTIONS.waiting.max_wait,
        help="how long any request waits at most, whatever its own limit (default %(default)s)",
    )
    parser.add_argument(
        "--index",
        metavar="FILE",
        type=Path,
        help="expect the destinations of a table saved by `onward routes --save` or `onward "
        "pipeline index`: the index has their routes before they register, and requests for them "
        "wait for --max-wait",
    )
    parser.add_argument(
        "--expect-for",
        metavar="SECONDS",
        type=seconds,
        default=_OPTIONS.expected_seconds,
        help="the time after which expected destinations are forgotten (default %(default)g)",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        default=_OPTIONS.choice.method,
        help="the method for unicast requests that name none: round-robin, "
        "random, least-outstanding, peak-ewma, weighted, or a plug-in (default %(default)s)",
    )
    parser.add_argument(
        "--shard-method",
        metavar="NAME",
        default=_OPTIONS.choice.shard_method,
        help="the same for shard requests: rendezvous, jump, bounded-ring, modulo, or a plug-in "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--multicast-on-leave",
        type=word("quiet", "error"),
        choices=("quiet", "error"),
        default=_OPTIONS.multicast.on_leave,
        help="what happens to a multicast when a destination leaves before it has answered: go on "
        "with the others, or end it with an error (default %(default)s)",
    )
    parser.add_argument(
        "--no-management",
        dest="management",
        action="store_false",
        help="serve no data about the broker: otherwise every client that can send it requests "
        "can read the services, tags and network addresses of all destinations and clients, the "
        "routes of dead letters and the options, as `onward routes` and `onward connections` do",
    )
    parser.add_argument(
        "--no-express-path",
        dest="express_path",
        action="store_false",
        help="send each request as a message through the tag index, a forwarder and a route, even "
        "while nothing waits there: slower",
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="report each hop of a traced request to its requester, `onward trace --broker`: "
        "requesters learn the names of the broker's workers",
    )
    _add_drain(parser)
    add_cluster(parser)
    _add_processes(parser)
    add_admin(parser, broker=True)
    parser.add_argument("--quiet", action="store_true", help="print no totals at the end")
    add_event_log(parser, "broker")
    add_server_log(parser)
    add_config(parser, "broker", _command)


def _add_drain(parser: argparse.ArgumentParser) -> None:
    for name, default, text in (
        ("grace", _DRAIN.grace, "how long a broker that drains accepts connections"),
        ("spread", _DRAIN.spread, "the time after that in which the connections begin to end"),
        ("timeout", _DRAIN.timeout, "the time after which a drain cuts all connections"),
    ):
        parser.add_argument(
            f"--drain-{name}",
            metavar="SECONDS",
            type=seconds,
            default=default,
            help=f"{text} (default %(default)g)",
        )


def _add_processes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        metavar="N",
        type=positive,
        default=1,
        help="run N brokers, each a process, that share the listeners and form a cluster; "
        "--max-connections and the totals of --resume are divided among them (default %(default)d)",
    )
    parser.add_argument(
        "--process-folder",
        metavar="DIR",
        help="the folder of their sockets: N.sock, for operators, is process N (default: "
        "processes in $RUNTIME_DIRECTORY, or a temporary one)",
    )


def _add_listening(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--origin",
        metavar="URL",
        action="append",
        default=[],
        help="a web site with pages that may open a WebSocket, as in https://shop.example; * is "
        "any; may be repeated (default: none; programs other than browsers always may)",
    )
    parser.add_argument(
        "--expose",
        metavar="ADDRESS",
        type=address,
        action="append",
        default=[],
        help="let requests name a route that begins with this address, in place of tags: "
        "'1#10.0.0.7:4000' is the node there, and the workers that it exposes; '1#*' is any, so "
        "that clients choose where the broker connects to; may be repeated (default: none)",
    )
    parser.add_argument(
        "--mode",
        metavar="OCTAL",
        type=octal,
        help=f"the permissions of the file of a Unix socket (default {_UNIX.mode:o}: "
        "the user of the broker)",
    )
    parser.add_argument(
        "--max-connections",
        metavar="N",
        type=positive,
        default=_LINKS.max_connections,
        help="connections of each listener at a time; more are closed (default %(default)d)",
    )
    parser.add_argument(
        "--max-connections-per-source",
        metavar="N",
        type=positive,
        help="of those, connections from one address (default: as many as there are places free)",
    )
    parser.add_argument(
        "--proxy",
        metavar="NETWORK",
        action="append",
        default=[],
        help="an address, or a network like 10.0.0.0/8, from which a proxy connects; unix is all "
        "peers of a Unix socket; each connection from there counts as if it had an address of its "
        "own; may be repeated (default: none)",
    )
    parser.add_argument(
        "--proxy-protocol",
        action="store_true",
        help="each connection of a --proxy begins with a header of the PROXY protocol, version 2, "
        "which has the address of the client",
    )
    parser.add_argument(
        "--credit-window",
        metavar="N",
        type=positive,
        default=_LINKS.flow.credit_window,
        help="elements of a stream that a destination is asked to send ahead of what the requester "
        "has read (default %(default)d)",
    )
    parser.add_argument(
        "--no-lease",
        dest="lease",
        action="store_false",
        help="refuse clients that ask for leases",
    )
    parser.add_argument(
        "--lease-requests",
        metavar="N",
        type=positive,
        default=_LEASE.requests,
        help="requests a client with leases may make in each --lease-time (default %(default)d)",
    )
    parser.add_argument(
        "--lease-time",
        metavar="SECONDS",
        type=seconds,
        default=_LEASE.interval,
        help="the interval between two leases of a client (default %(default)g)",
    )
    _add_resume(parser)


def _add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the options for sessions that can be resumed."""
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the sessions of clients with a resume token when their connections are lost",
    )
    parser.add_argument(
        "--resume-time",
        metavar="SECONDS",
        type=seconds,
        default=_RESUME.session.time,
        help="how long after that a session can be resumed (default %(default)g)",
    )
    parser.add_argument(
        "--resume-bytes",
        metavar="BYTES",
        type=size,
        default=_RESUME.session.max_kept,
        help="sent frames that are kept of a session until the client has them "
        "(default %(default)d)",
    )
    parser.add_argument(
        "--resume-bytes-total",
        metavar="BYTES",
        type=size,
        default=_RESUME.max_kept_total,
        help="those of all sessions of a listener (default %(default)d)",
    )
    parser.add_argument(
        "--resume-sessions",
        metavar="N",
        type=positive,
        default=_RESUME.max_sessions,
        help="sessions of a listener, connected or not (default %(default)d)",
    )


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Add the options for the broker's URI, access to it, and the time to wait for it."""
    parser.add_argument(
        "--broker",
        metavar="URI",
        help="the broker, by any of the URIs it listens at (default: that of the context in "
        f"ONWARD_CONTEXT, or the selected one, or {DEFAULT_URI})",
    )
    add_context(parser)
    parser.set_defaults(default_broker=DEFAULT_URI)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=5.0,
        help="how long to wait (default %(default)g)",
    )
    add_access(parser)


def _command(arguments: argparse.Namespace, read: Configure) -> None:
    place = Place.of(os.environ)
    with server_log(arguments, None if place is None else place.index) as log:
        if place is not None:
            _run_in(place, arguments, read, log)
        elif arguments.processes > 1:
            run_processes(arguments, read, log)
        else:
            _run(Reconfiguration(arguments, read), log)


def _run(running: Reconfiguration, log: LogWriter) -> None:
    service = Service()
    run(work_of(running, service), {**service.signals(), "SIGUSR1": log.reopen})


def _run_in(place: Place, arguments: argparse.Namespace, read: Configure, log: LogWriter) -> None:
    """Run one process of several."""

    def placed() -> argparse.Namespace:
        made = read()
        made.place = place
        return made

    arguments.place = place
    running, service = Reconfiguration(arguments, placed), Service()
    process = Process(place, service)

    async def work(stop: StopRequest) -> None:
        async with process.runs(stop):
            await work_of(running, service, process)(stop)

    run(work, {"SIGHUP": process.request_reload, "SIGUSR1": log.reopen})


def work_of(
    running: Reconfiguration, service: Service, process: Process | None = None
) -> Callable[[StopRequest], Awaitable[None]]:
    """Return the function that runs the broker of a configuration.

    Args:
        running: The configuration.
        service: The ties to the system, which get the parts that a reload reads.
        process: Its ties to others, as one of several; `None` for a broker alone.

    Raises:
        CommandError: The configuration is not valid; the error names all faults.
    """
    arguments = running.current
    plan = plan_of(arguments, running.newest)
    listening, admin = plan.listening, plan.admin
    # Read before the event loop starts, which it would block.
    expected = (
        [] if arguments.index is None else load_routes(arguments.index, plan.options.max_routes)
    )
    if arguments.config is not None:
        # The first part: the others read the files that it names.
        service.reloads.add("configuration", running.prepare)
    if listening.authorization is not None:
        service.reloads.add("rules", reload_of(running.newest, listening.authorization))
    listeners: Sequence[tuple[str, Listening]] = plan.listeners
    if process is not None:
        listeners = process.listeners(listeners, listening, plan.clustering)
        admin = process.admin(admin)
    if admin is not None:
        admin = replace(admin, newest=running.shared_tls)

    async def opened(node: Node) -> None:
        plan.methods.runs_on(node)
        await _opened(node, arguments)

    async def work(stop: StopRequest) -> None:
        try:
            await serve(
                stop,
                [uri for uri, _ in listeners],
                plan.options,
                listening,
                own=[own for _, own in listeners],
                name=node_name(arguments, "broker"),
                quiet=arguments.quiet,
                expected=expected,
                opened=opened,
                service=service,
                admin=admin,
                running=running,
                clustering=plan.clustering,
                process=process,
            )
        finally:
            await plan.methods.close()

    return work


async def _opened(node: Node, arguments: argparse.Namespace) -> None:
    if arguments.trace:
        node.add_instrument(HopTracer(node))
    await attach(node, arguments)


async def serve(
    stop: StopRequest,
    uris: list[str],
    options: BrokerOptions = _OPTIONS,
    listening: Listening = _LISTENING,
    *,
    own: Sequence[Listening] = (),
    name: str = "broker",
    quiet: bool = False,
    expected: Sequence[SnapshotRoute] = (),
    opened: Callable[[Node], Awaitable[None]] | None = None,
    service: Service | None = None,
    admin: Admin | None = None,
    running: Reconfiguration | None = None,
    clustering: Clustering | None = None,
    process: Process | None = None,
) -> None:
    """Run a broker until it is asked to stop.

    Args:
        stop: The request to stop.
        uris: The URIs to listen at.
        options: The limits of the broker.
        listening: The limits of the listeners and their connections.
        own: The same for each listener, if they differ.
        name: The name of its node.
        quiet: Whether to print no totals at the end.
        expected: Destinations to expect from the start.
        opened: Called with the broker's node before the broker starts: to attach its event log.
        service: Its ties to the system; by default those of the process.
        admin: Its admin interface; `None` for none.
        running: Its configuration, which a reload reads anew; `None` for one that stays.
        clustering: Its part in a cluster; `None` for none.
        process: Its ties to others, as one of several; `None` for a broker alone.

    Raises:
        CommandError: It cannot listen at one of the URIs, has not enough room for the expected
            destinations, or an address to expose does not exist; or an error of `opened`.
        UnknownScheme: There is no transport for one of the URIs.
    """
    service, own = service or Service(), own or [listening] * len(uris)
    listeners: list[RSocketListener] = []

    def options_now() -> dict[str, object]:
        return {listener.uri: listener.options for listener in listeners}

    async with Node(name, diagnostics=DiagnosticsOptions(hold=5.0, block=1.0)) as node:
        try:
            if opened is not None:
                await stop.unless(_called(opened, node))
            broker_id = None if process is None else UUID(process.place.broker_id)
            broker = await stop.unless(_start(node, options, own, listening, expected, broker_id))
            operations = operations_of(stop, broker, service)
            if process is not None:
                operations = process.operations(operations)
            broker.operations.update(operations)
            cluster = await stop.unless(attach_cluster(node, broker, clustering))
            with _frozen():
                async with administered(
                    node, broker, admin, service, cluster, process, listeners=options_now
                ) as started:
                    # The last step of the start: a client may come the moment one is open.
                    await stop.unless(_listen(node, broker, cluster, uris, own, listeners))
                    configured = listeners if process is None else process.shared(listeners)
                    _reloads(service, running, broker, cluster, configured)
                    if cluster is not None:
                        first = listeners[0].uri
                        cluster.join(advertised(clustering, first), told_clients(clustering, first))
                    for part, authentication in _authentications(uris, [listening, *own]).items():
                        service.reloads.add(part, authentication.prepare_reload)
                    started(listeners)
                    with service.serving(", ".join(listener.uri for listener in listeners)):
                        await stop.wait()
                        while not await drain(stop, broker, service):
                            await stop.wait()
        except Interrupted:
            return
        totals = _totals(broker, listeners if process is None else process.shared(listeners))
    if process is not None:
        process.ended(totals, total(node))
    elif not quiet:
        # After the log's own end: its totals include the last records.
        print(f"{totals}{total(node)}", flush=True)


async def _called(opened: Callable[[Node], Awaitable[None]], node: Node) -> None:
    await opened(node)


@contextmanager
def _frozen() -> Generator[None]:
    """Keep the objects made so far out of the cycle collector's view.

    They stay until the end. To look through them all takes it about 10 ms, in which no frame is
    relayed.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _start(
    node: Node,
    options: BrokerOptions,
    own: Sequence[Listening],
    listening: Listening,
    expected: Sequence[SnapshotRoute],
    broker_id: UUID | None,
) -> Broker:
    broker = await Broker.attach(
        node, options, authorization=listening.authorization, broker_id=broker_id
    )
    for exposed in chain.from_iterable(each.expose for each in own):
        if exposed.type == LOCAL and not node.has(exposed):
            raise CommandError(f"there is no worker {exposed} to expose", Status.USAGE)
    try:
        for at in range(0, len(expected), EXPECT_SLICE):
            broker.expect(expected[at : at + EXPECT_SLICE])
            # In steps, so that Ctrl-C and the rest of the node need not wait for all of them.
            await asyncio.sleep(0)
    except LimitReached as error:
        raise CommandError(f"--index: {error}") from error
    return broker


async def _listen(
    node: Node,
    broker: Broker,
    cluster: Cluster | None,
    uris: list[str],
    own: Sequence[Listening],
    listeners: list[RSocketListener],
) -> None:
    for uri, each in zip(uris, own, strict=True):
        options = each.options(uri)
        listener = await listen(node, uri, "rsocket+", broker=broker, peers=cluster, **options)
        # The meaning of the scheme, which Node.listen does not know.
        listeners.append(cast("RSocketListener", listener))


def _reloads(
    service: Service,
    running: Reconfiguration | None,
    broker: Broker,
    cluster: Cluster | None,
    listeners: Sequence[RSocketListener],
) -> None:
    """Read the certificates and the limits of the listeners anew at each reload."""
    for number, listener in enumerate(listeners):
        newest = None if running is None else partial(running.tls, number)
        service.reloads_certificates(listener, newest)
    if running is not None:
        running.serves(broker, listeners, cluster)


def _authentications(
    uris: Sequence[str], listenings: Sequence[Listening]
) -> dict[str, Authentication]:
    """Return the authentications, each once, by their names in a reload."""
    found: dict[Authentication, str] = {}
    for where, each in zip(("", *uris), listenings, strict=True):
        if each.authentication is not None:
            name = "authentication" if not found else f"authentication of {where}"
            found.setdefault(each.authentication, name)
    return {name: authentication for authentication, name in found.items()}


def _totals(broker: Broker, listeners: Sequence[RSocketListener]) -> Totals:
    """Return the broker's totals."""
    accepted = sum(listener.statistics().accepted for listener in listeners)
    own = [row for row in broker.routes() if not row.broker and row.service != MANAGEMENT_SERVICE]
    figures = broker.statistics()
    return Totals(accepted, len(own), figures.waited, figures.rejected, figures.lost)
