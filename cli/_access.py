"""What a command shows to a broker, and asks of it: certificates and credentials."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..protocol.security import (
    BadCredentials,
    BearerToken,
    Credentials,
    UserPassword,
    format_credentials,
)
from ..transports import TlsOptions
from ._own_files import check_own
from ._reach import add_tls, tls_of
from ._status import CommandError, Status

__all__ = [
    "Access",
    "access_of",
    "add_access",
    "add_credentials",
    "credentials_for_node",
    "read_secret",
]

TOKEN: Final = "ONWARD_TOKEN"  # noqa: S105 - the name of a variable
USER: Final = "ONWARD_USER"
PASSWORD: Final = "ONWARD_PASSWORD"  # noqa: S105 - the name of a variable

MAX_SECRET: Final = 16 * 1024
"""Bytes that are read of a file: more than any credentials have, so a longer one is refused."""


@dataclass(frozen=True, slots=True)
class Access:
    """The certificates and credentials for a broker.

    Attributes:
        tls: The certificates; `None` for the defaults of the scheme.
        credentials: The credentials; `None` for none.
    """

    tls: TlsOptions | None = None
    credentials: Credentials | None = None


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the options of certificates and credentials."""
    add_tls(parser, listens=False)
    add_credentials(parser)


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add the options of credentials for a broker."""
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help=f"the token to show to the broker or the node, in a file (default: {TOKEN} of the "
        "environment, for brokers only)",
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        help=f"the user to show to the broker or the node, with a password (default: {USER} of the "
        "environment, for brokers only)",
    )
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help=f"the password of the user, in a file (default: {PASSWORD} of the environment)",
    )


def access_of(arguments: argparse.Namespace) -> Access:
    """Return the certificates and credentials given by options or the environment.

    Raises:
        CommandError: They do not go together, or a file cannot be read.
    """
    return Access(tls_of(arguments, listens=False), credentials_of(arguments, os.environ))


def credentials_for_node(arguments: argparse.Namespace) -> Credentials | None:
    """Return the credentials given by options.

    Those of the environment are for brokers: a node that asks for none refuses some. It only has
    the password for `--user`.

    Raises:
        CommandError: They do not go together, or a file cannot be read.
    """
    environment = {PASSWORD: os.environ[PASSWORD]} if PASSWORD in os.environ else {}
    return credentials_of(arguments, environment)


def credentials_of(
    arguments: argparse.Namespace, environment: Mapping[str, str]
) -> Credentials | None:
    """Return the credentials given; options come before the environment.

    Raises:
        CommandError: They do not go together, or a file cannot be read.
    """
    token: Path | None = arguments.token_file
    user: str | None = arguments.user
    password: Path | None = arguments.password_file
    found: Credentials | None = None
    if token is not None:
        if user is not None or password is not None:
            raise CommandError("--token-file and --user do not go together", Status.USAGE)
        found = BearerToken(_read("--token-file", token))
    elif user is not None or password is not None or not environment.get(TOKEN):
        user = user or environment.get(USER)
        if user is not None:
            found = UserPassword(user, _password(password, environment))
        elif password is not None:
            raise CommandError(f"--password-file needs --user, or {USER}", Status.USAGE)
    else:
        found = BearerToken(environment[TOKEN].encode())
    if found is not None:
        try:
            format_credentials(found)
        except BadCredentials as error:
            raise CommandError(str(error), Status.USAGE) from None
    return found


def read_secret(option: str, path: Path) -> str:
    """Return the text of a file of a secret, without the end of its line.

    Raises:
        CommandError: It cannot be read, is not UTF-8, or other users can read it.
    """
    try:
        return _read(option, path).decode()
    except UnicodeDecodeError:
        raise CommandError(f"{option}: {path} is not UTF-8", Status.USAGE) from None


def _password(path: Path | None, environment: Mapping[str, str]) -> str:
    if path is None:
        password = environment.get(PASSWORD)
        if password is None:
            raise CommandError(f"--user needs --password-file, or {PASSWORD}", Status.USAGE)
        return password
    return read_secret("--password-file", path)


def _read(option: str, path: Path) -> bytes:
    """Return the content of a file without the end of its line.

    Raises:
        CommandError: It cannot be read, or other users can.
    """
    try:
        with path.open("rb") as file:
            check_own(os.fstat(file.fileno()), path, secret=True)
            return file.read(MAX_SECRET).rstrip(b"\r\n")
    except OSError as error:
        raise CommandError(f"{option}: {path}: {error.strerror}", Status.USAGE) from None
