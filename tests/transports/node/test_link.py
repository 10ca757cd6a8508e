"""What `Link` promises to who derives from it: full mailboxes, errors, the end."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from onward.actors import MailboxOptions, Node, Overflow
from onward.actors.runtime._room import QUANTUM
from onward.protocol import LinkLost, Message, PayloadTooBig, address, route
from onward.transports import MAX_CROSSINGS, MAX_WORK, Link
from onward.transports.node._link import READ_ON, READ_ON_BYTES, SWEEP
from tests.support.transports import Echo, Recorder, Relay, Stuck, eventually
from tests.support.virtual import virtual_time


class Loose(Link):
    """A link with nothing at its other end but the test."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.out: list[Message] = []
        self.held: list[bool] = []
        self.drained: asyncio.Future[None]

    def transmit(self, message: Message) -> None:
        if message.payload == b"bad":
            self.undelivered(message, PayloadTooBig(3, 2))
        else:
            self.out.append(message)

    def hold(self) -> None:
        super().hold()
        self.held.append(True)

    def release(self) -> None:
        super().release()
        self.held.append(False)


EXPOSED = frozenset(map(address, ("stuck", "free", "gone", "full", "there")))


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node() as node:
        yield node


async def loose(node: Node, **options: Any) -> Loose:
    link = Loose(expose=EXPOSED, **options)
    await node.start(lambda: link, address="link")
    return link


async def stuck_on(node: Node, limit: int) -> Stuck:
    stuck = Stuck()
    await node.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=limit))
    return stuck


