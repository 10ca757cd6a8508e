"""`onward drain`, `reload`, `kick`, `log-level` and `rtt`: operate a running broker."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final

from ._access import access_of
from ._arguments import Commands, positive, word
from ._broker_options import add_broker
from ._run import StopRequest, run
from ._show import printable
from ._status import CommandError

__all__ = ["add_commands"]

_NEEDS: Final = "It needs a rule that allows it: operate = true. See `onward broker --rules`."

_DRAIN: Final = f"""\
Have a running broker end its connections and stop, as SIGUSR2 does. {_NEEDS}
"""

_RELOAD: Final = """\
Have a running broker read its certificates, principals and rules anew, as SIGHUP does: all of them,
or none if one cannot be used; the exit status is 1 then. It needs a rule with operate = true.
"""

_KICK: Final = f"""\
Close a connection of a running broker, by its ID of `onward connections`. Its peer gets the text,
its open requests are canceled, and nothing keeps it from connecting again. {_NEEDS}
"""

_LOG_LEVEL: Final = f"""\
Set the level of the log of a running broker, until it stops. `default` is the level of the logger
above, which is that of `onward broker --log` for `onward`. {_NEEDS}
"""

_RTT: Final = """\
Measure the time from a question to the broker until its answer. The broker answers it itself, so
the time has the network and the broker's event loop in it, and no destination. The first line is
the time to connect, with TLS and authentication.
"""

_LEVELS: Final = ("debug", "info", "warning", "error", "default")

_LIVE: Final = "/livez"


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    parser = _add(
        commands, "drain", "end the connections of a running broker, and stop it", _DRAIN, _drain
    )
    parser.add_argument(
        "--undo",
        action="store_true",
        help="take the drain back; the broker does so until it has closed its sockets",
    )
    _add(commands, "reload", "have a running broker read its files anew", _RELOAD, _reload)
    parser = _add(commands, "kick", "close a connection of a running broker", _KICK, _kick)
    parser.add_argument("connection", metavar="ID", type=positive, help="the connection")
    parser.add_argument(
        "--text", help="the text for its peer, at most 200 characters (default: that it was closed)"
    )
    parser = _add(
        commands, "log-level", "set the level of the log of a broker", _LOG_LEVEL, _log_level
    )
    parser.add_argument(
        "level", metavar="LEVEL", type=word(*_LEVELS), choices=_LEVELS, help=", ".join(_LEVELS)
    )
    parser.add_argument(
        "--logger",
        metavar="NAME",
        default="onward",
        help="onward, or one below it, such as onward.transports.rsocket (default %(default)s)",
    )
    parser = _add(commands, "rtt", "measure the round trip to a running broker", _RTT, _rtt)
    parser.add_argument(
        "--count", metavar="N", type=positive, default=5, help="round trips (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the times as JSON")


def _add(
    commands: Commands,
    name: str,
    text: str,
    description: str,
    command: Callable[[argparse.Namespace], None],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=description)
    add_broker(parser)
    parser.set_defaults(command=command)
    return parser


def _drain(arguments: argparse.Namespace) -> None:
    said = _operate(arguments, "undo-drain" if arguments.undo else "drain")
    print("the broker drains" if said.get("draining") else "the drain is undone")


def _reload(arguments: argparse.Namespace) -> None:
    parts: list[str] = _operate(arguments, "reload").get("reloaded", [])
    print(
        "\n".join(printable(f"reloaded: {part}") for part in parts) or "there is nothing to reload"
    )


def _kick(arguments: argparse.Namespace) -> None:
    given = {"connection": arguments.connection}
    if arguments.text is not None:
        given["text"] = arguments.text
    _operate(arguments, f"/api/v1/kick {json.dumps(given)}")
    print(f"connection {arguments.connection} is closed")


def _log_level(arguments: argparse.Namespace) -> None:
    level = None if arguments.level == "default" else arguments.level
    given = {"logger": arguments.logger, "level": level}
    said = _operate(arguments, f"/api/v1/log-level {json.dumps(given)}")
    print(printable(f"{said.get('logger')} logs {said.get('effective')} and above"))


def _operate(arguments: argparse.Namespace, question: str) -> dict[str, Any]:
    """Ask the broker for an operation, and return its answer.

    Raises:
        CommandError: It cannot be reached, or has not done it.
    """
    answers: list[Any] = []

    async def ask(stop: StopRequest) -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import ask_broker

        access = access_of(arguments)
        asked = ask_broker(arguments.broker, question, arguments.timeout, access)
        answers.append(await stop.unless(asked))

    run(ask)
    if not isinstance(answers[0], dict):
        raise CommandError("the broker's answer is not that of an operation")
    answer: dict[str, Any] = {**answers[0]}
    if "error" in answer:
        raise CommandError(printable(str(answer["error"])))
    return answer


def _rtt(arguments: argparse.Namespace) -> None:
    access = access_of(arguments)

    async def work(stop: StopRequest) -> None:
        from ._client import asking

        async def measure() -> None:
            began = time.perf_counter()
            async with asking(arguments.broker, arguments.timeout, access) as ask:
                connected = time.perf_counter() - began
                times: list[float] = []
                if not arguments.json:
                    print(f"connected in {connected * 1000:.2f} ms", flush=True)
                for number in range(arguments.count):
                    if number:
                        await asyncio.sleep(PAUSE)
                    asked = time.perf_counter()
                    await ask(_LIVE)
                    times.append(time.perf_counter() - asked)
                    if not arguments.json:
                        print(f"{times[-1] * 1000:.2f} ms", flush=True)
            if arguments.json:
                print(json.dumps({"connected": connected, "times": times}))
            else:
                print(f"median {sorted(times)[len(times) // 2] * 1000:.2f} ms")

        await stop.unless(measure())

    run(work)


PAUSE: Final = 0.1
"""Seconds between two round trips: each finds the broker's event loop in another state."""
