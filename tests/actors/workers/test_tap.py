from __future__ import annotations

import asyncio
import logging

import pytest

from onward.actors import MailboxOptions, Node
from onward.actors.testing import Probe
from onward.actors.workers import Echo, Tap, TapStatistics
from onward.protocol import Context, Message, UnknownAddress, address, route
from tests.support.fixtures import Caplog
from tests.support.workers import Gate, start_worker


async def tapped(node: Node, observer: str) -> Tap:
    tap = await start_worker(node, Tap(observer), "tap")
    await node.start(Echo, address="echo")
    return tap


async def test_there_and_back_are_shown(node: Node) -> None:
    tap = await tapped(node, "observer")
    observer = await Probe.on(node, "observer")
    client = await Probe.on(node, "client")
    client.send("tap => echo", b"hi")
    assert (await client.next()).return_route == route("tap => echo")
    there, back = await observer.count(2)
    assert (there.onward_route, there.return_route, there.payload) == (
        route("observer"),
        route("onward.copy => onward.copy"),
        b"hi",
    )
    assert there.context is not None
    assert there.context.meta[:3] == (route("tap => echo"), route("client"), b"hi")
    assert back.context is not None
    assert back.context.meta[:3] == (route("tap => client"), route("echo"), b"hi")
    assert tap.statistics() == TapStatistics(copied=2, lost=0)


async def test_an_observer_that_is_not_there_hurts_nobody(node: Node) -> None:
    tap = await tapped(node, "nobody")
    assert (await node.request("tap => echo", b"hi")).payload == b"hi"
    assert tap.statistics() == TapStatistics(copied=0, lost=2)
    assert node.dead_letters.by_reason == {"no such worker": 2}
    assert node.statistics().failed == 0


async def test_an_observer_that_does_not_keep_up_loses_copies(node: Node) -> None:
    gate = await start_worker(node, Gate(), "slow", mailbox=MailboxOptions(1))
    tap = await tapped(node, "slow")
    for _ in range(5):
        assert (await node.request("tap => echo", b"hi")).payload == b"hi"
    assert tap.statistics() == TapStatistics(copied=2, lost=8)
    assert node.dead_letters.by_reason == {"mailbox full": 8}
    gate.opened.set()


async def test_a_rule_that_breaks_hurts_nobody(caplog: Caplog, node: Node) -> None:
    def broken(message: Message) -> Message:
        raise ZeroDivisionError

    node.add_rule(200, broken)
    tap = await tapped(node, "200#observer")
    with caplog.at_level(logging.CRITICAL):
        assert (await node.request("tap => echo", b"hi")).payload == b"hi"
    assert tap.statistics() == TapStatistics(copied=0, lost=2)
    assert node.dead_letters.by_reason == {"observer failed": 2}


async def test_what_cannot_be_passed_on_is_shown_all_the_same(node: Node) -> None:
    tap = await tapped(node, "observer")
    await Probe.on(node, "observer")
    with pytest.raises(UnknownAddress):
        await node.request("tap => nobody", b"hi")
    await asyncio.sleep(1)
    assert tap.statistics() == TapStatistics(copied=1, lost=0)
    assert node.statistics().failed == 0


async def test_copies_are_not_copied_again(node: Node) -> None:
    taps = Tap("two => observer"), Tap("one => observer")
    await node.start(lambda: taps[0], address="one")
    await node.start(lambda: taps[1], address="two")
    await node.start(Echo, address="echo")
    observer = await Probe.on(node, "observer")
    node.send("one => echo", b"hi", return_route="observer", context=Context(trace="t"))
    await asyncio.sleep(1)
    # The question's copy, the answer's, and the answer.
    assert len(observer.messages) == 3
    assert [tap.statistics().copied for tap in taps] == [2, 0]


async def test_nobody_answers_a_copy(node: Node) -> None:
    tap = await tapped(node, "talker")
    await node.start(Echo, address="talker")
    assert (await node.request("tap => echo", b"hi")).payload == b"hi"
    await asyncio.sleep(1)
    assert tap.statistics() == TapStatistics(copied=2, lost=0)
    assert node.dead_letters.by_reason == {"no such worker": 2}


async def test_copies_do_not_go_on_for_ever_from_node_to_node() -> None:
    """Two nodes, on each a tap that shows the other one what passes."""
    async with Node("left") as left, Node("right") as right:
        listener = await left.listen("memory://left", expose=["tap"])
        link = await right.connect(listener.uri, expose=["tap"])
        workers = left.statistics().workers
        (way_back,) = (each.address for each in workers if each.kind == "MemoryLink")
        taps = Tap((way_back, address("tap"))), Tap((link, address("tap")))
        await left.start(lambda: taps[0], address="tap")
        await right.start(lambda: taps[1], address="tap")
        left.send("tap", b"x")
        await asyncio.sleep(60)
        handled = [tap.statistics() for tap in taps]
        # Each copy is longer by two addresses: that of a link, and one more of a copy.
        assert handled == [TapStatistics(copied=16, lost=1), TapStatistics(copied=16, lost=0)]
        assert left.dead_letters.by_reason == {"empty route": 17, "route too long": 1}
        assert right.dead_letters.by_reason == {"empty route": 16}
