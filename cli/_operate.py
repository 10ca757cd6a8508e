"""`onward drain` and `onward reload`: operate a running broker."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ._access import access_of
from ._arguments import Commands
from ._broker import add_broker
from ._run import StopRequest, run
from ._show import printable
from ._status import CommandError

__all__ = ["add_commands"]

_DRAIN: Final = """\
Have a running broker end its connections and stop, as SIGUSR2 does. It needs a rule that allows it:
operate = true. See `onward broker --rules`.
"""

_RELOAD: Final = """\
Have a running broker read its certificates, principals and rules anew, as SIGHUP does: all of them,
or none if one cannot be used; the exit status is 1 then. It needs a rule with operate = true.
"""


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    parser = commands.add_parser(
        "drain", help="end the connections of a running broker, and stop it", description=_DRAIN
    )
    parser.add_argument(
        "--undo",
        action="store_true",
        help="take the drain back; the broker does so until it has closed its sockets",
    )
    add_broker(parser)
    parser.set_defaults(command=_drain)
    parser = commands.add_parser(
        "reload", help="have a running broker read its files anew", description=_RELOAD
    )
    add_broker(parser)
    parser.set_defaults(command=_reload)


def _drain(arguments: argparse.Namespace) -> None:
    said = _operate(arguments, "undo-drain" if arguments.undo else "drain")
    print("the broker drains" if said["draining"] else "the drain is undone")


def _reload(arguments: argparse.Namespace) -> None:
    parts: list[str] = _operate(arguments, "reload")["reloaded"]
    print(
        "\n".join(printable(f"reloaded: {part}") for part in parts) or "there is nothing to reload"
    )


def _operate(arguments: argparse.Namespace, operation: str) -> dict[str, Any]:
    """Ask the broker for an operation, and return its answer.

    Raises:
        CommandError: It cannot be reached, or has not done it.
    """
    answers: list[Any] = []

    async def ask(stop: StopRequest) -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import ask_broker

        access = access_of(arguments)
        asked = ask_broker(arguments.broker, operation, arguments.timeout, access)
        answers.append(await stop.unless(asked))

    run(ask)
    if not isinstance(answers[0], dict):
        raise CommandError("the broker's answer is not that of an operation")
    answer: dict[str, Any] = {"draining": False, "reloaded": [], **answers[0]}
    if "error" in answer:
        raise CommandError(printable(str(answer["error"])))
    return answer
