"""One node: the choice of consumers, outcomes, credit, and what is undeliverable."""

from __future__ import annotations

import asyncio
import gc
import threading
from asyncio import sleep
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from onward.actors import GivenUp, LimitReached, MailboxOptions, Node, Refused, Worker
from onward.actors.dispatch import (
    DISPATCH,
    Accept,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    Producer,
    ProducerClosed,
    Received,
)
from onward.actors.dispatch._dispatch_worker import DispatchWorker
from onward.actors.dispatch._handling import Handling
from onward.actors.testing import crash
from onward.protocol import (
    NAME,
    Address,
    InDoubt,
    Message,
    NotDelivered,
    UnknownAddress,
    UnreadableAddress,
)
from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MAX_COST,
    MODIFIED,
    NOT_FOUND,
    RELEASED,
    UNDELIVERABLE,
    Accepted,
    BadName,
    BadSemantics,
    DeliveryLimits,
    Gate,
    Hold,
    Last,
    Modified,
    Outcome,
    PatternInUse,
    ProvisionsChange,
    Redirect,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    Settlement,
    UnknownProvision,
)
from onward.protocol.toml import FileError
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.kept import Kept
from tests.support.workers import Echo, Failing, Gate as Busy, Recorder, start_worker

REFUSED = Rejected("shop:closed", "come back tomorrow")

ENDS: dict[str, Callable[[Received], object]] = {
    "acc": lambda each: each.accept(),
    "rej": lambda each: each.reject("shop:closed", "come back tomorrow"),
    "rel": lambda each: each.release(),
    "mod": lambda each: each.modify(),
}
OUTCOMES: dict[str, Outcome] = {
    "acc": ACCEPTED,
    "rej": REFUSED,
    "rel": RELEASED,
    "mod": Modified(failed=True),
}


@pytest.fixture
async def dispatcher(node: Node) -> Dispatcher:
    return await Dispatcher.attach(node)


async def keep(dispatcher: Dispatcher, name: str, window: int = 250) -> Kept:
    kept = Kept()
    await dispatcher.consume(name, kept, window=window, accept=Accept.SELF)
    return kept


def counted(dispatcher: Dispatcher, reason: str) -> int:
    return dispatcher.statistics().counts.get(reason, 0)


async def test_times_of_names_that_were_forgotten_do_not_gather(node: Node) -> None:
    worker = DispatchWorker(DispatchOptions(), None)
    await node.start(lambda: worker, address=DISPATCH)
    schedule = worker.core.schedule
    await start_worker(node, Echo(), "echo")
    dispatcher = Dispatcher(worker.core)
    kept = await keep(dispatcher, "kept")
    asked = asyncio.create_task(node.request("34#kept", b"", timeout=500.0))
    for number in range(500):
        consumer = await dispatcher.consume(f"name.{number}", "echo")
        await node.request(f"34#name.{number}", b"")
        consumer.close()
    assert dispatcher.statistics().names == 1
    assert len(schedule) < 200
    # What is left is due in its time: the outcome of the one that is kept.
    kept.deliveries[0].accept()
    await asked
    doubt = asyncio.create_task(node.request("34#kept", b"", timeout=500.0))
    await sleep(DispatchOptions().outcome_timeout + 300)
    with pytest.raises(InDoubt):
        await doubt
    assert len(schedule) == 0


async def test_a_name_by_tags_needs_a_broker(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node)
    with pytest.raises(BadSemantics, match="tags need a broker at this node"):
        dispatcher.provision("orders", Semantics(tags="service=stock"))
    dispatcher.provision("orders", Semantics())
    with pytest.raises(BadSemantics, match="tags need a broker at this node"):
        dispatcher.update("orders", Semantics(tags="service=stock"))
    with pytest.raises(BadSemantics, match="tags need a broker at this node"):
        dispatcher.load('[[name]]\npattern = "stock"\ntags = "service=stock"', "names.toml")


# --- the choice -------------------------------------------------------------------------------


async def test_balanced_sends_in_turn(dispatcher: Dispatcher) -> None:
    shares = [0, 0, 0]
    for index in range(3):

        def handle(_: Received, index: int = index) -> None:
            shares[index] += 1

        await dispatcher.consume("orders", handle)
    producer = await dispatcher.produce("orders")
    for _ in range(9):
        assert await producer.send(b"x") == ACCEPTED
    assert shares == [3, 3, 3]
    assert producer.unsettled == 0
    assert producer.credit == 250


async def test_closest_sends_in_rotation(dispatcher: Dispatcher) -> None:
    dispatcher.provision("near", Semantics(pattern=RoutingPattern.CLOSEST))
    kept = [await keep(dispatcher, "near") for _ in range(2)]
    producer = await dispatcher.produce("near")
    for _ in range(4):
        await producer.send_settled(b"x")
    await sleep(1)
    assert [len(each.deliveries) for each in kept] == [2, 2]


async def test_direct_has_one_consumer_and_the_standby_takes_over(dispatcher: Dispatcher) -> None:
    direct = Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY)
    dispatcher.provision("one", direct)
    got: list[str] = []
    first = await dispatcher.consume("one", lambda _: got.append("first"))
    second = await dispatcher.consume("one", lambda _: got.append("second"))
    assert (first.active, second.active) == (True, False)
    producer = await dispatcher.produce("one")
    assert await producer.send(b"1") == ACCEPTED
    first.close()
    first.close()
    assert second.active
    assert await producer.send(b"2") == ACCEPTED
    assert got == ["first", "second"]


