"""A client with a session on virtual time: silence, waits, half answers, and the end of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import pytest

from onward.actors.broker import Handlers, Request
from onward.protocol import InDoubt, LinkDown, LinkLost, NotDelivered
from onward.protocol.rsocket import ResumeLimits
from onward.transports import Backoff
from onward.transports.client import ClientOptions, KeepaliveOptions, LoadOptions, connect
from onward.transports.rsocket import LeaseOptions
from tests.support.rsocket_peer import (
    ERROR,
    KEEPALIVE,
    RR,
    SETUP,
    C,
    N,
    World,
    error,
    frame,
    kind_of,
    payload,
    split,
    world,
)
from tests.support.rsocket_sessions import RESUME, resumable, resume_ok, size_of
from tests.support.rsocket_wires import BrokerByHand, Hand, WiredLoop, on_wires

CONNECT_TIMEOUT = 3.0
INTERVAL, LIFETIME = 2.0, 10.0
SESSION = 30.0
TO = "service=echo"
REJECTED_RESUME, REJECTED_SETUP = 0x004, 0x003


def options(**more: Any) -> ClientOptions:
    """Options whose waits between attempts are 0.5, 1, 2, 2 and so on."""
    given: dict[str, Any] = {
        "resume": ResumeLimits(time=SESSION),
        "backoff": Backoff(1.0, 4.0, random=lambda: 0.5),
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalive": KeepaliveOptions(interval=INTERVAL, lifetime=LIFETIME),
        "request_timeout": None,
    }
    return ClientOptions(**(given | more))


def the_loop() -> WiredLoop:
    return cast(WiredLoop, asyncio.get_running_loop())


class Served:
    """A broker of ours, with handlers that count what they were asked.

    Attributes:
        asked: The data of the requests, in their order.
        go: The event that the request `hold` waits for.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[bytes] = []
        self.go = asyncio.Event()

    @property
    def resumes(self) -> dict[str, int]:
        return dict(self.world.listener.statistics().resumes)


@asynccontextmanager
async def served() -> AsyncGenerator[Served]:
    handlers = Handlers()
    async with world(options=resumable(time=SESSION)) as w:
        found = Served(w)

        @handlers.response
        async def answer(request: Request) -> bytes:
            found.asked.append(request.data)
            if request.data == b"hold":
                await found.go.wait()
            return request.data + b"!"

        @handlers.fire_and_forget
        async def take(request: Request) -> None:
            found.asked.append(request.data[:4])

        @handlers.stream
        async def count(request: Request) -> AsyncIterator[bytes]:
            for number in range(int(request.data)):
                yield b"%d" % number

        w.broker.serve(handlers, service="echo")
        yield found


# --- the loss is noticed ------------------------------------------------------------------------


@on_wires
async def test_a_socket_that_the_broker_half_closes() -> None:
    """The end of the broker's bytes is a loss like any other: the request goes on."""
    loop = the_loop()
    async with served() as s, connect(s.world.listener.uri, options=options()) as client:
        waiting = asyncio.create_task(client.request(TO, b"hold"))
        await loop.idle()
        loop.wire.client.arrive(None)
        await loop.idle()
        assert s.resumes == {"resumed": 1}
        assert len(loop.wires) == 2
        s.go.set()
        assert (await waiting).data == b"hold!"
        assert s.asked == [b"hold"]


@on_wires
async def test_a_silent_broker_is_left_after_the_lifetime() -> None:
    """The session goes on over another socket; the silent one is cut without a word to it."""
    loop = the_loop()
    async with served() as s, connect(s.world.listener.uri, options=options()) as client:
        waiting = asyncio.create_task(client.request(TO, b"hold"))
        await asyncio.sleep(INTERVAL + 0.1)
        heard = loop.time() - 0.1  # the answer to the last KEEPALIVE
        loop.wire.hold()
        await asyncio.sleep(LIFETIME + 1)
        assert loop.dials[1] == pytest.approx(heard + LIFETIME, abs=0.01)
        assert loop.wires[0].client.lost
        assert s.resumes == {"resumed": 1}
        s.go.set()
        assert (await waiting).data == b"hold!"
        assert s.asked == [b"hold"]
        assert client.statistics().connected == 1


