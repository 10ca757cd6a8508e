"""Messages to public keys: over a relay that cannot read them, to a topic, and to a domain."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from onward.protocol.identity import parse_identity, short_text

from .processes import Child, program
from .stage import Record, Table, check, heading, say

SECRET = "meet me at the old mill"
READERS = 5
"""Readers of the topic on each of two nodes."""
NEWS = [f"news {number}" for number in range(1, 5)]
ASKED = 30
"""Requests to the domain, of which some are with the member that is killed."""


class Member:
    """A node of this part.

    Args:
        process: Its process.
    """

    def __init__(self, process: Child) -> None:
        self.process = process
        self.node = ""
        self.desk = ""
        self._last = 0

    async def told(self, what: str) -> str:
        """Wait until it has printed something of itself, and return that."""
        line = await self.process.line(lambda line: line.startswith(f"{what} "), what)
        return line.removeprefix(f"{what} ")

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def short(self) -> str:
        return short_text(parse_identity(self.node))

    async def do(self, command: str, **arguments: Any) -> Any:
        """Give the node a command, and return what came of it."""
        self._last += 1
        number = self._last
        self.process.write(json.dumps({"id": number, "do": command, **arguments}))

        def is_result(line: str) -> bool:
            return line.startswith("{") and json.loads(line).get("id") == number

        result = json.loads(await self.process.line(is_result, f"the result of {command}"))
        check("error" not in result, f"{self.name}: {command}: {result.get('error')}")
        return result["answers"]

    async def has(self, name: str, times: int) -> None:
        """Wait until something has happened there so many times."""
        mark = f'"event": "{name}"'
        await self.process.line(lambda line: mark in line, f"{name!r}", skip=times - 1)

    def events(self, name: str) -> list[Any]:
        """Return what has happened there so far."""
        made = [json.loads(line) for line in self.process.lines if line.startswith("{")]
        return [each["text"] for each in made if each.get("event") == name]


@asynccontextmanager
async def member(name: str, *roles: str) -> AsyncGenerator[Member]:
    """Start a node."""
    async with program(
        name, "identity_node.py", name, *roles, show=lambda line: not line.startswith("{")
    ) as process:
        made = Member(process)
        made.node = await made.told("node")
        made.desk = await made.told("desk")
        yield made


async def relayed(ada: Member, bea: Member, relay: Member, record: Record) -> None:
    """Send a request over the relay, and show what each hop can see of it."""
    heading("Two nodes that only dial out, and a relay between them that cannot read")
    say("bea", f"reserves at the relay: {await bea.do('reserve', relay=relay.node)}")
    say("ada", f"asks {SECRET!r}, of the engine {short_text(parse_identity(bea.desk))}")
    (answer,) = await ada.do("ask", to=f"engine:{bea.desk}", data=[SECRET])
    check(answer == f"{SECRET} from bea", f"a wrong answer: {answer!r}")
    say("ada", f"got {answer!r}")
    names = {each.short: each.name for each in (ada, bea, relay)}
    seen = relay.events("passed")
    check(len(seen) == 2, f"the relay has passed on {len(seen)} and not 2")
    check(SECRET not in "".join(relay.process.lines), "the relay has read it")
    table = Table("HOP", "SEES IT COME FROM", "SEES IT GO TO", "SEES", "DOES NOT SEE")
    table.add("ada", "-", "relay", "the text, bea's engine", "-")
    for previous, following, what, size in seen:
        hidden = "the text, the engine" if what == "message" else "the text"
        table.add("relay", names[previous], names[following], f"{what}, {size} bytes", hidden)
    table.add("bea", "relay", "-", "the text, ada's key", "-")
    table.print()
    record.done.add("a request over a relay", "1 by ada", "1 answer", "bea 1")


async def published(ada: Member, bea: Member, relay: Member, record: Record) -> None:
    """Publish to a topic with readers on two nodes."""
    heading(f"A topic with {2 * READERS} readers on two nodes")
    seed = secrets.token_hex(32)
    topic = await relay.do("create", key=seed, publishers=[ada.desk])
    for each in (ada, bea):
        say(each.name, await each.do("subscribe", topic=topic, count=READERS))
    await ada.do("publish", topic=topic, data=NEWS)
    expected = [f"reader-{number} {text}" for number in range(1, READERS + 1) for text in NEWS]
    for each in (ada, bea):
        await each.has("read", len(expected))
        # Each reader has its copies in order; how those of two are mixed is open.
        read = sorted(each.events("read"), key=lambda text: text.partition(" ")[0])
        check(read == expected, f"{each.name} has read {read}")
        say(each.name, f"{len(expected)} copies, for each reader {', '.join(NEWS)}")
    copies = 2 * len(expected)
    record.done.add("publications to a topic", f"{len(NEWS)} by ada", f"{copies} copies", "all")


async def to_any(ada: Member, relay: Member, record: Record) -> None:
    """Ask a domain of three members, and kill one of them."""
    heading("A domain with three members, of which one is killed")
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(member(name, "listen"))
            for name in ("one", "two", "three")
        ]
        for each in members:
            await each.do("join", uri=await relay.told("listening"), identity=relay.node)
            await ada.do("join", uri=await each.told("listening"), identity=each.node)
        domain = await relay.do(
            "found", key=secrets.token_hex(32), members=[each.node for each in members]
        )
        for each in members:
            await each.do("serve", domain=domain)
        answers = Counter[str]()

        async def ask(*data: str) -> list[str]:
            got: list[str] = await ada.do("ask", to=f"domain:{domain}", data=data)
            answers.update(each.rpartition(" ")[2] for each in got)
            return got

        await ask(*map(str, range(ASKED)))
        say("ada", f"{ASKED} requests to any member: {_shown(answers)}")
        check(set(answers) == {"one", "two", "three"}, f"answers came of {_shown(answers)}")
        waiting = asyncio.create_task(ask(*["wait"] * 9))
        await members[1].has("waits", 1)
        await members[1].process.kill()
        say("two", "is killed with requests in hand")
        answers.clear()
        await ask(*map(str, range(ASKED)))
        say("ada", f"{ASKED} more: {_shown(answers)}")
        check(set(answers) == {"one", "three"}, f"answers came of {_shown(answers)}")
        lost = Counter(await waiting)
        say("ada", f"of the 9 that were waiting: {_shown(lost)}")
        record.done.add(
            "requests to a domain", f"{2 * ASKED} by ada", f"{2 * ASKED} answers", "all"
        )


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


async def run(record: Record) -> None:
    """Run this part; it needs no broker."""
    async with (
        member("relay", "relay", "listen") as relay,
        member("ada") as ada,
        member("bea") as bea,
    ):
        uri = await relay.told("listening")
        for each in (ada, bea):
            await each.do("join", uri=uri, identity=relay.node)
        await relayed(ada, bea, relay, record)
        await published(ada, bea, relay, record)
        await to_any(ada, relay, record)
        for name, what, did in (
            ("relay", "a node that relays", "passed on what it cannot read"),
            ("ada, bea", "nodes that dial out", "asked, published and read"),
            ("one to three", "members of a domain", "answered; two was killed"),
        ):
            record.cast.add(name, what, "Identities", "TCP", did)
        for each in (ada, bea, relay):
            await each.process.end_of_input()
