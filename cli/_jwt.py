"""`onward jwt inspect`: the claims of a JSON Web Token, and why a broker would refuse it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ..actors.security import JwtAuthenticator
from ..protocol.security import (
    MAX_TOKEN,
    BearerToken,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    inspect_jwt,
)
from ._arguments import Commands
from ._authentication import add_jwt, jwt_of
from ._run import StopRequest, run
from ._show import printable
from ._status import CommandError

__all__ = ["add_commands"]

_DESCRIPTION: Final = "Look into JSON Web Tokens."

_INSPECT: Final = """\
Print the header and the claims of a JSON Web Token. With --jwt-keys, verify it as a broker with
the same options does, and print its principal, or the cause of the refusal. Without, nothing is
verified.
"""

_TIMES: Final = ("exp", "nbf", "iat")
_STDIN: Final = "-"


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("jwt", help="look into JSON Web Tokens", description=_DESCRIPTION)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    inspect = actions.add_parser("inspect", help="print and verify a token", description=_INSPECT)
    inspect.add_argument(
        "file", metavar="FILE", nargs="?", default=_STDIN, help="the token (default: of stdin)"
    )
    add_jwt(inspect)
    inspect.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    method = jwt_of(arguments)
    token = _token(arguments.file)
    try:
        header, claims = inspect_jwt(token)
    except NotAuthenticated:
        raise CommandError("it is not a JSON Web Token") from None
    for name, value in {**header, **claims}.items():
        print(printable(f"{name:<6} {_shown(name, value)}"))
    if method is not None:
        _verify(method, token)


def _token(file: str) -> bytes:
    if file == _STDIN:
        text = sys.stdin.read(MAX_TOKEN + 2).encode(errors="replace")
    else:
        with Path(file).open("rb") as opened:
            text = opened.read(MAX_TOKEN + 2)
    token = text.strip()
    if len(token) > MAX_TOKEN:
        raise CommandError(f"it has more than {MAX_TOKEN} bytes")
    return token


def _shown(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if name not in _TIMES or isinstance(value, bool) or not isinstance(value, int | float):
        return text
    try:
        return f"{text} ({datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%SZ})"
    except (OverflowError, ValueError, OSError):
        return text


def _verify(method: JwtAuthenticator, token: bytes) -> None:
    async def ask(stop: StopRequest) -> None:
        try:
            found = await stop.unless(method.authenticate(BearerToken(token), PeerIdentity()))
        except NotAuthenticated as error:
            raise CommandError(f"refused: {error.cause}") from None
        finally:
            await method.close()
        if found is None:
            raise CommandError("it is left to other methods of authentication")
        print(printable(_principal(found)))

    run(ask)


def _principal(principal: Principal) -> str:
    roles = f", with the roles {', '.join(sorted(principal.roles))}" if principal.roles else ""
    left = (principal.expires or 0) - time.time()
    return f"accepted as {principal.name}{roles}, for {max(0, left):.0f} s"
