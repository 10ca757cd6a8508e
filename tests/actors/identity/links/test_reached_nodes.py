"""Messages over relays to nodes that were started a moment ago, or again, or lost an engine."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.actors.identity.links._reached_nodes import ReachedNodes
from onward.protocol import LinkLost, RequestTimeout
from onward.protocol.identity import (
    COUNT_BITS,
    MAX_SKEW,
    AdvertAddress,
    AdvertSource,
    Destination,
    DestinationKind,
    Identity,
    NodeAdvert,
    RelayPolicy,
    SigningKey,
    identity_text,
    sign_advert,
)
from tests.support.identities import NOW, engine_text, joined, key_of, node_text
from tests.support.relays import Member, advert_of, chain, member, relay_text
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


async def test_a_node_is_reached_by_that_of_its_relays_which_there_is_a_link_to(
    a: Node, b: Node, c: Node
) -> None:
    asker, relay = await asker_and_relay(a, b)
    async with Node("d") as d:
        other = await member(d, relay=TO_RESERVED)
        there, engine = await reserve(other, c)
        await joined((c, there.identities), b)
        await there.identities.reserve(relay.own)
        assert (await asker.identities.request(engine, b"1", timeout=5)).payload == b"1"
        # The way is another one when there is a link to the other relay alone.
        await joined((a, asker.identities), d)
        asker.identities._router.peers.disconnect(relay.own, "of this test")
        assert (await asker.identities.request(engine, b"2", timeout=5)).payload == b"2"


async def test_a_node_is_looked_up_if_its_relays_lead_back_by_what_is_known(
    a: Node, b: Node, c: Node
) -> None:
    asker, relay = await asker_and_relay(a, b)
    there, other = await member(c, "echo"), key_of("d")
    await c.start(Echo, address="echo")
    advert = NodeAdvert(
        other.identity, (AdvertAddress(relay_text(there), 1),), bytes(32), 1, int(NOW * 1000)
    )
    asker.identities.directory.put(sign_advert(advert, other), AdvertSource.LOCAL)
    by_other = f"36#relay:{identity_text(other.identity)}"
    asker.identities.directory.put(advert_of(there, by_other), AdvertSource.LOCAL)
    await joined((c, there.identities), b)
    await there.identities.reserve(relay.own)
    to = f"{node_text(there.own)} => echo"
    assert (await a.request(to, b"1", timeout=5)).payload == b"1"


async def test_a_node_behind_a_relay_is_reached_whatever_its_advert_says(
    a: Node, b: Node, c: Node
) -> None:
    asker, relay = await member(a), await member(b, relay=RelayPolicy(from_any=True))
    there = await member(c)
    await c.start(Echo, address="echo")
    engine = there.identities.engine("echo")
    await chain(asker, relay, there)
    other = key_of("d")
    advert = NodeAdvert(
        other.identity, (AdvertAddress(relay_text(there), 1),), bytes(32), 1, int(NOW * 1000)
    )
    asker.identities.directory.put(sign_advert(advert, other), AdvertSource.LOCAL)
    by_other = f"36#relay:{identity_text(other.identity)}"
    newest = advert_of(there, by_other, version=2_000_000_000)
    asker.identities.directory.put(newest, AdvertSource.LOCAL)
    answer = await a.request(f"{relay_text(relay)} => {engine_text(engine)}", b"0", timeout=5)
    assert answer.payload == b"0"


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


async def test_a_node_that_asks_reaches_a_young_one_after_its_own_start_too(
    b: Node, c: Node
) -> None:
    relay = await member(b, relay=TO_RESERVED)
    there, engine = await reserve(relay, c)
    for text in b"before", b"after":
        async with Node("d") as d:
            asker = await member(d)
            await joined((d, asker.identities), b)
            await asyncio.sleep(1)
            answer = await asker.identities.request(engine, text, timeout=5)
            assert answer.payload == text
    assert there.identities.refused() == {}


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


async def test_ids_by_an_exit_and_by_relays_differ(a: Node) -> None:
    router = (await member(a)).identities._router
    to = Destination(DestinationKind.ENGINE, key_of("engine").identity)
    node, own = key_of("node").identity, router.own
    for blind_first in (True, False):
        reached, taken = ReachedNodes(router, 10), list[int]()
        for is_blind in (blind_first, not blind_first) * 3:
            taken.append(
                reached.take_blind_id(own, to) if is_blind else reached.take_id(node, own, to, 0)
            )
        assert len(set(taken)) == len(taken)


@pytest.mark.parametrize(("ahead", "blind_first"), [(0.0, False), (-20.0, True)])
async def test_ids_by_an_exit_and_over_a_link_differ(
    a: Node, b: Node, ahead: float, blind_first: bool
) -> None:
    asker, there = await member(a), await member(b, ahead=ahead)
    greetings, own, taken = asker.identities._router.greetings, asker.own, set[int]()
    to = Destination(DestinationKind.ENGINE, key_of("engine").identity)
    await asyncio.sleep(100)
    if blind_first:
        # The ids over the link begin 29 s after the time that the node says first.
        taken.add(greetings.take_id(None, own, to))
        await asyncio.sleep(6)
    await joined((a, asker.identities), b)
    begins = greetings._clocks[there.own].begins
    if blind_first:
        assert {begins} == {each >> COUNT_BITS for each in taken}
    else:
        taken.add(greetings.take_id(there.own, own, to))
        now = asker.identities._router.milliseconds()
        await asyncio.sleep((begins - MAX_SKEW // 2 - now) / 1000)
        assert asker.identities._router.milliseconds() + MAX_SKEW // 2 == begins
    for _ in range(3):
        taken |= {greetings.take_id(None, own, to), greetings.take_id(there.own, own, to)}
    assert len(taken) == 7
