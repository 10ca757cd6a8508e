"""`onward workers`, `onward links` and `onward dead-letters`: what is in a running node."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ..protocol import RequestTimeout
from ._access import access_of, add_credentials, refuse_credentials
from ._arguments import Commands, no_log, seconds
from ._message import request
from ._node import DEFAULT_URI, MANAGEMENT
from ._reach import Via, add_tls, schemes, tls_of
from ._run import StopRequest, run
from ._show import printable, table
from ._status import CommandError, Status

__all__ = ["add_commands", "show"]

_NODE: Final = """\
The node has to run its management service: `onward node --management`, or ManagementService
in your own program. `onward request` asks it over any route: the payload is the question.
"""


class Look(NamedTuple):
    """One of the commands, and the table that it prints.

    Attributes:
        name: The name of the command, and of the question.
        help: Its help in one line.
        description: Its help.
        columns: The headings, each with the function that makes the cell of a row.
        nothing: The line in place of an empty table.
        of_broker: Whether a broker answers the question too.
    """

    name: str
    help: str
    description: str
    columns: Sequence[tuple[str, Callable[[Any], str | int]]]
    nothing: str
    of_broker: bool


def _text(name: str) -> Callable[[Any], str]:
    return lambda row: str(row.get(name, "")) or "-"


def _number(name: str) -> Callable[[Any], int]:
    return lambda row: int(row.get(name, 0))


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
        ("ADDRESS", _text("address")),
        ("KIND", _text("kind")),
        ("STATE", _text("state")),
        ("WAITING", _waiting),
        ("HANDLED", _number("handled")),
        ("FAILED", _number("failed")),
        ("REFUSED", _number("refused")),
        ("DROPPED", _number("dropped")),
        ("RESTARTS", _number("restarts")),
    ),
    "no workers",
    of_broker=True,
)

_LINKS: Final = Look(
    "links",
    "print the links and listeners of a running node",
    "Print the links of a running node to other nodes, and its listeners: what they have sent\n"
    "and received, and what waits.\n",
    (
        ("ADDRESS", _text("address")),
        ("KIND", _text("kind")),
        ("PEER OR URI", _place),
        ("STATE", _text("state")),
        ("ACCEPTED", _text("accepted")),
        ("SENT", _text("sent")),
        ("RECEIVED", _text("received")),
        ("REFUSED", _refused),
        ("QUEUED", _text("queued")),
        ("HELD", _text("held")),
        ("LAST END", _text("reason")),
    ),
    "no links",
    of_broker=False,
)

_LETTERS: Final = Look(
    "dead-letters",
    "print the dead letters of a running node or broker",
    "Print the messages that a running node, or a broker's node, could not deliver: how many by\n"
    "reason, and the last ones, without their payloads.\n",
    (
        ("AGE", _age),
        ("REASON", _text("reason")),
        ("ONWARD ROUTE", _text("onward_route")),
        ("RETURN ROUTE", _text("return_route")),
        ("BYTES", _number("size")),
    ),
    "no dead letters",
    of_broker=True,
)


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    for look in (_WORKERS, _LINKS, _LETTERS):
        parser = commands.add_parser(
            look.name,
            help=look.help,
            description=f"{look.description}\n{_NODE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument(
            "--node",
            metavar="URI",
            default=DEFAULT_URI,
            help="the node, by a URI where its management is exposed (default %(default)s)",
        )
        add_tls(parser, listens=False)
        if look.of_broker:
            parser.add_argument(
                "--broker", metavar="URI", help="a broker instead, by any URI it listens at"
            )
            add_credentials(parser)
        else:
            parser.set_defaults(broker=None)
        parser.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=seconds,
            default=5.0,
            help="how long to wait (default %(default)g)",
        )
        parser.add_argument("--json", action="store_true", help="print it as JSON")
        parser.set_defaults(command=_command, look=look)


def _command(arguments: argparse.Namespace) -> None:
    look: Look = arguments.look
    asking = _ask_broker if arguments.broker is not None else _ask_node
    via = Via(arguments.node, tls_of(arguments, listens=False))
    if arguments.broker is None:
        if look.of_broker:
            refuse_credentials(arguments)
        if not via.uri.startswith(known := schemes()):
            raise CommandError(f"{via.uri!r} does not start with {', '.join(known)}", Status.USAGE)

    async def ask(stop: StopRequest) -> None:
        answer = await stop.unless(asking(arguments, look.name, via))
        text = show(look, answer)  # also checks that it is an answer
        print(json.dumps(answer, indent=2) if arguments.json else text)

    with no_log("onward"):
        run(ask)


async def _ask_node(arguments: argparse.Namespace, question: str, via: Via) -> Any:
    try:
        answer = await request((MANAGEMENT,), question.encode(), arguments.timeout, via)
        return json.loads(answer.payload)
    except RequestTimeout:
        raise CommandError(
            f"no answer from {via.uri} in {arguments.timeout:g} s: is its management on, and "
            "exposed there?"
        ) from None
    except ValueError as error:
        raise CommandError(f"{via.uri} does not answer as a management service") from error


async def _ask_broker(arguments: argparse.Namespace, question: str, _: Via) -> Any:
    # The client library is a slow import; the other commands go without.
    from ._client import ask_broker

    access = access_of(arguments)
    return await ask_broker(arguments.broker, question, arguments.timeout, access)


def show(look: Look, answer: Any) -> str:
    """Format an answer as a table.

    Raises:
        CommandError: It is an error, or no such answer.
    """
    try:
        if "error" in answer:
            raise CommandError(f"the node says: {printable(str(answer['error']))}")
        total, rows = int(answer["total"]), answer["rows"]
        cells = [[cell(row) for _, cell in look.columns] for row in rows]
        lines = [table([heading for heading, _ in look.columns], cells) if cells else look.nothing]
        if total > len(rows):
            lines.append(f"... and {total - len(rows)} more")
        if answer.get("reasons"):
            counts = sorted(answer["reasons"].items(), key=lambda each: -int(each[1]))
            told = ", ".join(f"{int(count)} {reason}" for reason, count in counts)
            lines += ["", printable(f"by reason: {told}")]
        return "\n".join(lines)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError(f"the answer has no {look.name}") from error
