"""A topology on a simulated network, and the repetition of a run that fails.

Two counters on two nodes count the messages of a client. The client repeats a message without a
reply. That is right if the message was lost, and wrong if the reply was lost, as the message is
then counted twice. The simulation finds such a run, and shows how to repeat it. It prints:

    300 runs without faults: every one right
    with faults: 3 messages were counted as 4, in the run of seed 1
    the same run again: 3 messages were counted as 4
    with numbers, 300 runs with faults: every one right
"""

from __future__ import annotations

import re

from onward.actors import Node, Worker
from onward.protocol import DeliveryError, Message
from onward.transports.simulated import Faults, SimulatedNetwork, simulate, simulate_many

# --8<-- [start:workers]
MESSAGES = 3


class Counter(Worker):
    """A counter of messages that confirms each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle_message(self, message: Message) -> None:
        self.count += 1
        self.reply(message, b"counted")


class Careful(Counter):
    """A counter that counts each number once."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[bytes] = set()

    def handle_message(self, message: Message) -> None:
        if message.payload not in self.seen:
            self.seen.add(message.payload)
            self.count += 1
        self.reply(message, b"counted")


async def send_until_counted(node: Node, route: str, payload: bytes) -> None:
    while True:
        try:
            await node.request(route, payload, timeout=1)
        except DeliveryError:
            continue  # the message or the reply was lost
        return


# --8<-- [end:workers]


# --8<-- [start:scenario]
async def scenario(network: SimulatedNetwork, kind: type[Counter] = Counter) -> None:
    a, b = await network.node("a"), await network.node("b")
    counter = kind()
    await b.start(lambda: counter, address="counter")
    await b.listen("sim://b", expose=["counter"])
    for number in range(MESSAGES):
        await send_until_counted(a, "240#b => counter", b"%d" % number)
    count = counter.count
    assert count == MESSAGES, f"{MESSAGES} messages were counted as {count}"


async def careful(network: SimulatedNetwork) -> None:
    await scenario(network, Careful)


# --8<-- [end:scenario]


# --8<-- [start:main]
FAULTS = Faults(latency=(0.01, 0.2), loss=0.1, reorder=0.1)


def main() -> None:
    runs = simulate_many(scenario, seeds=range(300))
    print(f"{len(runs)} runs without faults: every one right")

    try:
        simulate_many(scenario, seeds=range(300), faults=FAULTS)
    except AssertionError as error:
        (note,) = error.__notes__  # the seed was …; the same run again: simulate(…)
        seed = int(re.findall(r"seed was (\d+)", note)[0])
        print(f"with faults: {error}, in the run of seed {seed}")

        try:
            simulate(scenario, seed=seed, faults=FAULTS)
        except AssertionError as again:
            print(f"the same run again: {again}")

    runs = simulate_many(careful, seeds=range(300), faults=FAULTS)
    print(f"with numbers, {len(runs)} runs with faults: every one right")


# --8<-- [end:main]

if __name__ == "__main__":
    main()
