"""Handlers of this node as destinations of peers, alone and as one of several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from onward.actors.broker import Answer, ApplicationError, Handlers, Incoming, Request
from onward.protocol import WorkerFailed
from onward.protocol.security import PeerIdentity
from onward.transports.rsocket import FlowOptions, GatheringOptions, LinkOptions
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
MANY = asked_for("a", MULTICAST)
ROUTE = b"message/x.onward.route.v0"
REJECTED, CANCELED, INVALID, APPLICATION_ERROR = 0x202, 0x203, 0x204, 0x201


class Service:
    """Handlers that note what they see."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.seen: list[bytes] = []
        self.cancelled = 0
        self.made = 0
        self.gate = asyncio.Event()
        self.handlers = Handlers(max_handling=5, channel_window=4)
        self.handlers.response(self.response)
        self.handlers.response("later")(self.later)
        self.handlers.fire_and_forget(self.tell)
        self.handlers.metadata_push(self.tell)
        self.handlers.stream(self.count)
        self.handlers.channel(self.echo)

    async def response(self, request: Request) -> bytes | Answer:
        self.requests.append(request)
        if request.data == b"fail":
            raise ApplicationError(0x301, "mine")
        if request.data == b"big":
            return bytes(2**24)
        return Answer(request.data.upper(), request.metadata)

    async def later(self, request: Request) -> bytes:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b"late"

    async def tell(self, request: Request) -> None:
        self.requests.append(request)

    async def count(self, request: Request) -> AsyncIterator[bytes]:
        try:
            for number in range(int(request.data)):
                self.made += 1
                yield b"%d" % number
        except GeneratorExit:
            self.cancelled += 1
            raise

    async def echo(self, request: Request, incoming: Incoming) -> AsyncIterator[bytes]:
        try:
            async for each in incoming:
                self.seen.append(each)
                if each == b"stop":
                    return
                yield each
        except ApplicationError as ended:
            self.seen.append(b"error %x" % ended.code)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def serve(w: World, name: str = "a") -> Service:
    service = Service()
    w.broker.serve(service.handlers, service=name)
    return service


@in_world()
async def test_request_response(w: World) -> None:
    service, requester = serve(w), await w.requester()
    assert await requester.ask(request(RR, 1, ASKED, b"x")) == [payload(1, b"X", N | C)]
    (seen,) = service.requests
    assert (seen.data, seen.metadata, seen.entries, seen.route) == (b"x", None, (), "")
    assert seen.origin == UUID(bytes=bytes(range(16)))
    assert seen.tags == ((1, "a"),)
    assert not seen.encrypted
    assert w.row().requests == 1
    assert w.row().outstanding == 0


@in_world()
async def test_what_a_handler_sees_of_the_metadata(w: World) -> None:
    service, requester = serve(w), await w.requester()
    flags = UNICAST | ENCRYPTED
    asked = address("a", flags, mime=FORWARDING, origin=bytes(16), wrapped=b"inner")
    entries = composite((b"text/plain", b"t"), (FORWARDING, asked)) + b"\xaa\x00\x00\x01z"
    (got,) = await requester.ask(request(RR, 1, entries, b"x"))
    assert got == payload(1, b"X", N | C, b"inner")
    (seen,) = service.requests
    assert (seen.metadata, seen.origin, seen.encrypted) == (b"inner", None, True)
    assert [content for _, content in seen.entries] == [b"t", b"z"]


@in_world()
async def test_an_address_alone(w: World) -> None:
    service, requester = serve(w), w.connect()
    requester.send(setup(mime=FORWARDING))
    got = await requester.ask(request(RR, 1, address("a", mime=FORWARDING), b"x"))
    assert elements(got) == [b"X"]
    assert service.requests[0].entries == ()


@in_world()
async def test_metadata_that_are_broken_after_the_address(w: World) -> None:
    serve(w)
    requester = await w.requester()
    got = errors(await requester.ask(request(RR, 1, ASKED + b"\x05te", b"x")))
    assert [code for _, code, _ in got] == [INVALID]


@in_world()
async def test_a_handler_sees_the_source_of_the_connection(w: World) -> None:
    service, peers = serve(w), [await w.requester() for _ in range(2)]
    named = composite((ROUTE, b"32#service=a"))
    for number, peer in enumerate(peers):
        peer.link.identity = PeerIdentity(source=f"10.0.0.{number}")
        for stream, metadata in ((1, ASKED), (3, named)):
            assert elements(await peer.ask(request(RR, stream, metadata, b"x"))) == [b"X"]
    assert [each.source for each in service.requests] == ["10.0.0.0"] * 2 + ["10.0.0.1"] * 2
    await w.node.request("32#service=a", b"x")
    assert service.requests[-1].source == ""


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [(b"fail", 0x301, "mine"), (b"big", APPLICATION_ERROR, "the answer is too big")],
)
@pytest.mark.filterwarnings("ignore")
@in_world()
async def test_errors_of_a_handler(w: World, data: bytes, code: int, text: str) -> None:
    serve(w)
    requester = await w.requester()
    assert errors(await requester.ask(request(RR, 1, ASKED, data))) == [(1, code, text)]


