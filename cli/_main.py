"""The parser of the `onward` command, and its handling of errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast

from ..protocol import OnwardError
from . import (
    _bench,
    _broker,
    _broker_tables,
    _check,
    _check_access,
    _config_command,
    _context,
    _draw,
    _events,
    _jwt,
    _look,
    _message,
    _node,
    _operate,
    _password,
    _pipeline,
    _profile,
    _report,
    _resolve,
    _routes,
    _statistics,
    _systemd_unit,
    _token,
    _top,
    _trace,
    _up,
    _watch,
)
from ._arguments import Commands
from ._context import apply_context
from ._status import CommandError, Status, status_of
from ._version import Version

__all__ = ["main"]

_DESCRIPTION: Final = "Routed actors: run a broker or a node, and send messages along routes."

_EPILOG: Final = """\
exit status:
  0  done; a server was stopped by Ctrl-C or SIGTERM
  1  certainly not done: no peer was reached, no message was delivered
  2  the command line is wrong
  3  in doubt: handed over, and no answer came; doing it again may do it twice
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The words after `onward`; those of the process by default.

    Returns:
        The exit status; see `Status`.

    Raises:
        SystemExit: The command line is wrong, or help was asked for.
    """
    parsed = _parser().parse_args(arguments)
    try:
        apply_context(parsed, os.environ)
        parsed.command(parsed)
    except CommandError as error:
        status = getattr(parsed, "usage_status", error.status)
        return _failed(parsed.name, error, status)
    except OnwardError as error:
        return _failed(parsed.name, error, status_of(error))
    except ValueError as error:
        return _failed(parsed.name, error, Status.USAGE)
    except KeyboardInterrupt:
        # Interrupted before the loop took over the signal: nothing has been done.
        return _failed(parsed.name, "interrupted", Status.FAILED)
    except BrokenPipeError:
        # The reader of our output has gone. Python's own flush at exit must not fail on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.FAILED
    except OSError as error:
        return _failed(parsed.name, error, Status.FAILED)
    return Status.OK


def _failed(name: str, error: object, status: Status) -> Status:
    print(f"onward {name}: {error}", file=sys.stderr)
    return status


class _Parser(argparse.ArgumentParser):
    """A parser that reports unknown arguments itself.

    argparse leaves them to the parent parser, and its usage text lacks the command's options.
    The parsers of commands have this class too: a parser makes its subparsers of its own class.
    """

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        status: int = self.get_default("usage_status") or Status.USAGE
        self.exit(status, f"{self.prog}: error: {message}\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        if not hasattr(found, "words"):  # the command's own: its parser is the first to end
            found.words = tuple(args or ())
        return found, unknown


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command, for tools that read its options."""
    for each in _parser()._actions:
        if isinstance(each, argparse._SubParsersAction):
            commands = cast("Commands", each)
            return commands.choices[command]
    raise AssertionError("there are commands")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="onward",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version)
    made = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    commands = cast("Commands", made)
    _broker.add_command(commands)
    _node.add_command(commands)
    _message.add_commands(commands)
    _trace.add_command(commands)
    _routes.add_command(commands)
    _resolve.add_command(commands)
    _watch.add_command(commands)
    _statistics.add_command(commands)
    _look.add_commands(commands)
    _broker_tables.add_commands(commands)
    _top.add_command(commands)
    _context.add_command(commands)
    _token.add_command(commands)
    _password.add_command(commands)
    _jwt.add_command(commands)
    _check.add_command(commands)
    _check_access.add_command(commands)
    _bench.add_command(commands)
    _report.add_command(commands)
    _up.add_command(commands)
    _operate.add_commands(commands)
    _profile.add_command(commands)
    _config_command.add_command(commands)
    _systemd_unit.add_command(commands)
    _draw.add_command(commands)
    _events.add_command(commands)
    _pipeline.add_command(commands)
    return parser
