"""Requests to several destinations: what each gets, and which answer is the one."""

from __future__ import annotations

from functools import partial

import pytest

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.transports.rsocket import FlowOptions, LinkOptions
from tests.support.rsocket_answers import got, three
from tests.support.rsocket_peer import *
from tests.support.workers import Echo, Recorder

ASKED = asked_for("a", MULTICAST)
REJECTED, CANCELED, APPLICATION_ERROR = 0x202, 0x203, 0x201


def _same(recorder: Recorder) -> Recorder:
    return recorder


@in_world()
async def test_each_destination_gets_the_request_and_the_first_answer_wins(w: World) -> None:
    requester, *destinations = await three(w)
    asked = request(RR, 1, ASKED, b"ping")
    requester.send(asked)
    for destination in destinations:
        assert await got(destination) == restamped(asked, 2)
    assert sum(row.outstanding for row in w.broker.routes()) == 3
    answer = payload(2, b"", N | C, b"meta")
    assert await destinations[1].ask(answer) == []
    assert await got(requester) == restamped(answer, 1)
    assert await got(destinations[0]) == await got(destinations[2]) == cancel(2)
    # Whoever answers after that, or once more, is not heard.
    for destination in destinations:
        await destination.ask(payload(2, b"late", N | C), payload(2, b"late", N | C))
    assert await requester.received() == []


@pytest.mark.parametrize("answer", [payload(2, b"", C), payload(2, b"", N)])
@in_world()
async def test_an_empty_answer_is_an_answer(w: World, answer: bytes) -> None:
    requester, first, second, _ = await three(w)
    await requester.ask(request(RR, 1, ASKED))
    await first.ask(answer)
    assert await got(requester) == restamped(answer, 1)
    assert (await second.received())[-1] == cancel(2)


@in_world()
async def test_one_that_rejects_the_request_is_left_out(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(RR, 1, ASKED))
    await first.ask(error(2, REJECTED, b"busy"))
    await second.ask(error(2, REJECTED, b"busy"))
    assert await requester.received() == []
    await third.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]
    assert w.broker.index.multicast_rules.skipped == 2


@in_world()
async def test_all_reject_the_request(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(RR, 1, ASKED))
    for destination in destinations:
        await destination.ask(error(2, REJECTED, b"busy"))
    ((stream, code, _),) = errors(await requester.received())
    assert (stream, code) == (1, REJECTED)


@in_world()
async def test_an_answer_in_fragments_once_begun_has_won(w: World) -> None:
    requester, first, second, _ = await three(w)
    await requester.ask(request(RR, 1, ASKED))
    await first.received()
    await second.received()
    parts = [payload(2, b"a", N | F), payload(2, b"b", N | F), payload(2, b"c", N | C)]
    await first.ask(parts[0])
    assert await got(second) == cancel(2)
    await first.ask(*parts[1:])
    assert await requester.received() == [restamped(part, 1) for part in parts]


@in_world()
async def test_the_winner_is_lost_in_the_middle_of_its_answer(w: World) -> None:
    requester, first, *_ = await three(w)
    await requester.ask(request(RR, 1, ASKED))
    await first.ask(payload(2, b"a", N | F))
    first.die()
    frames = await requester.received()
    assert errors(frames) == [(1, CANCELED, "the connection to the destination was lost")]


