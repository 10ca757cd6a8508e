"""The authentication of peers: by a file of principals, an issuer, a worker, or plug-ins."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..actors import Node
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
    load_principals,
)
from ..protocol import OnwardError
from ..protocol.security import (
    DEFAULT_ALGORITHMS,
    JWT_ALGORITHMS,
    Principals,
    join_principals,
)
from ..protocol.toml import suggestion
from ._callout import NodeOf, add_callout, callout_of
from ._show import printable_lines
from ._status import CommandError, Status

__all__ = [
    "Methods",
    "add_authentication",
    "add_jwt",
    "add_peers",
    "authenticates",
    "authentication_of_peers",
    "jwt_of",
    "principals_of",
]

_NO_PRINCIPALS: Final = Principals()

_NEEDS: Final = "{} goes with --principals, --jwt-keys or --callout"


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
    add_callout(parser, broker=True)
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
    parser.add_argument(
        "--authenticate",
        metavar="METHOD",
        action="append",
        default=[],
        help="a method to try, of those that the options above give, such as certificate or jwt; "
        "may be repeated, in the order of trying (default: all, in the order of the options)",
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
    parser.add_argument(
        "--jwt-role-tags",
        metavar="ROLE:TAGS",
        action="append",
        default=[],
        help="add these tags to all that peers with a role register and request, as in "
        "'shop: tenant=a'; may be repeated",
    )
    parser.add_argument(
        "--jwt-claim-tag",
        metavar="CLAIM=KEY",
        action="append",
        default=[],
        help="add a tag with the value of a claim to all that peers register and request, as in "
        "org=tenant; tokens without the claim are refused; may be repeated",
    )


class Methods:
    """The methods of authentication of a server, made once, of which each listener has some.

    Args:
        arguments: The options of the server.
        newest: Returns the options that a reload reads files by; by default these.

    Raises:
        CommandError: A file cannot be read, or the options do not go together.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        newest: Callable[[], argparse.Namespace] | None = None,
    ) -> None:
        self._node: Node | None = None
        try:
            found = list(_methods(arguments, newest or (lambda: arguments), self._running_node))
        except (OnwardError, TypeError, ValueError) as error:
            raise CommandError(printable_lines(str(error)), Status.USAGE) from error
        self._found = {each.method: each for each in found}
        self._made: dict[tuple[tuple[str, ...], str], Authentication] = {}
        if len(self._found) < len(found):
            names = ", ".join(each.method for each in found)
            raise CommandError(f"two methods have one name: {names}", Status.USAGE)

    def of(self, arguments: argparse.Namespace) -> Authentication | None:
        """Return the authentication by the methods that the options name; `None` without any.

        Listeners with the same methods and the same `per_request` share one.

        Raises:
            CommandError: There is no such method, or the options do not go together.
        """
        known = {*self._found, "anonymous"}
        wanted: list[str] = arguments.authenticate
        for name in wanted:
            if name not in known:
                text = f"--authenticate: {name!r} is not one of {', '.join(sorted(known))}"
                raise CommandError(f"{text}{suggestion(name, sorted(known))}", Status.USAGE)
        names = tuple(dict.fromkeys(wanted)) or tuple(self._found)
        if arguments.anonymous and "anonymous" not in names:
            names = (*names, "anonymous")
        if set(names) <= {"anonymous"} and not wanted:
            if arguments.anonymous:
                raise CommandError(_NEEDS.format("--anonymous"), Status.USAGE)
            if arguments.per_request == "check":
                raise CommandError(_NEEDS.format("--per-request check"), Status.USAGE)
            return None
        options = AuthenticationOptions(per_request=arguments.per_request)
        key = names, arguments.per_request
        if key not in self._made:
            # Not among those found: it is a method only where it is named.
            methods = {"anonymous": AnonymousAuthenticator(), **self._found}
            self._made[key] = Authentication([methods[name] for name in names], options)
        return self._made[key]

    def runs_on(self, node: Node) -> None:
        """Keep the node that asks for the method `callout`. Call it before the first peer."""
        self._node = node

    def _running_node(self) -> Node:
        if self._node is None:
            raise AssertionError("peers come before the node")
        return self._node

    def all(self) -> tuple[Authentication, ...]:
        """Return the authentications made."""
        return tuple(self._made.values())

    async def close(self) -> None:
        """Release what the methods hold."""
        for each in self._found.values():
            await each.close()


def add_peers(parser: argparse.ArgumentParser) -> None:
    """Add the options of the authentication of nodes."""
    parser.add_argument(
        "--principals",
        metavar="FILE",
        type=Path,
        help="accept only peers that have an entry in this file of principals, by a certificate, "
        "the user of a Unix socket, a token or a password (default: accept all peers)",
    )
    add_jwt(parser)
    add_callout(parser, broker=False)
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="with one of these: accept peers without credentials as well, as `anonymous`",
    )


