from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from onward.actors import (
    GivenUp,
    MailboxOptions,
    Node,
    NodeLimits,
    OnFailure,
    Refused,
    Supervision,
    Worker,
)
from onward.actors.access import Access, deny_all
from onward.protocol import (
    ERROR_SOURCE,
    Address,
    Context,
    EmptyRoute,
    ErrorReply,
    Message,
    UnknownAddress,
    WorkerFailed,
    address,
    encode_error_reply,
    read_error_reply,
    route,
)
from tests.support.workers import (
    Echo,
    Failing,
    Forwarder,
    Gate,
    Recorder,
    spawn_worker,
    start_worker,
)


async def asker(node: Node) -> Recorder:
    return await start_worker(node, Recorder(), "asker")


def replies(recorder: Recorder) -> list[ErrorReply | None]:
    return [read_error_reply(message) for message in recorder.messages]


def node_with(**options: Any) -> Node:
    return Node(error_replies=True, **options)


def certain(reason: str, at: str) -> ErrorReply:
    return ErrorReply(reason, address(at), certain=True)


async def test_each_reason_comes_back_along_the_return_route() -> None:
    async with node_with() as node:
        asking = await asker(node)
        node.spawn(Forwarder, address="relay")
        node.spawn(Recorder, address="closed", access=Access(incoming=deny_all))
        node.spawn(Gate, address="stuck", mailbox=MailboxOptions(1))
        node.send("stuck", b"in hand")
        await asyncio.sleep(0)
        node.send("stuck", b"waits")
        for name in ("nobody", "closed", "stuck"):
            asking.send(["relay", name], b"payload")
            await asyncio.sleep(0)
        asking.send("relay", b"to nowhere")
        await asyncio.sleep(0)
        assert replies(asking) == [
            certain("no such worker", "nobody"),
            certain("denied", "closed"),
            certain("mailbox full", "stuck"),
            certain("empty route", "relay"),
        ]
        assert asking.messages[0].return_route == (ERROR_SOURCE,)
        assert asking.messages[0].source is None
        assert node.statistics().error_replies == 4


async def test_what_expired_stopped_or_failed() -> None:
    async with node_with() as node:
        asking = await asker(node)
        node.spawn(Failing, address="failing")
        node.spawn(Worker, address="deaf")
        busy = await start_worker(node, Gate(), "busy")
        node.send("busy", b"in hand")
        asking.send("busy", b"", context=Context(deadline=node.loop.time() + 1))
        asking.send("failing", b"!")
        asking.send("deaf", b"")
        await asyncio.sleep(2)
        busy.opened.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        busy.opened.clear()
        asking.send("busy", b"in hand")
        await asyncio.sleep(0)
        asking.send("busy", b"waits")
        stopping = asyncio.ensure_future(node.stop_worker("busy", timeout=0))
        await stopping
        await asyncio.sleep(0)
        assert {each.reason: each.certain for each in replies(asking) if each is not None} == {
            "worker failed": False,
            "unhandled": True,
            "expired": True,
            "worker stopped": True,
        }


async def test_a_worker_of_the_way_back_passes_them_on() -> None:
    async with node_with() as node:
        asking = await asker(node)
        node.spawn(Forwarder, address="there")
        node.spawn(Forwarder, address="and-back")
        asking.send("there => nobody", b"", return_route="and-back => asker")
        await asyncio.sleep(0)
        assert replies(asking) == [certain("no such worker", "nobody")]
        assert asking.messages[0].return_route == (address("and-back"), ERROR_SOURCE)


async def test_off_by_default(node: Node) -> None:
    asking = await asker(node)
    node.spawn(Forwarder, address="relay")
    asking.send("relay => nobody", b"")
    await asyncio.sleep(0)
    assert asking.messages == []
    assert node.dead_letters.by_reason == {"no such worker": 1}
    assert not node.answer_error(Message(route("relay"), route("asker"), b""), "bad payload")


