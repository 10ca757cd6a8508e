"""Requests over one connection of a client: what becomes of ours, and of what the broker asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from onward.actors.broker import Answer, Handlers, Incoming, Request
from onward.protocol import LinkLost, OnwardError, PayloadTooBig
from onward.protocol.rsocket import (
    ErrorCode,
    FrameType,
    error_frame,
    payload_frames,
    request_frames,
)
from onward.transports.client import PayloadOptions, RequestRejected, RetryOptions
from onward.transports.rsocket import DestinationError
from onward.transports.rsocket._request import FRAME_COST
from tests.support.transports import eventually

from .met import CHANNEL, FNF, RR, STREAM, answer, asked, link_of, met, next_payload, request_of
from .peers import SOON, quick

TO = "service=x"


# --- what becomes of a request --------------------------------------------------------------------


async def test_a_request_that_was_handed_over_is_in_doubt_when_the_broker_dies() -> None:
    async with met() as (client, peer, made):
        request = asyncio.create_task(client.request(TO, b"once"))
        await asked(peer)
        peer.transport.abort()
        with pytest.raises(LinkLost):
            await request
        # It was not sent again on the next connection.
        again = await made.next()
        other = asyncio.create_task(client.request(TO, b"another"))
        stream = await asked(again)
        answer(again, stream, b"answered", complete=True)
        assert (await other).data == b"answered"
        assert again._events.empty()
        assert client.statistics().requests == 2


async def test_tries_end_with_the_time_that_is_allowed() -> None:
    never = quick(retry=RetryOptions(max_tries=10**9, backoff=SOON))
    async with met(never) as (client, peer, _):

        async def reject() -> None:
            while True:
                peer.core.send_error(await asked(peer), ErrorCode.REJECTED, "no route")
                peer.flush()

        rejecting = asyncio.create_task(reject())
        with pytest.raises((RequestRejected, TimeoutError)):
            await client.request(TO, b"", timeout=0.1)
        rejecting.cancel()
        await asyncio.wait({rejecting})


@pytest.mark.parametrize("code", [0x201, 0x203, 0x205, 0x101, 0x300, 0xFFFFFFFE])
async def test_codes_of_all_kinds_end_a_request(code: int) -> None:
    # Defect 3 of the package: it does not read an ERROR whose code it does not know.
    async with met() as (client, peer, _):
        request = asyncio.create_task(client.request(TO, b""))
        peer.raw(error_frame((await asked(peer)).id, code, "text"))
        with pytest.raises(DestinationError) as caught:
            await request
        assert (caught.value.code, caught.value.text) == (code, "text")


async def test_an_answer_without_elements_is_empty() -> None:
    async with met() as (client, peer, _):
        request = asyncio.create_task(client.request(TO, b""))
        stream = await asked(peer)
        peer.raw(b"".join(payload_frames(stream.id, next=False, complete=True)))
        assert await request == Answer(b"")


async def test_an_answer_that_is_too_big_is_cancelled() -> None:
    async with met(quick(payload=PayloadOptions(max_answer=100))) as (client, peer, _):
        request = asyncio.create_task(client.request(TO, b""))
        stream = await asked(peer)
        answer(peer, stream, bytes(101), complete=True)
        with pytest.raises(PayloadTooBig):
            await request
        elements = asyncio.create_task(anext(client.stream(TO, b"")))
        stream = await asked(peer, STREAM)
        answer(peer, stream, bytes(101))
        with pytest.raises(PayloadTooBig):
            await elements
        assert (await next_payload(peer))[0] == FrameType.CANCEL


async def test_fragments_of_all_streams_have_one_bound() -> None:
    # Defect 19 of the package: fragments are put together without a limit.
    async with met(quick(payload=PayloadOptions(max_gathered=1000))) as (client, peer, _):
        first = asyncio.create_task(client.request(TO, b""))
        second = asyncio.create_task(client.request(TO, b""))
        one, two = await asked(peer), await asked(peer)
        parts = [
            list(payload_frames(stream.id, bytes(900), complete=True, mtu=600))
            for stream in (one, two)
        ]
        peer.raw(parts[0][0] + parts[1][0])
        with pytest.raises(PayloadTooBig):
            await second
        assert link_of(client).budget.held == len(parts[0][0]) - 3 + FRAME_COST
        peer.raw(parts[0][1])
        assert (await first).data == bytes(900)
        assert link_of(client).budget.held == 0


async def test_an_answer_to_what_was_cancelled_meanwhile_is_ignored() -> None:
    async with met() as (client, peer, _):
        request = asyncio.create_task(client.request(TO, b""))
        stream = await asked(peer)
        request.cancel()
        await asyncio.wait({request})
        peer.raw(b"".join(payload_frames(stream.id, b"late", complete=True)))
        assert (await next_payload(peer))[0] == FrameType.CANCEL
        other = asyncio.create_task(client.request(TO, b""))
        answer(peer, await asked(peer), b"next", complete=True)
        assert (await other).data == b"next"


async def test_a_stream_that_gets_more_than_it_asked_for_is_ended() -> None:
    async with met(quick(stream_window=2)) as (client, peer, _):
        elements = client.stream(TO, b"")
        first = asyncio.create_task(anext(elements))
        stream = await asked(peer, STREAM)
        peer.raw(b"".join(b"".join(payload_frames(stream.id, b"x")) for _ in range(3)))
        assert (await first).data == b"x"
        assert (await anext(elements)).data == b"x"
        with pytest.raises(OnwardError):
            await anext(elements)


async def test_an_element_and_the_end_may_come_together() -> None:
    async with met() as (client, peer, _):
        elements = client.stream(TO, b"")
        first = asyncio.create_task(anext(elements))
        stream = await asked(peer, STREAM)
        answer(peer, stream, b"only", complete=True)
        assert (await first).data == b"only"
        assert [each async for each in elements] == []


async def test_a_channel_whose_responder_only_cancels_goes_on_to_answer() -> None:
    # Defect 14 of the package: the CANCEL of a channel raises, and its end leaves a half behind.
    async def forever() -> AsyncGenerator[bytes]:
        while True:
            yield b"x"

    async with met() as (client, peer, _):
        elements = client.channel(TO, forever())
        first = asyncio.create_task(anext(elements))
        stream = await asked(peer, CHANNEL)
        peer.core.send_cancel(stream)
        peer.flush()
        answer(peer, stream, b"1")
        assert (await first).data == b"1"
        answer(peer, stream, b"2", complete=True)
        assert [each.data async for each in elements] == [b"2"]
        assert not link_of(client).core.streams


async def test_a_channel_that_ends_with_an_error_leaves_nothing_behind() -> None:
    async def two() -> AsyncGenerator[bytes]:
        yield b"1"
        await asyncio.Event().wait()
        yield b"2"

    async with met() as (client, peer, _):
        elements = client.channel(TO, two())
        first = asyncio.create_task(anext(elements))
        stream = await asked(peer, CHANNEL)
        peer.core.send_request_n(stream, 5)
        peer.core.send_error(stream, 0x301, "own")
        peer.flush()
        with pytest.raises(DestinationError):
            await first
        assert not link_of(client).core.streams


async def test_a_channel_goes_on_to_send_when_its_answers_have_ended() -> None:
    async def three() -> AsyncGenerator[bytes]:
        for number in range(3):
            yield b"%d" % number

    async with met() as (client, peer, _):
        elements = client.channel(TO, three())
        ended = asyncio.create_task(anext(elements, None))
        stream = await asked(peer, CHANNEL)
        peer.core.send_payload(stream, next=False, complete=True)
        peer.core.send_request_n(stream, 1)
        peer.flush()
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"1")
        assert not ended.done()
        peer.core.send_request_n(stream, 5)
        peer.flush()
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"2")
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"")
        assert await ended is None


# --- what the broker asks -------------------------------------------------------------------------


async def test_a_fire_and_forget_that_fails_is_answered_by_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Defect 12 of the package: it answers with an ERROR.
    handlers = Handlers()
    failed = asyncio.Event()

    @handlers.fire_and_forget
    async def fail(_request: Request) -> None:
        failed.set()
        raise RuntimeError("for the log")

    @handlers.response
    async def echo(request: Request) -> bytes:
        return request.data

    async with met(service="x", handlers=handlers) as (_, peer, _made):
        request_of(peer, FNF)
        await failed.wait()
        request_of(peer, RR, b"next")
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"next")
    assert "for the log" in caplog.text


async def test_a_second_request_with_the_id_of_a_live_stream_is_ignored() -> None:
    # Defect 13 of the package: it ends the live stream with an ERROR.
    handlers = Handlers()
    began, read, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @handlers.fire_and_forget
    async def mark(_request: Request) -> None:
        read.set()

    @handlers.response
    async def hold(request: Request) -> bytes:
        began.set()
        await release.wait()
        return request.data

    async with met(service="x", handlers=handlers) as (_, peer, _made):
        stream = request_of(peer, RR, b"first")
        await began.wait()
        peer.raw(b"".join(request_frames(RR, stream.id, b"second")))
        request_of(peer, FNF)
        await read.wait()
        release.set()
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"first")
        assert handlers.statistics().started == 2


async def test_handlers_are_cancelled_with_what_they_answer() -> None:
    handlers = Handlers()
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def hold(kind: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.put_nowait(kind)

    @handlers.response
    async def one(_request: Request) -> bytes:
        await hold("one")
        return b""

    @handlers.channel
    async def many(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        yield await anext(incoming)
        await hold("many")

    async with met(service="x", handlers=handlers) as (_, peer, _made):
        stream = request_of(peer, RR)
        channel = request_of(peer, CHANNEL, initial_n=5)
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"")
        peer.core.send_cancel(stream)
        peer.flush()
        assert await ended.get() == "one"
        peer.core.send_error(channel, 0x201, "broken")
        peer.flush()
        # Its handler does not wait for an element, so it cannot be told in another way.
        assert await ended.get() == "many"
        last = request_of(peer, RR)
        await eventually(lambda: handlers.statistics().running == 1)
        assert not last.closed
        peer.transport.abort()
        assert await ended.get() == "one"
        await eventually(lambda: handlers.statistics().running == 0)


async def test_half_an_element_is_released_when_the_handler_of_its_channel_ends() -> None:
    handlers = Handlers()
    enough = asyncio.Event()

    @handlers.channel
    async def until_enough(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        await anext(incoming)
        more = asyncio.ensure_future(anext(incoming))
        await enough.wait()
        more.cancel()
        yield b"last"

    async with met(service="x", handlers=handlers) as (client, peer, _made):
        channel = request_of(peer, CHANNEL, initial_n=5)
        assert (await next_payload(peer))[0] == FrameType.REQUEST_N
        peer.raw(next(iter(payload_frames(channel.id, bytes(900), mtu=600))))
        await eventually(lambda: link_of(client).budget.held > 600)
        enough.set()
        await eventually(lambda: handlers.statistics().running == 0)
        assert link_of(client).budget.held == 0


async def test_elements_and_the_end_of_a_channel_reach_the_handler() -> None:
    handlers = Handlers()

    @handlers.channel
    async def join(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        yield b"-".join([data async for data in incoming])

    async with met(service="x", handlers=handlers) as (_, peer, _made):
        channel = request_of(peer, CHANNEL, b"a", initial_n=5)
        assert (await next_payload(peer))[0] == FrameType.REQUEST_N
        peer.core.send_payload(channel, b"b")
        peer.core.send_payload(channel, b"c", complete=True)
        peer.flush()
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"a-b-c")
        request_of(peer, CHANNEL, b"alone", initial_n=5, complete=True)
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"")
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"alone")


async def test_credit_of_the_requester_reaches_the_handler() -> None:
    handlers = Handlers()

    @handlers.stream
    async def count(_request: Request) -> AsyncGenerator[bytes]:
        for number in range(4):
            yield b"%d" % number

    async with met(service="x", handlers=handlers) as (_, peer, _made):
        stream = request_of(peer, STREAM, initial_n=1)
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"0")
        peer.core.send_request_n(stream, 2)
        peer.flush()
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"1")
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"2")
        assert handlers.statistics().running == 1
        # The client waits for what it serves before it closes.
        peer.core.send_cancel(stream)
        peer.flush()


async def test_a_request_that_is_too_big_is_invalid() -> None:
    async with met(quick(payload=PayloadOptions(max_request=100)), service="x") as (_, peer, _made):
        request_of(peer, RR, bytes(101))
        kind, text = await next_payload(peer)
        assert kind == FrameType.ERROR
        assert b"101" in text or b"over the limit" in text


async def test_an_answer_of_a_handler_that_is_too_big_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    handlers = Handlers()

    @handlers.response
    async def big(_request: Request) -> bytes:
        return bytes(101)

    async with met(
        quick(payload=PayloadOptions(max_request=100)), service="x", handlers=handlers
    ) as (_, peer, _made):
        request_of(peer, RR)
        assert await next_payload(peer) == (FrameType.ERROR, b"the answer is too big")


async def test_without_handlers_nothing_is_answered() -> None:
    async with met() as (_, peer, _made):
        request_of(peer, RR)
        assert (await next_payload(peer))[0] == FrameType.ERROR
        peer.core.send_metadata_push(b"?")
        request_of(peer, FNF)
        request_of(peer, STREAM)
        assert (await next_payload(peer))[0] == FrameType.ERROR