async def test_direct_refuses_a_second_consumer(dispatcher: Dispatcher) -> None:
    dispatcher.provision("one", Semantics(pattern=RoutingPattern.DIRECT))
    await dispatcher.consume("one", Kept())
    with pytest.raises(ConsumerRefused, match="direct"):
        await dispatcher.consume("one", Kept())


async def test_direct_lets_the_newest_consumer_displace_the_one_before(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.provision("one", Semantics(pattern=RoutingPattern.DIRECT, second=Second.NEWEST))
    first = await dispatcher.consume("one", Kept())
    second = await dispatcher.consume("one", Kept())
    assert first.reason == "another consumer has taken its place"
    assert (first.active, second.active) == (False, True)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("acc", "rej"), "rej"),
        (("acc", "rel"), "acc"),
        (("acc", "mod"), "acc"),
        (("mod", "rel"), "mod"),
        (("rel", "rel"), "rel"),
        (("rej", "mod"), "rej"),
        (("acc", "acc"), "acc"),
    ],
)
async def test_a_multicast_has_the_outcome_of_the_matrix(
    ends: tuple[str, str], expected: str, dispatcher: Dispatcher
) -> None:
    dispatcher.provision("all", Semantics(pattern=RoutingPattern.MULTICAST))
    for end in ends:
        await dispatcher.consume("all", ENDS[end], accept=Accept.SELF)
    producer = await dispatcher.produce("all")
    assert await producer.send(b"x") == OUTCOMES[expected]
    assert dispatcher.statistics().unsettled == 0


async def test_a_multicast_that_all_have_to_accept(dispatcher: Dispatcher) -> None:
    reliability = Reliability(accepts=ALL, deadline=5.0)
    dispatcher.provision(
        "all", Semantics(pattern=RoutingPattern.MULTICAST, reliability=reliability)
    )
    await dispatcher.consume("all", ENDS["acc"], accept=Accept.SELF)
    slow = await keep(dispatcher, "all")
    producer = await dispatcher.produce("all")
    started = asyncio.get_running_loop().time()
    assert await producer.send(b"x") == MODIFIED
    assert asyncio.get_running_loop().time() - started == pytest.approx(5.0)
    assert slow.deliveries[0].outcome == MODIFIED
    assert not slow.deliveries[0].accept()


# --- plain messages ---------------------------------------------------------------------------


async def test_a_request_has_the_reply_of_a_worker(node: Node, dispatcher: Dispatcher) -> None:
    await start_worker(node, Echo(), "echo")
    await dispatcher.consume("orders", "echo")
    answer = await node.request("34#orders", b"apples")
    assert answer.payload == b"apples"
    assert dispatcher.statistics().unsettled == 0
    assert dispatcher.statistics().names == 1


async def test_a_request_has_the_answer_of_a_handler(node: Node, dispatcher: Dispatcher) -> None:
    def handle(delivery: Received) -> None:
        delivery.accept(delivery.payload.upper())

    await dispatcher.consume("orders", handle)
    assert (await node.request("34#orders", b"apples")).payload == b"APPLES"


async def test_a_request_that_a_handler_just_handles_has_an_empty_answer(
    node: Node, dispatcher: Dispatcher
) -> None:
    async def handle(_: Received) -> None:
        await sleep(1)

    await dispatcher.consume("orders", handle)
    assert (await node.request("34#orders", b"apples")).payload == b""


async def test_a_request_without_a_consumer_is_certainly_not_delivered(
    node: Node, dispatcher: Dispatcher
) -> None:
    with pytest.raises(NotDelivered, match="no consumer took it"):
        await node.request("34#orders", b"apples")
    assert dispatcher.statistics().names == 0


@pytest.mark.parametrize(
    ("end", "error", "text"),
    [
        ("rel", NotDelivered, "no consumer took it"),
        ("mod", InDoubt, "in doubt"),
        ("rej", Refused, "shop:closed: come back tomorrow"),
    ],
)
async def test_a_request_raises_what_its_consumer_tells(
    end: str, error: type[Exception], text: str, node: Node, dispatcher: Dispatcher
) -> None:
    await dispatcher.consume("orders", ENDS[end], accept=Accept.SELF)
    with pytest.raises(error, match=text):
        await node.request("34#orders", b"apples")


async def test_a_plain_worker_that_fails_leaves_the_message_in_doubt(
    node: Node, dispatcher: Dispatcher
) -> None:
    await start_worker(node, Failing(), "failing")
    await dispatcher.consume("orders", "failing")
    with pytest.raises(GivenUp):
        await node.request("34#orders", b"!")


async def test_a_handler_that_fails_leaves_the_message_in_doubt(
    node: Node, dispatcher: Dispatcher
) -> None:
    def handle(_: Received) -> None:
        raise ValueError("no apples")

    await dispatcher.consume("orders", handle)
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"x") == MODIFIED
    with pytest.raises(GivenUp):
        await node.request("34#orders", b"x")


async def test_a_handler_that_waits_and_fails_leaves_the_message_in_doubt(
    node: Node, dispatcher: Dispatcher
) -> None:
    async def handle(_: Received) -> None:
        await sleep(1)
        raise ValueError("no apples")

    await dispatcher.consume("orders", handle)
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"x") == MODIFIED