@on_wires
async def test_a_session_is_lost_again_and_again() -> None:
    loop = the_loop()
    async with served() as s, connect(s.world.listener.uri, options=options()) as client:
        for number in range(1, 6):
            waiting = asyncio.create_task(client.request(TO, b"hold"))
            await loop.idle()
            loop.wire.cut()
            await loop.idle()
            assert s.resumes == {"resumed": number}
            s.go.set()
            assert (await waiting).data == b"hold!"
            s.go.clear()
        assert s.asked == [b"hold"] * 5


@on_wires
async def test_a_cut_after_every_byte_of_the_answer() -> None:
    """The client has any part of the frames of a stream; the application sees each element once."""
    loop = the_loop()
    elements = [b"%d" % number for number in range(4)]
    async with served() as s:
        whole = 0
        for cut_at in range(1000):
            async with connect(s.world.listener.uri, options=options()) as client:
                end = loop.wire.client
                end.held = True
                stream = client.stream(TO, b"4")
                first = asyncio.ensure_future(anext(stream))
                arrived = await _held(loop)
                whole = len(arrived)
                end.held = False
                end.arrive(arrived[:cut_at])
                loop.wire.cut()
                found = [(await first).data, *[each.data async for each in stream]]
                assert found == elements, cut_at
            if cut_at == whole:
                break
        assert s.resumes == {"resumed": whole + 1}


async def _held(loop: WiredLoop) -> bytes:
    """Return what the broker sends to the last client, and have none of it arrive."""
    found = bytearray()
    end = loop.wire.client
    arrive = end.arrive

    def keep(data: bytes | None) -> None:
        found.extend(data or b"")

    end.arrive = keep  # type: ignore[method-assign]
    await loop.idle()
    end.arrive = arrive  # type: ignore[method-assign]
    return bytes(found)


# --- another socket ----------------------------------------------------------------------------


@on_wires
async def test_it_connects_again_with_the_waits_of_the_backoff() -> None:
    loop = the_loop()
    async with served() as s, connect(s.world.listener.uri, options=options()) as client:
        waiting = asyncio.create_task(client.request(TO, b"hold"))
        await loop.idle()
        loop.refuses = True
        loop.wire.cut()
        await asyncio.sleep(6)
        dials = loop.dials[1:]
        waits = [late - early for early, late in pairwise(dials)]
        assert waits == pytest.approx([0.5, 1, 2, 2])
        assert client.statistics().connected == 0
        loop.refuses = False
        s.go.set()
        assert (await waiting).data == b"hold!"
        assert s.resumes == {"resumed": 1}


@on_wires
async def test_requests_wait_while_the_session_is_suspended() -> None:
    """They are sent once, after those that were in flight; none is sent to nowhere."""
    loop = the_loop()
    async with served() as s, connect(s.world.listener.uri, options=options()) as client:
        first = asyncio.create_task(client.request(TO, b"hold"))
        await loop.idle()
        loop.refuses = True
        loop.wire.cut()
        await loop.idle()
        later = asyncio.create_task(client.request(TO, b"later"))
        with pytest.raises(LinkDown):
            await client.request(TO, b"hurried", timeout=1.0)
        loop.refuses = False
        assert (await later).data == b"later!"
        s.go.set()
        assert (await first).data == b"hold!"
        assert s.asked == [b"hold", b"later"]


@on_wires
async def test_a_full_socket_is_lost() -> None:
    """What waited in it is sent again in order; the requests that it held back follow."""
    loop = the_loop()
    load = LoadOptions(max_queued=100_000)
    kept = ResumeLimits(time=SESSION, max_kept=4_000_000)
    given = options(load=load, resume=kept)
    sent = [b"%04d" % number for number in range(20)]
    async with served() as s, connect(s.world.listener.uri, options=given) as client:
        loop.wire.client.peer_reads = False

        async def send() -> None:
            for each in sent:
                await client.send(TO, each + bytes(20_000))

        sending = asyncio.create_task(send())
        await loop.idle()
        assert not sending.done()
        assert s.asked == []
        loop.wire.cut()
        await sending
        await loop.idle()
        assert s.asked == sent
        assert s.resumes == {"resumed": 1}


