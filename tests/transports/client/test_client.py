"""A client and a destination of ours, with our own broker between them, on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from onward.actors.broker import Answer, Handlers, Request
from onward.protocol import AddressError, LinkDown, LinkLost, NotDelivered, PayloadTooBig
from onward.protocol.broker import BrokerFrameError, Dialect, unicast
from onward.transports.client import LoadOptions, PayloadOptions, connect
from tests.support.transports import eventually

from .joined import Joined, data_of, joined, source
from .peers import QUICK, broker, echo_handlers, quick

ECHO = "service=echo"


@pytest.fixture(params=["tcp", "ws", "unix"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Joined]:
    uris = {
        "tcp": "rsocket+tcp://127.0.0.1:0",
        "ws": "rsocket+ws://127.0.0.1:0",
        "unix": f"rsocket+unix://{tmp_path}/b",
    }
    async with joined(uris[request.param]) as made:
        yield made


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
    async with joined(options=quick(payload=PayloadOptions(fragment_size=200))) as pair:
        assert await pair.client.request(ECHO, long, long[:300]) == Answer(long, long[:300])
        back = [each async for each in pair.client.channel(ECHO, source(long, b"", long))]
        assert [element.data for element in back] == [long.upper(), b"", long.upper()]


async def test_what_is_over_the_limit_is_refused_before_it_is_sent() -> None:
    # Defect 5: the package cuts the length of a frame over 16 MiB - 1.
    async with joined(options=quick(payload=PayloadOptions(max_request=32 * 1024 * 1024))) as pair:
        with pytest.raises(PayloadTooBig):
            await pair.client.request(ECHO, bytes(16 * 1024 * 1024))
        assert (await pair.client.request(ECHO, b"still there")).data == b"still there"
    async with joined(options=quick(payload=PayloadOptions(max_request=1000))) as pair:
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
        connect(uri, options=quick(load=LoadOptions(max_in_flight=1, max_waiting=1))) as client,
    ):
        first = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        second = asyncio.create_task(client.request(ECHO, b""))
        await eventually(lambda: client.statistics().waiting == 1)
        with pytest.raises(NotDelivered, match="1 request waiting already"):
            await client.request(ECHO, b"")
        with pytest.raises(NotDelivered, match="1 request waiting already"):
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
        connect(
            uri, options=quick(drain_timeout=0.01, load=LoadOptions(max_in_flight=1))
        ) as client,
    ):
        first = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        with pytest.raises(NotDelivered, match=r"the client \(1 request in flight, and none ended"):
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