@pytest.mark.parametrize("kind", ["coroutine", "future"])
async def test_a_handler_that_never_begins_leaves_the_message_in_doubt(
    kind: str, node: Node, dispatcher: Dispatcher
) -> None:
    loop, begun = asyncio.get_running_loop(), list[bytes]()
    future: asyncio.Future[None] = loop.create_future()

    async def take(delivery: Received) -> None:
        begun.append(delivery.payload)

    def cancel() -> None:
        assert worker is not None
        task = worker._placed.task
        assert task is not None
        task.cancel()

    def handle(delivery: Received) -> Awaitable[None]:
        if delivery.payload == b"never":
            loop.call_soon(cancel)  # before the first step of the task
        return take(delivery) if kind == "coroutine" or delivery.payload != b"never" else future

    consumer = await dispatcher.consume("orders", handle, window=1)
    worker = consumer._record.worker
    producer = await dispatcher.produce("orders")
    assert await asyncio.wait_for(producer.send(b"never"), 10) == MODIFIED
    await producer.send_settled(b"never")
    await sleep(1)
    # Its credit is back, so that it gets the next one.
    assert await asyncio.wait_for(producer.send(b"next"), 10) == ACCEPTED
    assert begun == [b"next"]
    assert not future.done()


async def test_a_handler_that_never_begins_as_its_node_crashes(
    node: Node, dispatcher: Dispatcher
) -> None:
    begun: list[bytes] = []

    async def take(delivery: Received) -> None:
        begun.append(delivery.payload)

    def handle(delivery: Received) -> Awaitable[None]:
        node.loop.call_soon(crash, node)  # before the first step of the task
        return take(delivery)

    await dispatcher.consume("orders", handle)
    producer = await dispatcher.produce("orders")
    await producer.send_settled(b"x")
    await sleep(1)
    gc.collect()  # a coroutine that was never awaited would be reported now
    assert begun == []


async def test_a_handling_is_closed_as_a_coroutine_is() -> None:
    ends: list[str] = []

    async def take() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("closed")

    async def finish(result: Awaitable[None]) -> None:
        await result

    for begun in (False, True):
        result = take()
        rest = finish(result)
        handling = Handling(rest, result, lambda: ends.append("never begun"))
        steps = handling.__await__()
        assert handling.cr_await is rest
        if begun:
            steps.send(None)
        steps.close()
        handling.close()
        with pytest.raises(RuntimeError, match="already awaited"):
            result.send(None)
    assert ends == ["never begun", "closed"]


async def test_a_plain_function_handles_without_a_task_and_may_return_what_is_awaited(
    node: Node, dispatcher: Dispatcher
) -> None:
    tasks: list[asyncio.Task[object] | None] = []
    done = asyncio.get_running_loop().create_future()

    def handle(delivery: Received) -> asyncio.Future[None] | None:
        tasks.append(asyncio.current_task())
        return done if delivery.payload == b"later" else None

    consumer = await dispatcher.consume("orders", handle)
    node.send("34#orders", b"now")
    node.send("34#orders", b"later")
    node.send("34#orders", b"last")
    await sleep(1)
    assert (tasks, consumer.unsettled) == ([None, None], 2)
    done.set_result(None)
    await sleep(1)
    assert (tasks, consumer.unsettled) == ([None, None, None], 0)


async def test_a_message_without_a_return_route_is_pre_settled(
    node: Node, dispatcher: Dispatcher
) -> None:
    kept = await keep(dispatcher, "orders")
    node.send("34#orders", b"1")
    await sleep(1)
    assert kept.payloads == [b"1"]
    assert kept.deliveries[0].settled
    assert dispatcher.statistics().unsettled == 0


async def test_a_pre_settled_message_without_a_consumer_is_a_dead_letter(
    node: Node, dispatcher: Dispatcher
) -> None:
    node.send("34#orders", b"1")
    await sleep(1)
    assert node.statistics().dead_letters == 1
    assert counted(dispatcher, "no consumer took it") == 1


async def test_what_follows_the_name_follows_the_route_of_the_consumer(
    node: Node, dispatcher: Dispatcher
) -> None:
    class Onward(Worker):
        def handle_message(self, message: Message) -> None:
            self.forward(message)

    await start_worker(node, Onward(), "shop")
    await start_worker(node, Echo(), "echo")
    await dispatcher.consume("orders", "shop")
    assert (await node.request("34#orders => echo", b"x")).payload == b"x"


async def test_a_worker_without_a_reply_is_in_doubt_in_time(
    node: Node, dispatcher: Dispatcher
) -> None:
    recorder = await start_worker(node, Recorder(), "recorder")
    await dispatcher.consume("orders", "recorder")
    with pytest.raises(InDoubt):
        await node.request("34#orders", b"x", timeout=5.0)
    await sleep(1)
    assert len(recorder.messages) == 1
    assert dispatcher.statistics().unsettled == 0


async def test_a_worker_that_accepts_as_it_gets_a_message(
    node: Node, dispatcher: Dispatcher
) -> None:
    recorder = await start_worker(node, Recorder(), "recorder")
    await dispatcher.consume("orders", "recorder", accept=Accept.HANDED)
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"x") == ACCEPTED
    await sleep(1)
    assert recorder.payloads == [b"x"]


async def test_a_forged_or_late_outcome_is_counted(node: Node, dispatcher: Dispatcher) -> None:
    node.send("35#r12345678", b"")
    await sleep(1)
    assert counted(dispatcher, "outcomes that came late or for no delivery") == 1


