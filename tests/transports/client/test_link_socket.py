"""The connection of a client itself: full, silent, broken, closing, and with leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from onward.actors.broker import Handlers, Request
from onward.protocol import LinkDown, LinkLost, NotDelivered, PayloadTooBig
from onward.protocol.rsocket import ErrorCode, Frame, FrameType, lease_frame
from onward.transports.client import (
    KeepaliveOptions,
    LoadOptions,
    PayloadOptions,
    RetryOptions,
    connect,
)
from onward.transports.client._handler_stream import CREDIT_WINDOW
from onward.transports.rsocket import LeaseOptions
from tests.support.transports import eventually

from .met import CHANNEL, RR, STREAM, answer, asked, link_of, met, next_payload, request_of
from .peers import QUICK, SOON, peers, quick

TO = "service=x"


async def test_requests_wait_for_a_socket_that_is_full() -> None:
    # Defect 19 of the package: what is to be sent queues up without a bound.
    async with met(quick(load=LoadOptions(max_queued=100_000))) as (client, peer, _):
        peer.transport.pause_reading()
        link = link_of(client)
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await client.send(TO, bytes(50_000))
                sent += 1

        sending = asyncio.create_task(send())
        await eventually(lambda: link.write_paused)
        with pytest.raises(LinkDown):
            await client.send(TO, b"", timeout=0.01)
        with pytest.raises(LinkDown):
            await client.push(TO, b"", timeout=0.01)
        with pytest.raises(NotDelivered):
            link.push(b"")
        before = sent
        transport: Any = link._transport
        assert transport.get_write_buffer_size() <= 100_000 + 2 * 50_100
        peer.transport.resume_reading()
        await eventually(lambda: sent > before + 5)
        sending.cancel()
        await asyncio.wait({sending})


async def test_handlers_wait_for_a_socket_that_is_full() -> None:
    handlers = Handlers()
    made = 0

    @handlers.stream
    async def endless(_request: Request) -> AsyncGenerator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield bytes(50_000)

    options = quick(drain_timeout=0.01, load=LoadOptions(max_queued=100_000))
    async with met(options, service="x", handlers=handlers) as (client, peer, _):
        peer.transport.pause_reading()
        request_of(peer, STREAM, initial_n=2**31 - 1)
        link = link_of(client)
        await eventually(lambda: link.write_paused and link.blocked_on_write)
        transport: Any = link._transport
        assert transport.get_write_buffer_size() <= 100_000 + (CREDIT_WINDOW + 1) * 50_100
        before = made
        peer.transport.resume_reading()
        await eventually(lambda: made > before + 5)


async def test_a_channel_waits_for_a_socket_that_is_full() -> None:
    taken = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(50_000)

    options = quick(drain_timeout=0.01, load=LoadOptions(max_queued=100_000))
    async with met(options) as (client, peer, _):
        elements = client.channel(TO, endless())
        first = asyncio.create_task(anext(elements, None))
        stream = await asked(peer, CHANNEL)
        peer.transport.pause_reading()
        peer.core.send_request_n(stream, 2**31 - 1)
        peer.flush()
        link = link_of(client)
        await eventually(lambda: link.write_paused)
        before = taken
        peer.transport.resume_reading()
        await eventually(lambda: taken > before + 5)
        first.cancel()
        await asyncio.wait({first})


async def test_a_broker_that_does_not_read_at_all_is_left() -> None:
    handlers = Handlers()

    @handlers.response
    async def big(_request: Request) -> bytes:
        return bytes(1_000_000)

    options = quick(load=LoadOptions(max_queued=1000, max_pending=2_000_000))
    async with met(options, service="x", handlers=handlers) as (client, peer, made):
        link = link_of(client)
        peer.transport.pause_reading()
        for _ in range(20):
            request_of(peer, RR)
        await asyncio.wait_for(link.gone.wait(), 5)
        assert link.closed_reason == "the broker does not read"
        await made.next()


async def test_a_broker_that_is_silent_is_left_and_another_found() -> None:
    # Defect 9 of the package: it never recovers from this.
    options = quick(keepalive=KeepaliveOptions(interval=0.02, lifetime=0.1))
    async with met(options) as (client, peer, made):
        link = link_of(client)
        peer.held = True
        request = asyncio.create_task(client.request(TO, b""))
        with pytest.raises(LinkLost, match=r"the broker was silent for 0\.1 s"):
            await request
        assert link.gone.is_set()
        again = await made.next()
        await eventually(lambda: client.statistics().connected == 1)
        answering = asyncio.create_task(client.request(TO, b""))
        answer(again, await asked(again), b"here", complete=True)
        assert (await answering).data == b"here"


async def test_a_broker_that_answers_keepalives_is_kept() -> None:
    options = quick(keepalive=KeepaliveOptions(interval=0.01, lifetime=0.2))
    async with met(options) as (client, _, made):
        link = link_of(client)
        began = link.loop.time()
        await eventually(lambda: link.now > began + 0.25)
        assert made.came.empty()
        assert not link.gone.is_set()


async def test_a_broker_that_never_answers_the_setup_is_given_up() -> None:
    async with peers() as made:
        made.held = True
        client = connect(made.uri, options=quick(connect_timeout=0.05))
        with pytest.raises(LinkDown, match=r"no answer|no connection in"):
            await client.__aenter__()


async def test_a_broker_that_closes_during_the_setup_is_tried_again() -> None:
    async with peers() as made:
        made.held = True
        entering = asyncio.create_task(connect(made.uri, options=QUICK).__aenter__())
        (await made.next()).transport.abort()
        made.held = False
        client = await entering
        await client.close()
        assert client.statistics().failures >= 1


async def test_entering_may_be_cancelled() -> None:
    async with peers() as made:
        made.held = True
        entering = asyncio.create_task(connect(made.uri, options=QUICK).__aenter__())
        peer = await made.next()
        entering.cancel()
        await asyncio.wait({entering})
        await asyncio.wait_for(peer.lost.wait(), 5)


@pytest.mark.parametrize("wrong", [b"\x00\x00\x01\x00", b"\xff\xff\xff\x00\x00\x00\x00\x00\x00"])
async def test_a_broker_that_breaks_the_protocol_is_left(wrong: bytes) -> None:
    async with met(quick(payload=PayloadOptions(max_frame=1000))) as (client, peer, made):
        link = link_of(client)
        request = asyncio.create_task(client.request(TO, b""))
        await asked(peer)
        peer.raw(wrong)
        with pytest.raises(LinkLost, match="the broker broke the protocol"):
            await request
        await asyncio.wait_for(link.gone.wait(), 5)
        await made.next()


async def test_a_broker_that_stops_lets_what_is_in_flight_end() -> None:
    async with met() as (client, peer, made):
        request = asyncio.create_task(client.request(TO, b""))
        stream = await asked(peer)
        peer.core.close(ErrorCode.CONNECTION_CLOSE, "stopping")
        peer.flush()
        await eventually(lambda: client.statistics().connected == 0)
        answer(peer, stream, b"the last", complete=True)
        assert (await request).data == b"the last"
        await made.next()


async def test_a_broker_that_says_why_it_closes_is_quoted() -> None:
    async with met() as (client, peer, made):
        request = asyncio.create_task(client.request(TO, b""))
        await asked(peer)
        peer.core.close(ErrorCode.CONNECTION_ERROR, "out of order")
        peer.flush()
        with pytest.raises(LinkLost, match="out of order"):
            await request
        await made.next()


async def test_closing_cuts_off_what_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with met(quick(drain_timeout=0.01)) as (client, peer, _):
        request = asyncio.create_task(client.request(TO, b""))
        await asked(peer)
        await client.close()
        with pytest.raises(LinkLost):
            await request
        frame = await peer.next()
        assert isinstance(frame, Frame)
        assert frame.error_code == ErrorCode.CONNECTION_CLOSE
        await asyncio.wait_for(peer.lost.wait(), 5)
    assert "closing with requests in flight" in caplog.text


async def test_too_many_streams_are_not_delivered() -> None:
    async with met(
        quick(load=LoadOptions(max_streams=1), retry=RetryOptions(max_tries=1, backoff=SOON))
    ) as (client, peer, _):
        first = asyncio.create_task(client.request(TO, b""))
        stream = await asked(peer)
        with pytest.raises(NotDelivered, match="streams"):
            await client.request(TO, b"")
        with pytest.raises(NotDelivered, match="streams"):
            await anext(client.stream(TO, b""))
        answer(peer, stream, b"", complete=True)
        await first


async def test_a_push_over_the_limit_is_refused() -> None:
    async with met(quick(payload=PayloadOptions(max_request=100))) as (client, _peer, _):
        with pytest.raises(PayloadTooBig):
            await client.push(TO, bytes(101))


async def test_requests_wait_for_leases() -> None:
    async with met(quick(lease=LeaseOptions(requests=5))) as (client, peer, _):
        assert peer.setup is not None
        assert peer.setup.lease
        frame = await peer.next()
        assert (frame.type, frame.number_of_requests, frame.time_to_live) == (
            FrameType.LEASE,
            5,
            15_000,
        )
        with pytest.raises(LinkDown):
            await client.request(TO, b"", timeout=0.01)
        peer.raw(lease_frame(60_000, 1))
        request = asyncio.create_task(client.request(TO, b""))
        answer(peer, await asked(peer), b"1", complete=True)
        assert (await request).data == b"1"
        with pytest.raises(LinkDown):
            await client.request(TO, b"", timeout=0.01)
        waiting = asyncio.create_task(client.request(TO, b""))
        peer.raw(lease_frame(60_000, 1))
        answer(peer, await asked(peer), b"2", complete=True)
        assert (await waiting).data == b"2"


async def test_requests_beyond_our_lease_are_rejected_and_it_is_renewed() -> None:
    # Defect 10 of the package: it answers them all the same.
    handlers = Handlers()

    @handlers.response
    async def echo(request: Request) -> bytes:
        return request.data

    options = quick(lease=LeaseOptions(requests=1, interval=0.2))
    async with met(options, service="x", handlers=handlers) as (client, peer, _):
        assert (await peer.next()).type == FrameType.LEASE
        link = link_of(client)
        request_of(peer, RR, b"1")
        request_of(peer, RR, b"2")
        answers = [await next_payload(peer) for _ in range(2)]
        assert sorted(answers) == [
            (FrameType.PAYLOAD, b"1"),
            (FrameType.ERROR, b"no lease is left"),
        ]
        assert link.responder.rejected_by_lease == 1
        assert (await peer.next()).type == FrameType.LEASE
        request_of(peer, RR, b"3")
        assert await next_payload(peer) == (FrameType.PAYLOAD, b"3")
