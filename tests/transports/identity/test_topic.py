"""Topics of nodes that are joined over TCP: ten subscribers, a cut, and functions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from onward.actors import Node
from onward.actors.identity import ROUTER, TopicRefused
from onward.protocol import Message
from onward.protocol.identity import SCOPE_ANY, SCOPE_LOCAL, Identity, identity_text
from onward.transports.identity import Identities
from tests.support.identities import attached, key_of
from tests.support.transports import Recorder, eventually

COUNT = 3


@pytest.fixture
async def joined_nodes() -> AsyncIterator[list[Identities]]:
    """A node, and three that are joined to it over TCP."""
    async with AsyncExitStack() as stack:
        first = await attached(await stack.enter_async_context(Node("hub")))
        listener = await first.node.listen("tcp://127.0.0.1:0", expose=[ROUTER])
        found = [first]
        for number in range(COUNT):
            each = await attached(await stack.enter_async_context(Node(f"leaf {number}")))
            await each.join(listener.uri, identity=first.own)
            found.append(each)
        await eventually(lambda: len(first.peers()) == COUNT)
        yield found


async def published(hub: Identities, *more: Identity) -> Identity:
    await Recorder.on(hub.node, "owner")
    publishers = (hub.own, *more)
    return hub.create_topic(key_of("topic"), engine="owner", scope=SCOPE_ANY, publishers=publishers)


def payloads(recorder: Recorder) -> list[bytes]:
    return [message.payload for message in recorder.messages]


async def test_ten_subscribers_at_four_nodes_see_one_order(joined_nodes: list[Identities]) -> None:
    hub, *leaves = joined_nodes
    await Recorder.on(leaves[0].node, "writer")
    topic = await published(hub, leaves[0].engine("writer"))
    subscribers: list[Recorder] = []
    for number in range(10):
        there = joined_nodes[number % 4]
        subscribers.append(await Recorder.on(there.node, f"subscriber {number}"))
        await there.subscribe(topic, f"subscriber {number}")
    text = f"36#topic:{identity_text(topic)}"
    for number in range(50):
        hub.node.send(text, b"hub %d" % number)
        leaves[0].publish(topic, b"leaf %d" % number, source="writer")
    await eventually(lambda: all(len(each.messages) == 100 for each in subscribers))
    assert len({tuple(payloads(each)) for each in subscribers}) == 1
    assert [each.refused() for each in joined_nodes] == [{}] * 4


async def test_a_cut_loses_no_event(joined_nodes: list[Identities]) -> None:
    hub, leaf, other, _ = joined_nodes
    topic = await published(hub)
    lost: list[int | None] = []
    there, beside = await Recorder.on(leaf.node, "there"), await Recorder.on(other.node, "there")
    await leaf.subscribe(topic, "there", on_lost=lost.append)
    await other.subscribe(topic, "there")
    text = f"36#topic:{identity_text(topic)}"
    hub.node.send(text, b"before")
    await eventually(lambda: there.messages)
    # The leaf dials again. Until then the other end does not know that it has gone.
    leaf._router.peers._disconnect(leaf._router.peers.sessions[hub.own], "a test")
    hub.node.send(text, b"cut off")
    await eventually(lambda: len(beside.messages) == 2)
    assert len(there.messages) == 1
    await eventually(lambda: len(there.messages) == 2)
    assert payloads(there) == payloads(beside)
    assert lost == []


async def test_functions_subscribe_at_another_node(joined_nodes: list[Identities]) -> None:
    hub, leaf, *_ = joined_nodes
    topic = leaf.topic(await published(hub, leaf.own))
    seen: list[bytes] = []

    @topic.subscriber
    def one(message: Message) -> None:
        seen.append(message.payload)

    await topic.ready()
    topic.publish(b"hi")
    await eventually(lambda: seen == [b"hi"])
    assert one.__name__ == "one"
    far = leaf.topic(key_of("none").identity, scope=SCOPE_LOCAL)
    far.subscriber(one)
    with pytest.raises(TopicRefused):
        await far.ready()