# --- credit -----------------------------------------------------------------------------------


async def test_a_producer_waits_for_its_first_consumer(dispatcher: Dispatcher) -> None:
    producer = await dispatcher.produce("orders")
    assert producer.credit == 0
    send = asyncio.create_task(producer.send(b"x"))
    await sleep(10)
    assert not send.done()
    await dispatcher.consume("orders", lambda _: None)
    assert await send == ACCEPTED
    assert producer.credit == 250


async def test_credit_is_drained_once_the_last_consumer_has_gone(dispatcher: Dispatcher) -> None:
    consumer = await dispatcher.consume("orders", lambda _: None)
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"1") == ACCEPTED
    consumer.close()
    assert producer.credit == 250
    assert await producer.send(b"2") == RELEASED
    assert producer.credit == 0
    await dispatcher.consume("orders", lambda _: None)
    assert producer.credit == 250
    assert await producer.send(b"3") == ACCEPTED


async def test_no_more_is_unsettled_than_the_window(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", Semantics(window=2))
    kept = await keep(dispatcher, "orders")
    producer = await dispatcher.produce("orders")
    sends = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(3)]
    await sleep(1)
    assert (producer.credit, producer.unsettled) == (0, 2)
    assert kept.payloads == [b"0", b"1"]
    kept.deliveries[0].accept()
    await sleep(1)
    assert kept.payloads == [b"0", b"1", b"2"]
    for each in kept.deliveries:
        each.accept()
    assert await asyncio.gather(*sends) == [ACCEPTED] * 3


async def test_a_gate_by_credit_gives_no_more_than_consumers_do(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", Semantics(gate=Gate.CREDIT))
    kept = await keep(dispatcher, "orders", window=3)
    producer = await dispatcher.produce("orders")
    assert producer.credit == 3
    sends = [asyncio.create_task(producer.send(b"x")) for _ in range(4)]
    await sleep(1)
    assert (producer.credit, len(kept.deliveries)) == (0, 3)
    kept.deliveries[0].accept()
    await sleep(1)
    assert (producer.credit, len(kept.deliveries)) == (0, 4)
    for each in kept.deliveries:
        each.accept()
    assert await asyncio.gather(*sends) == [ACCEPTED] * 4
    assert producer.credit == 3
    await producer.send_settled(b"y")
    await sleep(1)
    assert producer.credit == 3


async def test_a_send_that_has_no_credit_in_time_is_released(dispatcher: Dispatcher) -> None:
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"x", timeout=2.0) == RELEASED
    assert producer.credit == 0


