"""The demo's other processes: started, listened to, and never left behind."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onward.actors.broker import MANAGEMENT_SERVICE
from onward.transports.client import Client, connect

from .stage import DemoFailed, check, say

PROGRAMS = Path(__file__).resolve().parent.parent / "demo_processes"
ONWARD = (sys.executable, "-m", "onward.cli")

WAIT = 30.0
"""Seconds that one step may take. Most of it is for a machine that is busy with other things:
there it can take an interpreter half of that to start."""

OFTEN = 0.1
"""Seconds from one look at the broker's table to the next."""

MANY = 12
"""Most data of a request, or answers to it, that are all printed."""


class Child:
    """A process, with its lines printed and remembered as they come."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, show: Callable[[str], bool]
    ) -> None:
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self._show = show
        self._more = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for raw in self.process.stdout:
            line = raw.decode().rstrip()
            if self._show(line):
                say(self.name, line)
            await self._note(line)
        await self._note(None)

    async def _note(self, line: str | None) -> None:
        async with self._more:
            if line is not None:
                self.lines.append(line)
            self._more.notify_all()

    async def line(self, wanted: Callable[[str], bool], what: str, *, skip: int = 0) -> str:
        """Wait until there is a line that is wanted, and return the first, or one further on."""
        found: list[str] = []

        def there() -> bool:
            found[:] = list(filter(wanted, self.lines))[skip:]
            return bool(found) or self._reader.done()

        try:
            async with asyncio.timeout(WAIT), self._more:
                await self._more.wait_for(there)
        except TimeoutError:
            raise DemoFailed(f"{self.name}: {what} did not come in {WAIT:g} s") from None
        check(bool(found), f"{self.name} ended before {what} came")
        return found[0]

    async def says(self, line: str) -> None:
        """Wait until it has printed that very line."""
        await self.line(line.__eq__, repr(line))

    async def listening(self, scheme: str) -> str:
        """Wait until a server listens, and return what follows `scheme://`."""
        start = f"listening {scheme}://"
        line = await self.line(lambda line: line.startswith(start), "its address")
        return line.removeprefix(start)

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def stop(self) -> None:
        """Ask it to end, and check that it does, and cleanly."""
        self.process.send_signal(signal.SIGTERM)
        await self.ended()

    async def end_of_input(self) -> None:
        """Close its input, and check that it ends, and cleanly."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.ended()

    async def ended(self) -> None:
        try:
            async with asyncio.timeout(WAIT):
                status = await self.process.wait()
                await self._reader
        except TimeoutError:
            raise DemoFailed(f"{self.name} did not stop in {WAIT:g} s") from None
        check(status == 0, f"{self.name} ended with status {status}")

    async def kill(self) -> None:
        """End it without a chance to say goodbye."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        # Without the lines there is nothing to wait for; they end with the process.
        await self._reader


@asynccontextmanager
async def child(
    name: str, *command: str, show: Callable[[str], bool] = lambda _line: True
) -> AsyncGenerator[Child]:
    """Start a process; in the end it is killed if it still runs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, limit=1024 * 1024
    )
    made = Child(name, process, show)
    try:
        yield made
    finally:
        await made.kill()


@asynccontextmanager
async def program(
    name: str, file: str, *arguments: str, show: Callable[[str], bool] = lambda _line: True
) -> AsyncGenerator[Child]:
    """Start one of the demo's programs."""
    command = (sys.executable, str(PROGRAMS / file), *arguments)
    async with child(name, *command, show=show) as process:
        yield process


class Requester:
    """A requester's process: one line in for a request, one line out for its result.

    Attributes:
        process: The process.
        answered: How many answers of each destination have come.
    """

    def __init__(self, process: Child) -> None:
        self.process = process
        self.answered = Counter[str]()
        self._last = 0

    async def ask(self, interaction: str, *data: str, to: str, **more: str) -> Any:
        """Make a request, print and return its result: a list of answers, or an error."""
        self._last += 1
        number = self._last
        request = {"id": number, "interaction": interaction, "to": to, "data": data, **more}
        say(self.process.name, f"{interaction} {_short(data)} to {to}")
        self.process.write(json.dumps(request))
        line = await self.process.line(
            lambda line: json.loads(line)["id"] == number, f"the result of {interaction}"
        )
        result = json.loads(line)
        if result.get("answers"):
            say(self.process.name, f"got {_short(result['answers'])}")
            self.answered.update(each.rpartition(" from ")[2] for each in result["answers"])
        elif "error" in result:
            say(self.process.name, f"got the error {result['error']!r}")
        return result.get("answers", result.get("error"))


def _short(texts: Any) -> str:
    """Write texts down; of too many the first and the last."""
    if len(texts) <= MANY:
        return ", ".join(map(repr, texts))
    return f"{texts[0]!r}, {texts[1]!r} ... {texts[-1]!r} ({len(texts)})"


async def printed(*command: str) -> str:
    """Run an `onward` command to its end, and return what it prints."""
    async with child(command[0], *ONWARD, *command, show=lambda _line: False) as process:
        await process.ended()
        return "\n".join(process.lines)


class Routes:
    """The broker's table, asked for over one connection.

    To run `onward routes` for each look would take longer than what is waited for.

    Args:
        client: A client of the broker.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def until(self, service: str, tag: str, names: set[str]) -> None:
        """Wait until these are the destinations of a service, by a tag, and no others."""
        found: set[str] = set()
        try:
            async with asyncio.timeout(WAIT):
                while True:
                    answer = await self._client.request(f"service={MANAGEMENT_SERVICE}", b"routes")
                    rows = json.loads(answer.data)
                    found = {row["tags"][tag] for row in rows if row["service"] == service}
                    if found == names:
                        break
                    await asyncio.sleep(OFTEN)
        except TimeoutError:
            raise DemoFailed(f"the broker's table has {found}, not {names}") from None
        say("broker", f"has the destinations {', '.join(sorted(names))}")


@asynccontextmanager
async def routes(broker: str) -> AsyncGenerator[Routes]:
    """Connect to a broker, given by its URI, to look at its table."""
    async with connect(broker) as client:
        yield Routes(client)
