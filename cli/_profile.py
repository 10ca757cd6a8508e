"""`onward profile`: where the event loop of a running broker spends its time."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ._access import access_of
from ._arguments import Commands, positive
from ._broker_options import add_broker
from ._run import StopRequest, run
from ._show import printable
from ._status import CommandError, Status

__all__ = ["add_commands"]

MAX_SECONDS: Final = 60
"""The longest profile that a broker takes, in seconds."""

_DESCRIPTION: Final = """\
Print the stacks of the event loop's thread in a running broker, taken 100 times a second: a line
for each, its functions from the outermost on with ; between, and how often it was seen. Tools that
draw flame graphs read this form. Meanwhile the broker works as ever, a few per cent slower. Code
that is compiled counts for the function of Python that has called it. It needs a rule that allows
it: operate = true. See `onward broker --rules`.
"""

_EPILOG: Final = """\
example:
  onward profile --seconds 10 > broker.folded
  flamegraph.pl broker.folded > broker.svg
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "profile",
        help="print where a running broker spends its time",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=positive,
        default=10,
        help=f"how long to take samples, at most {MAX_SECONDS} (default %(default)s)",
    )
    add_broker(parser)
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    seconds: int = arguments.seconds
    if seconds > MAX_SECONDS:
        raise CommandError(f"--seconds is at most {MAX_SECONDS}", Status.USAGE)
    answers: list[Any] = []

    async def ask(stop: StopRequest) -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import ask_broker

        question, access = f"/debug/profile?seconds={seconds}", access_of(arguments)
        asked = ask_broker(arguments.broker, question, arguments.timeout + seconds, access)
        answers.append(await stop.unless(asked))

    run(ask)
    (answer,) = answers
    if not isinstance(answer, str):
        told: dict[str, Any] = {**answer} if isinstance(answer, dict) else {}
        raise CommandError(printable(str(told.get("error", "the broker's answer is no profile"))))
    for line in answer.splitlines():
        print(printable(line))
