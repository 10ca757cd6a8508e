from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.actors.testing import Probe, checked_node
from onward.protocol import AddressInUse, route


async def test_what_came_in_order_each_once() -> None:
    async with checked_node() as node:
        probe = await Probe.on(node, "probe")
        for number in range(3):
            node.send("probe", b"%d" % number)
        assert [(await probe.next()).payload for _ in range(3)] == [b"0", b"1", b"2"]
        assert probe.payloads == [b"0", b"1", b"2"]
        assert probe.messages[0].onward_route == route("probe")


async def test_a_message_that_is_yet_to_come() -> None:
    async with checked_node() as node:
        probe = await Probe.on(node, "probe")
        asyncio.get_running_loop().call_later(3, node.send, "probe", b"late")
        assert (await probe.next()).payload == b"late"


async def test_it_is_its_own_way_back_and_may_answer() -> None:
    async with checked_node() as node:
        asker = await Probe.on(node)
        await Probe.on(node, "shout", answer=lambda message: message.payload.upper() or None)
        asker.send("shout", b"hi")
        asker.send("shout", b"")
        assert (await asker.next()).payload == b"HI"
        await asyncio.sleep(1)
        assert asker.payloads == [b"HI"]


async def test_counting_them() -> None:
    async with checked_node() as node:
        probe = await Probe.on(node, "probe")
        waiting = asyncio.gather(probe.count(2), probe.count(3))
        for payload in (b"a", b"b", b"c", b"d"):
            node.send("probe", payload)
        two, three = await waiting
        assert [each.payload for each in two] == [b"a", b"b"]
        assert [each.payload for each in three] == [b"a", b"b", b"c"]
        assert (await probe.next()).payload == b"d"


async def test_nothing_came() -> None:
    async with checked_node() as node:
        probe = await Probe.on(node, "probe")
        with pytest.raises(TimeoutError, match=r"0 of 1 message came to 0#probe in 5 s$"):
            await probe.next()
        node.send("probe", b"one")
        with pytest.raises(TimeoutError, match=r"1 of 2 .* in 0\.5 s, the last with b'one'"):
            await probe.count(2, timeout=0.5)
        node.send("probe", b"two")
        assert len(await probe.count(2)) == 2


async def test_it_keeps_so_many(node: Node) -> None:
    probe = await Probe.on(node, "probe", limit=2)
    for _ in range(3):
        node.send("probe", b"")
    await probe.count(2)
    with pytest.raises(ValueError, match="3 messages are more than the 2"):
        await probe.count(3)
    await asyncio.sleep(0)
    assert node.dead_letters.by_reason == {"probe full": 1}
    probe.clear()
    node.send("probe", b"again")
    assert (await probe.next()).payload == b"again"


async def test_an_address_that_is_taken() -> None:
    async with checked_node() as node:
        await Probe.on(node, "probe")
        with pytest.raises(AddressInUse):
            await Probe.on(node, "probe")
