"""What one peer may take of what all share: room to wait, handlers, and memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors.broker import Answer, BrokerOptions, Handlers, Incoming, Request, WaitingOptions
from onward.protocol import Message, PayloadTooBig
from onward.transports.rsocket import GatheringOptions, LinkOptions
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
REJECTED, CANCELED = 0x202, 0x203
ROUTING = b"message/x.rsocket.routing.v0"


# --- room to wait ---------------------------------------------------------------------------


@in_world(BrokerOptions(waiting=WaitingOptions(max_messages=10, max_messages_per_peer=3)))
async def test_one_peer_does_not_take_all_the_room_to_wait(w: World) -> None:
    many, few = await w.requester(), await w.requester()
    got = await many.ask(*(request(FNF, stream, ASKED) for stream in (1, 3)), push(ASKED))
    assert got == []
    got = await many.ask(request(RR, 5, ASKED))
    assert errors(got) == [(5, REJECTED, "no route: service=a")]
    assert await few.ask(request(RR, 1, ASKED)) == []
    assert w.broker.statistics().waiting == 4
    many.eof()
    few.eof()


@in_world(BrokerOptions(waiting=WaitingOptions(max_bytes_per_peer=1000)))
async def test_bytes_of_one_peer_that_wait(w: World) -> None:
    many, few = await w.requester(), await w.requester()
    assert await many.ask(request(RR, 1, ASKED, bytes(600))) == []
    assert len(errors(await many.ask(request(RR, 3, ASKED, bytes(600))))) == 1
    assert await few.ask(request(RR, 1, ASKED, bytes(600))) == []
    assert await many.ask(cancel(1), request(RR, 5, ASKED, bytes(600))) == []
    many.die()
    few.die()


@in_world()
async def test_what_waits_of_a_peer_that_has_gone_is_refused_and_counted(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(FNF, 1, ASKED), push(ASKED), request(RR, 3, ASKED))
    assert w.broker.statistics().waiting == 3
    requester.die()
    await w.loop.idle()
    assert w.broker.statistics().waiting == 0
    assert w.broker.statistics().rejected == 2
    assert w.node.dead_letters.by_reason == {"no route": 2}
    destination = await w.destination()
    assert await destination.received() == []


@in_world(BrokerOptions(waiting=WaitingOptions(max_bytes=10_000)))
async def test_fragments_that_come_while_a_request_waits_take_room(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"x", flags=F))
    before = w.broker.statistics().waiting_bytes
    assert await requester.ask(payload(1, bytes(5000), F)) == []
    assert w.broker.statistics().waiting_bytes >= before + 5000
    ((stream, code, text),) = errors(await requester.ask(payload(1, bytes(5000), F)))
    assert (stream, code) == (1, REJECTED)
    assert "too much waits" in text
    assert w.broker.statistics().waiting_bytes == 0
    assert w.listener.statistics().refused == 1


def codes(frames: list[bytes]) -> list[int]:
    return [code for _, code, _ in errors(frames)]


@in_world(BrokerOptions(waiting=WaitingOptions(max_messages=10)))
async def test_the_connections_of_one_source_together_leave_half_of_the_places(w: World) -> None:
    refused = 0
    for number in range(4):
        peer = await w.requester("10.0.0.66")
        asked = (request(RR, stream, asked_for(f"{number}{stream}")) for stream in (1, 3, 5))
        refused += len(errors(await peer.ask(*asked)))
    assert (w.broker.statistics().waiting, refused) == (6, 6)
    others = [await w.requester(f"10.0.1.{each}") for each in range(4)]
    got = [await peer.ask(request(RR, 1, ASKED)) for peer in others]
    assert [codes(each) for each in got] == [[], [], [], [REJECTED]]  # three for the same tags
    assert await others[3].ask(request(RR, 3, asked_for("b"))) == []
    assert w.broker.statistics().waiting == 10
    for peer in w.peers:
        peer.die()
    await w.settled()
    assert not w.broker.index._waiters._sources


@in_world(BrokerOptions(waiting=WaitingOptions(max_messages=10)))
async def test_requests_for_the_same_tags_leave_half_of_the_places(w: World) -> None:
    peers = [await w.requester(f"10.0.0.{each}") for each in range(10)]
    got = [await peer.ask(request(RR, 1, ASKED)) for peer in peers]
    assert [codes(each) for each in got] == [[]] * 6 + [[REJECTED]] * 4
    got = [await peer.ask(request(RR, 3, asked_for({1: "a", 6: "eu"}))) for peer in peers]
    assert [codes(each) for each in got] == [[]] * 3 + [[REJECTED]] * 7
    for peer in peers:
        peer.die()


@in_world(BrokerOptions(waiting=WaitingOptions(max_messages=100, max_messages_per_peer=100)))
async def test_one_source_does_not_keep_others_from_asking_for_the_same_tags(w: World) -> None:
    hog, honest = await w.requester("10.0.0.66"), await w.requester("10.0.0.7")
    got = await hog.ask(*(request(RR, 1 + 2 * each, ASKED) for each in range(60)))
    assert w.broker.statistics().waiting == 51
    assert codes(got) == [REJECTED] * 9
    got = await honest.ask(*(request(RR, 1 + 2 * each, ASKED) for each in range(20)))
    assert w.broker.statistics().waiting == 51 + 16
    assert codes(got) == [REJECTED] * 4
    # The hog has its part already, and there is room for others and for other tags.
    assert codes(await hog.ask(request(RR, 201, ASKED))) == [REJECTED]
    for host in ("10.0.0.8", "10.0.0.9"):
        other = await w.requester(host)
        assert await other.ask(request(RR, 1, ASKED), request(RR, 3, asked_for("b"))) == []
    for peer in w.peers:
        peer.die()
    await w.settled()
    assert not w.broker.index._waiters._groups


@in_world(BrokerOptions(waiting=WaitingOptions(max_bytes=10_000, max_bytes_per_peer=4000)))
async def test_the_connections_of_one_source_together_leave_half_of_the_bytes(w: World) -> None:
    many = [await w.requester("10.0.0.66") for _ in range(3)]
    got = [await peer.ask(request(RR, 1, ASKED, bytes(2400))) for peer in many]
    assert [codes(each) for each in got] == [[], [], [REJECTED]]
    few = await w.requester("10.0.0.7")
    assert await few.ask(request(RR, 1, ASKED, bytes(2400))) == []
    # Fragments that come while it waits count as well: it may have what is free.
    assert await few.ask(request(RR, 3, ASKED, b"x", flags=F)) == []
    assert codes(await few.ask(payload(3, bytes(2400), F))) == [REJECTED]
    for peer in w.peers:
        peer.die()


# --- released, no faster than they can be taken ---------------------------------------------


class Slow:
    """A service whose handlers wait."""

    def __init__(self, **limits: int) -> None:
        self.gate = asyncio.Event()
        self.most = 0
        self.handlers = Handlers(**limits)
        self.handlers.response(self.answer)
        self.handlers.fire_and_forget(self.tell)

    async def answer(self, asked: Request) -> bytes:
        await self.tell(asked)
        return asked.data

    async def tell(self, asked: Request) -> None:
        del asked
        self.most = max(self.most, self.handlers.statistics().running)
        await self.gate.wait()


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=60)))
async def test_those_that_have_waited_do_not_overrun_a_service(w: World) -> None:
    requester, slow = await w.requester(), Slow(max_handling=5)
    streams = range(1, 41, 2)
    asked = [request(RR, stream, ASKED, b"%d" % stream) for stream in streams]
    await requester.ask(*asked)
    w.broker.serve(slow.handlers, service="a")
    await asyncio.sleep(1)
    assert (slow.most, w.broker.statistics().waiting) == (5, 15)
    assert w.row().busy
    slow.gate.set()
    await asyncio.sleep(1)
    got = await requester.received()
    assert elements(got) == [b"%d" % stream for stream in streams]
    assert slow.handlers.statistics().rejected == 0


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=3)))
async def test_a_peer_with_its_share_in_hand_does_not_hold_up_others_that_wait(w: World) -> None:
    many, few = await w.requester(), await w.requester()
    slow = Slow(max_handling=10, max_handling_per_peer=2)
    await many.ask(*(request(RR, stream, ASKED) for stream in (1, 3, 5, 7)))
    await few.ask(request(RR, 1, ASKED, b"few"))
    w.broker.serve(slow.handlers, service="a")
    await asyncio.sleep(1)
    assert slow.handlers.statistics().running == 3
    assert w.broker.statistics().waiting == 2
    await asyncio.sleep(3)
    assert errors(await many.received()) == [
        (stream, REJECTED, "no route: service=a (all are busy)") for stream in (5, 7)
    ]
    slow.gate.set()
    assert elements(await few.received()) == [b"few"]


@in_world()
async def test_many_go_to_a_peer_in_batches_and_in_order(w: World) -> None:
    requester = await w.requester()
    await requester.ask(*(request(FNF, 1 + 2 * i, ASKED, b"%d" % i) for i in range(600)))
    destination = w.register()
    assert len(await destination.received()) == 256
    await asyncio.sleep(0.1)
    assert len(await destination.received()) == 600 - 256


@in_world()
async def test_one_that_leaves_gets_nothing_more_of_what_waits(w: World) -> None:
    requester = await w.requester()
    await requester.ask(*(request(FNF, 1 + 2 * i, ASKED) for i in range(300)))
    first = w.register()
    assert len(await first.received()) == 256
    first.die()
    await asyncio.sleep(0.1)
    assert w.broker.statistics().waiting == 44
    assert len(await w.register().received()) == 44


@in_world()
async def test_a_multicast_released_late_goes_to_all_that_have_joined(w: World) -> None:
    requester = await w.requester()
    many = asked_for("a", MULTICAST)
    await requester.ask(*(request(FNF, 1 + 2 * i, many) for i in range(257)))
    first, second = w.register(), w.register()
    await asyncio.sleep(0.1)
    # The second's own joining releases the last one.
    assert [len(await each.received()) for each in (first, second)] == [257, 1]


# --- handlers -------------------------------------------------------------------------------


@in_world()
async def test_one_peer_does_not_have_all_handlers(w: World) -> None:
    many, few = await w.requester(), await w.requester()
    slow = Slow(max_handling=10, max_handling_per_peer=2)
    w.broker.serve(slow.handlers, service="a")
    got = await many.ask(*(request(RR, stream, ASKED) for stream in (1, 3, 5)))
    assert errors(got) == [(5, REJECTED, "busy")]
    assert await few.ask(request(RR, 1, ASKED, b"few")) == []
    slow.gate.set()
    assert elements(await few.received()) == [b"few"]
    assert len(elements(await many.received())) == 2
    # What has ended takes no share.
    assert len(elements(await many.ask(request(RR, 7, ASKED), request(RR, 9, ASKED)))) == 2
    assert slow.handlers.statistics().rejected == 1


@in_world()
async def test_a_fire_and_forget_is_outstanding_until_its_handler_ends(w: World) -> None:
    requester, slow = await w.requester(), Slow()
    w.broker.serve(slow.handlers, service="a")
    await requester.ask(request(FNF, 1, ASKED), request(FNF, 3, ASKED))
    assert requester.streams == 0
    assert w.row().outstanding == 2
    requester.die()
    await w.loop.idle()
    assert (w.row().outstanding, slow.handlers.statistics().running) == (2, 2)
    slow.gate.set()


@in_world(BrokerOptions(max_watchers=20), settles=False)
async def test_one_peer_does_not_take_all_watches(w: World) -> None:
    many, few = await w.requester(), await w.requester()
    asked = (BROKER_FRAME, address("onward.management")), (ROUTING, b"\x05watch")
    watch = composite(*asked)
    await many.ask(*(request(STREAM, 1 + 2 * i, watch, n=1) for i in range(30)))
    assert w.broker.statistics().watchers == 18
    await few.ask(request(STREAM, 1, watch, n=1))
    assert w.broker.statistics().watchers == 19


@in_world()
async def test_metadata_of_an_answer_to_a_plain_message_are_counted(w: World) -> None:
    handlers = Handlers()

    @handlers.response
    async def answer(asked: Request) -> Answer:
        return Answer(asked.data, b"more" if asked.data else None)

    w.broker.serve(handlers, service="a")
    assert (await w.node.request("32#service=a", b"x")).payload == b"x"
    assert (await w.node.request("32#service=a", b"")).payload == b""
    assert handlers.statistics().left_out == 1


# --- memory ---------------------------------------------------------------------------------

LITTLE = LinkOptions(gathering=GatheringOptions(max_gather=1000, max_gathered=20_000))


class Reader:
    """A service whose handlers of channels take elements when they may."""

    def __init__(self, **limits: int) -> None:
        self.gate = asyncio.Event()
        self.seen = 0
        self.handlers = Handlers(**limits)
        self.handlers.channel(self.read)

    async def read(self, asked: Request, incoming: Incoming) -> AsyncIterator[bytes]:
        del asked
        await anext(incoming)
        async for element in incoming:
            self.seen += len(element)
            await self.gate.wait()
        yield b"done"


@pytest.mark.parametrize("flags", [N | F, N])
@in_world(options=LITTLE)
async def test_elements_of_all_channels_of_a_peer_have_a_limit(w: World, flags: int) -> None:
    requester, reader = await w.requester(), Reader()
    w.broker.serve(reader.handlers, service="a")
    streams = (1, 3, 5, 7, 9)
    await requester.ask(*(request(CHANNEL, stream, ASKED, n=2) for stream in streams))
    got: list[bytes] = []
    for stream in streams:
        got += await requester.ask(*(payload(stream, bytes(1700), flags) for _ in range(3)))
    ended = errors(got)
    assert [code for _, code, _ in ended] == [CANCELED] * len(ended)
    assert 1 <= len(ended) <= 3
    assert "20000 bytes of the requester are held" in ended[0][2]
    # The others go on.
    reader.gate.set()
    left = [stream for stream in streams if stream not in {each for each, _, _ in ended}]
    got = await requester.ask(*(payload(stream, b"", C) for stream in left))
    assert elements(got).count(b"done") == len(left)


@in_world(options=LITTLE)
async def test_elements_that_are_taken_make_room(w: World) -> None:
    requester, reader = await w.requester(), Reader()
    reader.gate.set()
    w.broker.serve(reader.handlers, service="a")
    await requester.ask(request(CHANNEL, 1, ASKED, n=2))
    for _ in range(100):
        assert errors(await requester.ask(payload(1, bytes(900), N | F), payload(1, b""))) == []
    assert reader.seen == 90_000
    assert elements(await requester.ask(payload(1, b"", C)))[0] == b"done"


@in_world()
async def test_fewer_elements_are_asked_for_if_they_are_large(w: World) -> None:
    requester, reader = await w.requester(), Reader(channel_window=8, channel_bytes=10_000)
    reader.gate.set()
    w.broker.serve(reader.handlers, service="a")
    (asked,) = await requester.ask(request(CHANNEL, 1, ASKED, bytes(4000), n=1))
    assert asked == request_n(1, 2)
    (asked,) = await requester.ask(payload(1, bytes(9_900)), payload(1, bytes(10)))
    assert asked == request_n(1, 1)
    await requester.ask(cancel(1))


@in_world(options=LITTLE)
async def test_answers_in_fragments_to_workers_have_a_limit_together(w: World) -> None:
    destination = await w.destination()
    asking = [asyncio.ensure_future(w.node.request("32#service=a", b"")) for _ in range(3)]
    got = await destination.received()
    assert [kind_of(raw) for raw in got] == [RR] * 3
    first, second, third = (stream_of(raw) for raw in got)
    await destination.ask(payload(first, bytes(9000), N | F))
    await destination.ask(payload(second, bytes(9000), N | F))
    ended = await destination.ask(payload(third, bytes(9000), N | F))
    assert ended == [cancel(third)]
    with pytest.raises(PayloadTooBig):
        await asking[2]
    await destination.ask(payload(first, b"!", N | C), payload(second, b"!", N | C))
    whole: list[Message] = [await each for each in asking[:2]]
    assert [len(message.payload) for message in whole] == [9001, 9001]
    assert not destination.link.session.gathered._keepers


@in_world()
async def test_requests_in_fragments_that_are_over_are_let_go_of(w: World) -> None:
    requester, destination = await w.pair()
    for stream in range(1, 601, 2):
        await requester.ask(request(FNF, stream, ASKED, b"x", flags=F), payload(stream, b"y"))
    assert len(await destination.received()) == 600
    assert len(requester.link.session.gathered._requests) <= 65
