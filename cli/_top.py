"""`onward top`: what a broker does now, on the whole screen."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ._access import access_of
from ._arguments import Commands, positive, seconds
from ._broker_options import add_broker
from ._run import Interrupted, StopRequest, run
from ._status import CommandError, Status
from ._top_views import VIEWS, Rates, Sample, TopState, frame

if TYPE_CHECKING:
    from ._client import Ask

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Show what a running broker does now, on the whole screen: what is wrong first, then its busiest
services, connections, routes or workers, with rates since the last look.

Keys: 1 to 4 choose the view, s the column to sort by, r reverses the order, p pauses, q quits.
Without a terminal it prints one look after another; with --json one line of JSON for each.
"""

SHORTEST: Final = 0.1
"""The shortest interval between two looks, in seconds."""

FIRST: Final = 1.0
"""The longest time between the first two looks, in seconds: only the second one has rates."""

MAX_ROWS: Final = 200
"""The maximum number of rows that are asked for."""

PLAIN_ROWS: Final = 20
"""The rows of a look that is printed."""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "top",
        help="show what a running broker does now",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_broker(parser)
    names = [view.name for view in VIEWS]
    parser.add_argument(
        "--view", choices=names, default=names[0], help="the view (default %(default)s)"
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=2.0,
        help=f"from one look to the next, at least {SHORTEST:g} (default %(default)g)",
    )
    parser.add_argument(
        "--count",
        metavar="N",
        type=positive,
        help="the number of looks (default: until q or Ctrl-C)",
    )
    parser.add_argument("--sort", metavar="COLUMN", help="the column to sort by, as s shows them")
    parser.add_argument(
        "--top",
        metavar="N",
        type=positive,
        default=PLAIN_ROWS,
        help=f"rows of a look that is printed, at most {MAX_ROWS} (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each look")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    access = access_of(arguments)
    if arguments.interval < SHORTEST:
        raise CommandError(f"--interval takes at least {SHORTEST:g} seconds", Status.USAGE)
    if arguments.top > MAX_ROWS:
        raise CommandError(f"--top takes at most {MAX_ROWS}", Status.USAGE)
    state = TopState([view.name for view in VIEWS].index(arguments.view))
    if arguments.sort is not None:
        if arguments.sort not in state.shown.sort:
            raise CommandError(f"--sort is one of {', '.join(state.shown.sort)}", Status.USAGE)
        state.sort = state.shown.sort.index(arguments.sort)
    on_screen = sys.stdout.isatty() and not arguments.json

    async def work(stop: StopRequest) -> None:
        async def show() -> None:
            from ._client import asking

            async with asking(arguments.broker, arguments.timeout, access) as ask:
                looks = _Looks(ask, state)
                await (_watch(looks, arguments, stop) if on_screen else _print(looks, arguments))

        # To be stopped is how it ends, but for a number of looks that were asked for.
        with suppress(*(() if arguments.count is not None else (Interrupted,))):
            await stop.unless(show())

    run(work)


class _Looks:
    """Looks at a broker, with the rates since the last one.

    Args:
        ask: The function that asks the broker.
        state: What is shown, and how.
    """

    def __init__(self, ask: Ask, state: TopState) -> None:
        self.state = state
        self._ask = ask
        self._rates = Rates()
        self._before: tuple[float, int] | None = None

    async def take(self, rows: int) -> Sample:
        """Ask the broker.

        Raises:
            CommandError: It does not answer as a broker does.
        """
        view = self.state.shown
        figures = await self._ask("statistics")
        found = await self._ask("/api/v1/problems")
        answer = await self._ask(self.state.query(rows))
        now = time.monotonic()
        for each in (figures, found, answer):
            if isinstance(each, dict) and "error" in each:
                raise CommandError(f"the broker's answer is: {each['error']!r}")
        try:
            requests = sum(each["requests"] for each in figures["listeners"])
            before, self._before = self._before, (now, requests)
            rate = None if before is None else max(0.0, requests - before[1]) / (now - before[0])
            return Sample(
                time.time(),
                {**figures, "requests_rate": rate},
                found["problems"],
                answer["total"],
                self._rates.add(view, answer["rows"], now),
            )
        except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
            raise CommandError(f"the broker's answer has no {view.name}") from error


async def _print(looks: _Looks, arguments: argparse.Namespace) -> None:
    """Print looks as text or JSON."""
    left: int | None = arguments.count
    # The first look gives the rates of the next one.
    await looks.take(arguments.top)
    await asyncio.sleep(min(FIRST, arguments.interval))
    while left is None or left > 0:
        sample = await looks.take(arguments.top)
        # A frame also checks the answers.
        size = 10_000, arguments.top + len(sample.problems) + 3
        lines = frame(looks.state, sample, arguments.broker, size, color=False)
        if arguments.json:
            print(json.dumps(_row(sample, looks.state, arguments.broker)), flush=True)
        else:
            print("\n".join(line.rstrip() for line in lines[:-1] if line), end="\n\n", flush=True)
        left = None if left is None else left - 1
        if left != 0:
            await asyncio.sleep(arguments.interval)


def _row(sample: Sample, state: TopState, broker: str) -> dict[str, Any]:
    return {
        "at": sample.at,
        "broker": broker,
        "view": state.shown.name,
        "problems": sample.problems,
        "statistics": sample.figures,
        "total": sample.total,
        "rows": sample.rows,
    }


async def _watch(looks: _Looks, arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Show looks on the screen, until a key or a signal ends it."""
    # It needs a terminal as Unix has it; other commands go without.
    from ._screen import Screen, has_color

    state, news, resized = looks.state, asyncio.Event(), asyncio.Event()

    def press(key: str) -> None:
        if key in ("q", "Q", "\x04"):
            stop.wish()
        elif state.press(key):
            news.set()

    screen = Screen(press, resized.set, stop.wish)
    color = has_color(os.environ)
    left: int | None = arguments.count
    interval = min(FIRST, arguments.interval)
    with screen.taken():
        while left is None or left > 0:
            sample = await looks.take(min(max(1, screen.size[1]), MAX_ROWS))
            screen.draw(frame(state, sample, arguments.broker, screen.size, color=color))
            left = None if left is None else left - 1
            while left != 0 and not await _news(news, resized, interval, state):
                screen.draw(frame(state, sample, arguments.broker, screen.size, color=color))
            interval = arguments.interval


async def _news(
    news: asyncio.Event, resized: asyncio.Event, interval: float, state: TopState
) -> bool:
    """Wait until the broker is to be asked again; return False if only the size has changed."""
    waits = [asyncio.ensure_future(each.wait()) for each in (news, resized)]
    try:
        # What is paused waits for a key.
        timeout = None if state.paused else interval
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    again = news.is_set() or not resized.is_set()
    news.clear()
    resized.clear()
    return again
