"""The rules of a broker from a file, and the options for them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path

from ..actors import PrepareReload
from ..actors.security import Authorization, load_authorizer
from ..protocol.security import MAX_RULES_FILE, Rules, read_rules
from ..protocol.toml import FileError
from ._show import printable
from ._status import CommandError, Status

__all__ = ["add_rules", "authorization_of", "load_rules", "reload_of"]


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options of the authorization of clients."""
    parser.add_argument(
        "--rules",
        metavar="FILE",
        type=Path,
        help="let clients register, request and read only what a rule of this file allows; "
        "`onward check-access` tries one out (default: they may do anything)",
    )
    parser.add_argument(
        "--authorizer",
        metavar="NAME",
        action="append",
        default=[],
        help="with --rules: ask this plug-in as well, which may allow and deny more; may be "
        "repeated",
    )


def authorization_of(arguments: argparse.Namespace) -> Authorization | None:
    """Return the authorization of clients; `None` if they may do anything.

    Raises:
        CommandError: The file cannot be read, or the options do not go together.
        ValueError: There is no such plug-in.
    """
    path: Path | None = arguments.rules
    names: list[str] = arguments.authorizer
    if path is None:
        if names:
            raise CommandError("--authorizer goes with --rules", Status.USAGE)
        return None
    return Authorization(load_rules(path), [load_authorizer(name) for name in names])


def load_rules(path: Path) -> Rules:
    """Return the rules of a file.

    Raises:
        CommandError: The file cannot be read, or has problems; the error names all of them.
    """
    try:
        return _read(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", Status.USAGE) from error
    except FileError as error:
        raise CommandError(printable(str(error)), Status.USAGE) from error


def _read(path: Path) -> Rules:
    with path.open("rb") as file:
        return read_rules(file.read(MAX_RULES_FILE + 1), str(path))


def reload_of(path: Path, authorization: Authorization) -> PrepareReload:
    """Return the part of a reload that replaces the rules by those of a file."""

    async def prepare() -> Callable[[], object]:
        rules = await asyncio.to_thread(_read, path)
        return lambda: authorization.replace(rules)

    return prepare