async def test_never_for_an_error_reply_nor_without_a_return_route() -> None:
    async with node_with() as node:
        node.spawn(Forwarder, address="relay")
        node.spawn(Echo, address="echo")
        # A lying sender: its errors go to a worker that answers everything, and to nobody.
        node.send("relay => nobody", b"", return_route="echo")
        node.send("relay => nobody", b"", return_route="gone")
        node.send("relay => nobody", b"")
        await asyncio.sleep(1)
        assert node.dead_letters.by_reason == {
            "no such worker": 4,  # the three, and the error reply to "gone"
            "answer to an error reply": 1,
        }
        assert node.statistics().error_replies == 2
        assert node.statistics().failed == 0


async def test_so_many_a_second() -> None:
    async with node_with(limits=NodeLimits(error_replies=3)) as node:
        asking = await asker(node)
        node.spawn(Forwarder, address="relay")
        for sent in (3, 6):
            for _ in range(10):
                asking.send("relay => nobody", b"")
            await asyncio.sleep(1)
            statistics = node.statistics()
            assert len(asking.messages) == statistics.error_replies == sent
            assert statistics.error_replies_dropped == 10 * sent // 3 - sent


@pytest.mark.parametrize(
    ("is_certain", "expected"), [(True, Refused), (False, GivenUp)], ids=["certain", "in doubt"]
)
async def test_a_request_raises_it(is_certain: bool, expected: type[Exception], node: Node) -> None:
    class Elsewhere(Worker):
        """As a link would: what comes back says that it was not delivered there."""

        def handle_message(self, message: Message) -> None:
            reply = ErrorReply("mailbox full", Address(0, b"far"), is_certain)
            payload = encode_error_reply(reply)
            self.route(Message(message.return_route, (self.address, ERROR_SOURCE), payload))

    node.spawn(Elsewhere, address="link")
    with pytest.raises(expected, match=r"0#far \(mailbox full\)"):
        await node.request("link => far", b"")


async def test_what_only_looks_like_one_is_an_answer(node: Node) -> None:
    class Odd(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"odd", ERROR_SOURCE)

    node.spawn(Odd, address="odd")
    assert (await node.request("odd", b"")).payload == b"odd"


async def test_requests_of_the_node_are_told_without_any(node: Node) -> None:
    class Picky(Worker):
        def handle_message(self, message: Message) -> None:
            self.node.answer_error(message, "bad payload", certain=message.payload != b"late")

    node.spawn(Forwarder, address="relay")
    node.spawn(Picky, address="picky")
    with pytest.raises(UnknownAddress):
        await node.request("relay => nobody", b"")
    with pytest.raises(Refused, match=r"refused: 0#picky \(bad payload\)"):
        await node.request("relay => picky", b"")
    with pytest.raises(GivenUp, match=r"given up: 0#picky \(bad payload\)"):
        await node.request("relay => picky", b"late")
    assert node.dead_letters.by_reason == {"no such worker": 1}


