"""On disk: messages that are accepted once they are in a file, and outlive the program.

It prints:

    Accepted()
    after a restart: 12 apples
"""

# --8<-- [start:program]
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, DispatchOptions, Received
from onward.protocol.dispatch import Gate, Hold, Last, Reliability, Retry, Semantics, Settlement

ORDERS = Semantics(
    undeliverable=(Retry(hold=Hold(age=3600.0, disk=True)), Last.RELEASE),
    reliability=Reliability(settle=Settlement.AT_ONCE),
    gate=Gate.OPEN,
)


async def send(file: Path) -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node, DispatchOptions(hold_file=str(file)))
        dispatcher.provision("orders", ORDERS)
        producer = await dispatcher.produce("orders")
        print(await producer.send(b"12 apples"))  # there is no consumer yet


async def receive(file: Path) -> None:
    came: asyncio.Queue[bytes] = asyncio.Queue()

    def handle(delivery: Received) -> None:
        came.put_nowait(delivery.payload)

    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node, DispatchOptions(hold_file=str(file)))
        dispatcher.provision("orders", ORDERS)
        await dispatcher.consume("orders", handle)
        print("after a restart:", (await came.get()).decode())


with TemporaryDirectory() as folder:
    file = Path(folder, "held.db")
    asyncio.run(send(file))
    asyncio.run(receive(file))
# --8<-- [end:program]
