"""Messages over relays to nodes that were started a moment ago, or again, or lost an engine."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.protocol import LinkLost, RequestTimeout
from onward.protocol.identity import Identity, RelayPolicy, SigningKey
from tests.support.identities import joined, key_of
from tests.support.relays import Member, member
from tests.support.transports import Echo

TO_RESERVED = RelayPolicy(to_reserved=True)


async def asker_and_relay(a: Node, b: Node) -> tuple[Member, Member]:
    """Return a node that asks, joined to a relay."""
    asker, relay = await member(a), await member(b, relay=TO_RESERVED)
    await joined((a, asker.identities), b)
    return asker, relay


async def reserve(at: Member, node: Node, key: SigningKey | None = None) -> tuple[Member, Identity]:
    """Give a node an identity and an engine, and have it reserve at a relay."""
    made = await member(node)
    await node.start(Echo, address="echo")
    engine = made.identities.engine("echo", key)
    await joined((node, made.identities), at.node)
    await made.identities.reserve(at.own)
    return made, engine


async def test_a_node_is_reached_at_once_when_it_has_started(a: Node, b: Node, c: Node) -> None:
    asker, relay = await asker_and_relay(a, b)
    there, engine = await reserve(relay, c)
    for number in range(3):
        answer = await asker.identities.request(engine, b"%d" % number)
        assert answer.payload == b"%d" % number
    assert there.identities.refused() == {}


async def test_a_node_that_was_started_again_is_reached_again(a: Node, b: Node) -> None:
    asker, relay = await asker_and_relay(a, b)
    async with Node("d") as d:
        _, engine = await reserve(relay, d)
        assert (await asker.identities.request(engine, b"before")).payload == b"before"
    await asyncio.sleep(3)
    async with Node("d") as d:
        there, again = await reserve(relay, d)
        assert again == engine
        # What is known is of before: it refuses ids that may have been used then.
        with pytest.raises(RequestTimeout):
            await asker.identities.request(engine, b"lost", timeout=8)
        assert sum(there.identities.refused().values()) == 1
        with pytest.raises(RequestTimeout):
            await asker.identities.request(engine, b"the one that has it looked up", timeout=3)
        assert (await asker.identities.request(engine, b"after")).payload == b"after"
        # Each id of a counter that begins again is above those of the one before.
        assert (await asker.identities.request(engine, b"more")).payload == b"more"


async def test_an_engine_that_has_moved_is_found_again(a: Node, b: Node, c: Node) -> None:
    asker, relay = await asker_and_relay(a, b)
    key = key_of("the engine")
    _, engine = await reserve(relay, c, key)
    assert (await asker.identities.request(engine, b"here")).payload == b"here"
    async with Node("d") as d:
        await asyncio.sleep(10)
        await c.stop_worker("echo")
        await reserve(relay, d, key)
        with pytest.raises(LinkLost, match="at another node now"):
            await asker.identities.request(engine, b"the one that has it looked up", timeout=3)
        assert (await asker.identities.request(engine, b"there")).payload == b"there"
