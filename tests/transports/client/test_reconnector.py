"""Clients of several brokers on virtual time: failover, moves, and the wait while all are away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from onward.actors.broker import Handlers, Request
from onward.protocol import LinkDown, NotDelivered
from onward.protocol.rsocket import ErrorCode
from onward.transports import Backoff
from onward.transports.client import BrokersOptions, ClientOptions, LoadOptions, connect
from tests.support.rsocket_peer import ERROR, PAYLOAD, RR, STREAM, World, frame, kind_of, world
from tests.support.rsocket_wires import BrokerByHand, Wire, WiredLoop, on_wires

TO = "service=echo"
REBALANCE = 10.0


def options(random: Any = None, **more: Any) -> ClientOptions:
    given: dict[str, Any] = {
        "backoff": Backoff(0.1, 8.0, random=random or Random(1).random),
        "brokers": BrokersOptions(rebalance=REBALANCE),
        "request_timeout": 60.0,
    }
    return ClientOptions(**(given | more))


def the_loop() -> WiredLoop:
    return cast(WiredLoop, asyncio.get_running_loop())


class Place:
    """A broker of ours in memory, with a service that says which broker it is at.

    Attributes:
        world: The broker.
        asked: The data of the requests that were handled there.
        go: The event that the request `hold` waits for.
    """

    def __init__(self, world: World, name: bytes) -> None:
        self.world = world
        self.name = name
        self.asked: list[bytes] = []
        self.go = asyncio.Event()
        handlers = Handlers(max_handling=10_000)

        @handlers.response
        async def answer(request: Request) -> bytes:
            self.asked.append(request.data)
            if request.data == b"hold":
                await self.go.wait()
            return name

        @handlers.stream
        async def count(_request: Request) -> AsyncIterator[bytes]:
            yield b"1"
            await self.go.wait()
            yield b"2"

        world.broker.serve(handlers, service="echo")

    @property
    def uri(self) -> str:
        return self.world.listener.uri

    @property
    def port(self) -> int:
        return int(self.uri.rpartition(":")[2])

    def wires(self) -> list[Wire]:
        """Return the open connections to it."""
        wires = the_loop().wires
        return [
            each
            for each in wires
            if each.client.get_extra_info("peername")[1] == self.port and not each.client.lost
        ]

    def go_away(self) -> Any:
        """Cut all connections, and refuse others; return what has it come back."""
        server = the_loop().servers.pop(self.port)
        for wire in self.wires():
            wire.cut()
        return lambda: the_loop().servers.__setitem__(self.port, server)


@asynccontextmanager
async def places(count: int) -> AsyncGenerator[list[Place]]:
    async with AsyncExitStack() as stack:
        yield [
            Place(await stack.enter_async_context(world()), b"broker %d" % number)
            for number in range(count)
        ]


def uris(all_: list[Place]) -> list[str]:
    return [each.uri for each in all_]


# --- failover -----------------------------------------------------------------------------------


@on_wires
async def test_the_next_connection_goes_to_another_broker() -> None:
    async with places(3) as brokers, connect(uris(brokers), options=options()) as client:
        (first,) = [each for each in brokers if each.wires()]
        first.go_away()
        before = the_loop().time()
        name = (await client.request(TO, b"")).data
        assert the_loop().time() - before < 0.2
        assert name != first.name
        assert client.statistics().connects == 2
        assert client.statistics().failures == 0


@on_wires
async def test_dead_brokers_do_not_delay_the_way_to_one_that_lives() -> None:
    """The wait grows only when all have been tried."""
    dead = [f"rsocket+tcp://127.0.0.1:{port}" for port in range(50_000, 50_020)]
    async with places(1) as (alive,):
        before = the_loop().time()
        async with connect([*dead, alive.uri], options=options()) as client:
            assert the_loop().time() - before < 20 * 0.1
            assert (await client.request(TO, b"")).data == alive.name


@on_wires
async def test_a_request_that_no_socket_was_given_goes_to_another_broker() -> None:
    """What was given to a socket that is lost then is in doubt, and is not sent again."""
    async with places(2) as brokers, connect(uris(brokers), options=options()) as client:
        (first,) = [each for each in brokers if each.wires()]
        (other,) = [each for each in brokers if each is not first]
        given = asyncio.create_task(client.request(TO, b"hold"))
        await the_loop().idle()
        link = client._pool.alive()[0]  # type: ignore[union-attr]
        kept = asyncio.create_task(client.request(TO, b"kept"))
        stream = client.stream(TO, b"")
        begun = asyncio.ensure_future(anext(stream))
        for _ in range(20):
            await asyncio.sleep(0)
            if link.core.pending:
                break
        assert link.core.pending
        first.go_away()
        assert (await kept).data == other.name
        with pytest.raises(Exception, match="connection") as caught:
            await given
        assert type(caught.value).__name__ == "LinkLost"
        assert (first.asked, other.asked) == ([b"hold"], [b"kept"])
        assert (await begun).data == b"1"
        await stream.aclose()


@on_wires
async def test_streams_that_have_begun_end_in_doubt() -> None:
    async with places(2) as brokers, connect(uris(brokers), options=options()) as client:
        stream = client.stream(TO, b"")
        assert (await anext(stream)).data == b"1"
        (first,) = [each for each in brokers if each.wires()]
        first.go_away()
        with pytest.raises(Exception, match="connection") as caught:
            await anext(stream)
        assert type(caught.value).__name__ == "LinkLost"


# --- all away -----------------------------------------------------------------------------------


@on_wires
async def test_it_comes_back_after_all_were_away() -> None:
    loop = the_loop()
    async with places(3) as brokers, connect(uris(brokers), options=options()) as client:
        back = [each.go_away() for each in brokers]
        await loop.idle()
        before = len(loop.dials)
        early = asyncio.create_task(client.request(TO, b"early"))
        await asyncio.sleep(59)
        with pytest.raises(LinkDown, match="no connection"):
            await client.request(TO, b"hurried", timeout=0.5)
        waits = len(loop.dials) - before
        assert 25 < waits < 100  # for each broker 59 s, with waits of 4 s in the mean at the end
        late = asyncio.create_task(client.request(TO, b"late", timeout=None))
        with pytest.raises(LinkDown):
            await early  # its time is over
        await asyncio.sleep(600)
        back[1]()
        came = loop.time()
        assert (await late).data.startswith(b"broker")
        assert loop.time() - came < 2 * 8.0  # each broker is tried about once in a wait
        assert [data for each in brokers for data in each.asked] == [b"late"]


@on_wires
async def test_requests_that_wait_for_a_broker_are_bounded() -> None:
    load = LoadOptions(max_in_flight=3, max_waiting=2)
    async with places(1) as (broker,), connect(broker.uri, options=options(load=load)) as client:
        back = broker.go_away()
        await the_loop().idle()
        waiting = [asyncio.create_task(client.request(TO, b"%d" % each)) for each in range(5)]
        await the_loop().idle()
        with pytest.raises(NotDelivered, match="2 requests waiting already"):
            await client.request(TO, b"too many")
        assert (client.statistics().in_flight, client.statistics().waiting) == (3, 2)
        back()
        assert {(await each).data for each in waiting} == {broker.name}
        assert sorted(broker.asked) == [b"0", b"1", b"2", b"3", b"4"]


# --- spreading ----------------------------------------------------------------------------------


@on_wires
async def test_connections_are_spread_again_when_a_broker_is_back() -> None:
    """And no request ends for it, also none that is in flight meanwhile."""
    async with (
        places(2) as (one, two),
        connect(uris([one, two]), connections=2, options=options()) as client,
    ):
        await the_loop().idle()
        assert [len(one.wires()), len(two.wires())] == [1, 1]
        back = one.go_away()
        await asyncio.sleep(30)
        assert [len(one.wires()), len(two.wires())] == [0, 2]
        held = [asyncio.create_task(client.request(TO, b"hold")) for _ in range(4)]
        back()
        await asyncio.sleep(30)
        # The old connection is there until its requests have ended.
        assert [len(one.wires()), len(two.wires())] == [1, 2]
        assert client.statistics().connected == 2
        asked = [asyncio.create_task(client.request(TO, b"")) for _ in range(8)]
        assert {(await each).data for each in asked} == {one.name, two.name}
        two.go.set()
        assert {(await each).data for each in held} == {two.name}
        await asyncio.sleep(1)
        assert [len(one.wires()), len(two.wires())] == [1, 1]
        assert client.statistics().moves == 1


@on_wires
async def test_a_destination_moves_while_nothing_is_in_flight_on_it() -> None:
    """Its route is at one broker at a time, and the requests under way to it are answered."""
    handlers, go = Handlers(), asyncio.Event()

    @handlers.response
    async def answer(_request: Request) -> bytes:
        await go.wait()
        return b"done"

    def here(place: Place) -> int:
        return sum(row.service == "moved" for row in place.world.broker.routes())

    async with (
        places(2) as (one, two),
        connect(
            uris([one, two]),
            service="moved",
            handlers=handlers,
            connections=2,
            options=options(),
        ) as client,
        connect(two.uri, options=options()) as asker,
    ):
        back = one.go_away()
        await asyncio.sleep(30)
        assert (here(one), here(two)) == (0, 2)
        asked = [
            asyncio.create_task(asker.request("service=moved", b"", timeout=None)) for _ in range(2)
        ]
        await the_loop().idle()
        back()
        await asyncio.sleep(60)
        assert (here(one), here(two)) == (0, 2)
        go.set()
        assert {(await each).data for each in asked} == {b"done"}
        await asyncio.sleep(30)
        assert (here(one), here(two)) == (1, 1)
        assert client.statistics().moves == 1
        assert two.world.broker.statistics().lost == 0


@on_wires
async def test_a_broker_that_drains_is_left_with_a_stream_open() -> None:
    """Its answer to a new request shows that it drains; the request is answered by another."""
    async with places(1) as (other,):
        hand = BrokerByHand(the_loop(), 60_001)
        first = iter([0.0, 0.9])
        random = lambda: next(first, 0.0)  # noqa: E731
        async with connect([hand.uri, other.uri], options=options(random)) as client:
            stream = client.stream(TO, b"")
            begun = asyncio.ensure_future(anext(stream))
            await the_loop().idle()
            opened = [each for each in hand.hand.frames if kind_of(each) == STREAM]
            on = int.from_bytes(opened[0][3:7])
            hand.hand.send(frame(on, PAYLOAD, 0x20, b"1"))
            assert (await begun).data == b"1"
            asked = asyncio.create_task(client.request(TO, b"x"))
            await the_loop().idle()
            (refused,) = [each for each in hand.hand.frames if kind_of(each) == RR]
            code = int(ErrorCode.REJECTED).to_bytes(4)
            hand.hand.send(
                frame(int.from_bytes(refused[3:7]), ERROR, 0, code + b"the broker drains")
            )
            assert (await asked).data == other.name
            assert len(hand.hands) == 1
            hand.hand.send(frame(on, PAYLOAD, 0x60, b"2"))
            assert (await anext(stream)).data == b"2"
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert client.statistics().moves == 1


@on_wires
async def test_many_clients_do_not_come_back_together() -> None:
    """They leave one that is lost at once, and go to the one that is back one after the other."""
    loop, count, random = the_loop(), 60, Random(7).random
    async with AsyncExitStack() as stack:
        one, two = await stack.enter_async_context(places(2))
        for _ in range(count):
            made = connect(uris([one, two]), connections=2, options=options(random))
            await stack.enter_async_context(made)
        await loop.idle()
        back = one.go_away()
        await asyncio.sleep(60)
        assert len(two.wires()) == 2 * count
        del loop.dials[:]
        back()
        began = loop.time()
        await asyncio.sleep(3 * REBALANCE)
        assert (len(one.wires()), len(two.wires())) == (count, count)
        rates = Counter(int(at - began) for at in loop.dials)
        assert max(rates.values()) < count / 3


@on_wires
async def test_a_move_that_fails_leaves_the_connection_as_it_is() -> None:
    async with (
        places(2) as (one, two),
        connect(uris([one, two]), connections=2, options=options()) as client,
    ):
        await the_loop().idle()
        one.go_away()
        await asyncio.sleep(300)
        assert len(two.wires()) == 2
        assert client.statistics().moves == 0
        # It is looked for, less and less often.
        assert 15 < client.statistics().failures < 60
        assert (await client.request(TO, b"")).data == two.name


@on_wires
async def test_closing_the_client_ends_connections_that_were_moved() -> None:
    async with places(2) as (one, two):
        client = connect(uris([one, two]), connections=2, options=options(drain_timeout=1.0))
        async with client:
            back = one.go_away()
            await asyncio.sleep(30)
            held = [asyncio.create_task(client.request(TO, b"hold")) for _ in range(2)]
            back()
            await asyncio.sleep(30)
            assert len(two.wires()) == 2
        assert not two.wires()
        ends = await asyncio.gather(*held, return_exceptions=True)
        assert {type(each).__name__ for each in ends} == {"LinkLost"}
