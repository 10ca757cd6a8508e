"""`onward addresses`, `network` and `containers`: what a dispatcher has, and what it sees."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from ..protocol.drawing import Arrow, Box, Picture, Row, draw, lay_out, shortened
from ._access import add_credentials
from ._arguments import Commands, no_log
from ._columns import Column, number, text, when
from ._look import add_node, add_timeout, ask_node, print_of_node, via_to_node
from ._show import printable
from ._status import CommandError
from ._tables import Look, add_selection, run_table, show

__all__ = ["add_commands", "picture_of_network"]


def _of(row: Any) -> str:
    cost = row.get("cost")
    return "no path" if cost is None else str(int(cost))


_ADDRESSES: Final = Look(
    "addresses",
    "print the names of a running dispatcher, their consumers, and what became of messages",
    "Print the names of a running dispatcher that have consumers, producers or messages: the\n"
    "pattern that they are provisioned by, consumers here and nodes with consumers, messages in\n"
    "flight, their outcomes, those on hold, and those that were dropped; circuits; messages that\n"
    "a consumer or the next node has had for long, and consumers and producers that wait as long\n"
    "for credit. A name that has none of these any more is forgotten with its outcomes, which are\n"
    "counted anew when it is used again; those of all names are metrics.\n",
    (
        text("NAME", "name"),
        text("ROUTING", "routing"),
        text("PATTERN", "provision"),
        number("CONSUMERS", "consumers"),
        number("NODES", "nodes"),
        number("PRODUCERS", "producers"),
        number("IN FLIGHT", "in_flight"),
        number("ACCEPTED", "accepted"),
        number("REJECTED", "rejected"),
        number("RELEASED", "released"),
        number("MODIFIED", "modified"),
        number("HELD", "held"),
        number("DEAD LETTERS", "dead_letters"),
        number("CIRCUITS", "circuits"),
        number("STUCK", "stuck"),
        number("BLOCKED CONSUMERS", "blocked_consumers"),
        number("BLOCKED PRODUCERS", "blocked_producers"),
    ),
    "no names",
)

_NETWORK: Final = Look(
    "network",
    "print the network of dispatchers as one of them sees it, or draw it",
    "Print the nodes of a network of dispatchers, as one of them sees it: the cost of the path\n"
    "to each, the neighbour that messages to it are sent to first, and the names that it has\n"
    "told of.\n"
    "The first row is the node that is asked. With --svg, draw the nodes and the links between\n"
    "them with their costs.\n",
    (
        text("NODE", "node"),
        Column("COST", "cost", _of),
        text("NEXT HOP", "next_hop"),
        text("LINK", "link"),
        number("NAMES", "names"),
    ),
    "no nodes",
)


def _links(row: Any) -> str:
    return f"{int(row['attached'])} of {int(row['links'])}"


_CONTAINERS: Final = Look(
    "containers",
    "print the containers of AMQP that a running dispatcher is connected to",
    "Print the containers of AMQP that a running dispatcher connects to, by --containers or by\n"
    "its topology file: the state of each connection and since when, the attempts since it was\n"
    "open last, the links of the node itself that are attached, the names with links that go\n"
    "through to it, how many such links there are and were refused, and why it ended last.\n"
    "With --links, print each link, and each name with links that go through, with its state.\n",
    (
        text("NAME", "name"),
        text("URI", "uri"),
        text("STATE", "state"),
        when("SINCE", "since"),
        number("ATTEMPTS", "attempts"),
        Column("LINKS", "attached", _links, falls=True),
        number("ROUTES", "routes"),
        number("CIRCUITS", "circuits"),
        number("REFUSED", "refused"),
        text("LAST END", "reason"),
    ),
    "no containers",
)

_CONTAINER_LINKS: Final = Look(
    "container-links",
    _CONTAINERS.help,
    _CONTAINERS.description,
    (
        text("CONTAINER", "container"),
        text("KIND", "kind"),
        text("ADDRESS", "address"),
        text("NAME", "name"),
        text("STATE", "state"),
        when("SINCE", "since"),
        number("ATTEMPTS", "attempts"),
        text("LAST END", "reason"),
    ),
    "no links",
)
"""The same, link by link."""

_NODE: Final = """\
The node has to run its management service: `onward dispatch --management`, or
ManagementService in your own program.
"""


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    for look in (_ADDRESSES, _NETWORK, _CONTAINERS):
        parser = commands.add_parser(
            look.name,
            help=look.help,
            description=f"{look.description}\n{_NODE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_node(parser)
        add_credentials(parser)
        add_timeout(parser)
        columns = look.columns
        if look is _CONTAINERS:
            both = (*columns, *_CONTAINER_LINKS.columns)
            columns = tuple({each.heading: each for each in both}.values())
            parser.add_argument(
                "--links", action="store_true", help="print the links of the containers instead"
            )
        add_selection(parser, columns)
        if look is _NETWORK:
            parser.add_argument(
                "--svg", metavar="FILE", type=Path, help="draw the network into this file instead"
            )
        parser.set_defaults(command=_command, look=look, svg=None, links=False)


def _command(arguments: argparse.Namespace) -> None:
    look: Look = _CONTAINER_LINKS if arguments.links else arguments.look
    if arguments.svg is None:
        print_of_node(arguments, look, look.name)
        return
    via = via_to_node(arguments)

    async def write() -> None:
        answer = await ask_node(arguments, look.name, via)
        show(look, answer)  # it is refused if it is no table
        picture = draw(picture_of_network(answer["rows"])).encode()
        try:
            arguments.svg.write_bytes(picture)
        except OSError as error:
            raise CommandError(f"cannot write {arguments.svg}: {error.strerror}") from error

    with no_log("onward"):
        run_table(write, None)


def picture_of_network(rows: list[dict[str, Any]]) -> Picture:
    """Return a network as a picture: a box for each node, an arrow with its cost for each link."""
    boxes = {str(row["node"]): _box(row) for row in rows}
    arrows: list[Arrow] = []
    for row in rows:
        node = str(row["node"])
        for peer, cost in sorted(row.get("peers", {}).items()):
            there = next((each for each in rows if each["node"] == peer), None)
            told = None if there is None else there.get("peers", {}).get(node)
            if peer in boxes and (node < peer or told is None):
                differs = told is not None and told != cost
                arrows.append(Arrow(node, peer, f"{cost} / {told}" if differs else str(cost)))
    title = printable(f"network of {rows[0]['node']}" if rows else "network")
    return lay_out(title, boxes.values(), arrows)


def _box(row: dict[str, Any]) -> Box:
    lines = [Row("cost", _of(row)), Row("names", str(int(row.get("names") or 0)))]
    if row.get("next_hop"):
        lines.insert(1, Row("next hop", shortened(str(row["next_hop"]))))
    return Box(str(row["node"]), lines)
