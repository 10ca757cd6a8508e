"""Workers of the node as destinations of peers, and as requesters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from onward.actors import Mailbox, Worker
from onward.protocol import (
    InDoubt,
    LinkLost,
    MailboxFull,
    Message,
    NoRoute,
    NotDelivered,
    RequestTimeout,
    UnknownAddress,
    route,
)
from onward.protocol.rsocket import ConnectionLimits, ReassemblyLimit
from onward.transports.rsocket import DestinationError, LinkOptions
from tests.support.rsocket_peer import (
    CHANNEL,
    FNF,
    RR,
    STREAM,
    C,
    F,
    N,
    Peer,
    World,
    asked_for,
    cancel,
    elements,
    error,
    errors,
    in_memory,
    kind_of,
    payload,
    push,
    request,
    world,
)
from tests.support.workers import Echo, Gate, Recorder

ASKED = asked_for("local")
REJECTED, CANCELED, INVALID, APPLICATION_ERROR = 0x202, 0x203, 0x204, 0x201


async def with_worker(w: World, worker: Worker, **kwargs: Any) -> Peer:
    """Register a worker as `local` and return a requester."""
    await w.node.start(lambda: worker, address="worker", **kwargs)
    w.broker.register("worker", service="local")
    return await w.requester()


# --- workers as destinations ----------------------------------------------------------------


@in_memory
async def test_a_worker_answers_a_request() -> None:
    async with world() as w:
        requester = await with_worker(w, Echo())
        for stream in (1, 3):
            got = await requester.ask(request(RR, stream, ASKED, b"hello"))
            assert got == [payload(stream, b"hello", N | C)]
        assert w.row("local").requests == 2
        await w.settled()


@in_memory
async def test_a_worker_gets_what_has_no_answer() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        assert await requester.ask(request(FNF, 1, ASKED, b"fnf"), push(ASKED)) == []
        assert recorder.payloads == [b"fnf", b""]
        assert [message.return_route for message in recorder.messages] == [(), ()]
        assert w.row("local").requests == 2
        await w.settled()


@in_memory
async def test_a_push_whose_flags_mean_nothing_reaches_a_worker() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        assert await requester.ask(push(ASKED, F)) == []
        assert len(recorder.messages) == 1
        await w.settled()


@pytest.mark.parametrize("last", [0, N, C, N | C, F | C])
@pytest.mark.parametrize("at_once", [True, False])
@in_memory
async def test_a_worker_gets_a_request_whole(last: int, at_once: bool) -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        parts = [
            request(RR, 1, ASKED[:9], flags=F),
            payload(1, b"he", F, ASKED[9:]),
            payload(1, b"ll", N | F),
            payload(1, b"o", last),
        ]
        if at_once:
            requester.send(*parts)
        else:
            for part in parts:
                assert recorder.messages == []
                await requester.ask(part)
        await w.loop.idle()
        assert recorder.payloads == [b"hello"]
        recorder.reply(recorder.messages[0], b"hi")
        assert elements(await requester.received()) == [b"hi"]
        await w.settled()


@in_memory
async def test_a_fire_and_forget_in_fragments_for_a_worker() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        await requester.ask(request(FNF, 1, ASKED, b"a", flags=F), payload(1, b"b", F))
        assert recorder.messages == []
        await requester.ask(payload(1, b"c", 0))
        assert recorder.payloads == [b"abc"]
        await w.settled()


@in_memory
async def test_a_request_over_the_limit_for_a_worker() -> None:
    async with world(options=LinkOptions(max_request=1000)) as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        await requester.ask(request(RR, 1, ASKED, bytes(500), flags=F))
        ((stream, code, text),) = errors(await requester.ask(payload(1, bytes(500), F)))
        assert (stream, code) == (1, INVALID)
        assert "over the limit of 1000 bytes" in text
        assert recorder.messages == []
        await w.settled()


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_memory
async def test_a_worker_takes_no_streams(kind: int) -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        ((stream, code, text),) = errors(await requester.ask(request(kind, 1, ASKED, n=1)))
        assert (stream, code) == (1, REJECTED)
        assert "request/response and fire-and-forget only" in text
        assert recorder.messages == []
        await w.settled()


@in_memory
async def test_the_requester_is_gone_when_the_worker_answers() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
        assert w.row("local").outstanding == 2
        await requester.ask(cancel(1))
        assert w.row("local").outstanding == 1
        recorder.reply(recorder.messages[0], b"late")
        assert await requester.received() == []
        requester.die()
        await w.loop.idle()
        with pytest.raises(UnknownAddress):
            recorder.reply(recorder.messages[1], b"late")
        assert w.node.dead_letters.by_reason == {"no such worker": 1}
        await w.settled()


@in_memory
async def test_a_request_cancelled_on_its_way_to_a_worker() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        requester.send(request(RR, 1, ASKED))
        requester.send(cancel(1))
        await w.loop.idle()
        assert recorder.messages == []
        await w.settled()


@in_memory
async def test_an_answer_to_what_has_none() -> None:
    async with world() as w:
        requester = await with_worker(w, Recorder())
        await requester.ask(request(FNF, 1, ASKED, flags=F))
        w.node.send([requester.link.worker.address, "stream/1"], b"?")
        assert await requester.ask(payload(1, b"")) == []
        assert w.node.dead_letters.by_reason == {"no such worker": 1}
        await w.settled()


@in_memory
async def test_a_second_answer_is_a_dead_letter() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        await requester.ask(request(RR, 1, ASKED))
        for _ in range(2):
            recorder.reply(recorder.messages[0], b"answer")
        assert elements(await requester.received()) == [b"answer"]
        assert w.node.dead_letters.total == 1
        await w.settled()


@pytest.mark.parametrize("way", ["stream/x", "stream/99", "elsewhere", "stream/" + "9" * 1000])
@in_memory
async def test_an_answer_that_nobody_waits_for(way: str) -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        await requester.ask(request(RR, 1, ASKED))
        connection = recorder.messages[0].return_route[0]
        w.node.send([connection, way], b"?")
        assert await requester.received() == []
        assert w.node.dead_letters.by_reason == {"no such worker": 1}
        recorder.reply(recorder.messages[0], b"")
        await w.settled_after(requester)


@in_memory
async def test_a_worker_cannot_answer_what_another_destination_has_in_hand() -> None:
    async with world() as w:
        recorder = Recorder()
        requester = await with_worker(w, recorder)
        destination = await w.destination("a")
        await requester.ask(request(RR, 1, ASKED), request(RR, 3, asked_for("a")))
        connection = recorder.messages[0].return_route[0]
        w.node.send([connection, "stream/3"], b"stolen")
        recorder.reply(recorder.messages[0], b"mine")
        assert elements(await requester.received()) == [b"mine"]
        assert len(await destination.received()) == 1
        await destination.ask(payload(2, b"theirs", N | C))
        assert elements(await requester.received()) == [b"theirs"]
        await w.settled()


@in_memory
async def test_an_answer_over_the_limit() -> None:
    async with world() as w:
        requester = await with_worker(w, Big())
        ((stream, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
        assert (stream, code, text) == (1, APPLICATION_ERROR, "the answer is too big")
        await w.settled()


class Big(Worker):
    """Answers with what fits in no frame."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, bytes(2**24 - 1))


