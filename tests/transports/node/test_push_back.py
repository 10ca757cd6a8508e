"""What goes through a node to a link that is slow: nothing is lost, and others go on."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from functools import partial

import pytest

from onward.actors import MailboxOptions, Node, NodeLimits, Overflow, ThreadWorker, Worker
from onward.actors.services import RelayService
from onward.actors.testing import Probe
from onward.actors.workers import Forwarder, Proxy
from onward.protocol import Address, Message, route
from onward.transports.simulated import Faults, SimulatedNetwork, SimulationOptions
from tests.support.tcp import Peer, Server, dialled, listening, reasons
from tests.support.transports import Echo, eventually
from tests.transports.simulated.stage import simulated

SMALL_MAILBOX = MailboxOptions(100, Overflow.WAIT, 1024 * 1024)


class OnAThread(ThreadWorker):
    default_mailbox = MailboxOptions(overflow=Overflow.WAIT)

    def handle_message(self, message: Message) -> None:
        self.forward(message)


@pytest.mark.parametrize("kind", ["forwarder", "thread", "proxy"])
@pytest.mark.parametrize(("count", "size"), [(5000, 3000), (150, 128 * 1024)])
async def test_a_burst_through_a_slow_link_arrives_whole_and_in_order(
    b: Node, c: Node, kind: str, count: int, size: int
) -> None:
    await b.start(Echo, address="echo")
    beside = await listening(b, "echo")
    async with Server() as server:
        connecting = asyncio.create_task(
            c.connect(server.uri, mailbox=SMALL_MAILBOX, high_water=1 << 16)
        )
        far = await (await server.next()).greeted()
        slow, quick = await connecting, await c.connect(beside.uri)
        way = (slow, *route("x"))
        if kind != "proxy":
            await c.start(OnAThread if kind == "thread" else Forwarder, address="through")
            way = (*route("through"), *way)
        else:
            there = way
            await c.start(lambda: Proxy(there), address="through")
            await c.start(Forwarder, address="forwarder")
            way = route("through")
        listener = await listening(c, "through", "forwarder", allow=["*"])
        other = "through" if kind != "proxy" else "forwarder"
        async with dialled(listener) as source, dialled(listener) as asks:
            await source.greeted()
            await asks.greeted()

            async def burst() -> None:
                for number in range(count):
                    payload = struct.pack(">Q", number) + bytes(size - 8)
                    source.send(Message(way, (), payload))
                    await source.writer.drain()

            sending = asyncio.create_task(burst())
            (first, _) = listener.statistics().links
            await eventually(lambda: listener.statistics().links[0].held)
            # Others go on: by the same worker to another link, and what has just been asked.
            asks.send(Message(route([other, quick, "echo"]), route("me"), b"hi"))
            assert (await asks.receive()).payload == b"hi"
            assert first.refused == 0
            for number in range(count):
                assert struct.unpack(">Q", (await far.receive()).payload[:8]) == (number,)
            await sending
        assert not reasons(c)


class Many(ThreadWorker):
    """Makes many messages of one."""

    default_mailbox = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, count: int = 8000) -> None:
        super().__init__()
        self.count = count

    def handle_message(self, message: Message) -> None:
        for number in range(self.count):
            self.forward(message._replace(payload=struct.pack(">Q", number) + bytes(4000)))


class Held(Worker):
    """Takes nothing until it is let go on."""

    default_mailbox = MailboxOptions(10, Overflow.WAIT)

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.taken: list[int] = []

    async def handle_message(self, message: Message) -> None:
        await self.go_on.wait()
        self.taken.append(struct.unpack(">Q", message.payload[:8])[0])


@pytest.mark.parametrize("ending", ["all arrive", "stopped", "link closed"])
async def test_a_thread_that_makes_many_messages_of_one_waits_while_the_link_holds(
    c: Node, ending: str
) -> None:
    held = Held()
    await c.start(Many, address="many")
    await c.start(lambda: held, address="held")
    listener = await listening(c, "many", allow=["held"], max_arrival_bytes=1024 * 1024)
    async with dialled(listener) as source:
        await source.greeted()
        source.send(Message(route("many => held"), (), b""))
        await eventually(lambda: bool(c.parts.table.cell("many").thread.stop_waiting))  # type: ignore[union-attr]
        (line,) = list(c.parts.table.cell("held").lines or ())
        assert listener.statistics().links[0].held
        assert 64 < len(line.messages) < 100
        if ending == "stopped":
            await c.stop_worker("many", timeout=5)
            assert c.statistics().abandoned == 0
        elif ending == "link closed":
            source.writer.close()
            await eventually(lambda: c.parts.table.cell("many").handled == 1)
        held.go_on.set()
        if ending == "all arrive":
            await eventually(lambda: len(held.taken) == 8000)
            assert held.taken == list(range(8000))
            assert not reasons(c)
        elif ending == "stopped":
            kept = len(line.messages)
            await eventually(lambda: not c.parts.table.cell("held").lines)
            await eventually(lambda: not c.parts.table.cell("held").queue)
            assert held.taken == list(range(len(held.taken)))
            assert len(held.taken) >= kept
        else:
            await eventually(lambda: len(held.taken) + c.dead_letters.total == 8000)


class Circling(ThreadWorker):
    """Makes many messages of one, for the next address of its route; keeps all others."""

    default_mailbox = MailboxOptions(10, Overflow.WAIT)

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def handle_message(self, message: Message) -> None:
        if message.payload:
            self.taken += 1
            return
        for _ in range(85):
            self.forward(message._replace(payload=b"made"))


@pytest.mark.parametrize("routes", [["t => t"], ["t => u", "u => t"]])
async def test_threads_do_not_wait_with_a_link_for_themselves(routes: list[str]) -> None:
    t, u = Circling(), Circling()
    async with Node() as c:
        await c.start(lambda: t, address="t")
        await c.start(lambda: u, address="u")
        listener = await listening(c, "t", "u", allow=["t", "u"])
        async with dialled(listener) as source:
            await source.greeted()
            for each in routes:
                source.send(Message(route(each), (), b""))
            await eventually(lambda: t.taken + u.taken == 85 * len(routes))
        assert not reasons(c)


async def test_a_thread_goes_on_after_its_time_and_what_it_made_is_kept_in_order() -> None:
    held = Held()
    async with Node(limits=NodeLimits(room_timeout=0.01)) as c:
        await c.start(lambda: Many(150), address="many")
        await c.start(lambda: held, address="held")
        listener = await listening(c, "many", allow=["held"])
        async with dialled(listener) as source:
            await source.greeted()
            source.send(Message(route("many => held"), (), b""))
            await eventually(lambda: c.parts.table.cell("many").handled == 1)
            held.go_on.set()
            await eventually(lambda: len(held.taken) == 150)
        assert held.taken == list(range(150))
        assert not reasons(c)


async def test_a_relay_pushes_back_too(c: Node) -> None:
    count = 3000
    service = RelayService()
    await c.start(lambda: service, address="forwarding_service")
    listener = await listening(c, "forwarding_service", mailbox=SMALL_MAILBOX, high_water=1000)
    service_at = await listening(c, "any")
    async with dialled(listener) as registered, dialled(service_at) as source:
        await registered.greeted()
        await source.greeted()
        registered.send(Message(route("forwarding_service"), route("me"), b"\x08register"))
        relay = (await registered.receive()).return_route[-1]
        c.expose(service_at.address, relay)

        async def burst() -> None:
            for number in range(count):
                source.send(Message((relay, *route("me")), (), struct.pack(">Q", number) * 500))
                await source.writer.drain()

        sending = asyncio.create_task(burst())
        await eventually(lambda: service_at.statistics().links[0].held)
        for number in range(count):
            assert struct.unpack(">Q", (await registered.receive()).payload[:8]) == (number,)
        await sending
    assert not reasons(c)


async def test_a_peer_that_asks_and_reads_nothing_costs_itself_only(c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo", mailbox=SMALL_MAILBOX, high_water=1 << 16)
    async with dialled(listener) as greedy, dialled(listener) as honest:
        await greedy.greeted()
        await honest.greeted()
        greedy.writer.transport.set_write_buffer_limits(high=1 << 16)
        question = Message(route("echo"), route("me"), bytes(500_000))

        async def ask() -> None:
            while True:
                greedy.send(question)
                await greedy.writer.drain()

        asking = asyncio.create_task(ask())
        await eventually(lambda: listener.statistics().links[0].held)
        for _ in range(20):
            honest.send(Message(route("echo"), route("me"), b"hi"))
            assert (await honest.receive()).payload == b"hi"
        # Its own mailbox, what it may keep, and what is in hand.
        assert c.parts.run_queue.waiting_bytes < (1 << 20) + 500_000
        asking.cancel()
        greedy.writer.transport.abort()  # it is not read, so it would not get rid of what it has


@pytest.mark.parametrize("size", [1000, 16 * 1024])
async def test_small_answers_that_peers_do_not_read_count_in_the_bytes_of_the_node(
    size: int,
) -> None:
    limit = 400_000
    async with (
        Node(limits=NodeLimits(waiting_bytes=limit)) as c,
        contextlib.AsyncExitStack() as stack,
    ):
        await c.start(Echo, address="echo")
        listener = await listening(c, "echo", high_water=1 << 16)
        greedy = [await stack.enter_async_context(dialled(listener)) for _ in range(4)]
        honest = await (await stack.enter_async_context(dialled(listener))).greeted()
        question = Message(route("echo"), route("me"), bytes(size))
        asking: list[asyncio.Task[None]] = []
        for peer in greedy:
            await peer.greeted()

            async def ask(peer: Peer = peer) -> None:
                while True:
                    peer.send(question)
                    await peer.writer.drain()

            asking.append(asyncio.create_task(ask()))
        links = listener.statistics
        await eventually(lambda: sum(each.held > 0 for each in links().links) == 4)
        # A mailbox that has none of them still takes one.
        assert limit - 2 * size < c.parts.run_queue.waiting_bytes < limit + 4 * size
        for _ in range(20):
            honest.send(Message(route("echo"), route("me"), bytes(size)))
            assert len((await honest.receive()).payload) == size
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for peer in greedy:
            peer.writer.transport.abort()
        await eventually(lambda: not c.parts.run_queue.waiting_bytes)


async def test_what_came_before_a_connection_closed_is_delivered(c: Node) -> None:

    class Slow(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.payloads: list[bytes] = []
            self.go_on = asyncio.Event()

        async def handle_message(self, message: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            await self.go_on.wait()
            self.payloads.append(message.payload)

    slow = Slow()
    await c.start(lambda: slow, address="slow", mailbox=MailboxOptions(1))
    listener = await listening(c, "slow")
    async with dialled(listener) as peer:
        await peer.greeted()
        for number in range(20):
            peer.send(Message(route("slow"), (), b"%d" % number))
    await eventually(lambda: listener.statistics().links and listener.statistics().links[0].held)
    slow.go_on.set()
    await eventually(lambda: len(slow.payloads) == 20)
    assert slow.payloads == [b"%d" % number for number in range(20)]
    await eventually(lambda: not listener.statistics().links)
    assert not reasons(c)


async def test_a_connection_that_brings_much_is_read_in_turns(c: Node) -> None:
    most = 0
    seen: list[int] = []

    class Counting(Worker):
        def handle_message(self, message: Message) -> None:
            seen.append(len(message.payload))

    await c.start(Counting, address="counts", mailbox=MailboxOptions(100_000))
    listener = await listening(c, "counts")
    async with dialled(listener) as peer:
        await peer.greeted()
        small = peer.wire.data_to_send()
        for _ in range(20_000):
            peer.wire.send(Message(route("counts"), (), b"x"))
        small = peer.wire.data_to_send()
        peer.write(small)
        while len(seen) < 20_000:
            before = listener.statistics().links[0].received
            await asyncio.sleep(0)
            most = max(most, listener.statistics().links[0].received - before)
    # A slice of 64 KiB has some 3,500 of these.
    assert 0 < most < 8000


@simulated()
async def test_a_stall_of_eight_seconds_behind_a_forwarder(network: SimulatedNetwork) -> None:
    a, middle, b = [await network.node(name) for name in ("a", "middle", "b")]
    taken: list[bytes] = []

    class Stalling(Worker):
        async def handle_message(self, message: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            if len(taken) % 1000 == 0:
                await asyncio.sleep(8)
            taken.append(message.payload)

    await b.start(Stalling, address="stalls", mailbox=MailboxOptions(10))
    await middle.start(Forwarder, address="through")
    await b.listen("sim://b", expose=["stalls"])
    await middle.listen("sim://middle", expose=["through"], allow=["*"])
    onwards = await middle.connect("sim://b")
    link = await a.connect("sim://middle")
    for number in range(5000):
        await a.send_wait([link, "through", onwards, "stalls"], b"%d" % number)
    await asyncio.sleep(100)
    assert taken == [b"%d" % number for number in range(5000)]
    assert a.dead_letters.total == middle.dead_letters.total == b.dead_letters.total == 0


class Asking(Worker):
    """Asks over a link, in many tasks at a time, and counts the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def handle_message(self, message: Message) -> None:
        self.answers += 1

    async def ask(self, link: Address) -> None:
        async def some() -> None:
            for _ in range(10):
                await self.node.send_wait([link, "echo"], b"", return_route="asking")

        await asyncio.gather(*(some() for _ in range(300)))