@pytest.mark.real_time
async def test_a_request_is_told_from_another_thread_too(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate")
    asked = asyncio.ensure_future(node.request("gate", b""))
    await asyncio.sleep(0)
    back = next(each for each in node.parts.table.targets if node.parts.table.is_request(each))
    message = Message(route("gate"), (back,), b"")
    assert await asyncio.to_thread(node.answer_error, message, "not from here")
    with pytest.raises(Refused, match="not from here"):
        await asked
    gate.opened.set()


async def test_a_handlers_own_errors_are_failures(node: Node) -> None:
    class Sending(Worker):
        def handle_message(self, message: Message) -> None:
            if message.payload == b"send":
                self.send("nobody", b"")
            elif message.payload == b"another":
                self.route(Message(route("nobody"), route("x"), b"another payload"))
            raise UnknownAddress("somewhere")

    node.spawn(Sending, address="sending")
    for payload in (b"send", b"another", b"raise"):
        with pytest.raises(WorkerFailed):
            await node.request("sending", payload)
    assert node.statistics().failed == 3
    assert node.dead_letters.by_reason == {"worker failed": 3, "no such worker": 1}


class Later(Worker):
    """Does something with a message later: with the next one, in a timer, or as it stops."""

    def __init__(self, does: Callable[[Worker, Message], object]) -> None:
        super().__init__()
        self.does = does
        self.kept: Message | None = None

    def handle_message(self, message: Message) -> None:
        if message.payload == b"timer":
            self.after(1, lambda: self.does(self, message))
        elif message.payload == b"coroutine":
            self.after(1, lambda: self.coroutine(message))
        elif message.payload == b"stop":
            self.stop()
        else:
            kept, self.kept = self.kept, message
            if kept is not None:
                self.does(self, kept)

    async def coroutine(self, message: Message) -> None:
        await asyncio.sleep(1)
        self.does(self, message)

    def on_stop(self) -> None:
        kept, self.kept = self.kept, None
        if kept is not None:
            self.does(self, kept)

    def on_receive(self, message: Any) -> None:
        self.on_stop()


def _same(worker: Worker) -> Worker:
    return worker


PASSES_ON: dict[str, Callable[[Worker, Message], object]] = {
    "forward": lambda worker, message: worker.forward(message),
    "step": lambda worker, message: worker.step(message),
    "redirect": lambda worker, message: worker.redirect(message, "gone"),
}
STOPS = Supervision(OnFailure.STOP)


@pytest.mark.parametrize("way", PASSES_ON)
@pytest.mark.parametrize("payload", [b"timer", b"coroutine"])
async def test_what_is_passed_on_later_and_lost(way: str, payload: bytes, node: Node) -> None:
    node.spawn(lambda: Later(PASSES_ON[way]), address="later", supervision=STOPS)
    with pytest.raises(UnknownAddress):
        await node.request("later => gone", payload)
    assert node.dead_letters.by_reason == {"no such worker": 1}
    assert node.statistics().failed == 0


@pytest.mark.parametrize("way", PASSES_ON)
async def test_what_is_passed_on_with_another_in_hand_and_lost(way: str, node: Node) -> None:
    node.spawn(lambda: Later(PASSES_ON[way]), address="later", supervision=STOPS)
    first = asyncio.ensure_future(node.request("later => gone", b"1"))
    await asyncio.sleep(1)
    with pytest.raises(WorkerFailed):  # the worker has not got round to it
        await node.request("later => gone", b"2")
    with pytest.raises(UnknownAddress):
        await first
    assert node.dead_letters.by_reason == {"no such worker": 1, "worker failed": 1}
    assert node.statistics().failed == 0


async def test_what_is_lost_as_a_worker_ends_and_for_who_asks_it(node: Node) -> None:
    node.spawn(lambda: Later(PASSES_ON["forward"]), address="later")
    first = asyncio.ensure_future(node.request("later => gone", b"1"))
    await asyncio.sleep(1)
    future = node.ref("later").ask({}, block=False)
    with pytest.raises(UnknownAddress):
        await first
    with pytest.raises(UnknownAddress) as told:
        await future
    assert told.value.lost is None
    second = asyncio.ensure_future(node.request("later => gone", b"2"))
    await asyncio.sleep(1)
    node.send("later", b"stop")
    with pytest.raises(UnknownAddress):
        await second
    assert not node.has("later")


async def test_what_is_lost_by_a_start() -> None:
    class Starts(Worker):
        def on_start(self) -> None:
            self.forward(Message(route("starts => gone"), route("asker"), b""))

    async with node_with() as node:
        asking = await asker(node)
        with pytest.raises(UnknownAddress) as told:
            await node.start(Starts, address="starts")
        await asyncio.sleep(0)
        assert told.value.lost is None
        assert replies(asking) == [certain("no such worker", "gone")]


async def test_what_a_restart_loses_is_no_excuse_for_it(node: Node) -> None:
    class Starts(Failing):
        restarted = False

        def on_start(self) -> None:
            if Starts.restarted:
                self.forward(Message(route("starts => gone"), (), b""))
            Starts.restarted = True

    restart = Supervision(OnFailure.RESTART, max_restarts=1)
    await node.start(Starts, address="starts", supervision=restart)
    node.send("starts", b"!")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"worker failed": 1, "no such worker": 1}
    assert node.statistics().failed == 2
    assert not node.has("starts")


@pytest.mark.parametrize("payload", [b"timer", b"1"])
async def test_an_answer_that_goes_later_and_is_lost(payload: bytes) -> None:
    async with node_with() as node:
        asking = await asker(node)
        later = Later(lambda worker, message: worker.reply(message, b""))
        node.spawn(lambda: later, address="later", supervision=STOPS)
        node.send("later", payload, return_route="nobody")
        node.send("later", b"", return_route="asker")
        await asyncio.sleep(2)
        assert later.kept is not None  # nothing came to it, and it is still there
        expected = {"no such worker": 1}
        if payload == b"1":
            expected["worker failed"] = 1
            assert [each and each.reason for each in replies(asking)] == ["worker failed"]
        assert node.dead_letters.by_reason == expected
        assert node.statistics().failed == 0