@on_wires
async def test_leases_of_the_lost_socket_are_over() -> None:
    """A request waits for a lease over the new one."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    given = options(lease=LeaseOptions())
    async with connect_by_hand(broker, given) as client:
        lease = frame(0, 0x02, 0, (60_000).to_bytes(4) + (10).to_bytes(4))
        broker.hand.send(lease)
        asking = asyncio.create_task(client.request(TO, b"one"))
        await loop.idle()
        (_, _, one) = broker.hand.frames  # SETUP, LEASE, and the request
        loop.wire.cut()
        await loop.idle()
        broker.hand.send(resume_ok(size_of(one)))
        waiting = asyncio.create_task(client.request(TO, b"two"))
        await asyncio.sleep(1)
        assert [kind_of(raw) for raw in broker.hand.frames] == [RESUME, 0x02]
        broker.hand.send(lease, payload(1, b"first", N | C))
        await loop.idle()
        assert (await asking).data == b"first"
        assert [kind_of(raw) for raw in broker.hand.frames] == [RESUME, 0x02, RR]
        broker.hand.send(payload(3, b"second", N | C))
        assert (await waiting).data == b"second"


# --- half an answer ----------------------------------------------------------------------------


@asynccontextmanager
async def connect_by_hand(
    broker: BrokerByHand, given: ClientOptions | None = None
) -> AsyncGenerator[Any]:
    """A client of a broker by hand, whose SETUP was accepted."""
    async with connect(broker.uri, options=given or options()) as client:
        assert kind_of(broker.hand.frames[0]) == SETUP
        yield client


@asynccontextmanager
async def asking(
    broker: BrokerByHand, given: ClientOptions | None = None
) -> AsyncGenerator[tuple[asyncio.Task[Any], bytes]]:
    """A request of a client that has lost its socket, and its frame; RESUME has come."""
    loop = the_loop()
    async with connect_by_hand(broker, given) as client:
        task = asyncio.create_task(client.request(TO, b"one"))
        await loop.idle()
        sent = broker.hand.frames[-1]
        assert kind_of(sent) == RR
        loop.wire.cut()
        await loop.idle()
        assert [kind_of(raw) for raw in broker.hand.frames] == [RESUME]
        yield task, sent


@on_wires
async def test_nothing_follows_resume_until_it_is_answered() -> None:
    """Not even a KEEPALIVE; they go on afterwards."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    async with asking(broker) as (task, sent):
        await asyncio.sleep(INTERVAL + 0.5)
        assert [kind_of(raw) for raw in broker.hand.frames] == [RESUME]
        assert broker.hand.keepalives == []
        # The broker has not received the request: it is sent again, as it was.
        broker.hand.send(resume_ok(0))
        await loop.idle()
        assert broker.hand.frames[1:] == [sent]
        await asyncio.sleep(INTERVAL)
        assert broker.hand.keepalives != []
        broker.hand.send(payload(1, b"answer", N | C))
        assert (await task).data == b"answer"


@on_wires
async def test_a_broker_that_does_not_answer_resume() -> None:
    """The socket is cut after the time to connect; what comes over it later is for no session."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    async with asking(broker) as (task, sent):
        silent, wire, at = broker.hand, loop.wire, loop.time()
        await asyncio.sleep(CONNECT_TIMEOUT + 0.1)
        assert wire.client.lost
        wire.client.arrive(resume_ok(size_of(sent)) + payload(1, b"wrong", N | C))
        await asyncio.sleep(1)
        assert broker.hand is not silent
        assert loop.dials[-1] == pytest.approx(at + CONNECT_TIMEOUT + 0.5, abs=0.01)
        assert not task.done()
        broker.hand.send(resume_ok(size_of(sent)), payload(1, b"answer", N | C))
        assert (await task).data == b"answer"


@on_wires
async def test_the_new_socket_is_lost_before_the_answer() -> None:
    """Another is tried, after the wait and not after the time to connect."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    async with asking(broker) as (task, sent):
        loop.wire.cut()
        at = loop.time()
        await asyncio.sleep(1)
        assert loop.dials[-1] == pytest.approx(at + 0.5, abs=0.01)
        assert [kind_of(raw) for raw in broker.hand.frames] == [RESUME]
        broker.hand.send(resume_ok(size_of(sent)), payload(1, b"answer", N | C))
        assert (await task).data == b"answer"


