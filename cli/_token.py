"""`onward token`: make tokens for peers."""

from __future__ import annotations

import argparse
import secrets
from typing import Final

from ..protocol.security import TOKEN_BYTES, make_token, token_digest
from ._arguments import Commands
from ._principals import add_entry_options, add_to_file, entry_text

__all__ = ["add_commands"]

_DESCRIPTION: Final = "Make tokens by which peers authenticate themselves to a broker."

_NEW: Final = """\
Make a token. It is printed once, on the first line, and kept nowhere: the entry for the broker's
file of principals has its SHA-256 only. Several tokens may have one name, so a new one can be given
out before the entry of the old one is removed.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("token", help="make tokens for peers", description=_DESCRIPTION)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="make a token", description=_NEW)
    add_entry_options(new)
    new.set_defaults(command=_new)


def _new(arguments: argparse.Namespace) -> None:
    token = make_token(secrets.token_bytes(TOKEN_BYTES))
    digest = token_digest(token.encode()).hex()
    entry = entry_text("tokens", arguments, "sha256", digest)
    # Not printed before it is in the file: a token without an entry is of no use.
    if arguments.file is not None:
        add_to_file(arguments.file, entry)
        print(token)
    else:
        print(token, entry, sep="\n\n", end="")
