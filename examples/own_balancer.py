"""A method of one's own that says which destination gets a request.

`FillUp` gives all to one destination until that has as much in hand as it should, then to the
next. So with little to do the others stay idle, and can be switched off.

Here the broker is given it as an option. An entry point brings it to each broker of an
environment, `onward broker --method fill-up` among them.

It prints, from the dullest time of the day to the busiest:

    1 at a time: a 6
    3 at a time: a 2, b 1
    6 at a time: a 2, b 2, c 2
    by round robin: a 2, b 2, c 2
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, ChoiceOptions, Handlers, Request
from onward.protocol.broker import Balancer, Candidate
from onward.transports.client import Client, connect


# --8<-- [start:balancer]
class FillUp(Balancer):
    """Fill one after the other, in the order of their route ids.

    Args:
        enough: Requests in hand from which on the next one is asked.
    """

    def __init__(self, enough: int = 2) -> None:
        self._enough = enough

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        order = sorted(range(len(candidates)), key=lambda index: candidates[index].route_id)
        for index in order:
            if candidates[index].outstanding < self._enough:
                return index
        return min(order, key=lambda index: candidates[index].outstanding)


# --8<-- [end:balancer]


class Press:
    """A printing press that prints when it is told to go on."""

    def __init__(self, name: str, begun: asyncio.Queue[str], go: asyncio.Event) -> None:
        self.handlers = handlers = Handlers()

        @handlers.response
        async def work(_request: Request) -> bytes:
            begun.put_nowait(name)
            await go.wait()
            return name.encode()


# --8<-- [start:main]
async def main() -> None:
    options = BrokerOptions(choice=ChoiceOptions(balancers={"fill-up": FillUp}, method="fill-up"))
    async with Node("edge") as node:
        broker = await Broker.attach(node, options)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        begun, go = asyncio.Queue[str](), asyncio.Event()
        for number, name in enumerate("abc", start=1):
            press = Press(name, begun, go)
            broker.serve(press.handlers, service="press", route_id=UUID(int=number))

        async with connect(listener.uri) as client:
            at_once = partial(several, client, begun, go)
            one_by_one = [await at_once(1, "service=press") for _ in range(6)]
            print("1 at a time:", shown(sum(one_by_one, Counter[str]())))
            print("3 at a time:", shown(await at_once(3, "service=press")))
            print("6 at a time:", shown(await at_once(6, "service=press")))
            # A request may ask for another method than the broker's default.
            print("by round robin:", shown(await at_once(6, "@method=round-robin service=press")))


# --8<-- [end:main]


async def several(
    client: Client, begun: asyncio.Queue[str], go: asyncio.Event, count: int, to: str
) -> Counter[str]:
    """Make requests at the same time, and return which press has had how many."""
    go.clear()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(client.request(to, b"page"))
        found = Counter([await begun.get() for _ in range(count)])
        go.set()
    return found


def shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    asyncio.run(main())
