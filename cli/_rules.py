"""The rules of a broker from a file, and the options for them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path

from ..actors import PrepareReload
from ..actors.security import Authorization, load_authorizer
from ..protocol.security import MAX_RULES_FILE, Rule, Rules, contradictions, read_rules
from ..protocol.toml import FileError
from ._show import printable_lines
from ._status import CommandError, Status

__all__ = ["add_rules", "authorization_of", "load_rules", "reload_of", "rules_of"]


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
    names: list[str] = arguments.authorizer
    try:
        rules = rules_of(arguments)
    except OSError as error:
        raise CommandError(f"{arguments.rules}: {error.strerror}", Status.USAGE) from error
    except (FileError, ValueError) as error:
        raise CommandError(printable_lines(str(error)), Status.USAGE) from error
    if rules is None:
        if names:
            raise CommandError("--authorizer goes with --rules", Status.USAGE)
        return None
    return Authorization(rules, [load_authorizer(name) for name in names])


def rules_of(arguments: argparse.Namespace) -> Rules | None:
    """Return the rules of the file and of the configuration; `None` without both.

    Raises:
        OSError: The file cannot be read.
        FileError: It has problems.
        ValueError: The rules of both do not go together.
    """
    path: Path | None = arguments.rules
    own: tuple[Rule, ...] = getattr(arguments, "inline_rules", ())
    if path is None and not own:
        return None
    rules = Rules((*(() if path is None else _read(path).rules), *own))
    wrong = [
        f"{rule.origin}: it allows nothing, as another rule denies it: {other}"
        for rule, other in contradictions(rules.rules)
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
    return rules


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
        raise CommandError(printable_lines(str(error)), Status.USAGE) from error


def _read(path: Path) -> Rules:
    with path.open("rb") as file:
        return read_rules(file.read(MAX_RULES_FILE + 1), str(path))


def reload_of(
    newest: Callable[[], argparse.Namespace], authorization: Authorization
) -> PrepareReload:
    """Return the part of a reload that replaces the rules.

    Args:
        newest: Returns the options that name their file.
        authorization: The authorization that gets them.
    """

    async def prepare() -> Callable[[], object]:
        rules = await asyncio.to_thread(rules_of, newest())
        if rules is None:
            raise ValueError("there are no rules any more; to allow everything, restart the broker")
        return lambda: authorization.replace(rules)

    return prepare
