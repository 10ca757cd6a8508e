"""Workers that peers ask: what reaches them, and what becomes of their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.actors import MailboxOptions, Worker
from onward.protocol import Message, UnknownAddress, route
from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import GatheringOptions, LinkOptions
from tests.support.rsocket_peer import *
from tests.support.workers import Echo, Gate, Recorder

ASKED = asked_for("local")
REJECTED, CANCELED, INVALID, APPLICATION_ERROR = 0x202, 0x203, 0x204, 0x201


async def with_worker(w: World, worker: Worker, **kwargs: Any) -> Peer:
    """Register a worker as `local` and return a requester."""
    await w.node.start(lambda: worker, address="worker", **kwargs)
    w.broker.register("worker", service="local")
    return await w.requester()


@in_world()
async def test_a_worker_answers_a_request(w: World) -> None:
    requester = await with_worker(w, Echo())
    for stream in (1, 3):
        got = await requester.ask(request(RR, stream, ASKED, b"hello"))
        assert got == [payload(stream, b"hello", N | C)]
    assert w.row("local").requests == 2


@in_world()
async def test_a_worker_gets_what_has_no_answer(w: World) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    assert await requester.ask(request(FNF, 1, ASKED, b"fnf"), push(ASKED)) == []
    assert recorder.payloads == [b"fnf", b""]
    assert [message.return_route for message in recorder.messages] == [(), ()]
    assert w.row("local").requests == 2


class Changes(Worker):
    """A proxy: passes requests on to a service with another payload, and the answers back."""

    def handle_message(self, message: Message) -> None:
        if len(message.onward_route) > 1:
            self.step(message)
        else:
            self.redirect(message, "32#service=a", payload=b"clean")


@in_world()
async def test_a_worker_passes_on_what_it_has_made_of_a_request(w: World) -> None:
    requester = await with_worker(w, Changes())
    destination = await w.destination()
    for stream in (1, 3):
        assert await requester.ask(request(RR, stream, ASKED, b"secret")) == []
        (got,) = await destination.received()
        assert (got[-5:], b"secret" in got) == (b"clean", False)
        assert (w.row("local").outstanding, w.row().requests) == (1, stream // 2 + 1)
        assert await destination.ask(payload(stream + 1, b"answer", N | C)) == []
        assert await requester.received() == [payload(stream, b"answer", N | C)]
        assert (w.row("local").outstanding, w.row().outstanding) == (0, 0)


@in_world()
async def test_a_push_whose_flags_mean_nothing_reaches_a_worker(w: World) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    assert await requester.ask(push(ASKED, F)) == []
    assert len(recorder.messages) == 1


@pytest.mark.parametrize("last", [0, N, C, N | C, F | C])
@pytest.mark.parametrize("at_once", [True, False])
@in_world()
async def test_a_worker_gets_a_request_whole(w: World, last: int, at_once: bool) -> None:
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


@in_world()
async def test_a_fire_and_forget_in_fragments_for_a_worker(w: World) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    await requester.ask(request(FNF, 1, ASKED, b"a", flags=F), payload(1, b"b", F))
    assert recorder.messages == []
    await requester.ask(payload(1, b"c", 0))
    assert recorder.payloads == [b"abc"]


@in_world(options=LinkOptions(gathering=GatheringOptions(max_request=1000)))
async def test_a_request_over_the_limit_for_a_worker(w: World) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    await requester.ask(request(RR, 1, ASKED, bytes(500), flags=F))
    ((stream, code, text),) = errors(await requester.ask(payload(1, bytes(500), F)))
    assert (stream, code) == (1, INVALID)
    assert "over the limit of 1000 bytes" in text
    assert recorder.messages == []


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_world()
async def test_a_worker_takes_no_streams(w: World, kind: int) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    ((stream, code, text),) = errors(await requester.ask(request(kind, 1, ASKED, n=1)))
    assert (stream, code) == (1, REJECTED)
    assert "request/response and fire-and-forget only" in text
    assert recorder.messages == []


@in_world()
async def test_the_requester_is_gone_when_the_worker_answers(w: World) -> None:
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


@in_world()
async def test_a_request_cancelled_on_its_way_to_a_worker(w: World) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    requester.send(request(RR, 1, ASKED))
    requester.send(cancel(1))
    await w.loop.idle()
    assert recorder.messages == []


@in_world()
async def test_an_answer_to_what_has_none(w: World) -> None:
    requester = await with_worker(w, Recorder())
    await requester.ask(request(FNF, 1, ASKED, flags=F))
    w.node.send([requester.link.worker.address, "stream/1"], b"?")
    assert await requester.ask(payload(1, b"")) == []
    assert w.node.dead_letters.by_reason == {"no such worker": 1}


@in_world()
async def test_a_second_answer_is_a_dead_letter(w: World) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    await requester.ask(request(RR, 1, ASKED))
    for _ in range(2):
        recorder.reply(recorder.messages[0], b"answer")
    assert elements(await requester.received()) == [b"answer"]
    assert w.node.dead_letters.total == 1


@pytest.mark.parametrize("way", ["stream/x", "stream/99", "elsewhere", "stream/" + "9" * 1000])
@in_world()
async def test_an_answer_that_nobody_waits_for(w: World, way: str) -> None:
    recorder = Recorder()
    requester = await with_worker(w, recorder)
    await requester.ask(request(RR, 1, ASKED))
    connection = recorder.messages[0].return_route[0]
    w.node.send([connection, way], b"?")
    assert await requester.received() == []
    assert w.node.dead_letters.by_reason == {"no such worker": 1}
    recorder.reply(recorder.messages[0], b"")


@in_world()
async def test_a_worker_cannot_answer_what_another_destination_has_in_hand(w: World) -> None:
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


@in_world()
async def test_an_answer_over_the_limit(w: World) -> None:
    requester = await with_worker(w, Big())
    ((stream, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
    assert (stream, code, text) == (1, APPLICATION_ERROR, "the answer is too big")


class Big(Worker):
    """Answers with what fits in no frame."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, bytes(2**24 - 1))


