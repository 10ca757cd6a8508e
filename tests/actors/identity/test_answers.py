"""The id that an answer names: that of the message which it answers."""

from __future__ import annotations

import pytest

from onward.actors import Node
from onward.actors.identity._carriage import ASKS, ENGINE, answer_address
from onward.actors.identity._outgoing import ONWARD
from onward.actors.testing import Probe
from onward.protocol import IDENTITY, MAX_ROUTE_LENGTH, Address, Message, RequestTimeout
from onward.protocol.identity import (
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    Identity,
    Verifiers,
    open_engine_message,
    sign_engine_message,
)
from onward.protocol.ockam import decode_message, encode_message
from onward.transports.identity import Identities
from tests.support.identities import StrangeNode, attached, engine_text, key_of, node_text
from tests.support.transports import Echo, Recorder, eventually

STRANGE = key_of("strange")
NOT_SENT = "answers to messages that were not sent"


def milliseconds(identities: Identities) -> int:
    return identities._router.milliseconds()


async def heard(strange: StrangeNode) -> tuple[EngineMessage, Message]:
    """Return the next message of an engine that the strange node is sent."""
    content = (await strange.said()).content
    while not isinstance(content, EngineContent):
        content = (await strange.said()).content
    message = open_engine_message(content.envelope, Verifiers())
    assert message is not None
    return message, decode_message(message.body)


def say(
    strange: StrangeNode,
    ours: Identities,
    message: Message,
    *,
    to: Identity,
    kind: DestinationKind = DestinationKind.NODE,
    number: int = 0,
    reply_to: int | None = None,
) -> EngineMessage:
    """Have the strange node send a message of its own, and return it."""
    now = milliseconds(ours)
    sent = EngineMessage(
        STRANGE.identity,
        Destination(kind, to),
        (now + 30_000 << 20) + number,
        ONWARD,
        encode_message(message),
        reply_to,
        expiry=now + 60_000,
    )
    strange.say(EngineContent(sign_engine_message(sent, STRANGE)))
    return sent


async def test_an_answer_to_a_request_names_its_id(a: Node, c: Node) -> None:
    ours = await attached(c)
    await c.start(Echo, address="echo")
    echo = ours.engine("echo")
    strange = await StrangeNode.on(a, c, STRANGE)
    engine = DestinationKind.ENGINE
    for number in (7, 8):
        asked = Message((ENGINE,), (ASKS, Address(0, b"box")), b"hi")
        sent = say(strange, ours, asked, to=echo, kind=engine, number=number)
        answer, inner = await heard(strange)
        assert (answer.src, answer.reply_to) == (echo, sent.id)
        assert inner.onward_route == (Address(0, b"box"),)
    # One that asks for nothing has an answer that names nothing: its return route is as it was.
    say(strange, ours, Message((ENGINE,), (Address(0, b"w"),), b"hi"), to=echo, kind=engine)
    assert (await heard(strange))[0].reply_to is None
    assert ours.refused() == {}


async def test_a_request_asks_for_its_id_and_its_answer_is_believed(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    to = node_text(STRANGE.identity)
    for number in range(2):
        request = c.loop.create_task(c.request(f"{to} => x", b"hi"))
        asked, inner = await heard(strange)
        assert inner.return_route[0] == ASKS
        answer = Message(inner.return_route[1:], (), b"yes")
        say(strange, ours, answer, to=ours.own, number=number, reply_to=asked.id)
        assert (await request).payload == b"yes"
    # What waits for no answer asks for nothing.
    probe = await Probe.on(c, "probe")
    probe.send(f"{to} => x", b"hi")
    assert (await heard(strange))[1].return_route == (probe.address,)


async def test_an_answer_to_what_was_not_sent_is_not_believed(a: Node, c: Node) -> None:
    ours = await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = ours.engine("recorder")
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    to = node_text(STRANGE.identity)
    request = c.loop.create_task(c.request(f"{to} => x", b"hi", timeout=5.0))
    asked, inner = await heard(strange)
    answer = Message(inner.return_route[1:], (), b"no")
    for number, other in enumerate((asked.id - 1, asked.id + 1, 0, 2**64 - 1)):
        say(strange, ours, answer, to=ours.own, number=number, reply_to=other)
    # The node has sent it, and this engine has not.
    hello = Message((ENGINE,), (), b"no")
    say(strange, ours, hello, to=engine, kind=DestinationKind.ENGINE, reply_to=asked.id)
    await eventually(lambda: ours.refused() == {NOT_SENT: 5})
    say(strange, ours, answer._replace(payload=b"yes"), to=ours.own, number=9, reply_to=asked.id)
    assert (await request).payload == b"yes"
    assert recorder.messages == []


async def test_an_answer_along_a_route_that_was_changed_is_not_sent(a: Node, c: Node) -> None:
    ours = await attached(c)
    await attached(a)
    recorder = await Recorder.on(c, "recorder")
    engine = ours.engine("recorder")
    await ours.join((await a.listen("memory://changed", expose=["identity"])).uri)
    request = a.loop.create_task(a.request(engine_text(engine), b"hi", timeout=2.0))
    link, answers, *rest = (await recorder.next()).return_route
    forged = (
        answer_address(ours.own, engine, 1),
        Address(IDENTITY, answers.value[:-1] + bytes((answers.value[-1] ^ 1,))),
        Address(IDENTITY, b"answers:"),
    )
    for each in forged:
        c.send((link, each, *rest), b"no")
    await eventually(lambda: c.dead_letters.by_reason == {"unreadable address": 3})
    c.send((link, answers, *rest), b"yes")
    assert (await request).payload == b"yes"


async def test_an_address_of_the_router_behind_that_of_a_request_is_refused(
    a: Node, c: Node
) -> None:
    ours = await attached(c)
    await c.start(Echo, address="echo")
    echo = ours.engine("echo")
    strange = await StrangeNode.on(a, c, STRANGE)
    for number, back in enumerate(((ASKS, ASKS), (ASKS, answer_address(echo, echo, 1)))):
        asked = Message((ENGINE,), back, b"hi")
        say(strange, ours, asked, to=echo, kind=DestinationKind.ENGINE, number=number)
    await eventually(lambda: ours.refused() == {"messages with an address of the router": 2})


async def test_a_request_with_a_long_return_route_asks_for_nothing(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    assert not ours._router.outgoing._is_request(Message((), (), b""))
    request = c.loop.create_task(c.request(f"{node_text(STRANGE.identity)} => x", b"", timeout=1.0))
    (_, box) = (await heard(strange))[1].return_route
    outgoing = ours._router.outgoing
    assert outgoing._is_request(Message((), (box,) * (MAX_ROUTE_LENGTH - 2), b""))
    assert not outgoing._is_request(Message((), (box,) * (MAX_ROUTE_LENGTH - 1), b""))
    with pytest.raises(RequestTimeout):
        await request
