"""`onward routes`: the routing table of a running broker."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..protocol import counted
from ..protocol.broker import SnapshotError, parse_routes
from ._access import Access, access_of
from ._arguments import Commands
from ._broker_options import add_broker
from ._run import StopRequest, run
from ._show import printable, table
from ._snapshots import check_file, save_routes
from ._status import CommandError, Status
from ._tables import add_watch, print_answers

if TYPE_CHECKING:
    from ._client import Ask

__all__ = [
    "HEADINGS",
    "add_commands",
    "broker_of",
    "line",
    "peer_of",
    "show",
    "show_groups",
    "tags_of",
]

_DESCRIPTION: Final = """\
Print the routing table of a running broker, in the order of registration. The broker's own
management service, which answers this command, is in it. Expected destinations that have not
registered yet come last; their STATE is `expected`. In a cluster, BROKER is the name or id of the
broker that a destination is connected to, if it is another one; its PEER is the link to that. While
that link is lost, the STATE is `expected` too.

Of destinations in other zones a broker knows groups. Those of a zone are printed with --zone:
ROUTES is the number of destinations, and BROKER the one that requests for the zone go to. If a
zone has more groups than it may tell, others of a service are folded into one, with TAGS (any).
"""

HEADINGS: Final = (
    "ROUTE",
    "SERVICE",
    "TAGS",
    "PEER",
    "OUTSTANDING",
    "REQUESTS",
    "LATENCY",
    "STATE",
    "SINCE",
)

_ANY_TAGS: Final = "(any)"
"""The tags of a group into which others of its service are folded."""

_FOLDED: Final = "{} with any tags: the zone has more than it tells one by one."

_GROUP_HEADINGS: Final = (
    "SERVICE",
    "TAGS",
    "ROUTES",
    "OUTSTANDING",
    "REQUESTS",
    "LATENCY",
    "STATE",
    "SINCE",
    "BROKER",
)

MAX_TABLE: Final = 512 * 1024 * 1024
"""Most bytes of a table to save, as lines of JSON: some two million routes."""

# These have columns of their own.
_DEFAULT_TAGS: Final = frozenset({"service", "route"})


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "routes", help="print the table of a running broker", description=_DESCRIPTION
    )
    add_broker(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_watch(parser)
    parser.add_argument(
        "--at",
        metavar="BROKER",
        help="print only the destinations at this broker of the cluster, by its name, or by its id "
        "if it has none; - is the broker that answers",
    )
    parser.add_argument(
        "--zone", metavar="ZONE", help="print the groups of destinations in this other zone instead"
    )
    parser.add_argument(
        "--save",
        metavar="FILE",
        type=Path,
        help="write the table to a file instead, for `onward broker --index` and `onward pipeline "
        "replay`; as lines of JSON if its name ends with .jsonl",
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    if arguments.save is not None:
        others = (arguments.watch, arguments.at, arguments.zone)
        if arguments.json or any(each is not None for each in others):
            text = "--save goes without --json, --watch, --at and --zone"
            raise CommandError(text, Status.USAGE)
        check_file(arguments.save)
        _save(arguments.broker, arguments.timeout, access_of(arguments), arguments.save)
        return

    at: str | None = arguments.at
    zone: str | None = arguments.zone
    if zone is not None:
        if at is not None:
            raise CommandError("--zone goes without --at", Status.USAGE)
        nothing = f"no groups of a zone {printable(zone)} are known; `onward peers` has the zones"
        print_answers(arguments, lambda ask: ask(f"groups {zone}"), _or(nothing, show_groups))
        return
    known: set[str] = set()

    async def rows(ask: Ask) -> Any:
        found: Any = await ask("routes")
        if at is None or "error" in found:
            return found
        known.clear()  # with --watch it is asked for again
        known.update(map(broker_of, found))
        return [row for row in found if broker_of(row) == at]

    def show_rows(found: Any) -> str:
        where = ", ".join(sorted(known)) or "no broker"
        nothing = f"no destination is at {at}; there are some at {where}"
        return _or(printable(nothing), show)(found)

    print_answers(arguments, rows, show if at is None else show_rows)


def _or(nothing: str, show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that shows an answer, with a line beneath if it has no rows."""
    return lambda rows: show(rows) if rows else f"{show(rows)}\n{nothing}"


