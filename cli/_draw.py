"""`onward draw`: a picture of a topology file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from ..protocol.drawing import draw
from ._arguments import Commands
from ._plan_picture import picture_of
from ._status import CommandError
from ._up import read_file

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Draw a topology file as an SVG picture: nodes with their workers and listeners, and the links
between them. Workers and listeners that other nodes can reach are bold. Nothing is run, and no
class of a worker is imported. The same file always gives the same bytes.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "draw",
        help="draw a topology file",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the topology file")
    parser.add_argument(
        "-o", "--output", metavar="SVG", help="where to write it; to stdout by default"
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    picture = draw(picture_of(read_file(arguments.file))).encode()
    if arguments.output is None:
        sys.stdout.buffer.write(picture)
        sys.stdout.flush()
        return
    try:
        Path(arguments.output).write_bytes(picture)
    except OSError as error:
        raise CommandError(f"cannot write {arguments.output}: {error.strerror}") from error
