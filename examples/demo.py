"""The main job, from end to end: `make demo`.

First the broker: `onward broker`, two destinations and a requester, which are programs of their
own written with the `rsocket` package (in `demo_processes/`). Every interaction runs once or
more, one destination is killed, and the other takes over.

Then routed messages: a worker in this process sends one through a forwarder on a node in the
middle to a worker on a far node, both `onward node`, over TCP, and each hop prints both routes.

Everything goes through real sockets on 127.0.0.1 and is checked. The last line is `demo: ok`, or
what failed, with exit status 1. Every wait has a limit, and so has the whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from onward.actors import Node, Worker
from onward.protocol import Message, OnwardError, format_route

HERE = Path(__file__).resolve().parent / "demo_processes"
ONWARD = (sys.executable, "-m", "onward.cli")

WAIT = 15.0
"""Seconds that one step may take."""

OVERALL = 60.0
"""Seconds that the whole may take."""

COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class DemoFailed(Exception):
    """Something did not go as it should."""


def check(condition: bool, what: str) -> None:
    if not condition:
        raise DemoFailed(what)


# --- what is printed --------------------------------------------------------------------------


def paint(text: str, code: int) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOURS else text


def heading(text: str) -> None:
    print(f"\n{paint(text, 1)}")


def say(who: str, text: str) -> None:
    print(f"  {paint(f'{who:<9}', 36)} {text}", flush=True)


HOP = re.compile(r"\S+  onward (?P<onward>.*)  return (?P<back>.*)  \d+ bytes")


def say_hop(who: str, onward: str, back: str) -> None:
    """Print both routes of a message; random addresses are cut short."""
    for name, route in (("onward", onward), ("return", back)):
        short = re.sub(r"\b([0-9a-f]{4})[0-9a-f]{28}\b", r"\1…", route)
        say(who if name == "onward" else "", f"{paint(name, 2)}  {short}")


class Table:
    """What was done, for the end."""

    def __init__(self) -> None:
        self.rows = [("INTERACTION", "SENT", "CAME BACK", "BY WHOM")]

    def add(self, what: str, sent: int, back: str, whom: str) -> None:
        self.rows.append((what, str(sent), back, whom))

    def print(self) -> None:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        for row in self.rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(f"  {'   '.join(cells).rstrip()}")


# --- child processes --------------------------------------------------------------------------


class Child:
    """A process whose lines are printed and remembered as they come."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, show: bool) -> None:
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
            if self._show and not HOP.fullmatch(line):
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

    async def listening(self) -> str:
        """Wait until a server listens, and return its host:port."""
        line = await self.line(lambda line: line.startswith("listening "), "its address")
        return line.partition("://")[2]

    async def hop(self, number: int) -> None:
        """Wait until the node's workers have had so many messages, and print the last's routes."""
        line = await self.line(
            lambda line: HOP.fullmatch(line) is not None, f"message {number}", skip=number - 1
        )
        hop = HOP.fullmatch(line)
        assert hop is not None
        say_hop(self.name, hop["onward"], hop["back"])

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def stop(self) -> None:
        """Ask it to end, and check that it does, and cleanly."""
        self.process.send_signal(signal.SIGTERM)
        await self.ended()

    async def end_of_input(self) -> None:
        """Tell it that nothing more will come, and check that it ends, and cleanly."""
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
async def child(name: str, *command: str, show: bool = True) -> AsyncGenerator[Child]:
    """Start a process; in the end it is killed if it still runs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    made = Child(name, process, show)
    try:
        yield made
    finally:
        await made.kill()


class Requester:
    """The requester's process: one line in for a request, one line out for its result."""

    def __init__(self, process: Child) -> None:
        self._process = process
        self._last = 0

    async def ask(self, interaction: str, *data: str, **tags: str) -> Any:
        """Have a request made, print and return its result: a list of answers, or an error."""
        self._last += 1
        number = self._last
        request = {"id": number, "interaction": interaction, "tags": tags, "data": data}
        wanted = " ".join(f"{name}={value}" for name, value in tags.items())
        say("requester", f"{interaction} {', '.join(map(repr, data))} to {wanted}")
        self._process.write(json.dumps(request))
        line = await self._process.line(
            lambda line: json.loads(line)["id"] == number, f"the result of {interaction}"
        )
        result = json.loads(line)
        if result.get("answers"):
            say("requester", "got " + ", ".join(map(repr, result["answers"])))
        elif "error" in result:
            say("requester", f"got the error {result['error']!r}")
        return result.get("answers", result.get("error"))