async def test_unavailable_names_are_refused(node: Node, dispatcher: Dispatcher) -> None:
    dispatcher.provision("none", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    with pytest.raises(ConsumerRefused, match="unavailable"):
        await dispatcher.produce("none")
    with pytest.raises(ConsumerRefused, match="unavailable"):
        await dispatcher.consume("none", Kept())
    with pytest.raises(Refused, match=NOT_FOUND.condition):
        await node.request("34#none", b"x")
    assert dispatcher.statistics().names == 0


# --- ends -------------------------------------------------------------------------------------


async def test_a_consumer_that_goes_leaves_its_messages_modified_and_others_released(
    dispatcher: Dispatcher,
) -> None:
    kept = Kept()
    consumer = await dispatcher.consume("orders", kept, window=6, accept=Accept.SELF)
    producer = await dispatcher.produce("orders")
    sends = [asyncio.create_task(producer.send(b"x")) for _ in range(10)]
    await sleep(1)
    assert len(kept.deliveries) == 6
    assert consumer.unsettled == 10
    consumer.close()
    outcomes = await asyncio.gather(*sends)
    assert [outcomes.count(MODIFIED), outcomes.count(RELEASED)] == [6, 4]


async def test_a_worker_that_stops_is_a_consumer_that_goes(
    node: Node, dispatcher: Dispatcher
) -> None:
    await start_worker(node, Recorder(), "recorder")
    consumer = await dispatcher.consume("orders", "recorder")
    producer = await dispatcher.produce("orders")
    send = asyncio.create_task(producer.send(b"x"))
    await sleep(1)
    await node.stop_worker("recorder")
    assert await send == MODIFIED
    assert consumer.reason == "its worker has stopped"


async def test_all_consumers_of_a_worker_go_with_it_and_none_of_the_next_one(
    node: Node, dispatcher: Dispatcher
) -> None:
    await start_worker(node, Recorder(), "recorder")
    closed, *others = [await dispatcher.consume(name, "recorder") for name in "abc"]
    closed.close()
    await node.stop_worker("recorder")
    # It is stopped, and its consumers are told in a later turn: the next worker has the address.
    await start_worker(node, Recorder(), "recorder")
    again = await dispatcher.consume("a", "recorder")
    await sleep(1)
    assert [each.reason for each in others] == ["its worker has stopped"] * 2
    assert (closed.reason, again.reason) == ("closed", "")
    again.close()
    assert not dispatcher._core.attachments.watched


async def test_released_messages_go_to_another_consumer(dispatcher: Dispatcher) -> None:
    got: list[bytes] = []
    await dispatcher.consume("orders", ENDS["rel"], accept=Accept.SELF)
    await dispatcher.consume("orders", lambda each: got.append(each.payload))
    producer = await dispatcher.produce("orders")
    assert [await producer.send(b"%d" % each) for each in range(4)] == [ACCEPTED] * 4
    assert got == [b"0", b"1", b"2", b"3"]


async def test_a_producer_whose_owner_stops_is_closed_and_its_messages_go_on(
    node: Node, dispatcher: Dispatcher
) -> None:
    await start_worker(node, Recorder(), "owner")
    kept = await keep(dispatcher, "orders")
    producer = await dispatcher.produce("orders", owner="owner")
    send = asyncio.create_task(producer.send(b"x"))
    await sleep(1)
    await node.stop_worker("owner")
    with pytest.raises(ProducerClosed, match="orders"):
        await send
    assert producer.closed
    assert kept.deliveries[0].accept()
    assert dispatcher.statistics().unsettled == 0
    with pytest.raises(ProducerClosed):
        await producer.send(b"y")


# --- what is undeliverable --------------------------------------------------------------------


def held(*chain: Redirect | Last, messages: int = 10, age: float = 60.0) -> Semantics:
    retry = Retry(hold=Hold(messages=messages, age=age))
    return Semantics(undeliverable=(retry, *chain), gate=Gate.OPEN)


async def test_a_message_is_held_until_a_consumer_comes(node: Node, dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", held(Last.RELEASE))
    producer = await dispatcher.produce("orders")
    send = asyncio.create_task(producer.send(b"1"))
    node.send("34#orders", b"2")
    await sleep(20)
    assert not send.done()
    kept = await keep(dispatcher, "orders")
    await sleep(1)
    assert sorted(kept.payloads) == [b"1", b"2"]
    for each in kept.deliveries:
        each.accept()
    assert await send == ACCEPTED


async def test_a_message_is_held_no_longer_than_its_time(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", held(Last.REJECT, age=30.0))
    producer = await dispatcher.produce("orders")
    started = asyncio.get_running_loop().time()
    assert await producer.send(b"1") == UNDELIVERABLE
    assert asyncio.get_running_loop().time() - started == pytest.approx(30.0)


async def test_no_more_is_held_than_there_is_room_for(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", held(Last.RELEASE, messages=1))
    producer = await dispatcher.produce("orders")
    first = asyncio.create_task(producer.send(b"1"))
    await sleep(1)
    assert await producer.send(b"2") == RELEASED
    assert counted(dispatcher, "no room to hold it") == 1
    assert not first.done()
    assert await first == RELEASED


async def test_a_released_message_is_tried_again_in_the_next_round(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", held(Last.RELEASE))
    tries: list[float] = []

    def handle(delivery: Received) -> None:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            delivery.release()

    await dispatcher.consume("orders", handle)
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"1") == ACCEPTED
    assert [later - sooner for sooner, later in pairwise(tries)] == (pytest.approx([1.0, 2.0]))


async def test_a_message_is_redirected_once(node: Node, dispatcher: Dispatcher) -> None:
    redirect = Semantics(undeliverable=(Redirect("34#b"), Last.RELEASE), gate=Gate.OPEN)
    back = Semantics(undeliverable=(Redirect("34#a"), Last.RELEASE))
    dispatcher.provision("a", redirect)
    dispatcher.provision("b", back)
    producer = await dispatcher.produce("a")
    assert await producer.send(b"1") == RELEASED
    await dispatcher.consume("b", lambda each: each.accept(b"at b"))
    assert await producer.send(b"2") == ACCEPTED
    assert (await node.request("34#a", b"3")).payload == b"at b"


async def test_a_message_is_redirected_to_a_worker(node: Node, dispatcher: Dispatcher) -> None:
    dispatcher.provision(
        "a", Semantics(undeliverable=(Redirect("echo"), Last.RELEASE), gate=Gate.OPEN)
    )
    producer = await dispatcher.produce("a")
    assert await producer.send(b"1") == RELEASED
    await start_worker(node, Echo(), "echo")
    assert (await node.request("34#a", b"2")).payload == b"2"
    assert await producer.send(b"3") == ACCEPTED


class Taking(Worker):
    """A worker that replies when it is told to, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.got: list[Message] = []

    def handle_message(self, message: Message) -> None:
        self.got.append(message)
        if self.fails:
            raise RuntimeError("broken")


@pytest.mark.parametrize("last", [Last.RELEASE, Last.REJECT])
async def test_a_redirect_to_a_worker_is_accepted_once_it_has_replied(
    last: Last, node: Node
) -> None:
    dispatcher = await Dispatcher.attach(node, DispatchOptions(outcome_timeout=20))
    chain = Redirect("shelf"), last
    dispatcher.provision("a", Semantics(undeliverable=chain, gate=Gate.OPEN, window=3))
    shelf = Taking()
    await start_worker(node, shelf, "shelf")
    producer = await dispatcher.produce("a")
    sending = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(2)]
    await sleep(1)
    assert [each.payload for each in shelf.got] == [b"0", b"1"]
    assert not any(each.done() for each in sending)
    assert producer.credit == 1
    shelf.reply(shelf.got[0], b"yes")
    await sleep(1)
    assert await sending[0] == ACCEPTED
    assert not sending[1].done()
    await sleep(20)
    assert await sending[1] == MODIFIED  # it has not said anything in its time
    shelf.fails = True
    assert await producer.send(b"2") == MODIFIED
    await node.stop_worker("shelf")
    assert await producer.send(b"3") == (RELEASED if last is Last.RELEASE else UNDELIVERABLE)
    await producer.send_settled(b"4")
    assert producer.credit == 3
    figures = dispatcher.statistics()
    assert (figures.unsettled, figures.counts["redirected"]) == (0, 3)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(Last.RELEASE, RELEASED), (Last.DROP, ACCEPTED), (Last.REJECT, UNDELIVERABLE)],
)
async def test_the_end_of_the_chain(last: Last, outcome: Outcome, dispatcher: Dispatcher) -> None:
    dispatcher.provision("a", Semantics(undeliverable=(last,), gate=Gate.OPEN))
    producer = await dispatcher.produce("a")
    assert await producer.send(b"1") == outcome
    assert counted(dispatcher, "dropped as provisioned") == (last is Last.DROP)


async def test_what_is_settled_at_once_is_accepted_before_it_is_handled(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.provision("a", Semantics(reliability=Reliability(settle=Settlement.AT_ONCE)))
    kept = await keep(dispatcher, "a")
    producer = await dispatcher.produce("a")
    assert await producer.send(b"1") == ACCEPTED
    await sleep(1)
    assert kept.deliveries[0].settled


# --- provisions while traffic flows -----------------------------------------------------------


async def test_provisions_change_while_traffic_flows(dispatcher: Dispatcher) -> None:
    kept = [await keep(dispatcher, "orders") for _ in range(2)]
    producer = await dispatcher.produce("orders")
    sends = [asyncio.create_task(producer.send(b"1"))]
    await sleep(1)
    dispatcher.provision("orders", Semantics(pattern=RoutingPattern.MULTICAST, window=7))
    assert producer.credit == 6
    sends.append(asyncio.create_task(producer.send(b"2")))
    await sleep(1)
    assert sum(len(each.deliveries) for each in kept) == 3
    for each in kept:
        for delivery in each.deliveries:
            delivery.accept()
    assert await asyncio.gather(*sends) == [ACCEPTED, ACCEPTED]
    assert producer.credit == 7
    dispatcher.update("orders", Semantics(window=3))
    assert producer.credit == 3
    dispatcher.withdraw("orders")
    assert producer.credit == 250
    with pytest.raises(UnknownProvision):
        dispatcher.withdraw("orders")


async def test_held_messages_go_through_the_new_chain(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", held(Last.RELEASE))
    producer = await dispatcher.produce("orders")
    send = asyncio.create_task(producer.send(b"1"))
    await sleep(1)
    dispatcher.update("orders", Semantics(undeliverable=(Last.REJECT,), gate=Gate.OPEN))
    assert await send == UNDELIVERABLE


@pytest.mark.parametrize(
    ("semantics", "what"),
    [
        (Semantics(undeliverable=(Retry(hold=Hold(disk=True)), Last.RELEASE)), "disk"),
    ],
)
async def test_what_would_be_ignored_is_refused(
    semantics: Semantics, what: str, node: Node, dispatcher: Dispatcher
) -> None:
    with pytest.raises(BadSemantics, match=what):
        dispatcher.provision("orders", semantics)
    dispatcher.provision("orders", Semantics())
    with pytest.raises(BadSemantics, match=what):
        dispatcher.update("orders", semantics)
    with pytest.raises(BadSemantics, match=what):
        await Dispatcher.attach(node, DispatchOptions(default=semantics))


async def test_equal_patterns_are_refused(dispatcher: Dispatcher) -> None:
    dispatcher.provision("a.#", Semantics())
    with pytest.raises(PatternInUse):
        dispatcher.provision("a/#", Semantics())


# --- limits, watches, the end -----------------------------------------------------------------


async def test_a_watch_that_fails_holds_up_nothing(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_name: str, _paths: int) -> None:
        raise RuntimeError("of a watch")

    told: list[int] = []
    dispatcher.watch("orders", fail)
    dispatcher.watch("orders", lambda _, paths: told.append(paths))
    hold = Retry(hold=Hold(messages=10))
    dispatcher.provision("orders", Semantics(gate=Gate.OPEN, undeliverable=(hold, Last.RELEASE)))
    producer = await dispatcher.produce("orders")
    held = asyncio.create_task(producer.send(b"x"))
    await sleep(0)
    await dispatcher.consume("orders", lambda _: None)
    assert await held == ACCEPTED
    assert told == [1]
    assert "watching a name failed" in caplog.text


async def test_an_action_that_fails_holds_up_no_other(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("of an action")

    done: list[str] = []
    dispatcher._core.schedule.soon(fail)
    dispatcher._core.schedule.soon(lambda: done.append("the next"))
    await sleep(0.1)
    dispatcher._core.schedule.soon(lambda: done.append("a later one"))
    await sleep(0.1)
    assert done == ["the next", "a later one"]
    assert "an action of a dispatcher failed" in caplog.text


async def test_a_watch_is_told_about_consumers(dispatcher: Dispatcher) -> None:
    told: list[tuple[str, int]] = []
    unwatch = dispatcher.watch("orders", lambda name, paths: told.append((name, paths)))
    consumer = await dispatcher.consume("orders", Kept())
    consumer.close()
    unwatch()
    await dispatcher.consume("orders", Kept())
    assert told == [("orders", 1), ("orders", 0)]


async def test_a_watch_takes_the_place_of_a_name(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, DispatchOptions(max_names=1))
    unwatch = dispatcher.watch("a", lambda _name, _paths: None)
    with pytest.raises(LimitReached, match="names"):
        dispatcher.watch("b", lambda _name, _paths: None)
    unwatch()
    dispatcher.watch("b", lambda _name, _paths: None)()


async def test_numbers_are_limited(node: Node) -> None:
    options = DispatchOptions(
        max_names=1, deliveries=DeliveryLimits(max_consumers=1, max_producers=1)
    )
    dispatcher = await Dispatcher.attach(node, options)
    await dispatcher.consume("a", Kept())
    producer = await dispatcher.produce("a")
    with pytest.raises(ConsumerRefused, match="max_consumers"):
        await dispatcher.consume("a", Kept())
    with pytest.raises(ConsumerRefused, match="max_producers"):
        await dispatcher.produce("a")
    with pytest.raises(ConsumerRefused, match="max_names"):
        await dispatcher.produce("b")
    with pytest.raises(NotDelivered):
        await node.request("34#b", b"x")
    node.send("34#b", b"x")
    assert counted(dispatcher, "more than max_names") == 3
    assert isinstance(producer, Producer)


async def test_pre_settled_messages_over_the_window_are_dropped_one_by_one(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.provision("orders", Semantics(window=5))
    entered = asyncio.Event()
    got: list[bytes] = []

    async def handle(delivery: Received) -> None:
        await entered.wait()
        got.append(delivery.payload)

    await dispatcher.consume("orders", handle, window=1)
    producer = await dispatcher.produce("orders")
    for each in range(10):
        await producer.send_settled(b"%d" % each)
    entered.set()
    await sleep(1)
    assert got == [b"0", b"5", b"6", b"7", b"8", b"9"]
    assert counted(dispatcher, "over the window of a consumer") == 4


async def test_a_dispatcher_that_stops_ends_producers_and_consumers(
    node: Node, dispatcher: Dispatcher
) -> None:
    consumer = await dispatcher.consume("orders", Kept(), accept=Accept.SELF)
    producer = await dispatcher.produce("orders")
    send = asyncio.create_task(producer.send(b"x"))
    await sleep(1)
    await node.stop_worker(dispatcher.address)
    with pytest.raises(ProducerClosed):
        await send
    assert consumer.reason
    with pytest.raises(NotDelivered):
        await node.request("34#orders", b"x")


async def test_a_message_of_another_thread_goes_through_the_mailbox(
    node: Node, dispatcher: Dispatcher
) -> None:
    kept = await keep(dispatcher, "orders")
    thread = threading.Thread(target=lambda: node.send("34#orders", b"x"))
    thread.start()
    thread.join()
    await sleep(1)
    assert kept.payloads == [b"x"]


@pytest.mark.parametrize("address", ["34#_topo/x", "35#tx", "35#r1", "35#x"])
async def test_an_address_that_cannot_be_read_is_an_error(
    address: str, node: Node, dispatcher: Dispatcher
) -> None:
    with pytest.raises(UnreadableAddress):
        node.send(address, b"x")
    assert dispatcher.statistics().names == 0


async def test_no_more_is_unsettled_than_there_may_be(node: Node) -> None:
    options = DispatchOptions(deliveries=DeliveryLimits(max_unsettled=1))
    dispatcher = await Dispatcher.attach(node, options)
    await keep(dispatcher, "orders")
    producer = await dispatcher.produce("orders")
    first = asyncio.create_task(producer.send(b"1"))
    await sleep(1)
    assert await producer.send(b"2") == RELEASED
    assert counted(dispatcher, "more than max_unsettled") == 1
    producer.close()
    with pytest.raises(ProducerClosed):
        await first


async def test_no_more_sends_wait_than_may(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, DispatchOptions(max_waiting=1))
    producer = await dispatcher.produce("orders")
    first = asyncio.create_task(producer.send(b"1"))
    await sleep(1)
    with pytest.raises(LimitReached):
        await producer.send(b"2")
    producer.close()
    producer.close()
    with pytest.raises(ProducerClosed):
        await first
    assert producer.credit == 0


async def test_a_message_that_is_too_late_is_released(dispatcher: Dispatcher) -> None:
    kept = await keep(dispatcher, "orders", window=1)
    producer = await dispatcher.produce("orders")
    sends = [
        asyncio.create_task(producer.send(b"1")),
        asyncio.create_task(producer.send(b"2", timeout=5.0)),
        asyncio.create_task(producer.send(b"3", timeout=60.0)),
    ]
    assert await sends[1] == RELEASED
    await sleep(1)
    kept.deliveries[0].accept()
    await sleep(1)
    assert kept.payloads == [b"1", b"3"]
    kept.deliveries[1].accept()
    assert [await sends[0], await sends[2]] == [ACCEPTED, ACCEPTED]


async def test_pre_settled_messages_of_a_consumer_that_goes_are_sent_to_another(
    node: Node, dispatcher: Dispatcher
) -> None:
    stuck = await dispatcher.consume("orders", lambda _: sleep(1000), window=1)
    for each in range(3):
        node.send("34#orders", b"%d" % each)
    await sleep(1)
    kept = await keep(dispatcher, "orders")
    stuck.close()
    await sleep(1)
    assert kept.payloads == [b"1", b"2"]


async def test_a_multicast_copy_of_a_consumer_that_goes_is_dropped(
    node: Node, dispatcher: Dispatcher
) -> None:
    dispatcher.provision("all", Semantics(pattern=RoutingPattern.MULTICAST))
    stuck = await dispatcher.consume("all", lambda _: sleep(1000), window=1)
    for each in range(3):
        node.send("34#all", b"%d" % each)
    await sleep(1)
    stuck.close()
    assert counted(dispatcher, "its consumer has gone") == 2


async def test_what_is_received_in_part_is_not_sent_to_another(dispatcher: Dispatcher) -> None:
    def handle(delivery: Received) -> None:
        delivery.received()
        delivery.release()

    await dispatcher.consume("orders", handle)
    kept = await keep(dispatcher, "orders")
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"x") == RELEASED
    assert kept.deliveries == []


async def test_a_full_worker_releases_to_the_next_consumer(
    node: Node, dispatcher: Dispatcher
) -> None:
    await start_worker(node, Busy(), "full", mailbox=MailboxOptions(limit=1))
    await dispatcher.consume("orders", "full", accept=Accept.HANDED)
    producer = await dispatcher.produce("orders")
    outcomes = await asyncio.gather(*(producer.send(b"x") for _ in range(3)))
    assert outcomes == [ACCEPTED, RELEASED, RELEASED]


async def test_a_consumer_accepts_in_a_way_that_it_can(dispatcher: Dispatcher) -> None:
    with pytest.raises(ValueError, match="'reply'"):
        await dispatcher.consume("orders", lambda _: None, accept=Accept.REPLY)
    with pytest.raises(ValueError, match="'self'"):
        await dispatcher.consume("orders", "echo", accept=Accept.SELF)
    assert dispatcher.statistics().names == 0
    with pytest.raises(UnknownAddress):
        await dispatcher.consume("orders", "echo")
    with pytest.raises(UnknownAddress):
        await dispatcher.produce("orders", owner="echo")
    assert dispatcher.statistics().names == 0


async def test_options_are_checked(node: Node) -> None:
    with pytest.raises(BadName):
        DispatchOptions(node_name="all")
    with pytest.raises(ValueError, match="cost"):
        DispatchOptions(cost=MAX_COST + 1)
    dispatcher = await Dispatcher.attach(node, DispatchOptions(node_name="shop-1"))
    assert dispatcher.node_name == "shop-1"
    with pytest.raises(ValueError, match="cost"):
        await dispatcher.neighbour("sim://b", MAX_COST + 1)


async def test_outcomes_are_the_same_objects_of_the_core(dispatcher: Dispatcher) -> None:
    await dispatcher.consume("orders", lambda _: None)
    producer = await dispatcher.produce("orders")
    outcome, answer = await producer.exchange(b"x")
    assert isinstance(outcome, Accepted)
    assert answer is None


# --- provisions of a file ---------------------------------------------------------------------

FILE = """
default = "unavailable"

[[name]]
pattern = "news"
routing = "multicast"

[[name]]
prefix = "orders"
routing = "direct"
"""


async def test_a_file_of_provisions_is_loaded_and_loaded_anew(dispatcher: Dispatcher) -> None:
    change = dispatcher.load(FILE, "names.toml")
    assert [str(each.pattern) for each in change.added] == ["news", "orders/#"]
    await dispatcher.consume("orders/1", Kept())
    with pytest.raises(ConsumerRefused, match="direct"):
        await dispatcher.consume("orders/1", Kept())
    with pytest.raises(ConsumerRefused, match="unavailable"):
        await dispatcher.consume("mail", Kept())
    change = dispatcher.load('[[name]]\npattern = "news"\n', "names.toml")
    assert [str(each.pattern) for each in change.changed] == ["news"]
    assert [str(each.pattern) for each in change.withdrawn] == ["orders/#"]
    await dispatcher.consume("orders/1", Kept())
    await dispatcher.consume("mail", Kept())


async def test_a_file_with_problems_changes_nothing(dispatcher: Dispatcher) -> None:
    dispatcher.provision("mail", Semantics())
    with pytest.raises(FileError, match=r"names.toml:2.*nonsense"):
        dispatcher.load('[[name]]\nnonsense = 1\npattern = "news"', "names.toml")
    with pytest.raises(PatternInUse):
        dispatcher.load('[[name]]\npattern = "mail"', "names.toml")
    with pytest.raises(BadSemantics, match="one name"):
        dispatcher.load('[[name]]\npattern = "orders/#"\ntags = "shop=1"', "names.toml")
    assert dispatcher.load("", "names.toml") == ProvisionsChange()


async def test_a_message_that_a_peer_just_sends_is_pre_settled(network: SimulatedNetwork) -> None:
    node, peer = await network.node("shop"), await network.node("peer")
    dispatcher = await Dispatcher.attach(node)
    kept = await keep(dispatcher, "orders")
    await node.listen("sim://shop", expose=[Address(NAME, b"orders")])
    link = await peer.connect("sim://shop")
    peer.send((link, Address(NAME, b"orders")), b"1")
    await sleep(1)
    assert kept.payloads == [b"1"]
    assert kept.deliveries[0].settled


async def test_the_names_as_a_table(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", held(Last.DROP))
    await dispatcher.consume("mail", ENDS["acc"], accept=Accept.SELF)
    mail = await dispatcher.produce("mail")
    assert await mail.send(b"1") == ACCEPTED
    producer = await dispatcher.produce_any()
    waiting = asyncio.create_task(producer.send("orders", b"2"))
    await sleep(1)
    first, second = dispatcher.names()
    assert (first.name, first.consumers, first.producers, first.accepted) == ("mail", 1, 1, 1)
    assert (second.name, second.provision, second.held) == ("orders", "orders", 1)
    assert second.in_flight == 0
    await waiting
    assert [each.name for each in dispatcher.names()] == ["mail"]