@in_memory
async def test_an_answer_in_fragments() -> None:
    options = LinkOptions(connection=ConnectionLimits(mtu=64))
    async with world(options=options) as w:
        requester = await with_worker(w, Echo())
        got = await requester.ask(request(RR, 1, ASKED, bytes(100)))
        assert b"".join(elements(got)) == bytes(100)
        assert len(got) == 2
        await w.settled()


@in_memory
async def test_a_worker_stops_with_requests_in_its_mailbox_and_in_hand() -> None:
    async with world() as w:
        gate = Gate()
        requester = await with_worker(w, gate)
        await requester.ask(*(request(RR, stream, ASKED) for stream in (1, 3, 5)))
        assert len(gate.messages) == 1
        stopping = asyncio.ensure_future(w.node.stop_worker("worker", timeout=1))
        await asyncio.sleep(2)
        await stopping
        got = errors(await requester.received())
        # The one in hand may have been done; the others were not begun.
        assert sorted((stream, code) for stream, code, _ in got) == [
            (1, CANCELED),
            (3, REJECTED),
            (5, REJECTED),
        ]
        assert w.broker.statistics().lost == 3
        assert [row.service for row in w.broker.routes()] == ["onward.management"]
        await w.settled()


@in_memory
async def test_a_worker_fails_on_a_request() -> None:
    class Broken(Worker):
        def handle_message(self, message: Message) -> None:
            raise ValueError("secret")

    async with world() as w:
        requester = await with_worker(w, Broken())
        ((stream, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
        assert (stream, code) == (1, CANCELED)
        assert "secret" not in text
        assert w.row("local").outstanding == 0
        await w.settled()


@in_memory
async def test_what_else_a_worker_sends_and_loses_is_no_answer() -> None:
    class Chatty(Worker):
        def handle_message(self, message: Message) -> None:
            self.node.deliver(Message(route("nobody"), (), b"aside", None, message.context))
            self.reply(message, b"done")

    async with world() as w:
        requester = await with_worker(w, Chatty())
        got = await requester.ask(request(RR, 1, ASKED))
        assert got == [payload(1, b"done", N | C)]
        await w.settled()


@in_memory
async def test_a_worker_passes_a_request_on_to_nobody() -> None:
    class Passing(Worker):
        def handle_message(self, message: Message) -> None:
            to = (*message.onward_route, *route("nobody"))
            self.node.deliver(message._replace(onward_route=to).forward())

    async with world() as w:
        requester = await with_worker(w, Passing())
        ((stream, code, _),) = errors(await requester.ask(request(RR, 1, ASKED)))
        assert (stream, code) == (1, CANCELED)
        await w.settled()


@in_memory
async def test_the_mailbox_of_a_worker_is_full() -> None:
    async with world() as w:
        gate = Gate()
        requester = await with_worker(w, gate, mailbox=Mailbox(limit=2))
        got = errors(await requester.ask(*(request(RR, s, ASKED) for s in (1, 3, 5, 7, 9))))
        assert {code for _, code, _ in got} == {REJECTED}
        assert {text for _, _, text in got} == {"not delivered: the destination (mailbox full)"}
        assert w.row("local").outstanding == 5 - len(got)
        requester.die()
        gate.opened.set()
        await w.settled()


@in_memory
async def test_a_worker_that_does_not_know_the_message() -> None:
    async with world() as w:
        requester = await with_worker(w, Worker())
        ((stream, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
        assert (stream, code) == (1, REJECTED)
        assert "unhandled" in text
        await w.settled()


@in_memory
async def test_a_registration_that_is_withdrawn() -> None:
    async with world() as w:
        recorder = Recorder()
        await w.node.start(lambda: recorder, address="worker")
        registration = w.broker.register("worker", service="local")
        requester = await w.requester()
        await requester.ask(request(RR, 1, ASKED))
        requester.send(request(RR, 3, ASKED))  # on its way
        assert registration.current
        assert registration.withdraw()
        assert not registration.current
        assert not registration.withdraw()
        assert await requester.ask(request(RR, 5, ASKED)) == []
        assert w.broker.statistics().waiting == 1
        assert len(recorder.messages) == 2
        for message in recorder.messages:
            recorder.reply(message, b"x")
        assert len(await requester.received()) == 2
        w.broker.register("worker", service="local")
        await w.loop.idle()
        recorder.reply(recorder.messages[2], b"x")
        assert len(await requester.received()) == 1
        assert w.node.has("worker")
        await w.settled()


# --- workers as requesters ------------------------------------------------------------------


async def started(w: World, work: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
    task = asyncio.ensure_future(work)
    await w.loop.idle()
    return task


@in_memory
async def test_a_worker_asks_a_peer() -> None:
    async with world() as w:
        destination = await w.destination()
        task = await started(w, w.node.request("32#service=a", b"hello"))
        assert await destination.received() == [request(RR, 2, w.asks("a"), b"hello")]
        await destination.ask(payload(2, b"hi", N | C, b"metadata"))
        answer = await task
        assert answer.payload == b"hi"
        assert w.row().requests == 1
        await w.settled()


@in_memory
async def test_a_worker_tells_a_peer() -> None:
    async with world() as w:
        destination = await w.destination()
        w.node.send("32#service=a", b"hello")
        assert await destination.received() == [request(FNF, 2, w.asks("a"), b"hello")]
        await w.settled()


@pytest.mark.parametrize(
    "answer",
    [
        [payload(2, b"", C)],
        [payload(2, b"", N)],
        [payload(2, b"", N | F), payload(2, b"", N | C)],
    ],
)
@in_memory
async def test_an_empty_answer_of_a_peer(answer: list[bytes]) -> None:
    async with world() as w:
        destination = await w.destination()
        task = await started(w, w.node.request("32#service=a", b""))
        await destination.ask(*answer)
        assert (await task).payload == b""
        await w.settled()


@in_memory
async def test_an_answer_of_a_peer_in_fragments() -> None:
    async with world(options=LinkOptions(max_answer=10)) as w:
        destination = await w.destination()
        first = await started(w, w.node.request("32#service=a", b""))
        second = await started(w, w.node.request("32#service=a", b""))
        await destination.received()
        await destination.ask(payload(2, b"12345", N | F), payload(4, b"123456", N | F))
        await destination.ask(payload(2, b"67890", N))
        assert (await first).payload == b"1234567890"
        assert await destination.ask(payload(4, b"78901", N | F)) == [cancel(4)]
        with pytest.raises(ReassemblyLimit):
            await second
        await w.settled()


@pytest.mark.parametrize(("code", "text"), [(0x201, "APPLICATION_ERROR: no"), (0x301, "0x301: no")])
@in_memory
async def test_a_peer_answers_with_an_error(code: int, text: str) -> None:
    async with world() as w:
        destination = await w.destination()
        task = await started(w, w.node.request("32#service=a", b""))
        await destination.ask(error(2, code, b"no"))
        with pytest.raises(DestinationError) as raised:
            await task
        assert str(raised.value) == text
        assert (raised.value.code, raised.value.text) == (code, "no")
        await w.settled()


@in_memory
async def test_the_error_of_a_peer_for_one_who_does_not_wait() -> None:
    async with world() as w:
        destination = await w.destination()
        await w.node.start(Echo, address="echo")
        w.node.send("32#service=a", b"", return_route="echo")
        await w.loop.idle()
        await destination.ask(error(2, 0x301, b"no"))
        assert w.node.dead_letters.by_reason == {"destination error": 1}
        await w.settled()


@in_memory
async def test_a_peer_is_lost_with_a_workers_request_in_hand() -> None:
    async with world() as w:
        destination = await w.destination()
        task = await started(w, w.node.request("32#service=a", b""))
        destination.die()
        with pytest.raises(LinkLost):
            await task
        assert issubclass(LinkLost, InDoubt)
        await w.settled()


@in_memory
async def test_a_peer_breaks_the_protocol_with_a_workers_request_in_hand() -> None:
    async with world() as w:
        destination = await w.destination()
        task = await started(w, w.node.request("32#service=a", b""))
        destination.send(b"\x00\x00\x01!")
        await w.loop.idle()
        assert destination.closed
        with pytest.raises(LinkLost):
            await task
        await w.settled()


@in_memory
async def test_a_peer_leaves_with_a_workers_request_on_its_way() -> None:
    async with world() as w:
        destination = await w.destination()
        task = asyncio.ensure_future(w.node.request("32#service=a", b""))
        await asyncio.sleep(0)
        destination.send(b"\x00\x00\x01!")
        with pytest.raises(NotDelivered):
            await task
        await w.settled()


@in_memory
async def test_nobody_carries_the_tags() -> None:
    async with world() as w:
        with pytest.raises(NoRoute, match="service=a region=eu"):
            await w.node.request("32#region=eu service=a", b"")
        assert w.loop.time() == pytest.approx(1005, abs=0.01)
        assert w.broker.statistics().rejected == 1
        await w.settled()


@in_memory
async def test_answered_requests_leave_nothing_behind() -> None:
    async with world() as w:
        destination = await w.destination()
        for number in range(20):
            task = await started(w, w.node.request("32#service=a", b""))
            await destination.ask(payload(2 + 2 * number, b"", C))
            await task
        assert len(destination.link.worker.local._asked) <= 2
        await w.settled()


@in_memory
async def test_requests_given_up_are_cancelled_in_time() -> None:
    options = LinkOptions(connection=ConnectionLimits(max_streams=100))
    async with world(options=options) as w:
        destination = await w.destination()
        first = await started(w, w.node.request("32#service=a", b"patient", timeout=1000))
        for _ in range(200):
            with pytest.raises(RequestTimeout):
                await w.node.request("32#service=a", b"", timeout=0.1)
        got = await destination.received()
        assert sum(kind_of(raw) == RR for raw in got) == 201
        assert destination.streams < 5
        await destination.ask(payload(2, b"at last", N | C))
        assert (await first).payload == b"at last"
        destination.die()
        await w.settled()


@in_memory
async def test_a_worker_and_a_peer_that_does_not_read() -> None:
    options = LinkOptions(high_water=1000, low_water=100)
    async with world(options=options) as w:
        destination = await w.destination()
        destination.stop_reading()
        w.node.send("32#service=a", bytes(2000))
        await w.loop.idle()
        with pytest.raises(MailboxFull):
            await w.node.request("32#service=a", b"")
        destination.read_on()
        w.node.send("32#service=a", b"x")
        assert len(await destination.received()) == 2
        await w.settled()


@in_memory
async def test_a_peer_takes_no_more_requests_of_workers() -> None:
    options = LinkOptions(connection=ConnectionLimits(max_streams=1))
    async with world(options=options) as w:
        destination = await w.destination()
        task = await started(w, w.node.request("32#service=a", b""))
        with pytest.raises(NotDelivered, match="1 live streams"):
            await w.node.request("32#service=a", b"")
        await destination.ask(payload(2, b"", C))
        await task
        await w.settled()


@in_memory
async def test_a_request_of_a_worker_that_fits_in_no_frame() -> None:
    async with world() as w:
        destination = await w.destination()
        with pytest.raises(NotDelivered, match="over the limit"):
            await w.node.request("32#service=a", bytes(2**24 - 1))
        assert await destination.received() == []
        await w.settled()


@in_memory
async def test_a_worker_asks_a_worker_by_tags() -> None:
    async with world() as w:
        await w.node.start(Echo, address="worker")
        w.broker.register("worker", service="local", tags={"region": "eu"})
        assert (await w.node.request("32#service=local region=eu", b"x")).payload == b"x"
        assert w.row("local").requests == 1
        await w.settled()


@in_memory
async def test_a_connection_that_has_not_said_anything_takes_no_requests() -> None:
    async with world() as w:
        silent = w.connect()
        with pytest.raises(NotDelivered):
            await w.node.request(silent.link.worker.address, b"")
        assert await silent.received() == []
