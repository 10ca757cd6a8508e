"""Whatever raises inside a link costs the message it raised with, over every transport."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from onward.actors import MailboxOptions, Node, Overflow, Worker
from onward.protocol import Address, Context, LinkLost, Message, OnwardError, WorkerFailed, route
from onward.transports.node._arrivals import Arrivals
from onward.transports.node._gate import Gate
from onward.transports.node._link import Link
from onward.transports.simulated import SimulatedNetwork
from tests.support.compiled import COMPILED, interpreted, typed
from tests.support.counts import exhaustive
from tests.support.planted import PlantedError, plant
from tests.support.transports import Echo, Recorder, eventually

SCHEMES = ["tcp", "udp", "memory", *exhaustive("ws", "uds", "simulated")]
_names = count()

Pair: TypeAlias = tuple[Node, Node, Callable[..., Any]]


@pytest.fixture(params=SCHEMES)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two nodes that tell of errors, and what joins them: it returns the link at the first."""
    scheme: str = request.param
    number = next(_names)
    uris = {
        "tcp": "tcp://127.0.0.1:0",
        "ws": "ws://127.0.0.1:0",
        "uds": f"uds://{tmp_path}/{number}",
        "udp": "udp://127.0.0.1:0",
        "memory": f"memory://faults-{number}",
        "simulated": "sim://b",
    }

    async def join(*expose: str) -> Address:
        listener = await b.listen(uris[scheme], expose=expose, error_replies=True)
        return await a.connect(listener.uri)

    async with _nodes(scheme) as (a, b):
        a.parts.undeliverable.error_replies.on = b.parts.undeliverable.error_replies.on = True
        yield a, b, join


@asynccontextmanager
async def _nodes(scheme: str) -> AsyncGenerator[tuple[Node, Node]]:
    if scheme == "simulated":
        async with SimulatedNetwork(seed=1) as network:
            yield await network.node("a"), await network.node("b")
    else:
        async with Node("a") as a, Node("b") as b:
            yield a, b


def link_at(node: Node, address: Address) -> Link:
    worker = node.parts.table.cell(address).worker
    assert isinstance(worker, Link)
    return worker


class Answers(Worker):
    """Answers with text where it is asked to."""

    def handle_message(self, message: Message) -> None:
        answer: Any = "text" if message.payload == b"text" else message.payload
        self.reply(message, answer)


async def test_an_answer_that_is_not_bytes_costs_that_request(pair: Pair) -> None:
    a, b, join = pair
    b.spawn(Answers, address="answers")
    link = await join("answers")
    for _ in range(3):
        with pytest.raises(OnwardError) as raised:
            await a.request([link, "answers"], b"text", timeout=5)
        assert type(raised.value).__name__ == "GivenUp"
        assert (await a.request([link, "answers"], b"well", timeout=5)).payload == b"well"
    assert b.dead_letters.by_reason == {"worker failed": 3}


@typed
@pytest.mark.parametrize("wrong", ["text", {"a": 1}, bytearray(b"x"), memoryview(b"x")])
async def test_a_payload_that_is_not_bytes_does_not_get_into_a_link(pair: Pair, wrong: Any) -> None:
    a, b, join = pair
    b.spawn(Echo, address="echo")
    link = await join("echo")
    # As if one of the node's own parts had let it through.
    a.parts.router.dispatch(Message((link, *route("echo")), (), wrong))
    assert (await a.request([link, "echo"], b"after", timeout=5)).payload == b"after"
    assert a.dead_letters.by_reason == {"payload not bytes": 1}
    assert link_at(a, link).dropped == 1
    assert not b.dead_letters.total


async def test_a_value_of_a_route_that_is_not_bytes_costs_that_message(pair: Pair) -> None:
    a, b, join = pair
    b.spawn(Echo, address="echo")
    link = await join("echo")
    wrong: Any = "text"
    a.send([link, Address(0, wrong)], b"x")
    a.send([link, "echo", Address(0, wrong)], b"x")
    a.send([link, "echo"], b"x", return_route=[Address(0, wrong)])
    assert (await a.request([link, "echo"], b"after", timeout=5)).payload == b"after"


async def test_a_tracing_text_that_is_none_costs_that_message(pair: Pair) -> None:
    a, b, join = pair
    b.spawn(Echo, address="echo")
    link = await join("echo")
    wrong: Any = 5
    a.send([link, "echo"], b"x", context=Context(trace=wrong))
    assert (await a.request([link, "echo"], b"after", timeout=5)).payload == b"after"


