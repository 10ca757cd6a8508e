"""Services and the ends they make, with opening ends and without."""

from __future__ import annotations

from asyncio import sleep
from dataclasses import replace

import pytest

from onward.actors import Node
from onward.actors.sessions import (
    BAD_FRAME,
    AcceptedSession,
    SessionClient,
    SessionClosed,
    SessionOptions,
    SessionService,
    SessionServiceOptions,
)
from onward.actors.testing import Probe
from onward.protocol import Address, Message, RouteLike, route
from onward.protocol.sessions import (
    Close,
    CloseAck,
    Frame,
    LivenessOptions,
    OpenSession,
    Ping,
    Pong,
    SessionOpened,
    SessionRefused,
    SessionState,
    decode_frame,
    encode_frame,
)
from tests.support.transports import eventually
from tests.support.workers import start_worker

TIMES = LivenessOptions(ping_interval=1, retry=0.5, longest_retry=2, forget_after=10)
OPTIONS = SessionOptions(liveness=TIMES)
SERVICE = SessionServiceOptions(session=OPTIONS)


async def serve(node: Node, options: SessionServiceOptions = SERVICE) -> SessionService:
    service = await start_worker(node, SessionService(expose=["echo"], options=options), "sessions")
    await Probe.on(node, "echo", answer=lambda message: message.payload.upper())
    return service