def _same(worker: Asking) -> Asking:
    return worker


async def asking_each_other(
    network: SimulatedNetwork, *, one_link: bool
) -> tuple[dict[Node, Asking], list[asyncio.Task[None]]]:
    """Have two nodes ask each other 3000 times, over one link or each over its own."""
    a, b = await network.node("a"), await network.node("b")
    asking = {a: Asking(), b: Asking()}
    for node, worker in asking.items():
        await node.start(Echo, address="echo")
        await node.start(partial(_same, worker), address="asking")
        await node.listen(f"sim://{node.name}", expose=["echo", "door"])
    forth = await a.connect("sim://b", expose=["echo"])
    if one_link:
        door = await Probe.on(b, "door")
        a.send([forth, "door"], b"")
        back = (await door.next()).return_route[0]
    else:
        back = await b.connect("sim://a")
    return asking, [
        asyncio.create_task(asking[node].ask(link)) for node, link in ((a, forth), (b, back))
    ]


LONG_WAY_OPTIONS = SimulationOptions(window=500)
LONG_WAY = Faults(latency=(0.1, 0.1))


@simulated(options=LONG_WAY_OPTIONS, faults=LONG_WAY)
async def test_two_nodes_that_flood_one_link_wait_for_each_other_until_the_stall_timeout(
    network: SimulatedNetwork,
) -> None:
    asking, tasks = await asking_each_other(network, one_link=True)
    await asyncio.sleep(29)
    assert [each.answers for each in asking.values()] == [0, 0]
    assert not any(node.dead_letters.total for node in asking)
    # Then what waits is given up, and counted, until they go on.
    await asyncio.sleep(600)
    await asyncio.gather(*tasks)
    answers = sum(each.answers for each in asking.values())
    lost = [dict(node.dead_letters.by_reason) for node in asking]
    assert all(each.keys() == {"mailbox full"} for each in lost)
    assert answers + sum(each["mailbox full"] for each in lost) == 6000


@simulated(options=LONG_WAY_OPTIONS, faults=LONG_WAY)
async def test_two_nodes_that_flood_a_link_each_do_not_wait_for_each_other(
    network: SimulatedNetwork,
) -> None:
    asking, tasks = await asking_each_other(network, one_link=False)
    await asyncio.sleep(29)
    await asyncio.gather(*tasks)
    assert [each.answers for each in asking.values()] == [3000, 3000]
    assert not any(node.dead_letters.total for node in asking)
