"""Traffic for brokers: shops, a slow stock, a pay desk that refuses some cards, and requesters.

Berlin, Lyon and Quito are processes of their own, as in the main demo; Lyon is killed with requests
in hand, and comes back.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass

from demo_parts.processes import Child, Routes, program, routes

from onward.actors.broker import ApplicationError, Handlers, Request
from onward.transports.client import Client, ClientOptions, RetryOptions, connect

from .pace import TICKS, Tally, ticks

KILLED_AT, BACK_AT = TICKS // 3, TICKS // 2

HOT = "user-7"
"""The user with more requests than all others."""

REFUSED = 0x301
"""The desk's own error code."""

CLIENT = ClientOptions(request_timeout=20.0, retry=RetryOptions(max_tries=1))


def stock(chance: random.Random) -> Handlers:
    """Answer, and take long now and then."""
    handlers = Handlers()

    @handlers.response
    async def look(request: Request) -> bytes:
        await asyncio.sleep(0.12 if chance.random() < 0.04 else chance.uniform(0.0, 0.006))
        return b"3 of " + request.data

    return handlers


def desk(chance: random.Random) -> Handlers:
    """Answer, or refuse the card."""
    handlers = Handlers()

    @handlers.response
    async def pay(request: Request) -> bytes:
        if chance.random() < 0.05:
            raise ApplicationError(REFUSED, "the card was refused")
        return b"paid " + request.data

    return handlers


@dataclass
class Town:
    """A broker, and the clients connected to it.

    Attributes:
        uri: The broker.
        table: Its routes.
        asking: Requesters, by service name.
        shops: Shops, by town.
    """

    uri: str
    table: Routes
    asking: dict[str, Client]
    shops: dict[str, Child]


async def open_town(
    stack: AsyncExitStack, uri: str, shops: tuple[str, ...], asking: tuple[str, ...], seed: int
) -> Town:
    """Start the destinations of a broker, and the requesters."""
    town = Town(uri, await stack.enter_async_context(routes(uri)), {}, {})
    chance = random.Random(seed)
    for service, handlers in (("stock", stock(chance)), ("pay", desk(chance))):
        joined = connect(uri, service=service, handlers=handlers, tags={"item": "tea"})
        await stack.enter_async_context(joined)
    for name in shops:
        await start_shop(stack, town, name)
    await town.table.until("shop", "town", set(shops))
    for name in asking:
        client = connect(uri, service=name, options=CLIENT)
        town.asking[name] = await stack.enter_async_context(client)
    return town


async def start_shop(stack: AsyncExitStack, town: Town, name: str) -> None:
    shop = program(name, "shop.py", town.uri, name, show=lambda _line: False)
    town.shops[name] = await stack.enter_async_context(shop)


async def elements(client: Client, to: str, data: bytes) -> None:
    """Ask for a stream, and take all of it."""
    async for _ in client.stream(to, data):
        pass


async def ask(town: Town, tally: Tally, chance: random.Random) -> None:
    """Make the requests of one step."""
    web, mobile, kiosk = (town.asking[name] for name in ("web", "mobile", "kiosk"))
    requests = [web.request("service=stock item=tea", b"tea") for _ in range(8)]
    requests += [web.request("service=pay", b"9 euros") for _ in range(4)]
    requests += [mobile.request("service=pay", b"2 euros")]
    # By shard in one town only, so that its shards can be compared.
    for _ in range(20 if "berlin" in town.shops else 0):
        user = HOT if chance.random() < 0.3 else f"user-{chance.randrange(300)}"
        to = f"@shard=user service=shop user={user}"
        requests.append(mobile.request(to, user.encode()))
    requests.append(kiosk.request("service=shop town=mars", b"anybody?"))
    if chance.random() < 0.4:
        requests.append(kiosk.request("service=fax paper=a4", b"hello"))
    others = [
        elements(kiosk, "@multicast service=shop", b"2"),
        elements(web, "service=shop", b"3"),
        kiosk.send("@multicast service=shop", b"closed on Sunday"),
        web.push("service=shop", b"new prices"),
    ]
    await asyncio.gather(*(tally.of(each) for each in (*requests, *others)))


async def kill_lyon(town: Town, tally: Tally) -> None:
    """Kill a shop while it has requests in hand."""
    lyon = town.shops.pop("lyon")
    web = town.asking["web"]
    held = [
        asyncio.create_task(tally.of(web.request("service=shop town=lyon", b"wait", route="race")))
        for _ in range(5)
    ]
    await lyon.says("request/response 'wait'")
    await lyon.kill()
    await asyncio.gather(*held)


async def busy(stack: AsyncExitStack, town: Town, tally: Tally, seed: int) -> None:
    """Make the requests of all steps."""
    chance = random.Random(seed)
    async for number in ticks():
        if number == KILLED_AT and "lyon" in town.shops:
            await kill_lyon(town, tally)
        if number == BACK_AT and "berlin" in town.shops:
            await start_shop(stack, town, "lyon")
        await ask(town, tally, chance)
