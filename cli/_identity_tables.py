"""`onward identities`: the nodes that have joined a running one."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ._access import add_credentials
from ._arguments import Commands
from ._columns import Column, number, text
from ._look import add_node, add_timeout, print_of_node
from ._tables import Look, add_selection

__all__ = ["add_commands"]


def _by(row: Any) -> str:
    return "this node" if row.get("dialled") else "the other"


_IDENTITIES: Final = Look(
    "identities",
    "print the nodes that have joined a running one by their identities",
    "Print the nodes that have proved their keys to a running one, and take messages: their\n"
    "identities, which of the two has dialled, the engines that are known there, and the frames\n"
    "that wait for room at the link. `onward identity` is for keys, and the figures of the node,\n"
    "what it relays and what it refuses are metrics.\n",
    (
        text("IDENTITY", "identity"),
        Column("DIALLED BY", "dialled", _by),
        number("ENGINES", "engines"),
        number("WAITING", "waiting"),
    ),
    "no nodes",
)

_NODE: Final = """\
The node has to run its management service: `onward node --management`, or
ManagementService in your own program.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        _IDENTITIES.name,
        help=_IDENTITIES.help,
        description=f"{_IDENTITIES.description}\n{_NODE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node(parser)
    add_credentials(parser)
    add_timeout(parser)
    add_selection(parser, _IDENTITIES.columns)
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    print_of_node(arguments, _IDENTITIES, _IDENTITIES.name)
