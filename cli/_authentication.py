"""The authentication of peers: by a file of principals, an issuer, or plug-ins."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ..actors.security import (
    AnonymousAuthenticator,
    Authentication,
    AuthenticationOptions,
    Authenticator,
    CertificateAuthenticator,
    JwtAuthenticator,
    PasswordAuthenticator,
    PrincipalsFile,
    TokenAuthenticator,
    UnixAuthenticator,
    load_authenticator,
)
from ..protocol import OnwardError
from ..protocol.security import DEFAULT_ALGORITHMS, JWT_ALGORITHMS
from ._show import printable
from ._status import CommandError, Status

__all__ = [
    "add_authentication",
    "add_jwt",
    "add_peers",
    "authentication_of",
    "authentication_of_peers",
    "jwt_of",
]


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
    add_jwt(parser)
    parser.add_argument(
        "--authenticator",
        metavar="NAME",
        action="append",
        default=[],
        help="admit clients by this plug-in, of the entry-point group onward.authenticators; may "
        "be repeated",
    )
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="with one of these: admit clients without credentials as well, as `anonymous`",
    )
    parser.add_argument(
        "--per-request",
        choices=("forward", "check"),
        default="forward",
        help="with one of these, of an authentication entry in a request: forward it untouched, or "
        "check it: its principal then decides on the request (default: %(default)s)",
    )


def add_jwt(parser: argparse.ArgumentParser) -> None:
    """Add the options of the keys and the claims of JSON Web Tokens."""
    parser.add_argument(
        "--jwt-keys",
        metavar="FILE|URL",
        help="accept JSON Web Tokens that one of these keys has signed: a set of keys (JWKS), in "
        "a file or at an https URL",
    )
    parser.add_argument("--jwt-issuer", metavar="TEXT", help="the issuer of these tokens (`iss`)")
    parser.add_argument(
        "--jwt-audience", metavar="TEXT", help="the audience that they must be for (`aud`)"
    )
    parser.add_argument(
        "--jwt-algorithm",
        metavar="NAME",
        action="append",
        default=[],
        choices=JWT_ALGORITHMS,
        help="an algorithm of their signatures; may be repeated "
        f"(default: {', '.join(DEFAULT_ALGORITHMS)})",
    )


def authentication_of(arguments: argparse.Namespace) -> Authentication | None:
    """Return the authentication of clients; `None` if all are admitted.

    Raises:
        CommandError: A file cannot be read, or the options do not go together.
    """
    try:
        methods = list(_methods(arguments))
        if not methods:
            if arguments.anonymous:
                raise CommandError("--anonymous goes with --principals or --jwt-keys", Status.USAGE)
            if arguments.per_request == "check":
                text = "--per-request check goes with --principals or --jwt-keys"
                raise CommandError(text, Status.USAGE)
            return None
        if arguments.anonymous:
            methods.append(AnonymousAuthenticator())
        return Authentication(methods, AuthenticationOptions(per_request=arguments.per_request))
    except (OnwardError, TypeError, ValueError) as error:
        raise CommandError(printable(str(error)), Status.USAGE) from error


def add_peers(parser: argparse.ArgumentParser) -> None:
    """Add the option of the authentication of nodes, as links have no credentials."""
    parser.add_argument(
        "--principals",
        metavar="FILE",
        type=Path,
        help="accept only peers that have an entry in this file of principals, by a certificate or "
        "the user of a Unix socket (default: accept all peers)",
    )


def authentication_of_peers(arguments: argparse.Namespace) -> Authentication | None:
    """Return the authentication of nodes; `None` if all are accepted.

    Raises:
        CommandError: The file cannot be read.
    """
    path: Path | None = arguments.principals
    if path is None:
        return None
    try:
        file = _principals(path)
    except OnwardError as error:
        raise CommandError(printable(str(error)), Status.USAGE) from error
    return Authentication([CertificateAuthenticator(file), UnixAuthenticator(file)])


def _principals(path: Path) -> PrincipalsFile:
    try:
        return PrincipalsFile(path)
    except OSError as error:
        raise CommandError(f"--principals: {path}: {error.strerror}", Status.USAGE) from error


def _methods(arguments: argparse.Namespace) -> Iterator[Authenticator]:
    path: Path | None = arguments.principals
    if path is not None:
        file = _principals(path)
        yield CertificateAuthenticator(file)
        yield UnixAuthenticator(file)
        yield TokenAuthenticator(file)
        yield PasswordAuthenticator(file)
    jwt = jwt_of(arguments)
    if jwt is not None:
        yield jwt
    yield from map(load_authenticator, arguments.authenticator)


def jwt_of(arguments: argparse.Namespace) -> JwtAuthenticator | None:
    """Return the method for JSON Web Tokens; `None` without keys for them.

    Raises:
        CommandError: The options do not go together, or the file cannot be read.
        BadKeySet: The file is no set of keys.
        MissingExtra: The extra is not installed.
    """
    if arguments.jwt_keys is None:
        if arguments.jwt_issuer or arguments.jwt_audience or arguments.jwt_algorithm:
            text = "--jwt-issuer, -audience and -algorithm need --jwt-keys"
            raise CommandError(text, Status.USAGE)
        return None
    if not arguments.jwt_issuer or not arguments.jwt_audience:
        raise CommandError("--jwt-keys needs --jwt-issuer and --jwt-audience", Status.USAGE)
    try:
        return JwtAuthenticator(
            arguments.jwt_keys,
            issuer=arguments.jwt_issuer,
            audience=arguments.jwt_audience,
            algorithms=tuple(arguments.jwt_algorithm) or DEFAULT_ALGORITHMS,
        )
    except OSError as error:
        text = f"--jwt-keys: {arguments.jwt_keys}: {error.strerror}"
        raise CommandError(text, Status.USAGE) from error
