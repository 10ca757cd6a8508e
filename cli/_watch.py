"""`onward watch`: the events of a running broker."""

from __future__ import annotations

import argparse
import json
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from ..protocol import counted
from ._access import access_of
from ._arguments import Commands
from ._broker_options import add_broker
from ._routes import peer_of, tags_of
from ._run import Interrupted, StopRequest, run
from ._show import printable
from ._status import CommandError

__all__ = ["add_commands", "show"]

_DESCRIPTION: Final = """\
Print the events of a running broker, one a line, until Ctrl-C: destinations that register, leave
or are replaced, requests that are rejected or lost, and links to peer brokers that are up or lost.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch", help="print the events of a running broker", description=_DESCRIPTION
    )
    add_broker(parser)
    parser.add_argument("--json", action="store_true", help="print each event as JSON")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    access = access_of(arguments)

    async def watch(stop: StopRequest) -> None:
        # The client library is a slow import; the other commands go without.
        from ._client import watch_broker

        async def follow() -> None:
            watched = watch_broker(arguments.broker, arguments.timeout, access)
            async with aclosing(watched) as events:
                async for event in events:
                    print(json.dumps(event) if arguments.json else show(event), flush=True)

        try:
            await stop.unless(follow())
        except Interrupted:
            return

    run(watch)


def show(event: Any) -> str:
    """Format an event as a line; with one before it if events have been missed.

    Raises:
        CommandError: It is not an event.
    """
    try:
        at = datetime.fromtimestamp(event["at"]).astimezone()
        words = [f"{at:%H:%M:%S}", f"{event['kind']:<8}"]
        if event["route_id"] is not None:
            row = {"tags": dict(event["tags"])}
            words += [event["service"], tags_of(row), peer_of(event), event["route_id"]]
        else:
            words.append(event["peer"])
        words += [event["query"] if not event["reason"] else "", event["reason"]]
        text = printable("  ".join(word for word in words if word))
        missed = int(event["missed"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError("the broker sent an invalid event") from error
    return f"... {counted(missed, 'event')} missed\n{text}" if missed else text
