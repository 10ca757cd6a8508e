"""A routed message: through a forwarder in the middle to a far node, and back, over TCP."""

from __future__ import annotations

import asyncio
import re

from onward.actors import Node, Worker
from onward.protocol import Message, format_route

from . import processes
from .processes import Child, child
from .stage import Record, check, heading, paint, say

HOP = re.compile(r"\S+  onward (?P<onward>.*)  return (?P<back>.*)  \d+ bytes")


def say_hop(who: str, onward: str, back: str) -> None:
    """Print both routes of a message; random addresses are cut short."""
    for name, route in (("onward", onward), ("return", back)):
        short = re.sub(r"\b([0-9a-f]{4})[0-9a-f]{28}\b", r"\1…", route)
        say(who if name == "onward" else "", f"{paint(name, 2)}  {short}")


async def hop(node: Child, number: int) -> None:
    """Wait until a node's workers have had so many messages, and print the last's routes."""
    line = await node.line(
        lambda line: HOP.fullmatch(line) is not None, f"message {number}", skip=number - 1
    )
    found = HOP.fullmatch(line)
    assert found is not None
    say_hop(node.name, found["onward"], found["back"])


class Customer(Worker):
    """The worker that asks, on the node of this process."""

    def __init__(self, answered: asyncio.Future[Message]) -> None:
        super().__init__()
        self._answered = answered

    def ask(self, route: str, payload: bytes) -> None:
        say_hop("near", route, str(self.address))
        self.send(route, payload)

    def handle_message(self, message: Message) -> None:
        self._answered.set_result(message)


async def run(record: Record) -> None:
    """Run this part; it needs no broker."""
    heading("A message through a forwarder in the middle, over TCP; each hop's routes")
    command = (*processes.ONWARD, "node", "--verbose", "--listen", "tcp://127.0.0.1:0")
    at_far = (*command, "--worker", "echo=echo", "--expose", "echo")
    at_middle = (*command, "--worker", "relay=forward", "--expose", "relay", "--allow", "1#*")

    def show(line: str) -> bool:
        return HOP.fullmatch(line) is None

    async with (
        child("far", *at_far, show=show) as far,
        child("middle", *at_middle, show=show) as middle,
        Node("near") as near,
    ):
        to_far, to_middle = await far.listening("tcp"), await middle.listening("tcp")
        answered: asyncio.Future[Message] = near.loop.create_future()
        customer = Customer(answered)
        await near.start(lambda: customer, address="customer")
        customer.ask(f"1#{to_middle} => 0#relay => 1#{to_far} => 0#echo", b"hello")
        # Each node prints as it happens. They are read in the order the message went, because
        # the pipes of two processes have none.
        await hop(middle, 1)
        await hop(far, 1)
        await hop(middle, 2)
        async with asyncio.timeout(processes.WAIT):
            answer = await answered
        say_hop("near", format_route(answer.onward_route), format_route(answer.return_route))
        say("near", f"the answer is {answer.payload!r}")
        check(answer.payload == b"hello", f"a wrong answer: {answer.payload!r}")
        way = [str(step) for step in answer.return_route]
        check(way[1] == "0#relay" and way[-1] == "0#echo", f"a wrong return route: {way}")
        await middle.stop()
        await far.stop()

    whom = "echo on far, by relay on middle"
    record.done.add("routed message over TCP", 1, "1 answer", whom)
    record.cast.add("middle", "a node", "onward node", "TCP", "forwarded there and back")
    record.cast.add("far", "a node", "onward node", "TCP", "1 answer")