@interpreted
async def test_a_fault_in_transmit_costs_one_message(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, join = pair
    b.spawn(Echo, address="echo")
    link = await join("echo")
    ours = link_at(a, link)
    fault = plant(monkeypatch, type(ours), "transmit")
    assert (await a.request([link, "echo"], b"before", timeout=5)).payload == b"before"
    fault.arm()
    with pytest.raises(WorkerFailed) as raised:
        await a.request([link, "echo"], b"x", timeout=5)
    assert isinstance(raised.value.__cause__, PlantedError)
    assert (await a.request([link, "echo"], b"after", timeout=5)).payload == b"after"
    assert (ours.dropped, ours.taken) == (1, 3)


class Slow(Recorder):
    """Takes its time, so that its mailbox of two is full."""

    async def handle_message(self, message: Message) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0.002)
        super().handle_message(message)


STEPS: dict[str, Callable[[Node, Link], Any]] = {
    "dispatch": lambda node, _: node.parts.router,
    "admits": lambda _, __: Gate,
    "_checked": lambda _, __: Link,
    "_wait_for_room": lambda _, __: Link,
    "_look_at_kept": lambda _, __: Link,
    "keep": lambda _, __: Arrivals,
    "lose": lambda node, _: node,
    "dead_letter": lambda node, _: node.parts.undeliverable,
    "_refuse": lambda _, __: Link,
}
"""The steps of `Link.deliver`, and what each is a method of."""


@interpreted
@pytest.mark.parametrize("name", STEPS)
async def test_a_fault_in_a_step_of_deliver_costs_one_message(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, join = pair
    slow = Slow()
    b.spawn(lambda: slow, address="slow", mailbox=MailboxOptions(limit=2, overflow=Overflow.WAIT))
    b.spawn(Echo, address="echo")
    link = await join("slow", "echo")
    answer = await a.request([link, "echo"], b"before", timeout=5)
    theirs = link_at(b, (await _far(a, b, link, slow)).source or link)
    assert answer.payload == b"before"
    fault = plant(monkeypatch, STEPS[name](b, theirs), name)
    fault.arm()
    payloads = [b"%d" % number for number in range(40)]
    for number, payload in enumerate(payloads):
        a.send([link, "slow"], payload, context=Context(trace="t"))
        if number % 10 == 5:
            a.send([link, "hidden"], b"refused")
    await eventually(lambda: len(slow.messages) >= 40)
    assert fault.fired
    came = [message.payload for message in slow.messages[1:]]
    assert came == [payload for payload in payloads if payload in came]
    assert len(came) >= 39
    a.send([link, "slow"], b"after")
    await eventually(lambda: slow.messages[-1].payload == b"after")
    answer = await a.request([link, "echo"], b"after", timeout=5)
    assert answer.payload == b"after"


async def _far(a: Node, b: Node, link: Address, slow: Slow) -> Message:
    """Have a message come over the link, to know the link at the other end."""
    a.send([link, "slow"], b"first")
    await eventually(lambda: slow.messages)
    return slow.messages[0]


async def test_a_rule_that_raises_costs_one_message(pair: Pair) -> None:
    a, b, join = pair

    def rule(_: Message) -> Message:
        raise ValueError("the rule's own")

    b.add_rule(9, rule)
    b.spawn(Echo, address="echo")
    link = await join("echo", "9#x")
    for _ in range(3):
        with pytest.raises(OnwardError) as raised:
            await a.request([link, "9#x"], b"x", timeout=5)
        assert type(raised.value).__name__ == "GivenUp"
    assert (await a.request([link, "echo"], b"after", timeout=5)).payload == b"after"
    assert b.dead_letters.by_reason == {"in doubt": 3}


@pytest.mark.parametrize("scheme", ["tcp", "udp"])
async def test_what_is_wrong_in_a_backlog_costs_that_message(scheme: str) -> None:
    async with Node("a") as a, Node("b") as b:
        recorder = await Recorder.on(b, "recorder")
        listener = await b.listen(f"{scheme}://127.0.0.1:0", expose=["recorder"])
        there = f"{1 if scheme == 'tcp' else 2}#{listener.uri.partition('://')[2]}"
        wrong: Any = 5
        # All are kept until there is a connection.
        a.send([there, "recorder"], b"1")
        a.send([there, "recorder"], b"x", context=Context(trace=wrong))
        a.send([there, "recorder"], b"2")
        assert (await recorder.next()).payload == b"1"
        assert (await recorder.next()).payload == b"2"
        # Compiled code refuses the value before the link knows it.
        assert a.dead_letters.by_reason == {"worker failed" if COMPILED else "in doubt": 1}


@interpreted
async def test_a_fault_while_writing_costs_the_connection_and_not_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    async with Node("a") as a, Node("b") as b:
        b.spawn(Echo, address="echo")
        listener = await b.listen("tcp://127.0.0.1:0", expose=["echo"])
        link = await a.connect(listener.uri)
        assert (await a.request([link, "echo"], b"before", timeout=5)).payload == b"before"
        fault = plant(monkeypatch, transport, "write")
        fault.arm()
        with pytest.raises(LinkLost):
            await a.request([link, "echo"], b"x", timeout=5)
        assert fault.fired
        assert (await a.request([link, "echo"], b"after", timeout=5)).payload == b"after"