class Opening:
    """An opening end by hand."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.end: tuple[Address, ...] = ()

    @classmethod
    async def on(cls, node: Node, name: str = "opening") -> Opening:
        return cls(await Probe.on(node, name))

    def send(self, to: RouteLike, frame: Frame) -> None:
        self.probe.send(to, encode_frame(frame))

    async def next(self) -> Frame:
        message = await self.probe.next()
        self.end = message.return_route
        return decode_frame(message.payload)

    async def open(self, session: bytes, epoch: int = 1, interval: int = 1000) -> Frame:
        self.send("sessions", OpenSession(session, epoch, interval))
        return await self.next()


async def test_each_session_has_a_worker_of_its_own(node: Node) -> None:
    service = await serve(node)
    for name in ("one", "two"):
        session = await SessionClient.on(node, name, "sessions", options=OPTIONS)
        await session.until_up()
    answer = await node.request("one => echo", b"hi")
    assert (answer.payload, answer.return_route) == (b"HI", route("one => echo"))
    assert len(service.sessions) == 2
    first, second = service.sessions
    assert first.identity != second.identity
    assert first.statistics().received == 1
    await first.close("enough")
    await sleep(0.1)
    assert service.statistics().closed == 1
    with pytest.raises(SessionClosed):
        await node.request("one => echo", b"hi")
    assert (await node.request("two => echo", b"hi")).payload == b"HI"


async def test_the_hooks_of_the_service_see_each_session(node: Node) -> None:
    log: list[str] = []

    def hook(what: str) -> object:
        def told(end: AcceptedSession) -> None:
            log.append(f"{what} {end.cause}".strip())

        return told

    service = SessionService(
        options=SERVICE,
        on_up=hook("up"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        on_down=hook("down"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        on_closed=hook("closed"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )
    await node.start(lambda: service, address="sessions")
    opening = await Opening.on(node)
    opened = await opening.open(b"s")
    assert isinstance(opened, SessionOpened)
    await sleep(5)
    opening.send(opening.end, Ping(opened.token, 1, 9))
    assert await opening.next() == Pong(opened.token, 1, 9)
    await sleep(20)
    assert log == [
        "up",
        "down no ping came",
        "up no ping came",
        "down no ping came",
        "closed the other end was silent for too long",
    ]
    assert (service.statistics().forgotten, service.sessions) == (1, ())
    # Forgotten is not over: it may begin anew.
    again = await opening.open(b"s", 2)
    assert isinstance(again, SessionOpened)
    assert again.token != opened.token


async def test_a_later_handshake_brings_another_way_and_an_older_one_does_not(node: Node) -> None:
    service = await serve(node)
    one, two = await Opening.on(node, "one"), await Opening.on(node, "two")
    first = await one.open(b"s", 2)
    assert isinstance(first, SessionOpened)
    assert await two.open(b"s", 3) == replace(first, epoch=3)
    one.send("sessions", OpenSession(b"s", 2, 1000))  # late
    one.send("sessions", OpenSession(b"s", 3, 1000))  # a duplicate, by whatever way
    await sleep(0.1)
    assert (len(one.probe.messages), len(two.probe.messages)) == (1, 2)
    (end,) = service.sessions
    echo = await Probe.on(node, "worker")
    echo.send([end.address, "there"], b"hi")
    await sleep(0.1)
    assert (len(one.probe.messages), len(two.probe.messages)) == (1, 3)
    assert end.statistics().late == 1
    await node.stop_worker("one")
    await sleep(0.1)
    assert end.state is SessionState.UP  # it is not the way any more
    await node.stop_worker("two")
    await sleep(0.1)
    assert (end.state, end.cause) == (SessionState.DOWN, "the first hop of the route stopped")


async def test_frames_that_are_not_for_it(node: Node) -> None:
    service = await serve(node)
    opening = await Opening.on(node)
    opened = await opening.open(b"s")
    assert isinstance(opened, SessionOpened)
    (end,) = service.sessions
    opening.send(opening.end, Ping(b"other", 1, 1))
    opening.send(opening.end, Ping(opened.token, 2, 1))
    opening.send(opening.end, OpenSession(b"other", 1, 1000))
    opening.send(opening.end, Pong(opened.token, 1, 1))
    await sleep(0.1)
    assert (end.statistics().late, end.statistics().bad) == (3, 1)
    node.send("sessions", encode_frame(OpenSession(b"t", 1, 1000)))  # no way back
    opening.send("sessions => behind", OpenSession(b"t", 1, 1000))
    opening.send("sessions", CloseAck(b"t"))
    opening.probe.send("sessions", b"")
    await sleep(0.1)
    assert service.statistics().bad == 4
    assert node.dead_letters.by_reason[BAD_FRAME] == 5


async def test_a_session_that_is_over_does_not_begin_again(node: Node) -> None:
    service = await serve(node, replace(SERVICE, max_closed=1))
    opening = await Opening.on(node)
    for session in (b"s", b"t"):
        opened = await opening.open(session)
        assert isinstance(opened, SessionOpened)
        opening.send(opening.end, Close(opened.token, "done"))
        assert await opening.next() == CloseAck(opened.token)
    assert await opening.open(b"t", 2) == SessionRefused(b"t", 2, True, "the session is over")
    assert isinstance(await opening.open(b"s", 2), SessionOpened)  # it is remembered no more
    assert (service.statistics().closed, service.statistics().refused) == (2, 1)


async def test_who_may_not_how_many_may_and_what_is_not_spoken(node: Node) -> None:
    def allow(message: Message) -> bool:
        if message.return_route[0] == Address(0, b"broken"):
            raise RuntimeError("a bug")
        return message.return_route[0] != Address(0, b"stranger")

    service = SessionService(allow=allow, options=replace(SERVICE, max_sessions=1))
    await node.start(lambda: service, address="sessions")
    for name in ("stranger", "broken"):
        opening = await Opening.on(node, name)
        assert await opening.open(b"s") == SessionRefused(b"s", 1, True, "denied")
    friend = await Opening.on(node)
    assert isinstance(await friend.open(b"s"), SessionOpened)
    assert await friend.open(b"t") == SessionRefused(b"t", 1, False, "too many sessions")
    friend.send("sessions", OpenSession(b"u", 1, 1000, version=2))
    assert await friend.next() == SessionRefused(b"u", 1, True, "version 2 is not spoken here")
    friend.probe.send("sessions", encode_frame(OpenSession(b"v", 1, 1)), return_route="gone")
    await sleep(0.1)
    assert service.statistics().refused == 5
    assert node.dead_letters.by_reason == {"no such worker": 1}


async def test_how_often_it_is_pinged_the_other_end_says_within_bounds(node: Node) -> None:
    service = await serve(node, replace(SERVICE, max_interval=100))
    opening = await Opening.on(node)
    await opening.open(b"never", interval=1 << 60)
    await opening.open(b"always", interval=0)
    slow, fast = service.sessions
    await sleep(1)
    assert (slow.state, fast.state) == (SessionState.UP, SessionState.DOWN)
    await sleep(398)
    assert slow.state is SessionState.UP
    await sleep(2)
    assert service.sessions == ()


async def test_a_handshake_that_cannot_be_handed_on_is_a_dead_letter(node: Node) -> None:
    service = await serve(node)
    opening = await Opening.on(node)
    await opening.open(b"s")
    (end,) = service.sessions
    service._ends[b"s"] = end
    node.remove_address(end._inner)
    opening.send("sessions", OpenSession(b"s", 2, 1000))
    await sleep(0.1)
    assert node.dead_letters.by_reason == {"no such worker": 1}


async def test_a_service_that_stops_tells_all(node: Node) -> None:
    await serve(node)
    session = await SessionClient.on(node, "s", "sessions", options=OPTIONS)
    await session.until_up()
    await node.stop_worker("sessions")
    assert await session.until_closed() == "stopped"


@pytest.mark.real_time
async def test_over_tcp_with_a_link_that_is_lost() -> None:
    quick = SessionOptions(liveness=replace(TIMES, ping_interval=0.05, retry=0.05))
    async with Node("here") as here, Node("there") as there:
        service = await serve(there, SessionServiceOptions(session=quick))
        listener = await there.listen("tcp://127.0.0.1:0", expose=["sessions"])
        links: list[Address] = []

        async def way() -> RouteLike:
            links.append(await here.connect(listener.uri))
            return [links[-1], "sessions"]

        session = await SessionClient.on(here, "s", way, options=quick)
        await session.until_up(5)
        assert (await here.request("s => echo", b"one", timeout=5)).payload == b"ONE"
        await here.stop_worker(links[0])
        assert await session.until_down() == "the first hop of the route stopped"
        await session.until_up(5)
        assert (await here.request("s => echo", b"two", timeout=5)).payload == b"TWO"
        assert (session.resumed, len(links), len(service.sessions)) == (True, 2, 1)
        await eventually(lambda: session.statistics().round_trip is not None)
        await session.close("done")
        assert service.statistics().closed == 1


@pytest.mark.real_time
async def test_over_tcp_by_an_address_that_connects_by_itself() -> None:
    async with Node("here") as here, Node("there") as there:
        await serve(there)
        listener = await there.listen("tcp://127.0.0.1:0", expose=["sessions"])
        at = listener.uri.removeprefix("tcp://")
        session = await SessionClient.on(here, "s", f"1#{at} => sessions", options=OPTIONS)
        answer = await here.request("s => echo", b"hi", timeout=5)
        assert answer.payload == b"HI"
        await session.close()
