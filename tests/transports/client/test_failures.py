"""What a client does of itself when requests or connections fail, and what it leaves in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from onward.actors.broker import Answer, ApplicationError, Handlers, Incoming, Request
from onward.protocol import InDoubt, LinkDown, LinkLost, NotDelivered, PayloadNotBytes
from onward.transports.client import (
    Client,
    KeepaliveOptions,
    RequestCanceled,
    RequestRejected,
    RetryOptions,
    connect,
)
from onward.transports.rsocket import DestinationError
from tests.support.transports import eventually

from .joined import data_of, joined, source
from .peers import QUICK, SOON, broker, echo_handlers, quick

ECHO = "service=echo"


def cut(client: Client) -> None:
    """Cut every connection of a client, as when a cable is."""
    assert client._pool is not None
    for keeper in client._pool.keepers:
        assert keeper.link is not None
        keeper.link.abort("cut by the test")


async def test_what_nobody_serves_is_rejected_after_some_tries() -> None:
    async with (
        broker() as (uri, _),
        connect(uri, options=quick(retry=RetryOptions(max_tries=4, backoff=SOON))) as client,
    ):
        with pytest.raises(RequestRejected) as caught:
            await client.request("service=none", b"")
        assert isinstance(caught.value, NotDelivered)
        assert caught.value.code == 0x202
        assert client.statistics().retried == 3
        with pytest.raises(RequestRejected):
            await data_of(client.stream("service=none", b""))
        with pytest.raises(RequestRejected):
            await data_of(client.channel("service=none", source(b"1", b"2")))
        assert client.statistics().retried == 9


async def test_a_request_that_is_rejected_is_tried_again_and_answered() -> None:
    busy = 2

    handlers = Handlers()

    @handlers.response
    async def later(_request: Request) -> bytes:
        nonlocal busy
        busy -= 1
        if busy >= 0:
            raise ApplicationError(0x202, "busy")
        return b"done"

    @handlers.stream
    async def stream(request: Request) -> AsyncGenerator[bytes | Answer]:
        yield await later(request)

    @handlers.channel
    async def channel(request: Request, incoming: Incoming) -> AsyncGenerator[bytes | Answer]:
        yield await later(request)
        async for data in incoming:
            yield data

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri, options=QUICK) as client,
    ):
        assert (await client.request(ECHO, b"")).data == b"done"
        busy = 2
        assert await data_of(client.stream(ECHO, b"")) == [b"done"]
        busy = 2
        assert await data_of(client.channel(ECHO, source(b"1", b"2"))) == [b"done", b"1", b"2"]


async def test_a_rejection_after_the_first_element_is_not_tried_again() -> None:
    handlers = Handlers()

    @handlers.stream
    async def one(_request: Request) -> AsyncGenerator[bytes]:
        yield b"1"
        raise ApplicationError(0x202, "no more")

    @handlers.channel
    async def two(request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        await anext(incoming)
        await anext(incoming)
        raise ApplicationError(0x202, "no more")
        yield b""

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri, options=QUICK) as client,
    ):
        for call in (client.stream(ECHO, b""), client.channel(ECHO, source(b"1", b"2", b"3"))):
            with pytest.raises(DestinationError) as caught:
                await data_of(call)
            assert caught.value.code == 0x202
            # It would say that nothing was done.
            assert not isinstance(caught.value, NotDelivered)
        assert handlers.statistics().started == 2


async def test_a_destination_that_is_lost_leaves_its_requests_in_doubt() -> None:
    handlers = Handlers()
    began = asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async with broker() as (uri, _), connect(uri, options=QUICK) as client:
        destination = connect(
            uri, service="echo", handlers=handlers, options=quick(drain_timeout=0.01)
        )
        async with destination:
            asked = asyncio.create_task(client.request(ECHO, b""))
            await began.wait()
        with pytest.raises(RequestCanceled) as caught:
            await asked
        assert isinstance(caught.value, InDoubt)
        assert handlers.statistics().started == 1


async def test_a_broker_that_is_lost_leaves_requests_in_doubt_and_is_found_again() -> None:
    handlers = echo_handlers()
    began = asyncio.Event()

    @handlers.response("hold")
    async def hold(_request: Request) -> bytes:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    route_id = uuid4()
    async with (
        broker() as (uri, _),
        connect(
            uri, service="echo", handlers=handlers, route_ids=[route_id], options=QUICK
        ) as destination,
        connect(uri, options=QUICK) as client,
    ):
        asked = [
            asyncio.create_task(client.request(ECHO, b"", route="hold")),
            asyncio.create_task(data_of(client.stream(ECHO, b"1000000000"))),
        ]
        await began.wait()
        for each in (client, destination):
            cut(each)
        for task in asked:
            with pytest.raises(LinkLost):
                await task
        await eventually(lambda: client.statistics().connected == 1)
        await eventually(lambda: destination.statistics().connects == 2)
        await eventually(lambda: destination.statistics().connected == 1)
        answer = await client.request(f"{ECHO} route={route_id}", b"again")
        assert answer.data == b"again"
        assert handlers.statistics().started == 3


async def test_a_broker_that_restarts_is_found_again() -> None:
    handlers = echo_handlers()
    async with broker() as (uri, _):
        pass
    async with broker(uri) as (same, _):
        assert same == uri
        destination = connect(uri, service="echo", handlers=handlers, options=QUICK)
        client = connect(uri, options=QUICK)
        await destination.__aenter__()
        await client.__aenter__()
        assert (await client.request(ECHO, b"1")).data == b"1"
    try:
        await eventually(lambda: client.statistics().connected == 0)
        with pytest.raises(LinkDown):
            await client.request(ECHO, b"2", timeout=0.05)
        waiting = asyncio.create_task(client.request(ECHO, b"3"))
        async with broker(uri):
            await eventually(lambda: destination.statistics().connected == 1)
            # It may be there before the destination is, and be rejected: it is tried again.
            try:
                assert (await waiting).data == b"3"
            except RequestRejected:
                assert (await client.request(ECHO, b"3")).data == b"3"
            await destination.close()
            await client.close()
    finally:
        await destination.close()
        await client.close()


async def test_another_broker_is_tried_when_one_fails() -> None:
    async with broker() as (dead, _):
        pass
    async with broker() as (uri, _):
        options = quick(connect_timeout=5)
        async with connect([dead, uri], connections=2, options=options) as client:
            await eventually(lambda: client.statistics().connected == 2)
            assert client.statistics().failures >= 1


async def test_several_connections_are_several_destinations() -> None:
    ids = [UUID(int=1), UUID(int=2), UUID(int=3)]
    async with broker() as (uri, made):
        async with connect(
            uri,
            service="echo",
            tags={"region": "eu"},
            handlers=echo_handlers(),
            connections=3,
            route_ids=ids,
        ) as destination:
            await eventually(lambda: destination.statistics().connected == 3)
            rows = {row.route_id: dict(row.tags) for row in made.routes()}
            assert {each for each in rows if each.int < 4} == set(ids)
            assert rows[ids[0]]["region"] == "eu"
            async with connect(uri, connections=2) as client:
                for _ in range(6):
                    await client.request("service=echo region=eu", b"")
        # The routes are gone as soon as the client has closed in order.
        await eventually(lambda: len(made.routes()) == 1)


async def test_a_broker_that_refuses_says_why() -> None:
    async with broker() as (uri, _):
        # It would refuse the same again, so nobody waits for the end of this time.
        client = connect(uri, service="onward.mine", options=quick(connect_timeout=1000))
        with pytest.raises(LinkDown, match=r"onward\.\* is reserved"):
            await client.__aenter__()
        assert client.statistics().connected == 0


@pytest.mark.parametrize("scheme", ["rsocket+tcp", "rsocket+ws"])
async def test_nobody_is_there(scheme: str) -> None:
    async with broker() as (uri, _):
        pass
    place = f"{scheme}{uri.removeprefix('rsocket+tcp')}"
    with pytest.raises(LinkDown, match=r"(?i)connect"):
        await connect(place, options=quick(connect_timeout=0.1)).__aenter__()


async def test_a_failure_to_connect_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with broker() as (uri, _):
        pass
    options = quick(connect_timeout=0.05)
    with pytest.raises(LinkDown):
        await connect(uri, options=options).__aenter__()
    assert [record.name for record in caplog.records] == ["onward.transports.client"]
    caplog.clear()
    with pytest.raises(LinkDown, match=r"(?i)connect"):
        # One attempt; whoever asked for that is told by the error.
        await connect(uri, options=quick(reconnect=False)).__aenter__()
    assert not caplog.records


async def test_a_client_that_does_not_reconnect_says_that_it_is_cut_off() -> None:
    async with joined(options=quick(reconnect=False)) as pair:
        assert (await pair.client.request(ECHO, b"hi")).data == b"hi"
        cut(pair.client)
        with pytest.raises(LinkDown, match="cut by the test"):
            await pair.client.request(ECHO, b"hi")
        assert pair.client.statistics().connects == 1


async def test_a_request_that_has_waited_for_a_destination_is_not_sent_again() -> None:
    async with (
        broker() as (uri, _),
        connect(uri, options=quick(retry=RetryOptions(within=1e-9, backoff=SOON))) as client,
    ):
        with pytest.raises(RequestRejected):
            await client.request("service=none", b"")
        assert client.statistics().retried == 0
    async with broker() as (uri, _), connect(uri, options=QUICK) as client:
        with pytest.raises(RequestRejected):
            await client.request("@no-route=reject service=none", b"")
        assert client.statistics().retried == 0


async def test_what_is_no_bytes_is_refused_and_leaves_nothing() -> None:
    wrong: Any = "text"
    async with joined() as pair:
        client = pair.client
        with pytest.raises(PayloadNotBytes, match=r"^data is bytes, not str"):
            await client.request(ECHO, wrong)
        with pytest.raises(PayloadNotBytes, match=r"^data is bytes, not str"):
            await client.send(ECHO, wrong)
        with pytest.raises(PayloadNotBytes, match=r"^metadata is bytes, not str"):
            await client.push(ECHO, wrong)
        with pytest.raises(PayloadNotBytes, match=r"^data is bytes, not str"):
            client.stream(ECHO, wrong)
        with pytest.raises(PayloadNotBytes, match=r"^an entry is bytes, not str"):
            await client.request(ECHO, b"", entries=[("text/plain", wrong)])
        for route in (5, b"greet", b"", None):
            words = f"^route must be a text, not {route!r}"
            with pytest.raises(ValueError, match=words):
                await client.request(ECHO, b"", route=cast(Any, route))
            with pytest.raises(ValueError, match=words):
                client.stream(ECHO, b"", route=cast(Any, route))
        with pytest.raises(TypeError, match="destination must be a str"):
            await client.request(cast(Any, {}), b"")
        for element, words in (
            (wrong, "an element is bytes, not str"),
            (None, "an element is bytes, not NoneType"),
            (Answer(wrong), "an element is bytes, not str"),
            (Answer(b"", wrong), "the metadata of an element is bytes, not str"),
        ):
            for sent in ((element,), (b"1", element)):
                with pytest.raises(PayloadNotBytes, match=f"^{words}"):
                    await data_of(client.channel(ECHO, source(*sent)))
        assert (await client.request(ECHO, cast(Any, bytearray(b"x")))).data == b"x"
        assert client._pool is not None
        assert not client._pool.alive()[0].core.streams


@pytest.mark.parametrize("wrong", ["text", Answer(cast(Any, "text")), Answer(b"", cast(Any, {}))])
@pytest.mark.parametrize("local", [False, True])
async def test_a_handler_that_gives_no_bytes_costs_only_that_request(
    local: bool, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = echo_handlers()

    @handlers.response("wrong")
    async def answers(_request: Request) -> Any:
        return wrong

    @handlers.response("refuses")
    async def refuses(_request: Request) -> bytes:
        raise ApplicationError(0x301, wrong)

    @handlers.stream("wrong")
    async def yields(_request: Request) -> AsyncGenerator[Any]:
        yield b"1"
        yield wrong

    @handlers.channel("wrong")
    async def yields_back(_request: Request, incoming: Incoming) -> AsyncGenerator[Any]:
        async for element in incoming:
            yield element
            yield wrong

    elsewhere = Handlers() if local else handlers
    async with (
        broker() as (uri, made),
        connect(uri, service="afar", handlers=elsewhere, options=QUICK),
        connect(uri, options=QUICK) as client,
    ):
        made.serve(handlers, service="near")
        there = "service=near" if local else "service=afar"
        going_on = client.channel(there, source(b"1", b"2"))
        assert (await anext(going_on)).data == b"1"
        with pytest.raises(DestinationError, match="the handler failed"):
            await client.request(there, b"", route="wrong")
        if not isinstance(wrong, str):
            with pytest.raises(DestinationError, match="the handler failed"):
                await client.request(there, b"", route="refuses")
        for elements in (
            client.stream(there, b"", route="wrong"),
            client.channel(there, source(b"1", b"2"), route="wrong"),
        ):
            assert (await anext(elements)).data == b"1"
            with pytest.raises(DestinationError, match="the handler failed"):
                await anext(elements)
        assert await data_of(going_on) == [b"2"]
        assert client.statistics().connects == 1
    assert "is bytes, not" in caplog.text


async def test_a_broker_that_seems_silent_comes_last() -> None:
    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=echo_handlers()),
        connect(
            uri, connections=2, options=quick(keepalive=KeepaliveOptions(suspect_after=1e-9))
        ) as client,
    ):
        await eventually(lambda: client.statistics().connected == 2)
        assert client._pool is not None
        first, second = client._pool.alive()
        first.suspicion.expect()
        assert {await client._pool.take() for _ in range(4)} == {second}
        # It was asked for a sign of life, and gives it.
        await eventually(lambda: not first.suspicion._asked)


async def test_the_time_in_which_a_source_is_silent_does_not_count() -> None:
    go = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes]:
        yield b"1"
        await go.wait()
        yield b"2"

    async with joined() as pair:
        elements = pair.client.channel(ECHO, slow(), element_timeout=0.05)
        assert (await anext(elements)).data == b"1"
        second = asyncio.create_task(anext(elements))
        done, _ = await asyncio.wait({second}, timeout=0.2)
        assert not done
        go.set()
        assert (await second).data == b"2"
        await elements.aclose()


async def test_two_clients_with_one_id_say_so(caplog: pytest.LogCaptureFixture) -> None:
    ids = [UUID(int=5)]
    async with (
        broker() as (uri, _),
        connect(uri, service="a", route_ids=ids, options=QUICK),
        connect(uri, service="a", route_ids=ids, options=QUICK),
    ):
        await eventually(lambda: "give them ids of their own" in caplog.text)
    assert {each.levelno for each in caplog.records if "of their own" in each.message} == {40}