@on_wires
async def test_half_an_answer_is_none() -> None:
    loop = the_loop()
    broker = BrokerByHand(loop)
    given = options(resume=ResumeLimits(time=10 * SESSION))
    async with asking(broker, given) as (task, sent):
        answer = resume_ok(size_of(sent))
        for end in range(1, len(answer)):
            broker.hand.send(answer[:end])
            await loop.idle()
            loop.wire.cut()
            await asyncio.sleep(2.1)
        broker.hand.send(answer, payload(1, b"answer", N | C))
        assert (await task).data == b"answer"


# --- no further session ------------------------------------------------------------------------


@on_wires
async def test_the_time_of_a_session_is_over_to_the_second() -> None:
    """What was in flight is in doubt then, and not before; what came later was never sent."""
    loop = the_loop()
    async with served() as s:
        once = options(reconnect=False)
        async with connect(s.world.listener.uri, options=once) as client:
            waiting = asyncio.create_task(client.request(TO, b"hold"))
            await loop.idle()
            loop.refuses = True
            loop.wire.cut()
            await loop.idle()
            later = asyncio.create_task(client.request(TO, b"later"))
            await asyncio.sleep(SESSION - 0.1)
            assert not waiting.done()
            await asyncio.sleep(0.2)
            with pytest.raises(LinkLost, match="not resumed within 30 s") as caught:
                await waiting
            assert isinstance(caught.value, InDoubt)
            with pytest.raises(NotDelivered):
                await later
            assert s.asked == [b"hold"]
        dials = len(loop.dials)
        await asyncio.sleep(SESSION)
        assert len(loop.dials) == dials


@pytest.mark.parametrize("closes", [False, True], ids=["open", "closed at once"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error(0, REJECTED_RESUME, b"no such session"), "no such session"),
        (error(0, 0x101, b"not now"), "not now"),
        (payload(1, b"answer", N | C), "is no answer to RESUME"),
        (frame(0, 0x02, 0, bytes(8)), "is no answer to RESUME"),
        (resume_ok(7), "from which no frame is kept"),
        (resume_ok(1 << 40), "from which no frame is kept"),
    ],
    ids=["rejected", "error", "payload", "lease", "within a frame", "never sent"],
)
def test_an_answer_that_resumes_nothing(answer: bytes, reason: str, closes: bool) -> None:
    """The request is in doubt at once, and the client begins anew with another token."""

    @on_wires
    async def refused() -> None:
        loop = the_loop()
        broker = BrokerByHand(loop)
        async with asking(broker) as (task, _):
            (resume,) = broker.hand.frames
            broker.hand.send(answer)
            if closes:
                broker.hand.close()
            at = loop.time()
            with pytest.raises(LinkLost, match=reason) as caught:
                await task
            assert isinstance(caught.value, InDoubt)
            assert loop.time() - at < 0.01
            await asyncio.sleep(1)
            first = broker.hands[0].frames[0]
            (again,) = broker.hand.frames
            assert kind_of(again) == SETUP
            assert token_of(again) != token_of(first)
            assert token_of(first) in resume
            assert loop.wires[1].client.lost

    refused()


class Deaf(Hand):
    """A connection on which KEEPALIVE is not answered; a SETUP may be."""

    def __init__(self, broker: BrokerByHand, answer: bytes = b"") -> None:
        super().__init__()
        self._answer = answer
        broker.hands.append(self)

    def data_received(self, data: bytes) -> None:
        self.frames += [raw for raw in split(data)[0] if kind_of(raw) != KEEPALIVE]
        if self._answer:
            self.send(self._answer)
            self.close()


