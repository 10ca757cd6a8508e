"""Direct: a name with one consumer at a time, and another one that stands by.

It prints:

    1 at the first
    2 at the second
    safe: a second consumer is refused
"""

# --8<-- [start:program]
import asyncio
from collections.abc import Callable

from onward.actors import Node
from onward.actors.dispatch import ConsumerRefused, Dispatcher, Received
from onward.protocol.dispatch import RoutingPattern, Second, Semantics


def printer(which: str) -> Callable[[Received], None]:
    return lambda delivery: print(delivery.payload.decode(), "at the", which)


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        standby = Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY)
        dispatcher.provision("till", standby)
        dispatcher.provision("safe", Semantics(pattern=RoutingPattern.DIRECT))

        first = await dispatcher.consume("till", printer("first"))
        await dispatcher.consume("till", printer("second"))
        producer = await dispatcher.produce("till")
        await producer.send(b"1")
        first.close()
        await producer.send(b"2")

        await dispatcher.consume("safe", printer("first"))
        try:
            await dispatcher.consume("safe", printer("second"))
        except ConsumerRefused:
            print("safe: a second consumer is refused")


asyncio.run(main())
# --8<-- [end:program]
