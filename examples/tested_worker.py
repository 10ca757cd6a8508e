"""A worker and its tests: a virtual clock, probes, and a node that looks after itself.

In a project of yours the tests are in a file of their own and pytest runs them; here `main` does,
so that the file is an example like any other. It prints:

    it answers with the average of the last minute
    it forgets what is older
    a payload that is no number is a fault of the test
"""

from __future__ import annotations

import asyncio
import logging

from onward.actors import Worker
from onward.actors.testing import Probe, checked_node, virtual_time
from onward.protocol import Message


# --8<-- [start:worker]
class Average(Worker):
    """Answers `?` with the average of the numbers of the last minute, and takes numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[tuple[float, float]] = []

    def handle_message(self, message: Message) -> None:
        now = self.node.loop.time()
        if message.payload != b"?":
            self.numbers.append((now, float(message.payload)))
            return
        self.numbers = [(at, number) for at, number in self.numbers if at > now - 60]
        numbers = [number for _, number in self.numbers] or [0.0]
        self.reply(message, b"%g" % (sum(numbers) / len(numbers)))


# --8<-- [end:worker]


# --8<-- [start:tests]
@virtual_time
async def test_the_average() -> None:
    async with checked_node() as node:
        await node.start(Average, address="average")
        probe = await Probe.on(node)
        for payload in (b"1", b"2", b"6", b"?"):
            probe.send("average", payload)
        assert (await probe.next()).payload == b"3"


@virtual_time
async def test_the_last_minute() -> None:
    async with checked_node() as node:
        await node.start(Average, address="average")
        node.send("average", b"100")
        await asyncio.sleep(61)  # which takes no time
        node.send("average", b"4")
        assert (await node.request("average", b"?")).payload == b"4"


# --8<-- [end:tests]


# --8<-- [start:faults]
@virtual_time
async def test_what_is_no_number() -> None:
    found = ""
    try:
        async with checked_node(allow=["worker failed"]) as node:
            await node.start(Average, address="average")
            node.send("average", b"many")
    except AssertionError as error:
        found = str(error)
    assert "workers failed: 1 time" in found


# --8<-- [end:faults]


def main() -> None:
    test_the_average()
    print("it answers with the average of the last minute")
    test_the_last_minute()
    print("it forgets what is older")
    test_what_is_no_number()
    print("a payload that is no number is a fault of the test")


if __name__ == "__main__":
    logging.disable()  # the failure that is shown is logged, with where it came from
    main()
