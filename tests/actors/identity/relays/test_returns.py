"""Answers over relays: one for each message, and what a worker is told that gives another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node
from onward.actors.identity import NoWayBack
from onward.actors.pipes import PipeChannel, PipeChannelService, PipeSender, PipeService
from onward.protocol import NotDelivered
from tests.support.identities import node_text
from tests.support.relays import OPEN, Member, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, eventually

EXPOSED = "answers", "pipes", "printer"


@pytest.fixture
async def line() -> AsyncIterator[tuple[Member, Member, Member]]:
    """A node that asks, an open relay, and a node behind it."""
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        line = await member(a), await member(r, relay=OPEN), await member(b, *EXPOSED)
        await chain(*line)
        introduce(*line)
        await asyncio.sleep(40)
        yield line


async def test_a_second_answer_has_no_way_and_says_so(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    answers = await Recorder.on(b.node, "answers")
    route = f"{relay_text(r)} => {node_text(b.own)} => answers"
    asked = asyncio.ensure_future(a.node.request(route, b"?"))
    question = await answers.next()
    answers.reply(question, b"one")
    answers.reply(question, b"two")
    assert (await asked).payload == b"one"
    assert b.node.dead_letters.by_reason == {"no way back over relays": 1}
    # As an error of a request along the way back: it was certainly not handed over.
    with pytest.raises(NoWayBack, match="a message over relays has one answer") as raised:
        await b.node.request(question.return_route, b"three")
    assert isinstance(raised.value, NotDelivered)
    assert raised.value.reason == "no way back over relays"
    assert r.identities.refused() == {}


async def test_a_message_that_wants_no_answer_has_no_way_for_one(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    answers = await Recorder.on(b.node, "answers")
    a.node.send(f"{relay_text(r)} => {node_text(b.own)} => answers", b"!")
    question = await answers.next()
    with pytest.raises(NoWayBack, match="no answer was wanted"):
        await b.node.request(question.return_route, b"?")


async def test_an_answer_after_its_time_has_no_way(line: tuple[Member, Member, Member]) -> None:
    a, r, b = line
    answers = await Recorder.on(b.node, "answers")
    route = f"{relay_text(r)} => {node_text(b.own)} => answers"
    asked = asyncio.ensure_future(a.node.request(route, b"?", timeout=5))
    question = await answers.next()
    await asyncio.sleep(100)
    with pytest.raises(NoWayBack, match="the handle has expired"):
        await b.node.request(question.return_route, b"late")
    assert isinstance(asked.exception(), TimeoutError)


async def test_a_pipe_goes_over_relays_as_each_of_its_frames_is_a_message(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    await b.node.start(PipeService, address="pipes")
    printer = await Recorder.on(b.node, "printer")
    route = f"{relay_text(r)} => {node_text(b.own)} => pipes"
    await a.node.start(lambda: PipeSender(route), address="pipe")
    for number in range(20):
        a.node.send("pipe => printer", bytes((number,)))
    await eventually(lambda: len(printer.messages) == 20)
    assert [each.payload[0] for each in printer.messages] == list(range(20))
    await asyncio.sleep(100)
    assert [each.node.dead_letters.by_reason for each in line] == [{}] * 3


async def test_a_channel_does_not_go_over_relays_and_its_far_end_says_so(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    await b.node.start(PipeChannelService, address="pipes")
    await b.node.start(Echo, address="printer")
    route = f"{relay_text(r)} => {node_text(b.own)} => pipes"
    await a.node.start(lambda: PipeChannel(route), address="channel")
    # The other end sends frame after frame along one return route.
    with pytest.raises(TimeoutError):
        await a.node.request("channel => printer", b"x", timeout=20)
    assert b.node.dead_letters.by_reason["no way back over relays"] > 1
