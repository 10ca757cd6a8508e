"""Hold and retry: a message waits for a consumer, and is tried again while none takes it.

It prints:

    on hold: 1
    busy: 12 apples
    busy: 12 apples
    Accepted()
    when its time is over: Released()
"""

# --8<-- [start:program]
import asyncio
from collections.abc import Iterator

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, Received
from onward.protocol.dispatch import Gate, Hold, Last, Retry, Semantics

busy: Iterator[bool] = iter([True, True, False])


def handle(delivery: Received) -> None:
    if next(busy):
        print("busy:", delivery.payload.decode())
        delivery.release()


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        hold = Hold(messages=1000, size=16 * 1024 * 1024, age=60.0)
        retry = Retry(first=0.05, longest=1.0, hold=hold)  # after 0.05 s, 0.1 s, 0.2 s …
        chain = (retry, Last.RELEASE)
        dispatcher.provision("orders", Semantics(undeliverable=chain, gate=Gate.OPEN))
        soon = (Retry(hold=Hold(age=0.1)), Last.RELEASE)
        dispatcher.provision("news", Semantics(undeliverable=soon, gate=Gate.OPEN))

        producer = await dispatcher.produce("orders")
        sending = asyncio.create_task(producer.send(b"12 apples"))
        await asyncio.sleep(0)
        print("on hold:", dispatcher.names()[0].held)
        await dispatcher.consume("orders", handle)  # a new consumer is asked at once
        print(await sending)

        producer = await dispatcher.produce("news")
        print("when its time is over:", await producer.send(b"open until 8"))


asyncio.run(main())
# --8<-- [end:program]
