"""Messages on the fast path: they end as others do, and each change takes them off it."""

from __future__ import annotations

import asyncio
import threading
from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.dispatch import Accept, Dispatcher, DispatchOptions, Received, _fast_path
from onward.protocol import (
    NAME,
    Address,
    Context,
    Message,
    NotDelivered,
)
from onward.protocol.dispatch import (
    ACCEPTED,
    DeliveryLimits,
    DropReason,
    Modified,
    RoutingPattern,
    Semantics,
    temporary_name,
)
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.senders import BACK, ORDERS, SHOP, Answer, Sender
from tests.support.names import Counted
from tests.support.workers import Recorder, start_worker


class World(Sender):
    """A dispatcher, and what its senders have got."""

    def __init__(self, node: Node, dispatcher: Dispatcher, back: Recorder) -> None:
        super().__init__(back)
        self.node = node
        self.dispatcher = dispatcher

    @property
    def fast(self) -> int:
        """The unsettled messages on the fast path."""
        return len(self.dispatcher._core.fast.open)

    @property
    def names(self) -> int:
        """The names that have a fast path."""
        return len(self.dispatcher._core.fast.names)

    def send(self, *payloads: bytes, to: Address = ORDERS, back: Address | None = BACK) -> None:
        for payload in payloads:
            self.node.send(to, payload, return_route=back or ())

    def outcomes(self) -> dict[str, int]:
        return {each: n for each, n in self.dispatcher.statistics().outcomes.items() if n}


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node(error_replies=True) as node:
        yield node


@pytest.fixture
async def world(node: Node) -> World:
    dispatcher = await Dispatcher.attach(node)
    back = await start_worker(node, Recorder(), address=BACK)
    return World(node, dispatcher, back)


async def keep(world: World, name: str = "orders", window: int = 250) -> Kept:
    """Attach a consumer, and send it a first message: the next ones go the fast path."""
    kept = Kept()
    await world.dispatcher.consume(name, kept, window=window, accept=Accept.SELF)
    world.send(b"0", to=Address(NAME, name.encode()))
    await sleep(1)
    kept.last.accept()
    await sleep(1)
    assert world.told == [b""]
    return kept


# --- what goes the fast path --------------------------------------------------------------------


async def test_the_answer_of_a_worker_goes_to_the_sender(world: World) -> None:
    await world.node.start(Answer, address=SHOP)
    await world.dispatcher.consume("orders", SHOP)
    world.send(b"1", b"2", b"3")
    assert world.fast == 2
    assert world.dispatcher.statistics().unsettled == 3
    await sleep(1)
    assert world.told == [b"got 1", b"got 2", b"got 3"]
    assert world.outcomes() == {"accepted": 3}
    assert world.dispatcher.statistics().unsettled == 0
    (row,) = world.dispatcher.names()
    assert (row.accepted, row.in_flight) == (3, 0)


async def test_the_rest_of_the_route_follows_the_consumer(world: World) -> None:
    shop = await start_worker(world.node, Recorder(), address=SHOP)
    await world.dispatcher.consume("orders", SHOP, accept=Accept.HANDED)
    more = Address(0, b"more")
    for _ in range(2):
        world.node.send((ORDERS, more), b"x")
    await sleep(1)
    assert [each.onward_route for each in shop.messages] == [(SHOP, more)] * 2


async def test_a_handler_accepts_with_its_answer(world: World) -> None:
    kept = await keep(world)
    world.send(b"1", b"2")
    await sleep(1)
    assert world.fast == 2
    kept.deliveries[1].accept(b"yes")
    kept.deliveries[2].accept()
    await sleep(1)
    assert world.fast == 0
    assert world.told == [b"yes", b""]


async def test_a_pre_settled_message_counts_until_it_is_handled(world: World) -> None:
    gate = asyncio.Event()

    async def handle(_: Received) -> None:
        await gate.wait()

    consumer = await world.dispatcher.consume("orders", handle, window=2)
    world.send(b"1", b"2", b"3", b"4", back=None)
    await sleep(1)
    assert consumer.unsettled == 4
    gate.set()
    await sleep(1)
    assert consumer.unsettled == 0