def _save(uri: str, timeout: float, access: Access, path: Path) -> None:
    async def save(stop: StopRequest) -> None:
        from ._client import table_of_broker

        async def read() -> bytes:
            lines = bytearray()
            async with aclosing(table_of_broker(uri, timeout, access)) as chunks:
                async for chunk in chunks:
                    lines += chunk
                    if len(lines) > MAX_TABLE:
                        raise CommandError(
                            f"the table of {uri} has more than {MAX_TABLE} bytes: make the file of "
                            "its event log instead, by `onward pipeline index build --lake`"
                        )
            return bytes(lines)

        try:
            routes = list(parse_routes(await stop.unless(read())))
        except SnapshotError as error:
            raise CommandError(f"{uri} sent an invalid table: {error}") from error
        print(f"{counted(save_routes(path, routes), 'route')} saved to {path}", flush=True)

    run(save)


def show(rows: Any) -> str:
    """Format the answer of a broker's management service as a table.

    Raises:
        CommandError: It is not a routing table.
    """
    try:
        lines = [line(row) for row in rows]
        if not any(row.get("broker") for row in rows):
            return table(HEADINGS, lines)
        brokers = [(broker_of(row),) for row in rows]
        return table(
            (*HEADINGS, "BROKER"), [(*cells, *at) for cells, at in zip(lines, brokers, strict=True)]
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError("the broker's answer is not a routing table") from error


def show_groups(rows: Any) -> str:
    """Format the groups of a zone as a table.

    Raises:
        CommandError: They are none.
    """
    try:
        shown = table(_GROUP_HEADINGS, [_group(row) for row in rows])
        folded = sum(row.get("folded", False) for row in rows)
        return f"{shown}\n{_FOLDED.format(counted(folded, 'group'))}" if folded else shown
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError("the broker's answer has no groups") from error


def _group(row: Any) -> tuple[str | int, ...]:
    """Return a group as cells under the headings."""
    _, service, tags, _, *rest = line({**row, "route": "", "peer": ""})
    tags = _ANY_TAGS if row.get("folded") else tags
    return (service, tags, int(row["routes"]), *rest, broker_of(row))


def line(row: Any) -> tuple[str | int, ...]:
    """Return a row of the broker's table as cells under the headings."""
    since = datetime.fromtimestamp(row["since"]).astimezone()
    return (
        row["route"],
        row["service"],
        tags_of(row) or "-",
        peer_of(row),
        int(row["outstanding"]),
        int(row["requests"]),
        f"{row['latency'] * 1000:.1f} ms" if row["latency"] else "-",
        _state(row),
        f"{since:%Y-%m-%d %H:%M:%S%z}",
    )


def broker_of(row: Any) -> str:
    """Return the broker that a destination is connected to; a dash for the one that answers."""
    # A broker older than clusters does not say.
    return str(row.get("broker") or "-")


def peer_of(row: Any) -> str:
    """Return the address of a destination, with its principal if there is one."""
    # A broker older than this command has no principals.
    principal = row.get("principal", "")
    return f"{row['peer']} as {principal}" if principal else str(row["peer"])


def _state(row: Any) -> str:
    # A broker older than this command has no expected destinations.
    if row.get("expected", False):
        return "expected"
    return "busy" if row["busy"] else "-"


def tags_of(row: Any) -> str:
    """Return the tags without a column of their own, in their usual notation."""
    tags = row["tags"].items()
    return " ".join(f"{name}={value}" for name, value in tags if name not in _DEFAULT_TAGS)