@in_world(options=LinkOptions(connection=ConnectionLimits(mtu=64)))
async def test_an_answer_in_fragments(w: World) -> None:
    requester = await with_worker(w, Echo())
    got = await requester.ask(request(RR, 1, ASKED, bytes(100)))
    assert b"".join(elements(got)) == bytes(100)
    assert len(got) == 2


@in_world()
async def test_a_worker_stops_with_requests_in_its_mailbox_and_in_hand(w: World) -> None:
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


@in_world()
async def test_a_worker_fails_on_a_request(w: World) -> None:
    class Broken(Worker):
        def handle_message(self, message: Message) -> None:
            raise ValueError("secret")

    requester = await with_worker(w, Broken())
    ((stream, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
    assert (stream, code) == (1, CANCELED)
    assert "secret" not in text
    assert w.row("local").outstanding == 0


@in_world()
async def test_what_else_a_worker_sends_and_loses_is_no_answer(w: World) -> None:
    class Chatty(Worker):
        def handle_message(self, message: Message) -> None:
            self.node.parts.router.dispatch_or_lose(
                Message(route("nobody"), (), b"aside", None, message.context)
            )
            self.reply(message, b"done")

    requester = await with_worker(w, Chatty())
    got = await requester.ask(request(RR, 1, ASKED))
    assert got == [payload(1, b"done", N | C)]


@in_world()
async def test_a_worker_passes_a_request_on_to_nobody(w: World) -> None:
    class Passing(Worker):
        def handle_message(self, message: Message) -> None:
            to = (*message.onward_route, *route("nobody"))
            self.node.parts.router.dispatch_or_lose(message._replace(onward_route=to).forward())

    requester = await with_worker(w, Passing())
    ((stream, code, _),) = errors(await requester.ask(request(RR, 1, ASKED)))
    assert (stream, code) == (1, CANCELED)


@in_world()
async def test_the_mailbox_of_a_worker_is_full(w: World) -> None:
    gate = Gate()
    requester = await with_worker(w, gate, mailbox=MailboxOptions(limit=2))
    got = errors(await requester.ask(*(request(RR, s, ASKED) for s in (1, 3, 5, 7, 9))))
    assert {code for _, code, _ in got} == {REJECTED}
    assert {text for _, _, text in got} == {"not delivered: the destination (mailbox full)"}
    assert w.row("local").outstanding == 5 - len(got)
    requester.die()
    gate.opened.set()


@in_world()
async def test_a_worker_that_does_not_know_the_message(w: World) -> None:
    requester = await with_worker(w, Worker())
    ((stream, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
    assert (stream, code) == (1, REJECTED)
    assert "unhandled" in text


@in_world()
async def test_a_registration_that_is_withdrawn(w: World, express: bool) -> None:
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="worker")
    registration = w.broker.register("worker", service="local")
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    requester.send(request(RR, 3, ASKED))  # on its way
    if not express:
        await w.loop.idle()
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