def authentication_of_peers(
    arguments: argparse.Namespace,
    node_of: NodeOf,
    newest: Callable[[], argparse.Namespace] | None = None,
) -> Authentication | None:
    """Return the authentication of nodes; `None` if all are accepted.

    Args:
        arguments: The options of the node.
        node_of: Returns the node.
        newest: As for `Methods`.

    Raises:
        CommandError: A file cannot be read, or the options do not go together.
    """
    try:
        methods = list(_of_all(arguments, newest or (lambda: arguments), node_of))
    except (OnwardError, ValueError) as error:
        raise CommandError(printable_lines(str(error)), Status.USAGE) from error
    if arguments.anonymous:
        if not methods:
            raise CommandError(_NEEDS.format("--anonymous"), Status.USAGE)
        methods.append(AnonymousAuthenticator())
    return Authentication(methods) if methods else None


def authenticates(arguments: argparse.Namespace) -> bool:
    """Whether a node asks its peers for credentials."""
    return bool(
        arguments.principals
        or arguments.jwt_keys
        or arguments.callout
        or getattr(arguments, "inline_principals", _NO_PRINCIPALS) != _NO_PRINCIPALS
    )


def principals_of(arguments: argparse.Namespace) -> Principals | None:
    """Return the entries of the file of principals and of the configuration; `None` without both.

    Raises:
        OSError: The file cannot be read.
        FileError: It has problems.
        ValueError: An entry is in both.
    """
    path: Path | None = arguments.principals
    own: Principals = getattr(arguments, "inline_principals", _NO_PRINCIPALS)
    if path is None:
        return own if own != _NO_PRINCIPALS else None
    return join_principals(load_principals(path), own)


def _file_of(
    arguments: argparse.Namespace, newest: Callable[[], argparse.Namespace]
) -> PrincipalsFile | None:
    try:
        if principals_of(arguments) is None:
            return None
    except OSError as error:
        text = f"--principals: {arguments.principals}: {error.strerror}"
        raise CommandError(text, Status.USAGE) from error
    return PrincipalsFile(lambda: principals_of(newest()) or _NO_PRINCIPALS)


def _methods(
    arguments: argparse.Namespace, newest: Callable[[], argparse.Namespace], node_of: NodeOf
) -> Iterator[Authenticator]:
    yield from _of_all(arguments, newest, node_of)
    yield from map(load_authenticator, arguments.authenticator)


def _of_all(
    arguments: argparse.Namespace, newest: Callable[[], argparse.Namespace], node_of: NodeOf
) -> Iterator[Authenticator]:
    """Yield the methods that brokers and nodes have, in the order of trying."""
    file = _file_of(arguments, newest)
    if file is not None:
        yield CertificateAuthenticator(file)
        yield UnixAuthenticator(file)
        yield TokenAuthenticator(file)
        yield PasswordAuthenticator(file)
    yield from filter(None, (jwt_of(arguments), callout_of(arguments, node_of)))


def jwt_of(arguments: argparse.Namespace) -> JwtAuthenticator | None:
    """Return the method for JSON Web Tokens; `None` without keys for them.

    Raises:
        CommandError: The options do not go together, or the file cannot be read.
        BadKeySet: The file is no set of keys.
        MissingExtra: The extra is not installed.
    """
    if arguments.jwt_keys is None:
        others = "issuer", "audience", "algorithm", "role_tags", "claim_tag"
        if any(getattr(arguments, f"jwt_{each}") for each in others):
            text = "--jwt-issuer, -audience, -algorithm, -role-tags and -claim-tag need --jwt-keys"
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
            role_tags=_role_tags(arguments.jwt_role_tags),
            claim_tags=_claim_tags(arguments.jwt_claim_tag),
        )
    except OSError as error:
        text = f"--jwt-keys: {arguments.jwt_keys}: {error.strerror}"
        raise CommandError(text, Status.USAGE) from error


def _role_tags(given: list[str]) -> dict[str, dict[str, str]]:
    made: dict[str, dict[str, str]] = {}
    for text in given:
        role, colon, tags = text.partition(":")
        words = tags.split()
        pairs = [word.partition("=") for word in words]
        if not colon or not role.strip() or not words or not all(each[1] for each in pairs):
            usage = f"--jwt-role-tags: {text!r} is not ROLE: KEY=VALUE ..."
            raise CommandError(printable_lines(usage), Status.USAGE)
        forced = made.setdefault(role.strip(), {})
        for key, _, value in pairs:
            if forced.setdefault(key, value) != value:
                usage = f"--jwt-role-tags: {role.strip()!r} has two values for {key}"
                raise CommandError(printable_lines(usage), Status.USAGE)
    return made


def _claim_tags(given: list[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for text in given:
        claim, equals, key = text.rpartition("=")
        if not equals or not claim or not key or claim in made:
            usage = f"--jwt-claim-tag: {text!r} is not CLAIM=KEY, or the claim has a key already"
            raise CommandError(printable_lines(usage), Status.USAGE)
        made[claim] = key
    return made