def token_of(setup: bytes) -> bytes:
    """Return the resume token of a SETUP."""
    at = 3 + 6 + 12  # after length, header, version and times
    size = int.from_bytes(setup[at : at + 2])
    assert size == 16
    return setup[at + 2 : at + 2 + size]


@on_wires
async def test_a_socket_that_is_lost_before_the_setup_is_accepted() -> None:
    """There is no session yet: the next attempt sends SETUP with another token."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    loop.servers[7], accepting = (lambda: Deaf(broker)), loop.servers[7]
    client = connect(broker.uri, options=options())
    opening = asyncio.create_task(client.__aenter__())
    await loop.idle()
    loop.wire.cut()
    loop.servers[7] = accepting
    await opening
    await client.__aexit__(None, None, None)
    setups = [hand.frames[0] for hand in broker.hands]
    assert [kind_of(raw) for raw in setups] == [SETUP, SETUP]
    assert len({token_of(raw) for raw in setups}) == 2


@on_wires
async def test_a_setup_that_is_refused_begins_no_session() -> None:
    loop = the_loop()
    broker = BrokerByHand(loop)
    loop.servers[7] = lambda: Deaf(broker, error(0, REJECTED_SETUP, b"not here"))
    with pytest.raises(LinkDown, match="not here"):
        async with connect(broker.uri, options=options()):
            pass
    assert [kind_of(raw) for hand in broker.hands for raw in hand.frames] == [SETUP]


@on_wires
async def test_a_session_whose_frames_were_dropped() -> None:
    """More was in flight than is kept: RESUME says from where, and the broker's answer decides."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    given = options(resume=ResumeLimits(time=SESSION, max_kept=5000))
    async with connect_by_hand(broker, given) as client:
        tasks: list[asyncio.Task[Any]] = []
        for _ in range(8):
            tasks.append(asyncio.create_task(client.request(TO, bytes(1000))))
            await loop.idle()
        sent = broker.hand.frames[1:]
        loop.wire.cut()
        await loop.idle()
        (resume,) = broker.hand.frames
        first = int.from_bytes(resume[-8:])
        assert 0 < first < size_of(*sent)
        broker.hand.send(resume_ok(0))  # the broker has received nothing
        for task in tasks:
            with pytest.raises(LinkLost, match="no frame is kept"):
                await task


# --- the client is closed ----------------------------------------------------------------------


@on_wires
async def test_a_client_is_closed_while_resume_is_not_answered() -> None:
    """The request fails at once, the new socket is cut, and no other is opened."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    at = loop.time()
    async with asking(broker) as (task, _):
        pass
    with pytest.raises(LinkLost, match="closed"):
        await task
    assert loop.time() - at < 0.1
    assert loop.wire.client.lost
    dials = len(loop.dials)
    await asyncio.sleep(SESSION)
    assert len(loop.dials) == dials


@on_wires
async def test_a_client_is_closed_between_two_attempts() -> None:
    loop = the_loop()
    broker = BrokerByHand(loop)
    async with connect_by_hand(broker) as client:
        task = asyncio.create_task(client.request(TO, b"one"))
        await loop.idle()
        loop.refuses = True
        loop.wire.cut()
        await asyncio.sleep(0.7)
    with pytest.raises(LinkLost, match="closed"):
        await task
    dials = len(loop.dials)
    await asyncio.sleep(SESSION)
    assert len(loop.dials) == dials


@on_wires
async def test_a_client_that_closes_does_not_resume() -> None:
    """It says CONNECTION_CLOSE; the loss of the socket while it waits for a request is the end."""
    loop = the_loop()
    broker = BrokerByHand(loop)
    client = connect(broker.uri, options=options(drain_timeout=5.0))
    opened = await client.__aenter__()
    task = asyncio.create_task(opened.request(TO, b"one"))
    await loop.idle()
    closing = asyncio.create_task(client.__aexit__(None, None, None))
    await loop.idle()
    assert [kind_of(raw) for raw in broker.hand.frames] == [SETUP, RR, ERROR]
    loop.wire.cut()
    with pytest.raises(LinkLost):
        await task
    await closing
    assert len(loop.wires) == 1
