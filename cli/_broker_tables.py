"""`onward connections`, `services`, `waiting` and `limits`: tables of a running broker."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ._arguments import Commands
from ._broker_options import add_broker
from ._columns import Column, count, number, share, span, text, when
from ._tables import (
    Look,
    add_selection,
    pages_of_several,
    print_answers,
    select,
    selection_of,
    show,
)

if TYPE_CHECKING:
    from ._client import Ask

__all__ = ["CLOSED", "CONNECTIONS", "SERVICES", "add_commands", "print_table"]


def _peer(row: Any) -> str:
    principal = row.get("principal")
    return f"{row['peer']} as {principal}" if principal else str(row["peer"])


_CONNECTIONS: Final = (
    number("ID", "id"),
    Column("PEER", "peer", _peer),
    text("SERVICE", "service"),
    number("STREAMS", "streams"),
    number("REQUESTS", "requests"),
    number("REFUSED", "refused"),
    number("RECEIVED", "received_bytes"),
    number("SENT", "sent_bytes"),
    number("PENDING", "pending_bytes"),
)

CONNECTIONS: Final = Look(
    "connections",
    "print the connections of a running broker",
    "Print the connections of a running broker, oldest first: their peers and principals, what\n"
    "they have asked for and sent, and the bytes that wait for their sockets.\n"
    "With --closed, the last 1,000 of each listener that have ended, and why.\n",
    (
        *_CONNECTIONS,
        span("IDLE", "idle"),
        span("SUSPENDED", "suspended"),
        when("OPENED", "opened"),
    ),
    "no connections",
)

CLOSED: Final = CONNECTIONS._replace(
    columns=(*_CONNECTIONS, when("CLOSED", "closed"), text("REASON", "reason"))
)

SERVICES: Final = Look(
    "services",
    "print the services of a running broker, and how they answer",
    "Print the services of a running broker: their destinations, their requests by outcome, and\n"
    "how long half and 99 % of their answers took at most.\n",
    (
        text("SERVICE", "service"),
        number("DESTINATIONS", "destinations"),
        number("BUSY", "busy"),
        number("IN PROGRESS", "in_progress"),
        number("REQUESTS", "requests"),
        share("SUCCESS", "success"),
        span("P50", "p50"),
        span("P99", "p99"),
        number("REJECTED", "rejected"),
        number("CANCELED", "canceled"),
        number("ERRORS", "error"),
    ),
    "no services",
)

WAITING: Final = Look(
    "waiting",
    "print the requests that wait for a destination",
    "Print the requests of a running broker that wait for a destination, by their query.\n",
    (
        text("QUERY", "query"),
        number("REQUESTS", "requests"),
        number("BYTES", "bytes"),
        number("SOURCES", "sources"),
        span("OLDEST", "oldest"),
    ),
    "no request waits",
)

LIMITS: Final = Look(
    "limits",
    "print the limits of a running broker, and how much of them is used",
    "Print the limits of a running broker that its clients share, what is used of each, and how\n"
    "often something was refused because of it.\n",
    (
        text("NAME", "name"),
        text("LISTENER", "listener"),
        number("USED", "used"),
        number("LIMIT", "limit"),
        count("REACHED", "reached"),
    ),
    "no limits",
)

_QUESTIONS: Final = {
    CONNECTIONS.name: "/api/v1/connections?",
    SERVICES.name: "/api/v1/services?",
    WAITING.name: "/api/v1/waiting?",
    LIMITS.name: "/api/v1/limits?",
}

_CLOSED_STATE: Final = "state=closed&"


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    for look in (CONNECTIONS, SERVICES, WAITING, LIMITS):
        parser = commands.add_parser(
            look.name,
            help=look.help,
            description=look.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_broker(parser)
        columns = look.columns
        if look is CONNECTIONS:
            parser.add_argument(
                "--closed", action="store_true", help="print those that have ended, last first"
            )
            columns = (*columns, *CLOSED.columns[-2:])
        add_selection(parser, columns)
        parser.set_defaults(command=_command, look=look)


def _command(arguments: argparse.Namespace) -> None:
    look: Look = arguments.look
    question = _QUESTIONS[look.name]
    if getattr(arguments, "closed", False):
        look, question = CLOSED, question + _CLOSED_STATE
    print_table(arguments, look, question)


def print_table(arguments: argparse.Namespace, look: Look, question: str, *others: str) -> None:
    """Print a table of a broker, as the options of the command say.

    Args:
        arguments: The options.
        look: The table.
        question: The question; one that ends with a letter is answered with all rows.
        others: Further questions, up to their queries, for the rows after those of the first one.

    Raises:
        CommandError: The options are wrong, or the broker does not answer.
    """
    selection = selection_of(arguments, look.columns)

    async def rows(ask: Ask) -> Any:
        if question[-1].isalpha():
            return await select(await ask(question), selection, look.has)
        return await pages_of_several(ask, (question, *others), selection)

    print_answers(arguments, rows, partial(show, look))