@in_world()
async def test_what_has_no_answer(w: World) -> None:
    service, requester = serve(w), await w.requester()
    assert await requester.ask(request(FNF, 1, ASKED, b"fnf"), push(ASKED)) == []
    assert [seen.data for seen in service.requests] == [b"fnf", b""]
    assert service.requests[1].metadata == ASKED


@in_world()
async def test_a_request_in_fragments(w: World) -> None:
    serve(w)
    requester = await w.requester()
    parts = [request(RR, 1, ASKED[:9], flags=F), payload(1, b"a", F, ASKED[9:])]
    assert await requester.ask(*parts) == []
    assert await requester.ask(payload(1, b"b", N | F)) == []
    assert elements(await requester.ask(payload(1, b"c", N))) == [b"ABC"]
    # A requester that cancels in the middle.
    await requester.ask(request(RR, 3, ASKED, flags=F))
    assert await requester.ask(cancel(3)) == []


@in_world(options=LinkOptions(gathering=GatheringOptions(max_request=1000)))
async def test_a_request_in_fragments_that_is_too_big(w: World) -> None:
    serve(w)
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, bytes(600), flags=F))
    got = errors(await requester.ask(payload(1, bytes(600), N)))
    assert [code for _, code, _ in got] == [INVALID]


@in_world()
async def test_the_requester_cancels_or_goes_away(w: World) -> None:
    service, requester = serve(w), await w.requester()
    entries = ASKED + composite((b"message/x.rsocket.routing.v0", b"\x05later"))
    await requester.ask(request(RR, 1, entries), request(RR, 3, entries))
    assert w.row().outstanding == 2
    await requester.ask(cancel(1))
    assert service.cancelled == 1
    requester.die()
    await w.loop.idle()
    assert service.cancelled == 2
    assert w.row().outstanding == 0


@in_world()
async def test_too_many_at_once(w: World) -> None:
    service, requester = serve(w), await w.requester()
    entries = ASKED + composite((b"message/x.rsocket.routing.v0", b"\x05later"))
    got = errors(await requester.ask(*(request(RR, 2 * n + 1, entries) for n in range(6))))
    assert got == [(11, REJECTED, "busy")]
    service.gate.set()
    assert elements(await requester.received()) == [b"late"] * 5


@in_world()
async def test_a_service_that_stops(w: World) -> None:
    service = Service()
    registration = w.broker.serve(service.handlers, service="a")
    requester = await w.requester()
    entries = ASKED + composite((b"message/x.rsocket.routing.v0", b"\x05later"))
    await requester.ask(request(RR, 1, entries))
    task = asyncio.ensure_future(w.node.request("32#service=a", b"fail"))
    with pytest.raises(ApplicationError):
        await task
    registration.withdraw()
    assert [code for _, code, _ in errors(await requester.received())] == [CANCELED]
    assert service.cancelled == 1


@in_world()
async def test_a_stream_makes_no_element_without_credit(w: World) -> None:
    service, requester = serve(w), await w.requester()
    assert elements(await requester.ask(request(STREAM, 1, ASKED, b"5", n=2))) == [b"0", b"1"]
    assert service.made == 2
    assert elements(await requester.ask(request_n(1, 2))) == [b"2", b"3"]
    got = await requester.ask(request_n(1, 2))
    assert got == [payload(1, b"4"), payload(1, b"", C)]


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000, credit_window=8)))
async def test_a_stream_and_a_requester_that_does_not_read(w: World) -> None:
    service, requester = serve(w), await w.requester()
    requester.stop_reading()
    await requester.ask(request(STREAM, 1, ASKED, b"10000", n=500))
    made = service.made
    assert made < 200
    await requester.ask(request_n(1, 5))
    assert service.made == made
    requester.read_on()
    await w.loop.idle()
    assert service.made > made
    await requester.ask(cancel(1))
    assert service.cancelled == 1


@in_world()
async def test_a_channel_both_ways(w: World) -> None:
    service, requester = serve(w), await w.requester()
    got = await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    assert got == [payload(1, b"0"), request_n(1, 4)]
    got = await requester.ask(payload(1, b"1", N | F), payload(1, b"+", 0), payload(1, b"2"))
    assert elements(got) == [b"1+", b"2"]
    assert elements(await requester.ask(payload(1, b"3", N | C))) == [b"3", b""]
    assert service.seen == [b"0", b"1+", b"2", b"3"]


@in_world()
async def test_a_channel_of_one_element(w: World) -> None:
    serve(w)
    requester = await w.requester()
    got = await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5, flags=C))
    assert got == [payload(1, b"0"), payload(1, b"", C)]


