"""Requests to all of several destinations, and to the one responsible for a key.

Three shops, made of handlers with Onward's client, come to the broker by TCP, by WebSocket and
by Unix socket; the requester comes by WebSocket.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass

from .processes import Child, Requester, Routes, printed, program
from .stage import Record, check, heading, say, say_bars, shown, signatures

TOWNS: tuple[str, ...] = ("berlin", "lyon", "quito")

USERS = [f"user-{number}" for number in range(1, 301)]

ALL = "@multicast service=shop"
BY_USER = "@shard=user service=shop user={}"
BY_MODULO = "@shard=user @method=modulo service=shop user={}"


@dataclass
class Shops:
    """The shops, and the requester that asks them.

    Attributes:
        broker: The broker's URIs, by the town that uses it.
        open: The shops that are open, by town.
        requester: The requester.
        routes: The broker's table.
        stack: Ends them all.
    """

    broker: dict[str, str]
    open: dict[str, Child]
    requester: Requester
    routes: Routes
    stack: AsyncExitStack

    async def start(self, town: str) -> None:
        process = program(town, "shop.py", self.broker[town], town)
        self.open[town] = await self.stack.enter_async_context(process)

    async def until_open(self) -> None:
        await self.routes.until("shop", "town", set(self.open))

    async def all_say(self, line: str) -> None:
        for shop in self.open.values():
            await shop.says(line)


def in_order(answers: list[str], town: str) -> list[str]:
    """Return what one of the shops has answered, without its signature."""
    signature = f" from {town}"
    return [each.removesuffix(signature) for each in answers if each.endswith(signature)]


async def multicast(shops: Shops, record: Record) -> None:
    """Send each interaction to all shops."""
    ask = shops.requester.ask
    heading("Multicast: to all that have the tags")
    for what, text in (
        ("fire-and-forget", "tea is 3 euros"),
        ("metadata push", "closed on Sunday"),
    ):
        await ask(what, text, to=ALL)
        await shops.all_say(f"{what} {text!r}")
        whom = ", ".join(f"{town} 1" for town in sorted(shops.open))
        record.done.add(f"{what} to all", 1, "none is due", whom)

    heading("Multicast, request/response: the first answer wins, the others are cancelled")
    first = asyncio.create_task(ask("request/response", "is there tea?", to=ALL, route="race"))
    await shops.all_say("request/response 'is there tea?'")
    # They all have it in hand. Now one of them gets done.
    await ask("fire-and-forget", "go", to="service=shop town=lyon")
    answers = await first
    check(answers == ["is there tea? from lyon"], f"lyon was first, but {answers}")
    for town in ("berlin", "quito"):
        await shops.open[town].says("request/response 'is there tea?' was cancelled")
    record.done.add("request/response to all", 1, "the first answer", "lyon; 2 others cancelled")

    heading("Multicast, stream and channel: one merged stream of all")
    for what, sent in (("request/stream", ["4"]), ("request/channel", ["black", "green"])):
        answers = await ask(what, *sent, to=ALL)
        wanted = sent if what == "request/channel" else list("1234")
        for town in shops.open:
            got = in_order(answers, town)
            check(got == wanted, f"{town} answered {got} to {what} and not {wanted}")
        signed = signatures(answers)
        back = f"{len(answers)} elements"
        record.done.add(f"{what} to all", len(sent), back, shown(signed))


async def owners(shops: Shops, to: str = BY_USER) -> dict[str, str]:
    """Ask for each user, and return which shop has answered."""
    answers = await shops.requester.ask("request/response", *USERS, to=to)
    check(len(answers) == len(USERS), f"answers are missing: {answers}")
    parts = [answer.partition(" from ") for answer in answers]
    check([user for user, _, _ in parts] == USERS, "an answer is for another user")
    return {user: town for user, _, town in parts}


def moved(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [user for user in USERS if before[user] != after[user]]


def part(users: list[str]) -> str:
    return f"{len(users)} moved ({len(users) / len(USERS):.0%})"


async def sharding(shops: Shops, record: Record) -> None:
    """Ask the shop responsible for each user, with one more and one less of them."""
    heading(f"Shard: each of {len(USERS)} users has one shop that is responsible")
    before = await owners(shops)
    for _ in range(2):
        check(await owners(shops) == before, "a user was sent to another shop")
    counts = Counter(before.values())
    check(set(counts) == set(shops.open), f"a shop has no users: {counts}")
    say("shops", f"asked 3 times for each of {len(USERS)} users; each always had the same shop:")
    say_bars(counts)
    sent = 3 * len(USERS)
    record.done.add("shard by user", sent, f"{sent} answers", f"{shown(counts)} users")

    heading("How one can look it up, without asking the shops: onward resolve")
    uri = shops.broker["berlin"]
    found = await printed(
        *("resolve", "service=shop", f"user={USERS[0]}", "--shard", "user", "--broker", uri)
    )
    for line in filter(None, found.splitlines()):
        say("resolve", line)

    by_modulo = await owners(shops, BY_MODULO)
    heading("Lyon is killed: only its own users move")
    say("lyon", "is killed")
    await shops.open.pop("lyon").kill()
    await shops.until_open()
    after = await owners(shops)
    gone = moved(before, after)
    check(all(before[user] == "lyon" for user in gone), "users of an open shop have moved")
    check(len(gone) == counts["lyon"], f"{len(gone)} users moved, lyon had {counts['lyon']}")
    say("shops", f"of {len(USERS)} users {part(gone)}, all of them lyon's. Now:")
    say_bars(Counter(after.values()))
    record.done.add("... lyon is killed", len(USERS), part(gone), "all of them lyon's")
    others = moved(by_modulo, await owners(shops, BY_MODULO))
    check(len(others) > len(gone), f"by modulo only {len(others)} moved")
    say("shops", f"by the method modulo, which one may ask for too, {part(others)}")
    record.done.add("... the same by modulo", len(USERS), part(others), "for comparison")

    heading("Lyon opens again: its users come back, and no others move")
    await shops.start("lyon")
    await shops.until_open()
    check(await owners(shops) == before, "not all is as it was before")
    back = f"{len(gone)} moved back"
    say("shops", f"{back}; all is as it was")
    record.done.add("... lyon opens again", len(USERS), back, "all as before")


async def run(tcp: str, ws: str, unix: str, routes: Routes, record: Record) -> None:
    """Run this part against a broker, given by its URIs and its table."""
    heading("Three shops come: by TCP, by WebSocket and by Unix socket")
    ways = {"TCP": tcp, "WebSocket": ws, "Unix": unix}
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(
            program("customer", "customer.py", ws, show=lambda _line: False)
        )
        broker = dict(zip(TOWNS, ways.values(), strict=True))
        shops = Shops(broker, {}, Requester(asking), routes, stack)
        for town in TOWNS:
            await shops.start(town)
        await shops.until_open()
        await multicast(shops, record)
        await sharding(shops, record)
        await asking.end_of_input()
        for shop in shops.open.values():
            await shop.stop()

    client = "Onward's client"
    record.cast.add("customer", "a requester", client, "WebSocket", "asked")
    for town, way in zip(TOWNS, ways, strict=True):
        then = f"{shops.requester.answered[town]} answers"
        then += ", killed and started again" if town == "lyon" else ""
        record.cast.add(town, "a destination", client, way, then)
