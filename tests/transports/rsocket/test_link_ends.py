"""Streams between two peers that end before their time: cancelled, refused, broken, or cut off."""

from __future__ import annotations

import pytest

from onward.transports.rsocket._exchange import StreamExchange
from tests.support.compiled import interpreted
from tests.support.rsocket_answers import relay
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204
LOST = "the connection to the destination was lost"


@pytest.mark.parametrize("kind", [RR, STREAM, CHANNEL])
@in_world()
async def test_the_requester_cancels(w: World, kind: int) -> None:
    requester, destination = await w.pair()
    n = None if kind == RR else 4
    await relay(destination, requester, 2, request(kind, 1, ASKED, n=n))
    await relay(destination, requester, 2, cancel(1))
    await w.settled()
    destination.send(payload(2, b"too late", N | C))
    assert await requester.received() == []
    assert w.listener.statistics().dropped == {"unknown_stream": 1}


@in_world()
async def test_an_element_and_a_cancel_in_one_piece(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(CHANNEL, 1, ASKED, n=4))
    await relay(requester, destination, 1, request_n(2, 4))
    await relay(destination, requester, 2, payload(1, b"last words"), cancel(1))


@in_world()
async def test_a_request_and_its_cancel_in_one_piece_reach_nobody(w: World) -> None:
    requester, destination = await w.pair()
    requester.send(
        request(RR, 1, ASKED), cancel(1), request(STREAM, 3, ASKED, n=1), request_n(3, 5), cancel(3)
    )
    assert await destination.received() == []
    assert await requester.received() == []


@in_world()
async def test_a_request_cancelled_on_its_way_to_the_destination(w: World) -> None:
    requester, destination = await w.pair()
    async with w.held(destination):
        requester.send(request(RR, 1, ASKED), request(CHANNEL, 3, ASKED, n=1))
        requester.send(cancel(1), error(3, 0x201, b"never mind"))
    assert await destination.received() == []
    assert await requester.received() == []


@in_world()
async def test_a_channel_ends_with_an_error_of_the_requester(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(CHANNEL, 1, ASKED, n=1))
    await relay(destination, requester, 2, error(1, 0x301, b"mine"))


@in_world()
async def test_a_destination_that_sends_more_than_was_asked_for(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(STREAM, 1, ASKED, n=2))
    destination.send(payload(2, b"1"), payload(2, b"2"), payload(2, b"3"))
    got = await requester.received()
    assert elements(got) == [b"1", b"2"]
    assert errors(got) == [(1, CANCELED, "the destination broke the protocol")]
    assert await destination.received() == [cancel(2)]


@in_world()
async def test_a_requester_that_sends_more_than_was_asked_for(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(CHANNEL, 1, ASKED, n=2))
    await relay(requester, destination, 1, request_n(2, 1))
    requester.send(payload(1, b"1"), payload(1, b"2"))
    got = await destination.received()
    assert got == [payload(2, b"1"), cancel(2)]
    assert [(stream, code) for stream, code, _ in errors(await requester.received())] == [
        (1, INVALID)
    ]


@in_world()
async def test_a_request_n_of_nothing(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(STREAM, 1, ASKED, n=2))
    assert [code for _, code, _ in errors(await requester.ask(request_n(1, 0)))] == [INVALID]
    assert await destination.received() == [cancel(2)]
    # And while the request waits for a destination.
    requester.send(request(STREAM, 3, asked_for("b"), n=1), request_n(3, 0))
    assert [code for _, code, _ in errors(await requester.received())] == [INVALID]
    await w.settled()
    requester.send(request(STREAM, 5, asked_for("b"), n=1))
    await w.loop.idle()
    assert w.broker.statistics().waiting == 1
    assert [code for _, code, _ in errors(await requester.ask(request_n(5, 0)))] == [INVALID]


@pytest.mark.parametrize("n", [0, 2**31, 2**32 - 1])
@in_world()
async def test_a_first_request_n_out_of_range(w: World, n: int) -> None:
    requester, destination = await w.pair()
    got = await requester.ask(request(STREAM, 1, ASKED, n=n), request(CHANNEL, 3, ASKED, n=n))
    assert [(stream, code) for stream, code, _ in errors(got)] == [(1, INVALID), (3, INVALID)]
    assert await destination.received() == []


@in_memory
async def test_the_destination_takes_no_more_streams() -> None:
    from onward.protocol.rsocket import ConnectionLimits
    from onward.transports.rsocket import LinkOptions

    options = LinkOptions(connection=ConnectionLimits(max_streams=2))
    async with world(options=options) as w:
        destination = await w.destination()
        first, second = await w.requester(), await w.requester()
        first.send(request(RR, 1, ASKED), request(RR, 3, ASKED))
        assert len(await destination.received()) == 2
        second.send(request(RR, 1, ASKED), request(FNF, 3, ASKED))
        ((stream, code, text),) = errors(await second.received())
        assert (stream, code) == (1, REJECTED)
        assert "2 live streams" in text
        assert w.row().outstanding == 2
        assert w.node.dead_letters.total == 2
        destination.send(payload(2, b"", C), payload(4, b"", C))
        await w.settled()


async def three_kinds(w: World) -> tuple[Peer, Peer]:
    """Have one request of each kind with answers handed over."""
    requester, destination = await w.pair()
    requester.send(
        request(RR, 1, ASKED), request(STREAM, 3, ASKED, n=9), request(CHANNEL, 5, ASKED, n=9)
    )
    assert len(await destination.received()) == 3
    assert w.row().outstanding == 3
    return requester, destination


