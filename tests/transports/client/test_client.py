"""A client and a destination of ours, with our own broker between them, on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID, uuid4

import pytest

from onward.actors.broker import Answer, ApplicationError, Handlers, Incoming, Request
from onward.protocol import AddressError, InDoubt, LinkDown, LinkLost, NotDelivered, PayloadTooBig
from onward.protocol.broker import BrokerFrameError, Dialect, unicast
from onward.transports.client import (
    Client,
    ClientOptions,
    RequestCanceled,
    RequestRejected,
    connect,
)
from onward.transports.rsocket import DestinationError
from tests.support.transports import eventually

from .peers import QUICK, broker, echo_handlers, quick

ECHO = "service=echo"


class Joined(NamedTuple):
    """A requester and a destination at one broker."""

    client: Client
    destination: Client
    handlers: Handlers
    uri: str


@asynccontextmanager
async def joined(
    uri: str = "rsocket+tcp://127.0.0.1:0", options: ClientOptions = QUICK
) -> AsyncGenerator[Joined]:
    handlers = echo_handlers()
    async with (
        broker(uri) as (where, _),
        connect(where, service="echo", handlers=handlers, options=options) as destination,
        connect(where, options=options) as client,
    ):
        yield Joined(client, destination, handlers, where)


@pytest.fixture(params=["tcp", "ws", "unix"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Joined]:
    uris = {
        "tcp": "rsocket+tcp://127.0.0.1:0",
        "ws": "rsocket+ws://127.0.0.1:0",
        "unix": f"rsocket+unix://{tmp_path}/b",
    }
    async with joined(uris[request.param]) as made:
        yield made


async def source(*elements: Any) -> AsyncGenerator[Any]:
    for element in elements:
        if isinstance(element, Exception):
            raise element
        yield element


async def data_of(elements: AsyncIterator[Answer]) -> list[bytes]:
    return [element.data async for element in elements]


def cut(client: Client) -> None:
    """Cut every connection of a client, as when a cable is."""
    assert client._pool is not None
    for keeper in client._pool.keepers:
        assert keeper.link is not None
        keeper.link.abort("cut by the test")


# --- each interaction over each transport ---------------------------------------------------------


async def test_a_request_is_answered(pair: Joined) -> None:
    assert await pair.client.request(ECHO, b"hi", b"meta") == Answer(b"hi", b"meta")
    assert (await pair.client.request(ECHO, b"")).data == b""
    assert len((await pair.client.request(ECHO, bytes(1_000_000))).data) == 1_000_000


async def test_many_requests_at_once(pair: Joined) -> None:
    asked = [pair.client.request(ECHO, b"%d" % number) for number in range(40)]
    answers = await asyncio.gather(*asked)
    assert [answer.data for answer in answers] == [b"%d" % number for number in range(40)]


async def test_a_stream_comes_whole(pair: Joined) -> None:
    assert await data_of(pair.client.stream(ECHO, b"100")) == [b"%d" % n for n in range(100)]
    assert await data_of(pair.client.stream(ECHO, b"0")) == []


async def test_a_channel_goes_both_ways(pair: Joined) -> None:
    sent = [Answer(b"a", b"1"), b"b", Answer(b"c", b"3"), *[b"d"] * 100]
    came = [element async for element in pair.client.channel(ECHO, source(*sent))]
    assert came[:3] == [Answer(b"A", b"1"), Answer(b"B"), Answer(b"C", b"3")]
    assert len(came) == 103


async def test_fire_and_forget_and_push_arrive(pair: Joined) -> None:
    came: asyncio.Queue[Request] = asyncio.Queue()

    async def note(request: Request) -> None:
        came.put_nowait(request)

    pair.handlers.fire_and_forget("note")(note)
    pair.handlers.metadata_push(note)
    await pair.client.send(ECHO, b"data", b"meta", route="note", entries=[("text/plain", b"x")])
    await pair.client.push(ECHO, b"pushed")
    sent, pushed = await came.get(), await came.get()
    assert (sent.data, sent.metadata, sent.route) == (b"data", b"meta", "note")
    assert ("text/plain", b"x") in sent.entries
    assert sent.origin == pair.client.route_ids[0]
    assert dict(sent.tags)[1] == "echo"
    assert (pushed.data, pushed.metadata) == (b"", b"pushed")


# --- the package's defects ------------------------------------------------------------------------


async def test_empty_elements_do_not_vanish() -> None:
    # Defect 1: the package sends them without the N flag.
    handlers = Handlers()

    @handlers.stream
    async def empties(_request: Request) -> AsyncGenerator[Answer]:
        yield Answer(b"")
        yield Answer(b"", b"")
        yield Answer(b"")

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        # Defect 4: it makes metadata of no bytes no metadata.
        elements = [element async for element in client.stream(ECHO, b"")]
        assert elements == [Answer(b""), Answer(b"", b""), Answer(b"")]


async def test_empty_elements_of_a_channel_do_not_vanish() -> None:
    async with joined() as pair:
        assert await data_of(pair.client.channel(ECHO, source(b"", b"", b"x", b""))) == [
            b"",
            b"",
            b"X",
            b"",
        ]


async def test_what_is_long_goes_in_fragments() -> None:
    # Defect 2: the package loses the flags of fragments that it did not make itself.
    long = bytes(range(256)) * 40
    async with joined(options=quick(fragment_size=200)) as pair:
        assert await pair.client.request(ECHO, long, long[:300]) == Answer(long, long[:300])
        back = [each async for each in pair.client.channel(ECHO, source(long, b"", long))]
        assert [element.data for element in back] == [long.upper(), b"", long.upper()]


@pytest.mark.parametrize("code", [0x201, 0x204, 0x301, 0xFFFFFFFE])
async def test_any_error_code_is_told(code: int) -> None:
    # Defect 3: the package drops an ERROR with a code it does not know, and waits for ever.
    async with joined() as pair:
        with pytest.raises(DestinationError) as caught:
            await pair.client.request(ECHO, b"%x" % code, route="fail")
        assert (caught.value.code, caught.value.text) == (code, "as told")


async def test_what_is_over_the_limit_is_refused_before_it_is_sent() -> None:
    # Defect 5: the package cuts the length of a frame over 16 MiB - 1.
    async with joined(options=quick(max_request=32 * 1024 * 1024)) as pair:
        with pytest.raises(PayloadTooBig):
            await pair.client.request(ECHO, bytes(16 * 1024 * 1024))
        assert (await pair.client.request(ECHO, b"still there")).data == b"still there"
    async with joined(options=quick(max_request=1000)) as pair:
        for call in (
            pair.client.request(ECHO, bytes(1001)),
            pair.client.send(ECHO, bytes(1001)),
            data_of(pair.client.stream(ECHO, bytes(1001))),
            data_of(pair.client.channel(ECHO, source(bytes(1001)))),
            data_of(pair.client.channel(ECHO, source(b"1", bytes(1001)))),
        ):
            with pytest.raises(PayloadTooBig):
                await call
        assert (await pair.client.request(ECHO, b"still there")).data == b"still there"
        assert pair.client.statistics().in_flight == 0


async def test_a_handler_that_waits_holds_nobody_up() -> None:
    # Defect 11: the package awaits handlers in the task that reads.
    handlers = echo_handlers()
    held = asyncio.Event()

    @handlers.response("hold")
    async def hold(_request: Request) -> bytes:
        await held.wait()
        return b"held"

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        waiting = asyncio.create_task(client.request(ECHO, b"", route="hold"))
        assert (await client.request(ECHO, b"past it")).data == b"past it"
        assert not waiting.done()
        held.set()
        assert (await waiting).data == b"held"


async def test_an_odd_entry_of_metadata_does_not_spoil_a_request() -> None:
    # Defect 16: the package raises on a well-known id that it does not know.
    async with joined() as pair:
        answer = await pair.client.request(ECHO, b"hi", b"meta", entries=[("#80", b"odd")])
        assert answer == Answer(b"hi", b"meta")


async def test_a_mime_type_may_be_long() -> None:
    # Defect 18: the package cannot write one of more than 127 bytes.
    options = quick(data_mime="application/" + "x" * 200)
    async with joined(options=options) as pair:
        assert (await pair.client.request(ECHO, b"hi")).data == b"hi"


# --- credit, cancelling, time ---------------------------------------------------------------------


async def test_a_stream_is_no_further_than_its_windows() -> None:
    made = 0
    handlers = Handlers()

    @handlers.stream
    async def endless(_request: Request) -> AsyncGenerator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b"x"

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers) as destination,
        connect(uri, options=quick(stream_window=4)) as client,
    ):
        elements = client.stream(ECHO, b"")
        assert (await anext(elements)).data == b"x"
        await eventually(lambda: made >= 4)
        for _ in range(50):
            await anext(elements)
            assert made <= 51 + 4 + 1
        await elements.aclose()
        await eventually(lambda: handlers.statistics().running == 0)
        assert destination.statistics().connected == 1


async def test_a_channel_takes_from_its_source_as_it_is_asked() -> None:
    taken = 0

    async def counted() -> AsyncGenerator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x"

    handlers = Handlers(channel_window=4)
    closed = asyncio.Event()

    @handlers.channel
    async def two(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        yield await anext(incoming)
        yield await anext(incoming)
        await closed.wait()

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri, options=QUICK) as client,
    ):
        elements = client.channel(ECHO, counted())
        assert (await anext(elements)).data == b"x"
        assert (await anext(elements)).data == b"x"
        await eventually(lambda: taken == 5)
        closed.set()
        # The handler has ended and cancels what it has not taken: so the channel ends.
        assert await data_of(elements) == []
        assert taken == 5


async def test_leaving_a_loop_cancels_the_stream() -> None:
    async with joined() as pair:
        async for element in pair.client.stream(ECHO, b"1000000"):
            assert element.data == b"0"
            break
        await eventually(lambda: pair.handlers.statistics().running == 0)
        await eventually(lambda: pair.client.statistics().in_flight == 0)


async def test_cancelling_a_request_cancels_its_handler() -> None:
    handlers = Handlers()
    began, cancelled = asyncio.Event(), asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("not reached")

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        asked = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.wait_for(cancelled.wait(), 5)
        cancelled.clear()
        with pytest.raises(TimeoutError) as caught:
            await client.request(ECHO, b"", timeout=0.05)
        assert isinstance(caught.value, InDoubt)
        await asyncio.wait_for(cancelled.wait(), 5)
        assert client.statistics().timeouts == 1


async def test_a_stream_may_be_too_slow() -> None:
    handlers = Handlers()

    @handlers.stream
    async def one(_request: Request) -> AsyncGenerator[bytes]:
        yield b"1"
        await asyncio.Event().wait()

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        elements = client.stream(ECHO, b"", element_timeout=0.05)
        assert (await anext(elements)).data == b"1"
        with pytest.raises(TimeoutError):
            await anext(elements)
        await eventually(lambda: handlers.statistics().running == 0)
        assert client.statistics().in_flight == 0


async def test_a_timeout_of_a_handlers_own_is_none_of_ours() -> None:
    async def late() -> AsyncGenerator[bytes]:
        yield b"1"
        raise TimeoutError("the source's own")

    async with joined() as pair:
        with pytest.raises(TimeoutError, match="the source's own"):
            await data_of(pair.client.channel(ECHO, late()))


async def test_what_the_source_raises_is_raised_and_the_handler_is_told() -> None:
    handlers = Handlers()
    seen: asyncio.Queue[Exception] = asyncio.Queue()

    @handlers.channel
    async def look(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        try:
            async for data in incoming:
                yield data
        except ApplicationError as error:
            seen.put_nowait(error)
            raise

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        with pytest.raises(KeyError):
            await data_of(client.channel(ECHO, source(b"1", KeyError("x"))))
        assert str(await seen.get()) == "0x201: the requester failed"


async def test_a_source_without_elements_sends_nothing() -> None:
    async with joined() as pair:
        assert await data_of(pair.client.channel(ECHO, source())) == []
        assert pair.handlers.statistics().started == 0


# --- errors and retries ---------------------------------------------------------------------------


async def test_what_nobody_serves_is_rejected_after_some_tries() -> None:
    async with broker() as (uri, _), connect(uri, options=quick(max_tries=4)) as client:
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
    async with broker() as (uri, _), connect(uri, options=quick(retry_within=1e-9)) as client:
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
        with pytest.raises(TypeError, match="data must be bytes, not str"):
            await client.request(ECHO, wrong)
        with pytest.raises(TypeError, match="data must be bytes, not str"):
            await client.send(ECHO, wrong)
        with pytest.raises(TypeError, match="metadata must be bytes, not str"):
            await client.push(ECHO, wrong)
        with pytest.raises(TypeError, match="data must be bytes, not str"):
            client.stream(ECHO, wrong)
        with pytest.raises(TypeError, match="entry must be bytes, not str"):
            await client.request(ECHO, b"", entries=[("text/plain", wrong)])
        with pytest.raises(TypeError, match="destination must be a str"):
            await client.request(cast(Any, {}), b"")
        for sent in ((wrong,), (b"1", wrong)):
            with pytest.raises(TypeError, match="element must be bytes, not str"):
                await data_of(client.channel(ECHO, source(*sent)))
        assert (await client.request(ECHO, cast(Any, bytearray(b"x")))).data == b"x"
        assert client._pool is not None
        assert not client._pool.alive()[0].core.streams


async def test_a_broker_that_seems_silent_comes_last() -> None:
    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=echo_handlers()),
        connect(uri, connections=2, options=quick(suspect_after=1e-9)) as client,
    ):
        await eventually(lambda: client.statistics().connected == 2)
        assert client._pool is not None
        first, second = client._pool.alive()
        first.silence.expect()
        assert {await client._pool.take() for _ in range(4)} == {second}
        # It was asked for a sign of life, and gives it.
        await eventually(lambda: not first.silence._asked)


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


# --- closing --------------------------------------------------------------------------------------


async def test_what_is_in_flight_may_end_when_the_client_closes() -> None:
    handlers = Handlers()
    began, release = asyncio.Event(), asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        began.set()
        await release.wait()
        return b"done"

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers) as destination,
        connect(uri, options=QUICK) as client,
    ):
        asked = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        closing = [asyncio.create_task(each.close()) for each in (client, destination)]
        await asyncio.sleep(0)
        with pytest.raises(LinkDown, match="the client is closed"):
            await client.request(ECHO, b"")
        assert not closing[0].done()
        release.set()
        assert (await asked).data == b"done"
        await asyncio.gather(*closing)


async def test_a_fire_and_forget_at_work_may_end_when_the_client_closes() -> None:
    handlers = Handlers()
    began, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @handlers.fire_and_forget
    async def work(_request: Request) -> None:
        began.set()
        await release.wait()
        ended.set()

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers) as destination,
        connect(uri) as client,
    ):
        await client.send(ECHO, b"")
        await began.wait()
        closing = asyncio.create_task(destination.close())
        await eventually(lambda: destination.statistics().connected == 0)
        assert not closing.done()
        release.set()
        await closing
        assert ended.is_set()


async def test_a_stream_that_nobody_awaits_holds_up_no_close() -> None:
    async with joined(options=quick(drain_timeout=1000)) as pair:
        elements = pair.client.stream(ECHO, b"1000000")
        assert (await anext(elements)).data == b"0"
        await pair.client.close()
        with pytest.raises(LinkLost):
            async for _ in elements:
                pass


# --- using it -------------------------------------------------------------------------------------


async def test_the_reference_dialect_does_too() -> None:
    async with joined(options=quick(dialect=Dialect.REFERENCE)) as pair:
        assert pair.client.dialect is Dialect.REFERENCE
        assert (await pair.client.request(ECHO, b"hi", route="x")).data == b"hi"
        with pytest.raises(BrokerFrameError, match="not in the reference dialect"):
            await pair.client.request(ECHO, b"hi", b"metadata")


async def test_a_destination_may_be_a_whole_address() -> None:
    async with joined() as pair:
        assert (await pair.client.request(unicast("echo"), b"hi", b"m")).metadata == b"m"


async def test_the_broker_tells_of_itself() -> None:
    async with joined() as pair:
        answer = await pair.client.request("service=onward.management", b"statistics")
        assert json.loads(answer.data)["routes"] == 2


async def test_requests_wait_for_one_another_within_a_limit() -> None:
    handlers = Handlers()
    began, release = asyncio.Event(), asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        began.set()
        await release.wait()
        return b"done"

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri, options=quick(max_in_flight=1, max_waiting=1)) as client,
    ):
        first = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        second = asyncio.create_task(client.request(ECHO, b""))
        await eventually(lambda: client.statistics().waiting == 1)
        with pytest.raises(NotDelivered, match="1 requests wait already"):
            await client.request(ECHO, b"")
        with pytest.raises(NotDelivered, match="1 requests wait already"):
            await data_of(client.stream(ECHO, b""))
        release.set()
        assert [each.data for each in await asyncio.gather(first, second)] == [b"done"] * 2


async def test_a_request_that_finds_no_place_in_time_was_not_sent() -> None:
    handlers = Handlers()
    began = asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers, options=quick(drain_timeout=0.01)),
        connect(uri, options=quick(max_in_flight=1, drain_timeout=0.01)) as client,
    ):
        first = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        with pytest.raises(NotDelivered, match=r"the client \(1 requests are in flight"):
            await client.request(ECHO, b"", timeout=0.01)
        first.cancel()
        await asyncio.wait({first})


async def test_bad_arguments_are_refused_at_once() -> None:
    uri = "rsocket+tcp://127.0.0.1:1"
    wrong: list[tuple[Any, str]] = [
        ({"brokers": []}, "at least one"),
        ({"brokers": "http://x"}, "is not rsocket"),
        ({"brokers": uri, "connections": 0}, "at least 1"),
        ({"brokers": uri, "handlers": Handlers()}, "go with service"),
        ({"brokers": uri, "tags": {"a": "b"}}, "go with service"),
        ({"brokers": uri, "route_ids": []}, "1 different ids"),
        ({"brokers": uri, "connections": 2, "route_ids": [UUID(int=1)] * 2}, "2 different"),
        ({"brokers": uri, "route_ids": [UUID(int=0)]}, "zeros"),
        ({"brokers": uri, "service": "x" * 256}, "service name"),
    ]
    for arguments, text in wrong:
        with pytest.raises(ValueError, match=text):
            connect(**arguments)
    client = connect(uri)
    with pytest.raises(RuntimeError, match="not connected"):
        client.statistics()
    await client.close()
    async with joined() as pair:
        with pytest.raises(RuntimeError, match="entered once"):
            await pair.client.__aenter__()
        with pytest.raises(AddressError):
            await pair.client.request("", b"")
        with pytest.raises(AddressError):
            pair.client.stream("", b"")
        with pytest.raises(AddressError):
            pair.client.channel("", source())
        with pytest.raises(ValueError, match="at most 255"):
            await pair.client.request(ECHO, b"", route="x" * 256)
