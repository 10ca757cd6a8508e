"""`onward routes`: the routing table of a running broker."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import Any, Final

from ._arguments import Commands, seconds
from ._broker import DEFAULT_URI
from ._run import Stop, run
from ._show import table
from ._status import CommandError

__all__ = ["add_command", "show"]

_DESCRIPTION: Final = """\
Print the routing table of a running broker, in the order the destinations have joined. The
broker's own management service is one of them: it is what answers.
"""

HEADINGS: Final = ("ROUTE", "SERVICE", "TAGS", "PEER", "OUTSTANDING", "REQUESTS", "SINCE")

# They have columns of their own.
_DEFAULT_TAGS: Final = frozenset({"service", "route"})


def add_command(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "routes", help="print the table of a running broker", description=_DESCRIPTION
    )
    parser.add_argument(
        "--broker", metavar="URI", default=DEFAULT_URI, help="which one (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=5.0,
        help="how long to wait (default %(default)g)",
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    async def ask(stop: Stop) -> None:
        # The client library takes its time to import; the other commands go without.
        from ._client import ask_broker

        rows = await stop.unless(ask_broker(arguments.broker, "routes", arguments.timeout))
        print(json.dumps(rows, indent=2) if arguments.json else show(rows))

    run(ask)


def show(rows: Any) -> str:
    """Lay out the answer of a broker's management service as a table.

    Raises:
        CommandError: It is not a routing table.
    """
    try:
        return table(HEADINGS, [_line(row) for row in rows])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError("the broker's answer is not a routing table") from error


def _line(row: Any) -> tuple[str | int, ...]:
    tags = " ".join(
        f"{name}={value}" for name, value in row["tags"].items() if name not in _DEFAULT_TAGS
    )
    since = datetime.fromtimestamp(row["since"]).astimezone()
    return (
        row["route"],
        row["service"],
        tags or "-",
        row["peer"],
        int(row["outstanding"]),
        int(row["requests"]),
        f"{since:%Y-%m-%d %H:%M:%S}",
    )
