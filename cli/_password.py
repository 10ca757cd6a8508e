"""`onward password`: hash the password of a user."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from typing import Final

from ..protocol.security import MAX_PASSWORD, SALT_SIZE, hash_password
from ._arguments import Commands
from ._principals import add_entry_options, add_to_file, entry_text
from ._status import CommandError

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Ask for a password twice, and print the user's entry for the broker's file of principals, with the
scrypt hash of the password. Machines are better served by tokens or certificates.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "password", help="hash the password of a user", description=_DESCRIPTION
    )
    add_entry_options(parser)
    parser.add_argument(
        "--stdin", action="store_true", help="read the password from the first line of stdin"
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    password = _from_stdin() if arguments.stdin else _asked()
    stored = hash_password(_checked(password), secrets.token_bytes(SALT_SIZE))
    entry = entry_text("users", arguments, "password", stored.text)
    if arguments.file is not None:
        add_to_file(arguments.file, entry)
    else:
        print(entry, end="")


def _from_stdin() -> str:
    return sys.stdin.readline(MAX_PASSWORD + 2).rstrip("\r\n")


def _asked() -> str:
    try:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise CommandError("the two passwords differ")
    except EOFError:
        raise CommandError("no password was given") from None
    return password


def _checked(password: str) -> str:
    try:
        size = len(password.encode())
    except UnicodeEncodeError:
        raise CommandError("the password is not UTF-8") from None
    if not 0 < size <= MAX_PASSWORD:
        raise CommandError(f"a password has 1 to {MAX_PASSWORD} bytes")
    return password
