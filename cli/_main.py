"""The parser of the `onward` command, and its handling of errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

from ..protocol import OnwardError
from ._arguments import Commands
from ._context import apply_context
from ._status import CommandError, Status, status_of
from ._version import Version

__all__ = ["run_command"]

_DESCRIPTION: Final = "Routed actors: run a broker or a node, and send messages along routes."

_EPILOG: Final = """\
exit status:
  0  done; a server was stopped by Ctrl-C or SIGTERM
  1  certainly not done: no peer was reached, no message was delivered
  2  the command line is wrong
  3  in doubt: handed over, and no answer came; doing it again may do it twice
"""

_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "broker": "_broker",
        "node": "_node",
        "dispatch": "_dispatch",
        "send": "_message",
        "request": "_message",
        "trace": "_trace",
        "routes": "_routes",
        "resolve": "_resolve",
        "watch": "_watch",
        "statistics": "_statistics",
        "workers": "_look",
        "links": "_look",
        "peers": "_look",
        "dead-letters": "_look",
        "addresses": "_dispatch_tables",
        "network": "_dispatch_tables",
        "containers": "_dispatch_tables",
        "identities": "_identity_tables",
        "connections": "_broker_tables",
        "services": "_broker_tables",
        "waiting": "_broker_tables",
        "limits": "_broker_tables",
        "top": "_top",
        "context": "_context",
        "token": "_token",
        "password": "_password",
        "jwt": "_jwt",
        "identity": "_identity",
        "lookup": "_directory",
        "check": "_check",
        "check-access": "_check_access",
        "bench": "_bench",
        "report": "_report",
        "up": "_up",
        "drain": "_operate",
        "reload": "_operate",
        "kick": "_operate",
        "log-level": "_operate",
        "rtt": "_operate",
        "profile": "_profile",
        "config": "_broker _node _dispatch _config_command",
        "systemd-unit": "_broker _node _dispatch _systemd_unit",
        "draw": "_draw",
        "events": "_events",
        "pipeline": "_pipeline",
    }
)
"""The module of each command, in the order of the help, behind the modules of the servers that have
options it reads. For a given command only these are imported: all take a quarter of a second."""

_STANDARD_FILES: Final = ("stdin", "stdout", "stderr")
"""The names in `sys` of the files with the numbers 0, 1 and 2."""


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The words after `onward`; those of the process by default.

    Returns:
        The exit status; see `Status`.

    Raises:
        SystemExit: The command line is wrong, or help was asked for.
    """
    _open_standard_files()
    words = sys.argv[1:] if arguments is None else arguments
    name = next(iter(words), "")
    try:
        parsed = _parser(name).parse_args(words)
    except KeyboardInterrupt:
        # The modules of the command were being imported.
        return _failed(name, "interrupted", Status.FAILED)
    try:
        apply_context(parsed, os.environ)
        parsed.command(parsed)
    except CommandError as error:
        status = getattr(parsed, "usage_status", error.status)
        return _failed(name, error, status)
    except OnwardError as error:
        return _failed(name, error, status_of(error))
    except ValueError as error:
        return _failed(name, error, Status.USAGE)
    except KeyboardInterrupt:
        # Interrupted before the loop took over the signal: nothing has been done.
        return _failed(name, "interrupted", Status.FAILED)
    except BrokenPipeError:
        # The reader of our output has gone. Python's own flush at exit must not fail on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.FAILED
    except OSError as error:
        return _failed(name, error, Status.FAILED)
    return Status.OK


def _open_standard_files() -> None:
    """Open the null device in place of a standard file that is closed: input, output or errors.

    A connection that is made would have its number then. uvloop aborts the process when it closes
    one of these numbers, and what is printed would be sent to the peer.
    """
    for number, name in enumerate(_STANDARD_FILES):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number: those below it are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            if getattr(sys, name) is None:
                mode = "r" if number == 0 else "w"
                setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


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
    for each in _parser(command)._actions:
        if isinstance(each, argparse._SubParsersAction):
            commands = cast("Commands", each)
            return commands.choices[command]
    raise AssertionError("there are commands")


def _parser(command: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands, or of those in the modules of one command."""
    parser = _Parser(
        prog="onward",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version)
    made = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    commands = cast("Commands", made)
    modules = _MODULES.get(command) or " ".join(_MODULES.values())
    for module in dict.fromkeys(modules.split()):
        import_module(f".{module}", __package__).add_commands(commands)
    return parser
