"""The options of `onward broker`, and those of the commands that ask a running one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ..actors.broker import BrokerOptions
from ..transports.rsocket import LeaseOptions, LinkOptions, ResumeOptions, UnixOptions
from ._access import add_access
from ._admin import add_admin
from ._arguments import address, octal, positive, seconds, size, word
from ._authentication import add_authentication
from ._broker_plan import DEFAULT_URI
from ._cluster import add_cluster
from ._context import add_context
from ._event_log import add_event_log
from ._logs import add_server_log
from ._reach import add_tls
from ._rules import add_rules

__all__ = ["add_broker", "add_options"]

_OPTIONS: Final = BrokerOptions()
_DRAIN: Final = _OPTIONS.drain
_LINKS: Final = LinkOptions()
_RESUME: Final = ResumeOptions()
_LEASE: Final = LeaseOptions()
_UNIX: Final = UnixOptions()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a broker to the parser."""
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
