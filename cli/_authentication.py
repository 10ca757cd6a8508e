"""The authentication of a broker's clients, by a file of principals."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..actors.security import (
    AnonymousAuthenticator,
    Authentication,
    Authenticator,
    CertificateAuthenticator,
    PasswordAuthenticator,
    PrincipalsFile,
    TokenAuthenticator,
    UnixAuthenticator,
)
from ..protocol.toml import FileError
from ._show import printable
from ._status import CommandError, Status

__all__ = ["add_authentication", "authentication_of"]


def add_authentication(parser: argparse.ArgumentParser) -> None:
    """Add the options of the authentication of clients."""
    parser.add_argument(
        "--principals",
        metavar="FILE",
        type=Path,
        help="admit only clients that have an entry in this file of principals, by a certificate, "
        "the user of a Unix socket, a token or a password; `onward token` and `onward password` "
        "make entries (default: admit all clients)",
    )
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="with --principals: admit clients without credentials as well, as `anonymous`",
    )


def authentication_of(arguments: argparse.Namespace) -> Authentication | None:
    """Return the authentication of clients; `None` if all are admitted.

    Raises:
        CommandError: The file cannot be read, or the options do not go together.
    """
    path: Path | None = arguments.principals
    if path is None:
        if arguments.anonymous:
            raise CommandError("--anonymous goes with --principals", Status.USAGE)
        return None
    try:
        file = PrincipalsFile(path)
    except OSError as error:
        raise CommandError(f"--principals: {path}: {error.strerror}", Status.USAGE) from error
    except FileError as error:
        raise CommandError(printable(str(error)), Status.USAGE) from error
    methods: list[Authenticator] = [
        CertificateAuthenticator(file),
        UnixAuthenticator(file),
        TokenAuthenticator(file),
        PasswordAuthenticator(file),
    ]
    if arguments.anonymous:
        methods.append(AnonymousAuthenticator())
    return Authentication(methods)