class Slow(Recorder):
    """Takes some time for each message."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def handle_message(self, message: Message) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(self.seconds)
        super().handle_message(message)


def to(name: str, *payloads: bytes) -> list[Message]:
    return [Message(route(name), route("x"), payload) for payload in payloads]


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


async def test_the_counts(node: Node) -> None:
    link = await loose(node)
    free = await Recorder.on(node, "free")
    node.send("link => there", b"1")
    link.arrive(to("free", b"2") + to("secret", b"3"))
    assert (await free.next()).payload == b"2"
    assert (link.taken, link.arrived, link.refused) == (1, 2, 1)
    assert [each.onward_route for each in link.out] == [route("there")]


async def test_what_cannot_be_sent_is_a_dead_letter_and_the_requests_error(node: Node) -> None:
    await loose(node)
    with pytest.raises(PayloadTooBig):
        await node.request("link => there", b"bad")
    node.send("link => there", b"bad", return_route="free")
    node.send("link => there", b"bad")
    await eventually(lambda: sum(reasons(node).values()) == 3)


async def test_a_message_crosses_a_link_only_so_often(node: Node) -> None:
    link = await loose(node)
    free = await Recorder.on(node, "free")
    for crossings in range(1, MAX_CROSSINGS + 2):
        back = (*(link.address,) * (crossings - 1), address("x"))
        link.arrive([Message(route("free"), back, b"%d" % crossings)])
    for crossings in range(1, MAX_CROSSINGS + 1):
        assert (await free.next()).payload == b"%d" % crossings
    assert reasons(node) == {"too much work": 1}


@pytest.mark.parametrize("addresses", [63, 64])
async def test_the_work_of_one_message_is_bounded(node: Node, addresses: int) -> None:
    link = await loose(node)
    free = await Recorder.on(node, "free")
    onward = (address("free"), *(address("there"),) * (addresses - 1))
    most = MAX_WORK // addresses
    link.arrive([Message(onward, route("x"), bytes(most))])
    assert len((await free.next()).payload) == most
    link.arrive([Message(onward, route("x"), bytes(most + 1))])
    assert reasons(node) == {"too much work": 1}


async def test_a_lost_link_ends_the_requests_over_it(node: Node) -> None:
    link = await loose(node)
    asked = [asyncio.create_task(node.request("link => there", b"")) for _ in range(2)]
    await eventually(lambda: len(link.out) == 2)
    link.arrive([Message(link.out[0].return_route, (), b"answer")])
    assert (await asked[0]).payload == b"answer"
    link.lost("the wire was cut")
    with pytest.raises(LinkLost, match="the wire was cut"):
        await asked[1]
    link.lost("again")  # nobody is waiting any more


async def test_a_request_that_was_answered_otherwise_is_left_alone(node: Node) -> None:
    link = await loose(node)
    asked = asyncio.create_task(node.request("link => there", b""))
    await eventually(lambda: link.out)
    node.send(link.out[0].return_route, b"from elsewhere")
    link.lost("too late")
    assert (await asked).payload == b"from elsewhere"


async def test_a_full_mailbox_keeps_its_own_messages_in_order_and_no_others(node: Node) -> None:
    stuck = await stuck_on(node, limit=2)
    free = await Recorder.on(node, "free")
    link = await loose(node)
    link.arrive(to("stuck", *map(bytes, range(1, 6))))
    link.arrive(to("free", b"others") + to("secret", b"") + to("gone", b""))
    assert (await free.next()).payload == b"others"
    assert link.kept == 2
    assert reasons(node) == {"not exposed": 1, "no such worker": 1}
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 5)
    assert [len(each.payload) for each in stuck.messages] == [1, 2, 3, 4, 5]
    assert link.held == []
    assert link.arrived == 8


@pytest.mark.parametrize(("count", "size"), [(READ_ON + 2, 1), (4, READ_ON_BYTES // 3)])
async def test_what_is_too_much_to_keep_holds_the_other_end(
    node: Node, count: int, size: int
) -> None:
    stuck = await stuck_on(node, limit=1)
    link = await loose(node)
    for number in range(count):
        assert link.held == []
        link.arrive(to("stuck", bytes(size - 1) + bytes([number])))
    link.arrive(to("stuck", b"\xff"))
    assert link.held == [True]
    stuck.go_on.set()
    await eventually(lambda: link.held == [True, False])
    await eventually(lambda: len(stuck.messages) == count + 1)
    assert [each.payload[-1] for each in stuck.messages] == [*range(count), 0xFF]
    assert not reasons(node)


@virtual_time
async def test_eight_seconds_are_no_reason_to_drop() -> None:
    async with Node() as node:
        slow = Slow(seconds=8.0)
        await node.start(lambda: slow, address="stuck", mailbox=MailboxOptions(limit=1))
        link = await loose(node)
        link.arrive(to("stuck", *[b""] * 100))
        assert link.held == [True]
        await asyncio.sleep(801)
        assert len(slow.messages) == 100
        assert not reasons(node)
        assert link.held == [True, False]


async def test_patience_ends(node: Node) -> None:
    stuck = await stuck_on(node, limit=1)
    link = await loose(node, stall_timeout=0.0)
    link.arrive(to("stuck", *[b""] * 100))
    assert link.held == [True]
    await eventually(lambda: link.held == [True, False])
    assert reasons(node)["mailbox full"] >= 1
    stuck.go_on.set()


@virtual_time
async def test_a_slow_worker_has_its_own_time_beside_one_that_is_stuck() -> None:
    async with Node() as node:
        stuck = await stuck_on(node, limit=1)
        slow = Slow(seconds=4.0)
        await node.start(lambda: slow, address="free", mailbox=MailboxOptions(limit=1))
        link = await loose(node, stall_timeout=5.0)
        link.arrive(to("stuck", *[b""] * 4) + to("free", *map(bytes, range(6))))
        await asyncio.sleep(25)
        assert [len(each.payload) for each in slow.messages] == [0, 1, 2, 3, 4, 5]
        # One in hand, one in the mailbox, two given up.
        assert reasons(node) == {"mailbox full": 2}
        stuck.go_on.set()


@virtual_time
async def test_a_stuck_worker_holds_the_link_up_once() -> None:
    async with Node() as node:
        stuck = await stuck_on(node, limit=1)
        free = await Recorder.on(node, "free")
        link = await loose(node, stall_timeout=5.0)
        loop = asyncio.get_running_loop()
        started = loop.time()
        link.arrive(to("stuck", *[b""] * 101))
        assert link.held == [True]
        await asyncio.sleep(5.1)
        assert link.held == [True, False]
        assert reasons(node) == {"mailbox full": 99}
        # From now on messages for it go by at once, and those for others with them.
        for number in range(10):
            link.arrive(to("stuck", b"") + to("free", b"2") + to("stuck", b""))
            await free.next()
            assert reasons(node) == {"mailbox full": 99 + 2 * (number + 1)}
        assert loop.time() - started < 5.2
        assert link.held == [True, False]
        # It takes one: it has all the patience again.
        stuck.go_on.set()
        await eventually(lambda: len(stuck.messages) == 2)
        stuck.go_on.clear()
        link.arrive(to("stuck", *[b""] * 3))
        assert link.kept == 2
        assert reasons(node) == {"mailbox full": 119}
        stuck.go_on.set()
        await eventually(lambda: len(stuck.messages) == 5)


async def test_of_those_given_up_some_are_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.transports.node._arrivals.MAX_GIVEN_UP", 1)
    stuck = [await stuck_on(node, limit=1), Stuck()]
    await node.start(lambda: stuck[1], address="gone", mailbox=MailboxOptions(limit=1))
    link = await loose(node, stall_timeout=0.0)
    for name in ("stuck", "gone"):
        link.arrive(to(name, b"", b"", b""))
        assert link.kept == 2
        await eventually(lambda: link.kept == 0)
    link.arrive(to("gone", b"", b""))
    assert link.kept == 0
    link.arrive(to("stuck", b"", b""))
    assert link.kept > 0
    for each in stuck:
        each.go_on.set()


@virtual_time
async def test_a_link_keeps_no_worker_that_stopped_while_its_messages_waited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "onward.actors")  # records keep frames alive
    async with Node() as node:
        link = await loose(node, stall_timeout=5.0)
        kept: list[weakref.ref[Stuck]] = []
        for given_up in (False, True):
            kept.append(weakref.ref(await stuck_on(node, limit=1)))
            link.arrive(to("stuck", *[b""] * 4))
            await asyncio.sleep(6 if given_up else 1)
            assert link.kept == (0 if given_up else 2)
            await node.stop_worker("stuck", timeout=1)
        assert link.kept == 0
        gc.collect()
        assert [each() for each in kept] == [None, None]


async def test_what_is_held_has_a_limit_in_bytes(node: Node) -> None:
    stuck = await stuck_on(node, limit=1)
    link = await loose(node, max_arrival_bytes=3000)
    # One may go beyond the limit, whatever its size; routes count too.
    link.arrive(to("stuck", *map(bytes, (0, 2000, 4000, 1, 1))))
    assert reasons(node) == {"mailbox full": 2}
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 3)
    assert [len(each.payload) for each in stuck.messages] == [0, 2000, 4000]
    stuck.go_on.clear()
    link.arrive(to("stuck", *map(bytes, (0, 0, 4000, 1))))
    assert reasons(node) == {"mailbox full": 3}
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 6)


async def test_large_payloads_inside_the_node_hold_the_other_end(node: Node) -> None:
    stuck = await stuck_on(node, limit=1000)
    link = await loose(node, max_inside=100_000)
    link.arrive(to("stuck", *[bytes(30_000)] * 3))
    await eventually(lambda: node.parts.run_queue.waiting_bytes == 60_000)
    assert link.held == []
    link.arrive(to("stuck", *[bytes(30_000)] * 2))
    assert link.held == [True]
    stuck.go_on.set()
    await eventually(lambda: link.held == [True, False])
    await eventually(lambda: len(stuck.messages) == 5)
    assert node.parts.run_queue.waiting_bytes == 0


async def test_large_payloads_that_workers_pass_on_hold_the_other_end_too(node: Node) -> None:
    stuck = await stuck_on(node, limit=1000)
    await node.start(Relay, address="free")
    link = await loose(node, max_inside=100_000)
    link.arrive(to("free => free => stuck", *[bytes(30_000)] * 4))
    await eventually(lambda: node.parts.run_queue.waiting_bytes == 90_000)  # and one in hand
    assert link.held == [True]
    stuck.go_on.set()
    await eventually(lambda: link.held == [True, False])
    await eventually(lambda: len(stuck.messages) == 4)
    assert node.parts.run_queue.waiting_bytes == 0


async def test_links_have_their_turns_at_a_mailbox(node: Node) -> None:
    stuck = await stuck_on(node, limit=4)
    greedy, honest = await loose(node), Loose(expose=EXPOSED)
    await node.start(lambda: honest, address="honest")
    greedy.arrive(to("stuck", *[b"greedy"] * 500))
    honest.arrive(to("stuck", b"honest", b"honest"))
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 502)
    places = [at for at, each in enumerate(stuck.messages) if each.payload == b"honest"]
    assert places[-1] < 4 + 2 * (QUANTUM + 1)


async def test_what_a_worker_passes_on_pushes_back_to_the_link_it_came_over(node: Node) -> None:
    stuck = Stuck()
    await node.start(lambda: stuck, address="full", mailbox=MailboxOptions(1, Overflow.WAIT))
    await node.start(Relay, address="free")
    there = await Recorder.on(node, "there")
    link, other = await loose(node), Loose(expose=EXPOSED)
    await node.start(lambda: other, address="other")
    link.arrive(to("free => full", *map(bytes, range(100))))
    await eventually(lambda: link.held == [True])
    # The worker in between goes on, for others and for other ways of the same link.
    other.arrive(to("free => there", b"other link"))
    link.arrive(to("free => there", b"other way"))
    assert [(await there.next()).payload for _ in range(2)] == [b"other link", b"other way"]
    assert other.held == []
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 100)
    assert [len(each.payload) for each in stuck.messages] == list(range(100))
    assert link.held == [True, False]
    assert not reasons(node)


async def test_what_waits_for_room_is_not_counted_as_refused(node: Node) -> None:
    stuck = Stuck()
    await node.start(lambda: stuck, address="full", mailbox=MailboxOptions(1, Overflow.WAIT))
    await node.start(Relay, address="free")
    link = await loose(node, arrivals=3)
    link.arrive(to("free => full", *[b""] * 10))
    link.arrive(to("full", b""))
    await eventually(lambda: node.dead_letters.total)

    def refused() -> int:
        workers = node.statistics().workers
        return next(each.refused for each in workers if each.address == address("full"))

    # Of ten one is in hand or about to be, one waits, and three are kept.
    lost = node.dead_letters.total
    assert reasons(node) == {"mailbox full": lost}
    assert refused() == lost
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 11 - lost)
    assert refused() == lost


async def test_answers_push_back_to_the_link_that_asked(node: Node) -> None:
    class Blocked(Loose):
        def transmit(self, message: Message) -> Awaitable[None]:  # type: ignore[override]
            super().transmit(message)
            return self.wait()

        async def wait(self) -> None:
            await asyncio.shield(self.drained)

    link = Blocked(expose=EXPOSED)
    link.drained = node.loop.create_future()
    await node.start(lambda: link, address="link", mailbox=MailboxOptions(10, Overflow.WAIT))
    other = Loose(expose=EXPOSED)
    await node.start(lambda: other, address="other")
    await node.start(Echo, address="free")
    link.arrive(to("free", *[b"1"] * 200))
    await eventually(lambda: link.held == [True])
    other.arrive(to("free", b"2"))
    await eventually(lambda: len(other.out) == 1)
    link.drained.set_result(None)
    await eventually(lambda: len(link.out) == 200)
    assert not reasons(node)


async def test_what_is_held_has_a_limit(node: Node) -> None:
    stuck = await stuck_on(node, limit=1)
    link = await loose(node, arrivals=2)
    link.arrive(to("stuck", *map(bytes, range(10))))
    assert reasons(node) == {"mailbox full": 7}
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 3)


async def test_routes_too_long_are_refused_while_holding_too(node: Node) -> None:
    stuck = await stuck_on(node, limit=1)
    link = await loose(node)
    long = Message(route("free"), route(["x"] * 64), b"")
    link.arrive([*to("stuck", b"", b"", b""), long])
    stuck.go_on.set()
    await eventually(lambda: sum(reasons(node).values()) == 1)
    assert node.dead_letters.recent[0].message.payload == long.payload


async def test_what_is_held_when_the_link_stops_is_a_dead_letter(node: Node) -> None:
    stuck = await stuck_on(node, limit=1)
    link = await loose(node)
    link.arrive(to("stuck", *[b""] * 4))
    await node.stop_worker("link")
    assert reasons(node) == {"mailbox full": 3}
    stuck.go_on.set()


async def test_links_that_ways_went_on_over_are_forgotten_when_they_have_stopped(
    node: Node,
) -> None:
    out = await loose(node)
    exposed = frozenset({address("link")})
    for count in range(1, 3 * SWEEP):
        come = Loose(expose=exposed)

        def made(come: Loose = come) -> Loose:
            return come

        def all_out(count: int = count) -> bool:
            return len(out.out) == count

        at = await node.start(made)
        come.arrive(to("link => x", b"over"))
        await eventually(all_out)
        assert out.in_use()
        assert come.in_use()
        assert len(out._joined) <= SWEEP
        await node.stop_worker(at)
    assert not out.in_use()