# --- the first part: the broker ---------------------------------------------------------------


async def routes(where: str) -> list[dict[str, Any]]:
    """Return the broker's table, as `onward routes --json` prints it."""
    process = await asyncio.create_subprocess_exec(
        *(*ONWARD, "routes", "--json", "--broker", f"rsocket+tcp://{where}"),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    check(process.returncode == 0, "onward routes failed")
    rows: list[dict[str, Any]] = json.loads(printed)
    return [row for row in rows if row["service"] == "echo"]


async def until_routes(where: str, names: set[str]) -> None:
    """Wait until the table holds these destinations and no others."""
    found: set[str] = set()
    try:
        async with asyncio.timeout(WAIT):
            while found != names:
                found = {row["tags"]["instance"] for row in await routes(where)}
    except TimeoutError:
        raise DemoFailed(f"the broker's table has {found}, not {names}") from None
    say("broker", f"has the destinations {', '.join(sorted(names))}")


def signatures(answers: Any) -> Counter[str]:
    """Count who signed some answers."""
    check(isinstance(answers, list), f"an answer was expected, not {answers!r}")
    return Counter(str(answer).rpartition(" from ")[2] for answer in answers)


def shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


async def interactions(requester: Requester, alpha: Child, beta: Child, table: Table) -> None:
    """Run each of the five interactions."""
    heading("Every interaction of RSocket, routed by tags")
    signed = Counter[str]()
    for text in ("one", "two", "three", "four"):
        answers = await requester.ask("request/response", text, service="echo")
        check(answers[0].startswith(text), f"a wrong answer: {answers}")
        signed += signatures(answers)
    check(signed == {"alpha": 2, "beta": 2}, f"the requests were not taken in turn: {signed}")
    table.add("request/response", 4, "4 answers", shown(signed))

    for instance, process in (("alpha", alpha), ("beta", beta)):
        for what in ("fire-and-forget", "metadata push"):
            await requester.ask(what, f"for {instance}", service="echo", instance=instance)
            # It has no answer; the destination says that it came.
            await process.line(f"{what} 'for {instance}'".__eq__, what)
    for what in ("fire-and-forget", "metadata push"):
        table.add(what, 2, "none is due", "alpha 1, beta 1")

    answers = await requester.ask("request/stream", "5", service="echo")
    signed = signatures(answers)
    check([each[0] for each in answers] == list("12345"), f"a wrong stream: {answers}")
    check(len(signed) == 1, f"one stream from two destinations: {signed}")
    table.add("request/stream", 1, "5 elements", shown(signed))

    answers = await requester.ask("request/channel", "a", "b", "c", service="echo")
    signed = signatures(answers)
    check([each[0] for each in answers] == list("abc"), f"a wrong channel: {answers}")
    check(len(signed) == 1, f"one channel from two destinations: {signed}")
    table.add("request/channel", 3, "3 elements", shown(signed))


async def takeover(requester: Requester, where: str, alpha: Child, table: Table) -> None:
    """Kill a destination with a request in its hands, and go on with the other."""
    heading("One destination is killed, the other takes over")
    held = asyncio.create_task(
        requester.ask("request/response", "hold", service="echo", instance="alpha")
    )
    await alpha.line("request/response 'hold'".__eq__, "the request to hold")
    say("alpha", "is killed, with a request in its hands")
    await alpha.kill()
    error = await held
    # Handed over and lost: the requester cannot know whether it was done.
    check(str(error).startswith("CANCELED"), f"the request in alpha's hands got {error!r}")
    table.add("... while alpha is killed", 1, "CANCELED", "broker: in doubt")

    await until_routes(where, {"beta"})
    signed = Counter[str]()
    for text in ("five", "six", "seven"):
        signed += signatures(await requester.ask("request/response", text, service="echo"))
    check(signed == {"beta": 3}, f"beta did not take over: {signed}")
    table.add("... after that", 3, "3 answers", shown(signed))


async def broker_part(table: Table) -> None:
    heading("A broker, two destinations and a requester, each a process")
    async with AsyncExitStack() as stack:
        listen = ("--listen", "rsocket+tcp://127.0.0.1:0")
        broker = await stack.enter_async_context(child("broker", *ONWARD, "broker", *listen))
        where = await broker.listening()
        host, _, port = where.rpartition(":")

        async def start(name: str, program: str, *arguments: str, show: bool = True) -> Child:
            command = (sys.executable, str(HERE / program), host, port, *arguments)
            return await stack.enter_async_context(child(name, *command, show=show))

        alpha = await start("alpha", "destination.py", "echo", "alpha")
        beta = await start("beta", "destination.py", "echo", "beta")
        asking = await start("requester", "requester.py", show=False)
        requester = Requester(asking)
        await until_routes(where, {"alpha", "beta"})

        await interactions(requester, alpha, beta, table)
        await takeover(requester, where, alpha, table)
        await asking.end_of_input()
        await beta.stop()
        await broker.stop()


# --- the second part: routed messages -----------------------------------------------------------


class Customer(Worker):
    """The worker that asks, on the node of this process."""

    def __init__(self, answered: asyncio.Future[Message]) -> None:
        super().__init__()
        self._answered = answered

    def ask(self, route: str, payload: bytes) -> None:
        say_hop("near", route, str(self.address))
        self.send(route, payload)

    def handle_message(self, message: Message) -> None:
        self._answered.set_result(message)


async def routes_part(table: Table) -> None:
    heading("A message through a forwarder in the middle, over TCP; each hop's routes")
    node = (*ONWARD, "node", "--verbose", "--listen", "tcp://127.0.0.1:0")
    async with (
        child("far", *node, "--worker", "echo=echo", "--expose", "echo") as far,
        child("middle", *node, "--worker", "relay=forward", "--expose", "relay") as middle,
        Node("near") as near,
    ):
        to_far, to_middle = await far.listening(), await middle.listening()
        answered: asyncio.Future[Message] = near.loop.create_future()
        customer = Customer(answered)
        await near.start(lambda: customer, address="customer")
        customer.ask(f"1#{to_middle} => 0#relay => 1#{to_far} => 0#echo", b"hello")
        # Each node prints as it happens. They are read in the order the message went, because
        # the pipes of two processes have none.
        await middle.hop(1)
        await far.hop(1)
        await middle.hop(2)
        async with asyncio.timeout(WAIT):
            answer = await answered
        say_hop("near", format_route(answer.onward_route), format_route(answer.return_route))
        say("near", f"the answer is {answer.payload!r}")
        check(answer.payload == b"hello", f"a wrong answer: {answer.payload!r}")
        way = [str(step) for step in answer.return_route]
        check(way[1] == "0#relay" and way[-1] == "0#echo", f"a wrong return route: {way}")
        table.add("routed message over TCP", 1, "1 answer", "echo on far, by relay on middle")
        await middle.stop()
        await far.stop()


# --- the whole --------------------------------------------------------------------------------


async def main() -> None:
    # A signal ends the demo like a failure, so that no process is left behind.
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    table = Table()
    try:
        async with asyncio.timeout(OVERALL):
            await broker_part(table)
            await routes_part(table)
    except TimeoutError:
        raise DemoFailed(f"not done in {OVERALL:g} s") from None
    heading("What was done")
    table.print()


def run() -> int:
    """Run the demo and return its exit status."""
    try:
        asyncio.run(main())
    except (DemoFailed, OnwardError, OSError) as error:
        print(f"demo: FAILED: {error}", flush=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("demo: interrupted", flush=True)
        return 1
    print("\ndemo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(run())