async def test_messages_without_credit_wait_for_it_in_order(world: World) -> None:
    kept = await keep(world, window=2)
    world.send(b"1", b"2", b"3", b"4")
    await sleep(1)
    assert [each.payload for each in kept.deliveries] == [b"0", b"1", b"2"]
    kept.deliveries[1].accept()
    await sleep(1)
    assert [each.payload for each in kept.deliveries] == [b"0", b"1", b"2", b"3"]


def nothing(paths: object, address: Address, state: object) -> None:
    del paths, address, state


@pytest.mark.parametrize("back", [None, BACK], ids=["pre-settled", "unsettled"])
@pytest.mark.parametrize("pattern", ["balanced", "closest", "direct"])
async def test_several_consumers_get_as_many_as_without_it(
    back: Address | None, pattern: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[list[int]] = []
    for name in ("quick", "full"):
        if name == "full":
            monkeypatch.setattr(_fast_path.FastPaths, "learn", nothing)
        world.dispatcher.provision(name, Semantics(pattern=RoutingPattern(pattern)))
        shops = [
            await start_worker(world.node, Recorder(), address=f"{name}{each}")
            for each in range(1 if pattern == "direct" else 3)
        ]
        for each in shops:
            await world.dispatcher.consume(name, each.address, accept=Accept.REPLY)
        for _ in range(10):
            world.send(b"x", to=Address(NAME, name.encode()), back=back)
        await sleep(1)
        shares.append([len(each.messages) for each in shops])
    assert shares[0] == shares[1]


# --- other ends ---------------------------------------------------------------------------------


async def test_what_is_released_goes_to_another_consumer(world: World) -> None:
    first = await keep(world)
    world.send(b"1")
    await sleep(1)
    second = Kept()
    await world.dispatcher.consume("orders", second, accept=Accept.SELF)
    first.last.release()
    await sleep(1)
    assert [each.payload for each in second.deliveries] == [b"1"]
    second.last.accept(b"by the second")
    await sleep(1)
    assert world.told == [b"by the second"]


ENDS: dict[str, tuple[Callable[[Received], object], str]] = {
    "released": (lambda each: each.release(), "no consumer took it"),
    "rejected": (lambda each: each.reject("shop:closed"), "shop:closed"),
    "modified": (lambda each: each.modify(), "in doubt"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_another_outcome_is_told_by_the_full_record(end: str, world: World) -> None:
    kept = await keep(world)
    world.send(b"1")
    await sleep(1)
    assert world.fast == 1
    ENDS[end][0](kept.last)
    await sleep(1)
    assert world.fast == 0
    assert world.told == [ENDS[end][1]]
    assert world.outcomes() == {"accepted": 1, end: 1}


async def test_a_consumer_that_has_a_part_keeps_the_message(world: World) -> None:
    kept = await keep(world)
    world.send(b"1")
    await sleep(1)
    kept.last.received()
    assert world.fast == 0
    kept.last.accept(b"whole")
    await sleep(1)
    assert world.told == [b"whole"]


async def test_an_error_reply_is_no_acceptance(world: World) -> None:
    class Refusing(Worker):
        def handle_message(self, message: Message) -> None:
            if message.payload == b"no":
                self.node.answer_error(message, "closed")
            else:
                self.reply(message, b"")

    await world.node.start(Refusing, address=SHOP)
    await world.dispatcher.consume("orders", SHOP)
    world.send(b"", b"no")
    await sleep(1)
    assert world.told == [b"", "no consumer took it"]


async def test_a_full_mailbox_gives_the_message_back(world: World) -> None:
    await world.node.start(Answer, address=SHOP, mailbox=MailboxOptions(limit=2))
    await world.dispatcher.consume("orders", SHOP)
    world.send(b"1", b"2", b"3")
    world.send(b"4", back=None)
    await sleep(1)
    assert world.told == ["no consumer took it", b"got 1", b"got 2"]
    assert world.outcomes() == {"accepted": 2, "released": 1}
    assert world.node.dead_letters.total == 1


async def test_a_full_mailbox_of_a_handler_gives_its_credit_back(world: World) -> None:
    gate = asyncio.Event()

    async def handle(_: Received) -> None:
        await gate.wait()

    consumer = await world.dispatcher.consume("orders", handle, window=3)
    record = consumer._record
    cell = world.node.parts.table.cell(record.route[0])
    world.send(b"1", b"2", back=None)
    cell.limit = cell.most = 2
    world.send(b"3", back=None)
    assert world.node.dead_letters.total == 1
    gate.set()
    await sleep(1)
    assert consumer.unsettled == 0


async def test_an_answer_that_cannot_be_sent_is_counted(world: World) -> None:
    kept = await keep(world)
    await world.node.stop_worker(BACK)
    world.send(b"1")
    await sleep(1)
    kept.last.accept()
    counts = world.dispatcher.statistics().counts
    assert counts["outcomes that could not be told"] == 1


async def test_the_time_for_an_outcome_ends(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, DispatchOptions(outcome_timeout=5.0))
    world = World(node, dispatcher, await start_worker(node, Recorder(), address=BACK))
    kept = await keep(world)
    world.send(b"1")
    await sleep(3)
    world.send(b"2")
    await sleep(3)
    assert world.told == ["in doubt"]
    assert kept.deliveries[1].outcome == Modified()
    await sleep(3)
    assert world.told == ["in doubt"]


async def test_what_is_not_settled_in_time_is_in_doubt(node: Node) -> None:
    options = DispatchOptions(deliveries=DeliveryLimits(settle_time=60.0))
    dispatcher = await Dispatcher.attach(node, options)
    world = World(node, dispatcher, await start_worker(node, Recorder(), address=BACK))
    kept = await keep(world)
    world.send(b"1")
    assert world.fast == 1
    await sleep(30)
    (row,) = dispatcher.names()
    assert (row.in_flight, row.stuck, round(row.oldest)) == (1, 1, 30)
    await sleep(32)
    assert world.told == ["in doubt"]
    assert kept.last.outcome == Modified()
    assert dispatcher.statistics().counts[DropReason.NOT_SETTLED] == 1
    (row,) = dispatcher.names()
    assert (row.in_flight, row.stuck, row.oldest, row.modified) == (0, 0, 0.0, 1)
    # The consumer goes on.
    world.send(b"2")
    await sleep(1)
    kept.last.accept()
    await sleep(1)
    assert world.told == [b""]


@pytest.mark.parametrize("seconds", [10, 600])
async def test_a_name_may_give_its_consumers_another_time_to_settle(
    node: Node, seconds: int
) -> None:
    options = DispatchOptions(deliveries=DeliveryLimits(settle_time=60.0), outcome_timeout=1_000.0)
    dispatcher = await Dispatcher.attach(node, options)
    dispatcher.provision("orders", Semantics(settle_time=seconds))
    world = World(node, dispatcher, await start_worker(node, Recorder(), address=BACK))
    await keep(world)
    world.send(b"1")
    assert world.fast == 1
    await sleep(seconds - 2)
    assert (world.fast, world.told) == (1, [])
    await sleep(4)
    assert (world.fast, world.told) == (0, ["in doubt"])
    assert dispatcher.statistics().counts[DropReason.NOT_SETTLED] == 1


async def test_a_message_that_leaves_it_is_waited_for_as_long(node: Node) -> None:
    limits = DeliveryLimits(settle_time=60.0)
    dispatcher = await Dispatcher.attach(
        node, DispatchOptions(deliveries=limits, outcome_timeout=100.0)
    )
    world = World(node, dispatcher, await start_worker(node, Recorder(), address=BACK))
    kept = await keep(world)
    world.send(b"1")
    await sleep(10)
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    kept.deliveries[1].release()
    await sleep(1)
    assert kept.last.payload == b"1"
    await sleep(58)
    assert world.told == []  # the other consumer has it for as long as it may
    await sleep(5)
    assert world.told == ["in doubt"]


async def test_an_outcome_that_comes_twice_is_late(world: World) -> None:
    kept = await keep(world)
    world.send(b"1")
    await sleep(1)
    record = kept.last._worker.record
    token = kept.last._token
    assert record is not None
    assert token is not None
    kept.last.accept()
    world.dispatcher._core.copies.disposition(token, ACCEPTED, record.target)
    counts = world.dispatcher.statistics().counts
    assert counts["outcomes that came late or for no delivery"] == 1


async def test_an_outcome_of_another_consumer_does_not_count(world: World) -> None:
    kept = await keep(world)
    await world.dispatcher.consume("others", Kept())
    other = next(iter(world.dispatcher._core.names.states["others"].consumers.values()))
    world.send(b"1")
    await sleep(1)
    token = kept.last._token
    assert token is not None
    world.dispatcher._core.copies.disposition(token, ACCEPTED, other.target)
    assert world.dispatcher.statistics().unsettled == 1
    kept.last.accept(b"mine")
    await sleep(1)
    assert world.told == [b"mine"]


async def test_the_dispatcher_stops_with_messages_under_way(world: World) -> None:
    await keep(world)
    world.send(b"1")
    await sleep(1)
    assert world.fast == 1
    await world.node.stop_worker(world.dispatcher.address)
    assert world.fast == 0


# --- what goes the full way ---------------------------------------------------------------------

Change: TypeAlias = Callable[[World, Kept], Awaitable[object]]


async def a_consumer_more(world: World, kept: Kept) -> None:
    del kept
    await world.dispatcher.consume("orders", Kept())


async def a_consumer_less(world: World, kept: Kept) -> None:
    del world
    worker = kept.last._worker
    record = worker.record
    assert record is not None
    record.state.remove_consumer(record.number)


async def other_semantics(world: World, kept: Kept) -> None:
    del kept
    world.dispatcher.provision("orders", Semantics(window=9))


async def other_paths(world: World, kept: Kept) -> None:
    del kept
    world.dispatcher._core.names.network_changed()


async def other_nodes(world: World, kept: Kept) -> None:
    del kept
    world.dispatcher._core.names.network_changed(["orders"])


CHANGES: dict[str, Change] = {
    "a consumer more": a_consumer_more,
    "a consumer less": a_consumer_less,
    "a provision": other_semantics,
    "the paths": other_paths,
    "its nodes": other_nodes,
}


@pytest.mark.parametrize("change", CHANGES)
async def test_each_change_takes_messages_off_it(change: str, world: World) -> None:
    kept = await keep(world)
    world.send(b"1")
    assert world.fast == 1
    await CHANGES[change](world, kept)
    await sleep(1)
    assert world.fast == 0


async def test_other_provisions_clear_what_names_meant(world: World) -> None:
    kept = await keep(world)
    world.dispatcher.provision("else/#", Semantics(window=9))
    world.send(b"1")
    assert world.fast == 0
    await sleep(1)
    kept.last.accept()
    world.send(b"2", b"3")
    assert world.fast == 2


async def test_a_name_that_becomes_unavailable_is_refused(world: World) -> None:
    await keep(world)
    world.dispatcher.provision("orders", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    world.send(b"1")
    await sleep(1)
    assert world.told == ["amqp:not-found: no such name"]


async def test_an_event_log_is_told_of_each_message(world: World) -> None:
    kept = await keep(world)
    log = Counted()
    world.node.add_instrument(log)
    world.send(b"1")
    assert world.fast == 0
    await sleep(1)
    kept.last.accept()
    world.node.remove_instrument(log)
    world.send(b"2")
    assert world.fast == 1


async def test_a_message_with_a_deadline_goes_the_full_way(world: World) -> None:
    kept = await keep(world)
    context = Context(deadline=world.node.loop.time() + 2.0)
    world.node.route(Message((ORDERS,), (BACK,), b"1", None, context))
    assert world.fast == 0
    await sleep(3)
    assert world.told == ["in doubt"]
    assert kept.last.outcome == Modified()


async def test_an_answer_with_a_context_goes_the_full_way(world: World) -> None:
    kept = await keep(world)
    world.send(b"1")
    await sleep(1)
    token = kept.last._token
    assert token is not None
    end = Address(35, b"r" + token)
    context = Context(meta="x")
    world.node.route(Message((end,), (), b"hello", None, context))
    await sleep(1)
    assert world.told == [b"hello"]


@pytest.mark.parametrize("name", ["/orders", "amqp:/orders"])
async def test_another_spelling_is_read_in_full(name: str, world: World) -> None:
    kept = await keep(world)
    world.send(b"1", b"2", to=Address(NAME, name.encode()))
    assert world.fast == 0
    await sleep(1)
    assert [each.payload for each in kept.deliveries] == [b"0", b"1", b"2"]


async def test_what_is_settled_when_it_is_handed_over_has_no_record(world: World) -> None:
    await start_worker(world.node, Recorder(), address=SHOP)
    await world.dispatcher.consume("orders", SHOP, accept=Accept.HANDED)
    world.send(b"1", b"2")
    assert world.fast == 0
    await sleep(1)
    assert world.told == [b"", b""]


async def test_a_worker_of_the_node_sends_and_another_one_may_answer(world: World) -> None:
    class Sender(Worker):
        def handle_message(self, message: Message) -> None:
            self.forward(message)

    kept = await keep(world)
    await world.node.start(Sender, address="sender")
    world.node.send((Address(0, b"sender"), ORDERS), b"1", return_route=BACK)
    await sleep(1)
    assert world.fast == 1
    token = kept.last._token
    assert token is not None
    await start_worker(world.node, Recorder(), address="other")
    world.node.send((Address(0, b"sender"), Address(35, b"r" + token)), b"for it")
    await sleep(1)
    assert world.fast == 0


async def test_a_message_of_another_thread_waits_for_the_loop(world: World) -> None:
    kept = await keep(world)
    thread = threading.Thread(target=lambda: world.send(b"1"))
    thread.start()
    thread.join()
    assert world.fast == 0
    await sleep(1)
    assert kept.last.payload == b"1"
    token = kept.last._token
    assert token is not None
    kept.last.accept()
    world.send(b"2")
    await sleep(1)
    token = kept.last._token
    assert token is not None
    end = Address(35, b"r" + token)
    thread = threading.Thread(target=lambda: world.node.send(end, b"late"))
    thread.start()
    thread.join()
    assert world.fast == 1
    await sleep(1)
    assert world.told == [b"", b"late"]


async def test_the_oldest_name_is_forgotten_beyond_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fast_path, "MAX_NAMES", 2)
    for name in ("a", "b", "c"):
        await keep(world, name)
    assert list(world.dispatcher._core.fast.names) == [b"b", b"c"]


async def test_a_name_without_a_state_is_forgotten(world: World) -> None:
    consumer = await world.dispatcher.consume("orders", lambda _: None)
    world.send(b"1")
    await sleep(1)
    assert world.names == 1
    consumer.close()
    await sleep(1)
    assert world.names == 0
    with pytest.raises(NotDelivered):
        await world.node.request(ORDERS, b"2")


async def test_temporary_names_have_one_too(world: World) -> None:
    consumer = await world.dispatcher.temporary(lambda each: each.accept(b"!"))
    assert consumer.name.startswith(temporary_name("node", b"x" * 16).text[:6])
    world.send(b"1", b"2", b"3", to=Address(NAME, consumer.name.encode()))
    assert world.fast == 2
    await sleep(1)
    assert world.told == [b"!", b"!", b"!"]