async def test_an_answer_over_the_limit_is_lost_and_in_doubt() -> None:
    async with node_with(limits=NodeLimits(payload=1000)) as node:
        asking = await asker(node)
        node.spawn(Echo, address="echo", supervision=STOPS)
        node.parts.router.dispatch_or_lose(Message(route("echo"), route("asker"), b"x" * 1001))
        await asyncio.sleep(0)
        assert replies(asking) == [ErrorReply("payload too big", address("echo"), certain=False)]
        assert node.dead_letters.by_reason == {"payload too big": 1}
        assert node.dead_letters.recent[0].message.return_route == route("echo")
        assert node.has("echo")
        assert node.statistics().failed == 0


@pytest.mark.parametrize("catches", [False, True])
async def test_a_loss_elsewhere_fails_the_requesting_worker(catches: bool, node: Node) -> None:
    class Asks(Worker):
        async def handle_message(self, message: Message) -> None:
            await self.request("far", message.payload)

    class Far(Worker):
        def handle_message(self, message: Message) -> None:
            try:
                self.forward(message)  # there is no further step
            except EmptyRoute as error:
                if not catches:
                    raise
                self.node.lose(message, error)

    node.spawn(Far, address="far")
    node.spawn(Asks, address="asks")
    with pytest.raises(WorkerFailed):
        await node.request("asks", b"hello")
    assert node.dead_letters.by_reason == {"empty route": 1, "worker failed": 1}
    assert node.statistics().failed == 1


async def test_an_answer_that_cannot_go_is_a_dead_letter_and_no_failure() -> None:
    async with node_with() as node:
        node.spawn(Echo, address="echo")
        node.send("echo", b"1", return_route="nobody")
        node.send("echo", b"2")
        await asyncio.sleep(0)
        assert node.dead_letters.by_reason == {"no such worker": 1, "empty route": 1}
        assert node.dead_letters.recent[0].message.onward_route == route("nobody")
        assert node.statistics().failed == 0
        assert node.statistics().error_replies == 0  # the echo itself was told


async def test_who_is_at_one_link_cannot_have_the_others_hear_nothing() -> None:
    class Outside(Recorder):
        leaves_node = True

    async with node_with(limits=NodeLimits(error_replies=7, link_error_replies=3)) as node:
        asking = await asker(node)
        links = {name: Outside() for name in ("bad", "good", "late")}
        for name, link in links.items():
            await node.start(partial(_same, link), address=name)
        node.spawn(Forwarder, address="relay")

        def come(name: str, count: int) -> None:
            for _ in range(count):
                message = Message(route("nobody"), route(f"{name} => x"), b"")
                node.lose(message, UnknownAddress("nobody"))  # as a link does

        come("relay => bad", 100)
        come("bad => good", 100)  # as it says, and nobody sees whether that is so
        for _ in range(100):
            node.parts.router.dispatch_or_lose(
                Message(route("relay => nobody"), route("bad => x"), b"")
            )
        come("good", 2)
        for _ in range(100):
            node.lose(Message(route("nobody"), route("asker"), b""), UnknownAddress("nobody"))
        come("late", 2)
        await asyncio.sleep(0.5)
        statistics = node.statistics()
        counts = {name: len(link.messages) for name, link in links.items()}
        assert counts == {"bad": 3, "good": 2, "late": 0}  # beyond what the node sends
        assert len(asking.messages) == 2
        assert statistics.error_replies == 7
        assert statistics.error_replies_dropped == 300 - 3 + 100 - 2 + 2
        await asyncio.sleep(0.6)
        come("late", 2)
        come("bad", 2)
        await asyncio.sleep(0.1)
        assert [len(link.messages) for link in links.values()] == [5, 2, 2]


async def test_in_the_background() -> None:
    assert Node.in_background(error_replies=True).node.parts.undeliverable.error_replies.on
    assert not Node.in_background().node.parts.undeliverable.error_replies.on
