"""`onward workers`, `links`, `peers` and `dead-letters`: what is in a running node."""

from __future__ import annotations

import argparse
import json
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from ..actors import Refused
from ..protocol import LinkDown, RequestTimeout
from ._access import add_credentials, credentials_for_node
from ._arguments import Commands, no_log, seconds
from ._broker_tables import print_table
from ._columns import Column, count, number, span, text, when
from ._context import add_context
from ._message import request
from ._node import DEFAULT_URI, MANAGEMENT
from ._reach import Via, add_tls, schemes, tls_of
from ._status import CommandError, Status
from ._tables import (
    Look,
    add_selection,
    interval_of,
    repeated,
    run_table,
    select,
    selection_of,
    show,
)

__all__ = [
    "add_commands",
    "add_node",
    "add_timeout",
    "ask_node",
    "print_of_node",
    "via_to_node",
]

_NODE: Final = """\
The node has to run its management service: `onward node --management`, or ManagementService
in your own program. `onward request` asks it over any route: the payload is the question.
"""


def _waiting(row: Any) -> str:
    return f"{int(row['waiting'])} of {int(row['limit'])}"


def _age(row: Any) -> str:
    return f"{float(row['age']):.1f} s"


def _place(row: Any) -> str:
    return str(row.get("peer", row.get("uri", "-")))


def _refused(row: Any) -> str:
    refused = row.get("refused", 0)
    # A link has one number; a listener has one for each reason.
    counts: Any = getattr(refused, "values", None)
    return str(refused if counts is None else sum(counts()))


_WORKERS: Final = Look(
    "workers",
    "print the workers of a running node or broker, and their mailboxes",
    "Print the workers of a running node, or of a broker's node, and what waits in their\n"
    "mailboxes: those with the most waiting messages first.\n",
    (
        text("ADDRESS", "address"),
        text("KIND", "kind"),
        text("STATE", "state"),
        Column("WAITING", "waiting", _waiting, falls=True),
        number("HANDLED", "handled"),
        number("FAILED", "failed"),
        number("REFUSED", "refused"),
        number("DROPPED", "dropped"),
        number("RESTARTS", "restarts"),
    ),
    "no workers",
)

_LINKS: Final = Look(
    "links",
    "print the links and listeners of a running node or broker",
    "Print the links of a running node, or of a broker's node, to other nodes, and its listeners:\n"
    "what they have sent and received, and what waits.\n",
    (
        text("ADDRESS", "address"),
        text("KIND", "kind"),
        Column("PEER OR URI", "peer", _place),
        text("STATE", "state"),
        count("ACCEPTED", "accepted"),
        count("SENT", "sent"),
        count("RECEIVED", "received"),
        Column("REFUSED", "refused", _refused, falls=True),
        count("QUEUED", "queued"),
        count("HELD", "held"),
        text("LAST END", "reason"),
    ),
    "no links",
)

_PEERS: Final = Look(
    "peers",
    "print the nodes that a running node is linked with, or the other brokers of a cluster",
    "Print the other nodes that a running node is linked with: what they have been sent and have\n"
    "sent, and what waits. With --broker, print the other brokers of its cluster: their state,\n"
    "the round trip of the link, their routes here, the number of their last change that is\n"
    "loaded, the time by which it may be behind, the requests in flight, and why the link was\n"
    "lost last. Suspended sessions that it has told of stand beside its routes: their route ids\n"
    "are kept for their owners. A broker of another zone has the groups of its zone, and the\n"
    "routes that they stand for; into those that are `folded` it has put others of their service,\n"
    "as it has more than it may tell. LINK says whether requests go to it, come from it, or both.\n"
    "Of a broker with --processes each row has the process that it is a peer of; the other\n"
    "processes are among its peers.\n"
    "The clients of a broker are in `onward connections`.\n",
    (
        text("PEER", "peer"),
        text("KIND", "kind"),
        text("STATE", "state"),
        count("SENT", "sent"),
        count("RECEIVED", "received"),
        count("QUEUED", "queued"),
        count("HELD", "held"),
        text("LAST END", "reason"),
    ),
    "no peers",
    has="peer",
)


def _broker_state(row: Any) -> str:
    state = f"{row['state']}, drains" if row.get("draining") else str(row["state"])
    # It tells a route once, when it joins, to the brokers that have a link then.
    return f"{state} (Java: routes since the link)" if row.get("java") else state


def _told(row: Any) -> str | int:
    routes, suspended = int(row.get("routes") or 0), int(row.get("suspended") or 0)
    return f"{routes}, {suspended} suspended" if suspended else routes


def _groups(row: Any) -> str | int:
    groups, folded = int(row.get("groups") or 0), int(row.get("folded") or 0)
    return f"{groups}, {folded} folded" if folded else groups


def _why(row: Any) -> str:
    reason, reported = row.get("reason") or "", row.get("reported_by")
    if row["state"] == "connecting" and reported:
        reason = f"reported by {reported}; {reason}"
    return reason or "-"


