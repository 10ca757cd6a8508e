"""Two tenants on one broker: both have the same services, and neither can reach the other.

Both teams run a service `orders`, and a shop that asks it. The broker adds the tag `tenant` to all
that they register and request, so nothing in their programs names it.

It prints:

    the shop of red gets: the orders of red
    the shop of blue gets: the orders of blue
    red asks for blue: INVALID: not allowed: request service=orders tenant=blue
    red asks for stock: INVALID: not allowed: request service=stock
    red sees: orders tenant=red
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from onward.actors import Node
from onward.actors.broker import MANAGEMENT_SERVICE, Broker, Handlers, Request
from onward.actors.security import (
    Authentication,
    Authorization,
    PrincipalsFile,
    TokenAuthenticator,
)
from onward.protocol.security import BearerToken, make_token, read_rules, token_digest
from onward.transports.client import connect
from onward.transports.rsocket import DestinationError

# --8<-- [start:rules]
RULES = """
[[rule]]
roles = ["team"]
register = "service=orders"
request = "service=orders"
"""
# --8<-- [end:rules]

TOKENS = {team: make_token(team.encode().ljust(32, b"-")) for team in ("red", "blue")}


def principals() -> str:
    """Return a file of principals: one token for each team, with its forced tag."""
    return "".join(
        f"""
        [[tokens]]
        name = "{team}"
        sha256 = "{token_digest(token.encode()).hex()}"
        roles = ["team"]
        tags = {{ tenant = "{team}" }}
        """
        for team, token in TOKENS.items()
    )


def orders(team: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def list_orders(_request: Request) -> bytes:
        return f"the orders of {team}".encode()

    return handlers


async def main() -> None:
    async with Node("edge") as node, AsyncExitStack() as open_ones:
        folder = open_ones.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "principals.toml"
        file.write_text(principals())
        # --8<-- [start:broker]
        broker = await Broker.attach(node, authorization=Authorization(read_rules(RULES)))
        listener = await node.listen(
            "rsocket+tcp://127.0.0.1:0",
            broker=broker,
            authentication=Authentication([TokenAuthenticator(PrincipalsFile(file))]),
        )
        # --8<-- [end:broker]
        credentials = {team: BearerToken(token.encode()) for team, token in TOKENS.items()}
        for team, shown in credentials.items():
            service = connect(
                listener.uri, service="orders", handlers=orders(team), credentials=shown
            )
            await open_ones.enter_async_context(service)
        shops = {
            team: await open_ones.enter_async_context(connect(listener.uri, credentials=shown))
            for team, shown in credentials.items()
        }

        for team, shop in shops.items():
            answer = await shop.request("service=orders", b"")
            print(f"the shop of {team} gets:", answer.data.decode())
        for what, query in (("blue", "service=orders tenant=blue"), ("stock", "service=stock")):
            try:
                await shops["red"].request(query, b"")
            except DestinationError as error:
                print(f"red asks for {what}: {error}")
        table = await shops["red"].request(f"service={MANAGEMENT_SERVICE}", b"routes")
        for row in json.loads(table.data):
            print("red sees:", row["service"], f"tenant={row['tags']['tenant']}")


if __name__ == "__main__":
    asyncio.run(main())