@in_world()
async def test_a_handler_that_wants_no_more_of_a_channel(w: World) -> None:
    serve(w)
    requester = await w.requester()
    got = await requester.ask(request(CHANNEL, 1, ASKED, b"stop", n=5))
    assert got == [payload(1, b"", C), cancel(1)]


@in_world()
async def test_a_channel_that_its_requester_ends_with_an_error(w: World) -> None:
    service, requester = serve(w), await w.requester()
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    await requester.ask(error(1, 0x302, b"mine"))
    assert service.seen == [b"0", b"error 302"]
    await requester.ask(request(CHANNEL, 3, ASKED, b"0", n=5))
    await requester.ask(cancel(3))
    assert service.cancelled == 1


@in_world(options=LinkOptions(gathering=GatheringOptions(max_request=1000)))
async def test_an_element_that_is_too_big(w: World) -> None:
    serve(w)
    requester = await w.requester()
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    got = errors(await requester.ask(payload(1, bytes(600), N | F), payload(1, bytes(600), N)))
    assert [code for _, code, _ in got] == [INVALID]


# --- one of several -------------------------------------------------------------------------


@in_world()
async def test_handlers_and_peers_answer_one_request(w: World) -> None:
    service, (requester, destination) = serve(w), await w.pair()
    assert elements(await requester.ask(request(RR, 1, MANY, b"x"))) == [b"X"]
    assert [kind_of(raw) for raw in await destination.received()] == [RR, 9]
    await requester.ask(request(FNF, 3, MANY, b"y"), push(MANY))
    assert [seen.data for seen in service.requests] == [b"x", b"y", b""]
    assert [kind_of(raw) for raw in await destination.received()] == [FNF, 12]


@in_world()
async def test_a_request_in_fragments_for_handlers_and_peers(w: World) -> None:
    _, (requester, destination) = serve(w), await w.pair()
    await requester.ask(request(RR, 1, MANY, b"a", flags=F))
    assert elements(await requester.ask(payload(1, b"b", N))) == [b"AB"]
    assert [kind_of(raw) for raw in await destination.received()] == [RR, 10, 9]


@in_world()
async def test_streams_of_two_services(w: World) -> None:
    services = [serve(w), serve(w)]
    requester = await w.requester()
    got = elements(await requester.ask(request(STREAM, 1, MANY, b"3", n=2)))
    assert len(got) == 2
    got += elements(await requester.ask(request_n(1, 10)))
    assert sorted(got) == [b"", b"0", b"0", b"1", b"1", b"2", b"2"]
    assert [service.made for service in services] == [3, 3]


@in_world()
async def test_channels_of_two_services(w: World) -> None:
    services = [serve(w), serve(w)]
    requester = await w.requester()
    got = await requester.ask(request(CHANNEL, 1, MANY, b"0", n=20))
    assert elements(got) == [b"0", b"0"]
    assert request_n(1, 4) in got
    await requester.ask(payload(1, b"1"), payload(1, b"2", N | C))
    assert [service.seen for service in services] == [[b"0", b"1", b"2"]] * 2
    await requester.ask(request(CHANNEL, 3, MANY, b"0", n=20))
    await requester.ask(error(3, 0x302, b"mine"))
    assert [service.seen[-1] for service in services] == [b"error 302"] * 2
    await requester.ask(request(CHANNEL, 5, MANY, b"0", n=20, flags=C))
    got = await requester.ask(request(CHANNEL, 7, MANY, b"stop", n=20))
    assert set(got) >= {payload(7, b"", C), cancel(7)}
    await requester.ask(request(CHANNEL, 9, MANY, b"0", n=20))
    await requester.ask(cancel(9))
    assert [service.cancelled for service in services] == [1, 1]


@in_world()
async def test_an_error_of_one_service_ends_all(w: World) -> None:
    serve(w)
    serve(w)
    requester = await w.requester()
    assert errors(await requester.ask(request(RR, 1, MANY, b"fail"))) == [(1, 0x301, "mine")]


# --- plain messages -------------------------------------------------------------------------


@in_world()
async def test_plain_messages_to_a_service(w: World) -> None:
    service = Service()
    registration = w.broker.serve(service.handlers, service="a")
    assert (await w.node.request("32#service=a", b"x")).payload == b"X"
    w.node.send("32#service=a", b"y")
    await w.loop.idle()
    assert [seen.data for seen in service.requests] == [b"x", b"y"]
    with pytest.raises(ApplicationError, match="mine"):
        await w.node.request("32#service=a", b"fail")
    for _ in range(200):
        await w.node.request("32#service=a", b"x")
    registration.withdraw()
    slow = Handlers()
    slow.response(service.later)
    registration = w.broker.serve(slow, service="a")
    task = asyncio.ensure_future(w.node.request("32#service=a", b"x"))
    await w.loop.idle()
    registration.withdraw()
    with pytest.raises(WorkerFailed):
        await task