@in_world()
async def test_the_requester_cancels_or_goes_away(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    for destination in destinations:
        assert len(await destination.received()) == 2
    assert await requester.ask(cancel(1)) == []
    for destination in destinations:
        assert await got(destination) == cancel(2)
        await destination.ask(payload(2, b"late", N | C))
    requester.die()
    for destination in destinations:
        assert await got(destination) == cancel(4)


@in_world()
async def test_the_requester_cancels_before_a_destination_is_there(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    assert w.broker.statistics().waiting == 1
    await requester.ask(cancel(1))
    await w.settled()
    for destination in (await w.destination(), await w.destination()):
        assert await destination.received() == []
    # In one chunk: it has gone before it is handed over.
    await requester.ask(request(RR, 3, ASKED), cancel(3))


@in_world()
async def test_one_destination_gets_it_as_unicast(w: World) -> None:
    requester, destination = await w.pair()
    asked = request(STREAM, 1, ASKED, n=500)
    requester.send(asked)
    assert kind_of(await got(destination)) == STREAM
    await destination.ask(payload(2, b"x", N | C))
    assert await got(requester) == payload(1, b"x", N | C)


@pytest.mark.parametrize("fail", [False, True])
@in_memory
async def test_destinations_that_leave(fail: bool) -> None:
    options = BrokerOptions(multicast=MulticastOptions(on_leave="error" if fail else "quiet"))
    async with world(options) as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        first.die()
        frames = await requester.received()
        assert len(errors(frames)) == fail
        if not fail:
            second.die()
            assert await requester.received() == []
            third.die()
            ((_, code, _),) = errors(await requester.received())
            assert code == CANCELED
            assert w.broker.index.multicast_rules.left == 3
        await w.settled()


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000)))
async def test_slow_destinations_are_left_out(w: World) -> None:
    requester, first, second, third = await three(w)
    first.stop_reading()
    second.stop_reading()
    await requester.ask(request(FNF, 1, ASKED, bytes(8000)))
    await third.received()
    requester.send(request(RR, 3, ASKED))
    assert kind_of(await got(third)) == RR
    assert w.broker.index.multicast_rules.skipped == 2
    await third.ask(payload(4, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]
    third.stop_reading()
    await requester.ask(request(FNF, 5, ASKED, bytes(8000)))
    assert [code for _, code, _ in errors(await requester.ask(request(RR, 7, ASKED)))] == [REJECTED]
    for peer in (first, second, third):
        peer.read_on()


@pytest.mark.parametrize("kind", [RR, FNF])
@in_world()
async def test_a_request_in_fragments_goes_to_all(w: World, kind: int) -> None:
    requester, *destinations = await three(w)
    parts = [
        request(kind, 1, ASKED[:9], flags=F),
        payload(1, b"he", N | F, ASKED[9:]),
        payload(1, b"ll", N | F),
        payload(1, b"o", N),
    ]
    await requester.ask(*parts[:3])
    await requester.ask(parts[3])
    for destination in destinations:
        assert await destination.received() == [restamped(part, 2) for part in parts]
    if kind == RR:
        await destinations[0].ask(payload(2, b"x", N | C))
        assert elements(await requester.received()) == [b"x"]


@in_world()
async def test_a_request_in_fragments_that_is_cancelled(w: World) -> None:
    requester, *destinations = await three(w)
    requester.send(request(FNF, 1, ASKED, b"x", flags=F))
    await w.loop.idle()
    await requester.ask(cancel(1))
    for destination in destinations:
        assert (await destination.received())[-1] == cancel(2)


@in_world()
async def test_a_plain_message_is_copied_to_each(w: World) -> None:
    recorders = [Recorder(), Recorder()]
    for number, recorder in enumerate(recorders):
        await w.node.start(partial(_same, recorder), address=f"r{number}")
        w.broker.register(f"r{number}", service="a")
    destination = await w.destination()
    w.node.send("32#@multicast service=a", b"x", return_route="back")
    await w.loop.idle()
    assert [recorder.payloads for recorder in recorders] == [[b"x"], [b"x"]]
    for recorder in recorders:
        assert str(recorder.messages[0].return_route[0]).endswith("back")
    assert await got(destination) == request(RR, 2, w.asks("a"), b"x")
    destination.die()


@in_world()
async def test_workers_and_peers_answer_one_request(w: World) -> None:
    requester, destination = await w.pair()
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a")
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="recorder")
    w.broker.register("recorder", service="a")
    frames = await requester.ask(request(RR, 1, ASKED, b"hello"))
    assert elements(frames) == [b"hello"]
    assert await destination.received() == [request(RR, 2, ASKED, b"hello"), cancel(2)]
    recorder.reply(recorder.messages[0], b"late")
    assert await requester.received() == []
    # In fragments, and without an answer.
    parts = (request(RR, 3, ASKED, b"x", flags=F), payload(3, b"y", N))
    await requester.ask(parts[0])
    assert elements(await requester.ask(parts[1])) == [b"xy"]
    await requester.ask(request(FNF, 5, ASKED, b"z"))
    assert recorder.payloads == [b"hello", b"xy", b"z"]
    # Workers take no streams.
    await requester.ask(request(STREAM, 7, ASKED, n=1))
    await destination.ask(payload(8, b"s", N | C))
    assert elements(await requester.received()) == [b"s", b""]


@in_world()
async def test_a_worker_that_stops_with_a_branch_in_hand(w: World) -> None:
    requester, destination = await w.pair()
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="recorder")
    w.broker.register("recorder", service="a")
    await requester.ask(request(RR, 1, ASKED, b"x"))
    await w.node.stop_worker("recorder")
    assert await requester.received() == []
    await destination.ask(payload(2, b"y", N | C))
    assert elements(await requester.received()) == [b"y"]


@in_world()
async def test_the_answer_of_a_worker_that_is_too_big_or_fails(w: World) -> None:
    requester, destination = await w.pair()
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="recorder")
    w.broker.register("recorder", service="a")
    await requester.ask(request(RR, 1, ASKED, b"x"))
    recorder.reply(recorder.messages[0], bytes(2**24 - 1))
    frames = await requester.received()
    assert [code for _, code, _ in errors(frames)] == [APPLICATION_ERROR]
    assert (await destination.received())[-1] == cancel(2)


@in_world()
async def test_the_frames_of_a_request_are_let_go_of_once_all_have_them(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, bytes(1000), n=1))
    (stream,) = requester.link.core.streams.values()
    assert stream.peer.exchange.frames == []
    await requester.ask(cancel(1))
    await requester.ask(request(RR, 3, ASKED, b"x", flags=F))
    (stream,) = requester.link.core.streams.values()
    assert len(stream.peer.exchange.frames) == 1
    await requester.ask(payload(3, b"y", N))
    assert stream.peer.exchange.frames == []
    for destination in destinations:
        await destination.received()
        destination.die()


@in_world()
async def test_a_peer_that_is_one_of_those_it_asks(w: World) -> None:
    peer, other = await w.destination(), await w.destination()
    await peer.ask(request(RR, 1, ASKED, b"x"))
    # Its own answer and its cancellation come in one chunk, and the answer is seen first.
    assert await peer.ask(payload(2, b"y", N | C), cancel(1)) == []
    assert (await other.received())[-1] == cancel(2)
