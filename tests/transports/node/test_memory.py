"""The faults of the `memory` transport."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import cast

import pytest

from onward.actors import MailboxOptions, Node
from onward.protocol import Address, LinkDown, LinkLost, Message, NotDelivered
from onward.transports import MemoryLink, MemoryTransport
from onward.transports.node._memory import WINDOW
from tests.support.transports import Echo, Recorder, Stuck, eventually
from tests.support.virtual import virtual_time

_names = count()


async def joined(a: Node, c: Node, *expose: str) -> tuple[Address, MemoryLink]:
    """Join two nodes; return the link at the first and its address."""
    listener = await c.listen(f"memory://memory-{next(_names)}", expose=expose)
    link = await a.connect(listener.uri)
    transport = cast(MemoryTransport, a.transport("memory://"))
    return link, transport.link(link)


async def test_a_frozen_link_delays_and_loses_nothing(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    link, ours = await joined(a, c, "c1")
    ours.freeze()
    for number in range(5):
        a.send([link, "c1"], bytes([number]))
    await eventually(lambda: ours.taken == 5)
    assert not recorder.messages
    ours.thaw()
    await eventually(lambda: len(recorder.messages) == 5)
    assert [each.payload[0] for each in recorder.messages] == [0, 1, 2, 3, 4]


async def test_a_cut_ends_both_ends_and_their_requests(a: Node, c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck")
    link, ours = await joined(a, c, "stuck")
    asked = asyncio.create_task(a.request([link, "stuck"], b""))
    await eventually(lambda: ours.taken)
    workers = c.statistics().worker_count
    ours.cut()
    with pytest.raises(LinkLost, match="the connection was cut"):
        await asked
    await eventually(lambda: not a.has(link))
    await eventually(lambda: c.statistics().worker_count == workers - 1)
    stuck.go_on.set()


async def test_what_is_on_the_way_is_lost_in_a_cut(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    link, ours = await joined(a, c, "c1")
    ours.freeze()
    a.send([link, "c1"], b"lost")
    await eventually(lambda: ours.taken)
    ours.cut()
    await eventually(lambda: not a.has(link))
    assert not recorder.messages


async def test_a_half_closed_link_lets_what_was_sent_arrive(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    link, ours = await joined(a, c, "c1")
    ours.freeze()
    a.send([link, "c1"], b"in time")
    await eventually(lambda: ours.taken)
    ours.half_close()
    with pytest.raises(LinkDown):
        await a.request([link, "c1"], b"too late")
    assert a.has(link)
    ours.thaw()
    assert (await recorder.next()).payload == b"in time"
    await eventually(lambda: not a.has(link))


async def test_a_window_of_messages_on_the_way_then_the_mailbox(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await c.listen(f"memory://memory-{next(_names)}", expose=["c1"])
    link = await a.connect(listener.uri)
    ours = cast(MemoryTransport, a.transport("memory://")).link(link)
    ours.freeze()
    sent = 0
    with pytest.raises(NotDelivered, match="mailbox full"):  # noqa: PT012 - one of many
        while True:
            a.send([link, "c1"], b"")
            sent += 1
            if sent % 100 == 0:
                await asyncio.sleep(0)
    assert sent == WINDOW + MailboxOptions().limit
    ours.thaw()
    await eventually(lambda: len(recorder.messages) == sent)


async def test_a_link_is_found_by_its_address(a: Node, c: Node) -> None:
    _, ours = await joined(a, c)
    transport = cast(MemoryTransport, a.transport("memory://"))
    assert transport.link(ours.address) is ours
    with pytest.raises(LookupError):
        transport.link(Address(0, b"nobody"))


async def test_the_other_loop_may_be_gone() -> None:
    async with Node("a") as a:
        far = Node("far")

        async def live_and_die() -> None:
            async with far:
                await far.start(Echo, address="echo")
                await far.listen("memory://memory-far", expose=["echo"])
                link = await a_connect()
                assert (await a_request(link)).payload == b"hi"

        loop = asyncio.get_running_loop()

        async def a_connect() -> Address:
            future = asyncio.run_coroutine_threadsafe(a.connect("memory://memory-far"), loop)
            return await asyncio.wrap_future(future)

        async def a_request(link: Address) -> Message:
            future = asyncio.run_coroutine_threadsafe(a.request([link, "echo"], b"hi"), loop)
            return await asyncio.wrap_future(future)

        await asyncio.to_thread(lambda: asyncio.run(live_and_die()))
        await eventually(lambda: a.statistics().worker_count == 0)


async def test_what_is_over_can_be_asked_to_end_again(a: Node, c: Node) -> None:
    _, ours = await joined(a, c)
    ours.cut()
    await eventually(lambda: not a.has(ours.address))
    ours.cut()
    ours.half_close()
    ours._pull()


async def test_a_transport_stops_with_its_listeners_and_links(a: Node, c: Node) -> None:
    link, _ = await joined(a, c)
    for node in (a, c):
        await node.transport("memory://").stop()
    assert not a.has(link)
    with pytest.raises(LinkDown):
        await joined_to_nobody(a)


async def joined_to_nobody(node: Node) -> Address:
    return await node.connect(f"memory://memory-{next(_names)}")


async def test_an_end_that_is_held_or_whose_line_is_frozen_pulls_nothing(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    link, ours = await joined(a, c, "c1")
    theirs = ours._peer
    assert theirs is not None
    theirs.hold()
    a.send([link, "c1"], b"held")
    await eventually(lambda: ours.taken == 1)
    theirs._pull()
    theirs.release()
    await recorder.next()
    ours.freeze()
    theirs._pull()
    ours.thaw()
    called = asyncio.Event()
    # From a thread without a loop, as from that of another node.
    await asyncio.get_running_loop().run_in_executor(None, ours._call, called.set)
    await called.wait()


@virtual_time
async def test_an_exposed_address_that_no_worker_has_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Node("a") as a, Node("b") as b:
        # One of another type may be resolved by a rule.
        await b.listen("memory://misspelt", expose=["echo", "ehco", "32#service=x", "more"])
        await b.listen("memory://well", expose=["echo"])
        b.spawn(Echo, address="echo")
        await a.connect("memory://misspelt", expose=["nobody"])
        await asyncio.sleep(2)
        await b.listen("memory://too-late-to-tell", expose=["nobody"])
    assert [record.getMessage() for record in caplog.records] == [
        "node 'b' exposes addresses at memory://misspelt that no worker has: 0#ehco, 0#more",
        "node 'a' exposes addresses at memory://misspelt that no worker has: 0#nobody",
    ]
