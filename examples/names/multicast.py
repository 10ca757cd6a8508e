"""Multicast: a copy for each consumer, and how many have to accept.

It prints:

    news, any accepts: Accepted()
    prices, all accept: Rejected(condition='shop:full', description='no room')
"""

# --8<-- [start:program]
import asyncio

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, Received
from onward.protocol.dispatch import ALL, Reliability, RoutingPattern, Semantics


def take(delivery: Received) -> None:
    delivery.accept()


def give_back(delivery: Received) -> None:
    delivery.release()


def refuse(delivery: Received) -> None:
    delivery.reject("shop:full", "no room")


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        dispatcher.provision("news", Semantics(pattern=RoutingPattern.MULTICAST))
        all_in_time = Reliability(accepts=ALL, deadline=5.0)
        prices = Semantics(pattern=RoutingPattern.MULTICAST, reliability=all_in_time)
        dispatcher.provision("prices", prices)

        for handler in (take, give_back):
            await dispatcher.consume("news", handler)
        producer = await dispatcher.produce("news")
        print("news, any accepts:", await producer.send(b"open until 8"))

        for handler in (take, refuse):
            await dispatcher.consume("prices", handler)
        producer = await dispatcher.produce("prices")
        print("prices, all accept:", await producer.send(b"apples 3"))


asyncio.run(main())
# --8<-- [end:program]