@pytest.mark.parametrize("how", ["eof", "die"])
@in_world()
async def test_the_destination_goes_with_requests_in_hand(w: World, how: str) -> None:
    requester, destination = await three_kinds(w)
    getattr(destination, how)()
    got = await requester.received()
    assert errors(got) == [(stream, CANCELED, LOST) for stream in (1, 3, 5)]
    assert len(got) == 3
    assert w.services() == []


@in_world()
async def test_the_destination_answers_and_goes_in_one_piece(w: World) -> None:
    requester, destination = await three_kinds(w)
    destination.send(payload(2, b"r", N | C), payload(4, b"s"), payload(6, b"c"), frame(0, 0x20))
    got = await requester.received()
    assert elements(got) == [b"r", b"s", b"c"]
    assert errors(got) == [(3, CANCELED, LOST), (5, CANCELED, LOST)]
    assert [stream for stream, _, _ in errors(await destination.received())] == [0]
    assert destination.closed


@pytest.mark.parametrize("how", ["eof", "die"])
@in_world()
async def test_the_requester_goes(w: World, how: str) -> None:
    requester, destination = await three_kinds(w)
    getattr(requester, how)()
    assert await destination.received() == [cancel(2), cancel(4), cancel(6)]
    await w.settled()
    assert w.services() == ["a"]


@in_world()
async def test_a_peer_dies_in_the_middle_of_a_frame(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(RR, 1, ASKED))
    destination.send(payload(2, bytes(1000), N | C)[:500])
    destination.die()
    assert errors(await requester.received()) == [(1, CANCELED, LOST)]
    requester.send(request(FNF, 3, ASKED)[:12])
    requester.die()
    await w.settled()
    assert w.listener.statistics().connections == 0


@in_world()
async def test_a_request_under_way_to_a_destination_that_leaves(w: World) -> None:
    requester, destination = await w.pair()
    async with w.held(destination):
        requester.send(request(RR, 1, ASKED), request(FNF, 3, ASKED), push(ASKED))
        await w.loop.idle()
        destination.send(frame(0, 0x20))  # ends the connection at once
    ((stream, code, text),) = errors(await requester.received())
    assert (stream, code) == (1, REJECTED)
    assert "10.0.0.1" not in text
    assert w.node.dead_letters.total == 3


@in_world()
async def test_a_draining_destination_gets_nothing_new_and_finishes(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(RR, 1, ASKED))
    assert await destination.ask(error(0, 0x102, b"going home")) == []
    assert w.services() == []
    other = await w.destination()
    await relay(other, requester, 2, request(RR, 3, ASKED))
    await relay(requester, destination, 1, payload(2, b"done", N | C))
    assert destination.closed
    await relay(requester, other, 3, payload(2, b"", C))


@in_world()
async def test_a_draining_requester_gets_its_answers_and_is_closed(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(RR, 1, ASKED))
    assert await requester.ask(error(0, 0x102)) == []
    assert not requester.closed
    await relay(requester, destination, 1, payload(2, b"done", N | C))
    assert requester.closed


@in_world()
async def test_frames_of_streams_that_are_over_are_ignored_and_counted(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(RR, 1, ASKED))
    await relay(requester, destination, 1, payload(2, b"", C))
    late = [payload(2, b"again"), error(2, 0x201), cancel(2), request_n(2, 1)]
    assert await destination.ask(*late) == []
    assert await requester.ask(cancel(1), request_n(1, 5), payload(1, b"x")) == []
    assert w.listener.statistics().dropped == {"unknown_stream": 7}


@in_world()
async def test_a_stream_id_in_use(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(RR, 1, ASKED))
    assert await requester.ask(request(STREAM, 1, ASKED, n=1)) == []
    assert await destination.received() == []
    assert w.listener.statistics().dropped == {"stream_id_in_use": 1}
    await relay(requester, destination, 1, payload(2, b"", C))


@in_world()
async def test_frames_that_make_no_sense_on_their_stream(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(STREAM, 1, ASKED, n=1))
    assert await requester.ask(payload(1, b"x"), error(1, 0x201)) == []
    assert await destination.ask(request_n(2, 1), cancel(2)) == []
    assert w.listener.statistics().dropped == {"not_legal_on_stream": 4}
    await relay(requester, destination, 1, payload(2, b"", C))


@in_world()
async def test_the_broker_stops_with_requests_in_hand(w: World) -> None:
    requester, destination = await three_kinds(w)
    await w.listener.close()
    for peer in (requester, destination):
        assert errors(await peer.received())[-1] == (0, 0x101, "the broker stops")
        assert peer.closed
    assert not w.loop.servers
    await w.listener.close()


@interpreted
@in_world()
async def test_what_goes_wrong_in_handing_over_is_the_workers_failure(
    w: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    requester, destination = await w.pair()
    cell = destination.link.worker._placed
    before = cell.failed, cell.handled
    with monkeypatch.context() as patch:
        patch.setattr(StreamExchange, "hand_to", broken)
        assert await requester.ask(request(FNF, 1, ASKED)) == []
    assert (cell.failed, cell.handled) == (before[0] + 1, before[1] + 1)
    assert "a bug" in caplog.text
    assert dict(w.node.dead_letters.by_reason) == {"worker failed": 1}