_BROKERS: Final = _PEERS._replace(
    columns=(
        text("PEER", "peer"),
        Column("STATE", "state", _broker_state),
        when("INSTANCE", "instance"),
        span("ROUND TRIP", "round_trip"),
        Column("ROUTES", "routes", _told, falls=True),
        number("NUMBER", "sequence"),
        span("BEHIND", "behind"),
        number("IN FLIGHT", "in_flight"),
        text("ZONE", "zone"),
        text("LINK", "role"),
        Column("GROUPS", "groups", _groups, falls=True),
        when("SINCE", "since"),
        Column("LAST LOSS", "reason", _why),
    ),
    has="",
)
"""The same of a broker: the other brokers of its cluster."""

_LETTERS: Final = Look(
    "dead-letters",
    "print the dead letters of a running node or broker",
    "Print the messages that a running node, or a broker's node, could not deliver: how many by\n"
    "reason, and the last ones, without their payloads.\n",
    (
        Column("AGE", "age", _age, falls=True),
        text("REASON", "reason"),
        text("ONWARD ROUTE", "onward_route"),
        text("RETURN ROUTE", "return_route"),
        number("BYTES", "size"),
    ),
    "no dead letters",
)


_PATHS: Final = {
    _WORKERS.name: "workers",
    _LINKS.name: "/api/v1/links",
    _LETTERS.name: "dead-letters",
}
"""The question to a broker for each table but that of its peers."""

_PEER_PATHS: Final = tuple(f"/api/v1/peers?kind={kind}&" for kind in ("broker", "process"))
"""The questions to a broker for its peers; several processes are peers of each other."""


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    for look in (_WORKERS, _LINKS, _PEERS, _LETTERS):
        parser = commands.add_parser(
            look.name,
            help=look.help,
            description=f"{look.description}\n{_NODE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_node(parser)
        parser.add_argument(
            "--broker", metavar="URI", help="a broker instead, by any URI it listens at"
        )
        add_context(parser)
        add_credentials(parser)
        add_timeout(parser)
        columns = look.columns
        if look is _PEERS:
            columns = tuple({each.heading: each for each in (*columns, *_BROKERS.columns)}.values())
        add_selection(parser, columns)
        parser.set_defaults(command=_command, look=look)


def add_node(parser: argparse.ArgumentParser) -> None:
    """Add the options for the node to ask."""
    parser.add_argument(
        "--node",
        metavar="URI",
        default=DEFAULT_URI,
        help="the node, by a URI where its management is exposed (default %(default)s)",
    )
    add_tls(parser, listens=False)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option for how long to wait for an answer."""
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=5.0,
        help="how long to wait (default %(default)g)",
    )


def _command(arguments: argparse.Namespace) -> None:
    look: Look = arguments.look
    if arguments.broker is not None:
        if look is _PEERS:
            print_table(arguments, _BROKERS, *_PEER_PATHS)
        else:
            print_table(arguments, look, _PATHS[look.name])
        return
    try:
        print_of_node(arguments, look, _LINKS.name if look is _PEERS else look.name)
    except LinkDown as error:
        if arguments.node != DEFAULT_URI:
            raise
        raise CommandError(f"{error}: name the node by --node, or a broker by --broker") from None


def via_to_node(arguments: argparse.Namespace) -> Via:
    """Return how to reach the node to ask.

    Raises:
        CommandError: The options are wrong.
    """
    credentials = credentials_for_node(arguments)
    via = Via(arguments.node, tls_of(arguments, listens=False), credentials)
    if not via.uri.startswith(known := schemes()):
        raise CommandError(f"{via.uri!r} does not start with {', '.join(known)}", Status.USAGE)
    return via


def print_of_node(arguments: argparse.Namespace, look: Look, question: str) -> None:
    """Print a table of a node, as the options of the command say.

    Raises:
        CommandError: The options are wrong, or the node does not answer.
    """
    selection, every = selection_of(arguments, look.columns), interval_of(arguments)
    via = via_to_node(arguments)

    async def of_node() -> Any:
        return await select(await ask_node(arguments, question, via), selection, look.has)

    def work() -> Coroutine[Any, Any, None]:
        return repeated(every, of_node, partial(show, look), as_json=arguments.json)

    with no_log("onward"):
        run_table(work, every)


async def ask_node(arguments: argparse.Namespace, question: str, via: Via) -> Any:
    """Return the answer of a node's management service.

    Raises:
        CommandError: It does not answer in time, or with no JSON.
    """
    try:
        answer = await request((MANAGEMENT,), question.encode(), arguments.timeout, via)
        return json.loads(answer.payload)
    except Refused as error:
        raise CommandError(
            f"{error}: was {via.uri} started with --management, and is it exposed there?"
        ) from None
    except RequestTimeout:
        raise CommandError(
            f"no answer from {via.uri} in {arguments.timeout:g} s: is its management on "
            "(--management), and exposed there?"
        ) from None
    except ValueError as error:
        raise CommandError(f"{via.uri} does not answer as a management service") from error
