"""Actors of Pykka beside the same ones as workers of Onward, and what workers have besides.

It prints:

    pykka: 1 3 6, then ValueError
    worker: 1 3 6, then ValueError
    together: hello, ann
    from a loop: 1 3 6
    routed: 6
    supervised: still there
    refused: 2 of 5
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pykka

from onward.actors import MailboxOptions, Node, OnFailure, Supervision, Worker
from onward.protocol import MailboxFull, Message, WorkerFailed


# --8<-- [start:pykka]
class PykkaCounter(pykka.ThreadingActor):
    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.total = start

    def on_receive(self, message: Any) -> Any:
        self.total += message
        return self.total

    def fail(self) -> None:
        raise ValueError("on purpose")


# --8<-- [end:pykka]


# --8<-- [start:worker]
class Counter(Worker):
    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.total = start

    def on_receive(self, message: Any) -> Any:
        self.total += message
        return self.total

    def fail(self) -> None:
        raise ValueError("on purpose")


# --8<-- [end:worker]


# --8<-- [start:use]
def use(actor_class: Any) -> str:
    ref = actor_class.start(start=0)
    totals = [ref.ask(number, timeout=5) for number in (1, 2, 3)]
    proxy = ref.proxy()
    assert proxy.total.get(timeout=5) == 6
    try:
        proxy.fail().get(timeout=5)
    except ValueError as error:
        return f"{' '.join(map(str, totals))}, then {type(error).__name__}"
    finally:
        ref.stop()
    return "no error"


# --8<-- [end:use]


class Greeter(pykka.ThreadingActor):
    def on_receive(self, message: Any) -> Any:
        return f"hello, {message}"


# --8<-- [start:together]
class Asks(Worker):
    """A worker that asks an actor with a thread, without blocking its loop."""

    def __init__(self, greeter: pykka.ActorRef[Any]) -> None:
        super().__init__()
        self.greeter = greeter

    async def on_receive(self, message: Any) -> Any:
        return await asyncio.to_thread(self.greeter.ask, message, timeout=5)


# --8<-- [end:together]


# --8<-- [start:routed]
class RoutedCounter(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def handle_message(self, message: Message) -> None:
        self.total += int(message.payload)
        self.reply(message, str(self.total).encode())


# --8<-- [end:routed]


async def on_a_loop() -> None:
    # --8<-- [start:loop]
    async with Node() as node:
        ref = node.ref(node.spawn(Counter, address="counter"))
        totals = [await ref.ask(number, block=False) for number in (1, 2, 3)]
        print("from a loop:", *totals)
    # --8<-- [end:loop]

    # --8<-- [start:addressed]
    async with Node() as far, Node() as near:
        far.spawn(RoutedCounter, address="counter")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["counter"])
        place = listener.uri.removeprefix("tcp://")
        for payload in (b"1", b"2", b"3"):
            answer = await near.request(f"1#{place} => counter", payload)
        print("routed:", answer.payload.decode())
    # --8<-- [end:addressed]

    # --8<-- [start:supervised]
    async with Node() as node:
        policy = Supervision(OnFailure.RESUME)
        node.spawn(RoutedCounter, address="counter", supervision=policy)
        try:
            await node.request("counter", b"no number")
        except WorkerFailed:
            print("supervised: still there" if node.has("counter") else "gone")
    # --8<-- [end:supervised]

    # --8<-- [start:bounded]
    async with Node() as node:
        node.spawn(RoutedCounter, address="counter", mailbox=MailboxOptions(limit=3))
        refused = 0
        for number in range(5):
            try:
                node.send("counter", b"%d" % number)
            except MailboxFull:
                refused += 1
        print(f"refused: {refused} of 5")
    # --8<-- [end:bounded]


def main() -> None:
    logging.disable()  # a worker that fails is logged, and one fails on purpose
    print("pykka:", use(PykkaCounter))
    print("worker:", use(Counter))

    greeter = Greeter.start()
    asks = Asks.start(greeter)
    print("together:", asks.ask("ann", timeout=5))
    pykka.ActorRegistry.stop_all()

    asyncio.run(on_a_loop())


if __name__ == "__main__":
    main()
