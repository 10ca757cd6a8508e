"""`onward resolve`: the destination of a request, and why others do not match."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from ..protocol import counted
from ..protocol.broker import (
    format_address_query,
    method_name,
    parse_address_query,
    written_method,
)
from ._access import access_of
from ._arguments import Commands
from ._broker_options import add_broker
from ._routes import HEADINGS, broker_of, line
from ._run import StopRequest, run
from ._show import printable, table
from ._status import CommandError

__all__ = ["add_commands", "show"]

_DESCRIPTION: Final = """\
Ask a running broker where a request would go: which destinations carry the tags, which method
chooses among them, which one is next, and what the nearest others lack. In a cluster also at which
broker each is, and by which link it is reached. No request is sent.
"""

_COLUMNS: Final = tuple(HEADINGS.index(name) for name in ("ROUTE", "SERVICE", "TAGS", "PEER"))
_OTHERS: Final = ("   ROUTE", "SERVICE", "WHY NOT")

MAX_ROWS: Final = 10
"""Most destinations of each kind on the screen; `--json` has more."""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "resolve", help="show where a request would go, and why", description=_DESCRIPTION
    )
    parser.add_argument(
        "tags", metavar="TAG=VALUE", nargs="+", help="the tags of the query, as in service=orders"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--multicast", action="store_true", help="ask all that carry the tags")
    kinds.add_argument(
        "--shard",
        metavar="KEY",
        action="append",
        default=[],
        help="the tag with the value that selects the destination; may be repeated",
    )
    kinds.add_argument(
        "--sticky",
        metavar="KEY",
        action="append",
        default=[],
        help="the tag with the value that stays at one destination; may be repeated",
    )
    parser.add_argument("--method", metavar="NAME", help="the method that chooses among several")
    add_broker(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    asked, access = _asked(arguments), access_of(arguments)

    async def ask(stop: StopRequest) -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import ask_broker

        question = f"resolve {asked}"
        found = await stop.unless(ask_broker(arguments.broker, question, arguments.timeout, access))
        text = show(found)  # also checks that it is an answer
        print(json.dumps(found, indent=2) if arguments.json else text)
        unknown = _unknown(arguments.method, found["method"])
        if unknown and not arguments.json:
            print(f"the broker does not know the method {unknown}: it uses its own")
        if not found["matches"] and not found.get("zones"):
            raise CommandError("no destination matches")

    run(ask)


def _unknown(asked: str | None, taken: str) -> str:
    """Return the requested method, if the broker uses another; else ""."""
    return printable(asked) if asked is not None and method_name(asked) != taken else ""


def _asked(arguments: argparse.Namespace) -> str:
    """Return the query, as in an address of type 32.

    Raises:
        AddressError: It is not valid.
    """
    words: list[str] = ["@multicast"] if arguments.multicast else []
    words += [f"@shard={key}" for key in arguments.shard]
    words += [f"@sticky={key}" for key in arguments.sticky]
    if arguments.method is not None:
        words.append(f"@method={arguments.method}")
    return format_address_query(parse_address_query(" ".join((*words, *arguments.tags))))


def show(found: Any) -> str:
    """Format the broker's answer.

    Raises:
        CommandError: It is an error, or no such answer.
    """
    try:
        if "error" in found:
            raise CommandError(f"the broker says: {printable(str(found['error']))}")
        return "\n".join(_lines(found))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError("the broker's answer is not one to a resolve request") from error


def _lines(found: Any) -> list[str]:
    matches, matching = int(found["matches"]), found["matching"][:MAX_ROWS]
    known = counted(int(found["routes"]), "destination")
    lines = [
        printable(f"{found['query']}  ({_how(found)})"),
        f"{matches} of {known} matching{_but(found, matches)}",
    ]
    if matching:
        to_all = found["routing"] == "multicast"
        elsewhere = any(row.get("broker") for row in matching)
        rows = [
            _matching(row, chosen=to_all or row["route"] == found["next"], elsewhere=elsewhere)
            for row in matching
        ]
        first, *others = (HEADINGS[at] for at in _COLUMNS)
        others += ["BROKER"] * elsewhere
        lines += ["", table((f"   {first}", *others), rows)]
    if matches > len(matching):
        lines.append(f"   ... and {matches - len(matching)} more")
    for each in found.get("zones", ())[:MAX_ROWS]:
        routes = counted(int(each["routes"]), "destination")
        lines.append(printable(f"zone {each['zone']} by broker {each['broker']}: {routes}"))
    if found["others"]:
        rows = [_other(each) for each in found["others"][:MAX_ROWS]]
        lines += ["", "the nearest that do not match:", table(_OTHERS, rows)]
    return lines


def _how(found: Any) -> str:
    """Describe how a destination is chosen."""
    how = str(found["routing"])
    if found["method"]:
        how += f", by {written_method(found['method'])}"
    return f"{how}; its key is known" if found.get("sticky") else how


def _but(found: Any, matches: int) -> str:
    """Describe the choice, as far as the marks of the rows do not show it."""
    if not matches:
        return "; it goes to another zone" if found.get("zones") else _wait(found)
    if found.get("first_use"):
        return "; the method decides on the first use of the sticky key"
    undecided = found["next"] is None and found["routing"] != "multicast"
    return "; the choice is random" if undecided else ""


def _wait(found: Any) -> str:
    """Describe the outcome of a request that no destination matches."""
    if "wait" not in found:
        # The broker is older than this command.
        return ": it would wait for one, or be rejected"
    seconds = float(found["wait"])
    whom = "it" if found["expected"] else "one"
    what = f"it would wait {seconds:g} s for {whom}" if seconds > 0 else "it would be rejected"
    return f", but one that is expected does: {what}" if found["expected"] else f": {what}"


def _matching(row: Any, *, chosen: bool, elsewhere: bool) -> tuple[str | int, ...]:
    cells = line(row)
    first, *others = (cells[at] for at in _COLUMNS)
    others += [broker_of(row)] * elsewhere
    return (f"{'=> ' if chosen else '   '}{first}", *others)


def _other(each: Any) -> tuple[str, ...]:
    lacks = [f"no {tag}" for tag in each["missing"]]
    lacks += [f"has {tag}" for tag in each["different"]]
    route = each["route"]
    return f"   {route['route']}", str(route["service"]), ", ".join(lacks)
