"""The opening end, against a service that is played by a probe."""

from __future__ import annotations

from asyncio import sleep
from typing import Any

import pytest

from onward.actors import MailboxOptions, Node
from onward.actors.sessions import (
    BAD_FRAME,
    FOREIGN_FRAME,
    SessionClient,
    SessionClosed,
    SessionDown,
    SessionLost,
    SessionOptions,
    WhileDown,
)
from onward.actors.testing import Probe
from onward.protocol import (
    Address,
    EmptyRoute,
    ErrorReply,
    LinkDown,
    Message,
    PayloadTooBig,
    RouteLike,
    encode_error_reply,
    route,
)
from onward.protocol.ockam import decode_message, encode_message
from onward.protocol.sessions import (
    Close,
    CloseAck,
    Frame,
    LivenessOptions,
    OpenSession,
    Ping,
    Pong,
    SessionData,
    SessionOpened,
    SessionRefused,
    SessionState,
    decode_frame,
    encode_frame,
)

TIMES = LivenessOptions(ping_interval=1, open_timeout=1, retry=0.5, longest_retry=2, jitter=0)


class Service:
    """The accepting side, by hand: the probe is service and end at once."""

    def __init__(self, node: Node, probe: Probe) -> None:
        self.node = node
        self.probe = probe
        self.token = b"token"
        self.back: tuple[Address, ...] = ()

    async def next(self) -> Frame:
        message = await self.probe.next()
        self.back = message.return_route
        return decode_frame(message.payload)

    async def until(self, kind: type[Frame]) -> Any:
        while not isinstance(frame := await self.next(), kind):
            pass
        return frame

    def send(self, frame: Frame) -> None:
        self.probe.send(self.back, encode_frame(frame))

    async def open(self) -> OpenSession:
        frame: OpenSession = await self.until(OpenSession)
        self.send(SessionOpened(frame.session, frame.epoch, self.token))
        await sleep(0.01)
        return frame


async def begin(node: Node, **given: Any) -> tuple[SessionClient, Service]:
    service = Service(node, await Probe.on(node, "sessions"))
    options = SessionOptions(liveness=TIMES, **given.pop("options", {}))
    session = await SessionClient.on(node, "s", "sessions", options=options, **given)
    return session, service


async def test_a_message_and_its_answer(node: Node) -> None:
    session, service = await begin(node)
    opened = await service.open()
    assert (opened.epoch, opened.interval, session.state) == (1, 1000, SessionState.UP)
    asker = await Probe.on(node, "asker")
    asker.send("s => echo => more", b"hi")
    frame = await service.until(SessionData)
    message = decode_message(frame.body)
    assert message.onward_route == route("echo => more")
    assert message.return_route == route("asker")
    service.send(SessionData(b"token", encode_message(message.reply(b"HI"))))
    answer = await asker.next()
    assert (answer.payload, answer.return_route) == (b"HI", route("s => echo"))
    assert answer.source == session.address
    stats = session.statistics()
    assert (stats.sent, stats.received, stats.state) == (1, 1, "UP")


async def test_pings_are_answered_and_timed(node: Node) -> None:
    session, service = await begin(node)
    await service.open()
    for number in (1, 2, 3, 4, 5):
        ping: Ping = await service.until(Ping)
        assert ping == Ping(b"token", 1, number)
        await sleep(0.25)
        service.send(Pong(b"token", 1, number))
    await sleep(0.1)
    assert session.statistics().round_trip == pytest.approx(0.25)
    service.send(Pong(b"token", 1, 4))  # late, but a sign of life
    service.send(Pong(b"token", 2, 5))
    service.send(Pong(b"other", 1, 5))
    await sleep(0.1)
    assert (session.statistics().late, node.dead_letters.by_reason) == (2, {FOREIGN_FRAME: 2})


async def test_what_is_sent_while_it_is_down_is_kept_in_order(node: Node) -> None:
    session, service = await begin(node, options={"max_kept": 200})
    for number in range(150):
        node.send("s => echo", bytes([number]))
    await sleep(0.1)
    assert session.statistics().kept == 150
    await service.open()
    for number in range(150):
        frame: SessionData = await service.until(SessionData)
        assert decode_message(frame.body).payload == bytes([number])
    assert session.statistics().kept == 0


async def test_what_is_kept_is_bounded_in_number_and_time(node: Node) -> None:
    session, _ = await begin(node, options={"max_kept": 1, "keep_for": 3})
    node.send("s => echo", b"1")
    with pytest.raises(SessionDown, match="1 are kept"):
        await node.request("s => echo", b"2")
    await sleep(2)
    assert session.statistics().kept == 1
    await sleep(2)
    assert (session.statistics().kept, session.statistics().given_back) == (0, 2)
    with pytest.raises(SessionDown, match="kept for too long"):
        await node.request("s => echo", b"3")


async def test_while_down_it_may_refuse(node: Node) -> None:
    _, service = await begin(node, options={"while_down": WhileDown.REFUSE})
    with pytest.raises(SessionDown):
        await node.request("s => echo", b"1")
    await service.open()
    node.send("s => echo", b"2")
    assert isinstance(await service.until(SessionData), SessionData)


async def test_what_cannot_be_sent_is_given_back(node: Node) -> None:
    session, service = await begin(node)
    await service.open()
    with pytest.raises(EmptyRoute):
        await node.request("s", b"")
    with pytest.raises(PayloadTooBig):
        await node.request("s => echo", bytes(node.limits.payload - 5))
    assert session.statistics().given_back == 2
    await node.stop_worker("sessions")
    await sleep(0.1)
    with pytest.raises(SessionDown, match="not up in 2 s"):
        await session.until_up(2)


async def test_a_first_step_that_stops_is_noticed_and_later_messages_are_kept(node: Node) -> None:
    downs: list[str] = []

    def went_down(session: SessionClient) -> None:
        downs.append(session.cause)

    session, service = await begin(node, on_down=went_down)
    await service.open()
    await node.stop_worker("sessions")
    node.send("s => echo", b"1")
    await sleep(0.1)
    assert downs[0] == "the first hop of the route stopped"
    assert session.statistics().kept == 1


async def test_a_message_finds_that_the_first_step_is_gone(node: Node) -> None:
    # The way begins with an address that is no worker's, so that nothing can be watched.
    service = Service(node, await Probe.on(node, "sessions"))

    def hop(message: Message) -> Message:
        return message.redirect()

    node.add_rule(77, hop)
    session = await SessionClient.on(
        node, "s", "77#x => sessions", options=SessionOptions(liveness=TIMES)
    )
    opened = await service.until(OpenSession)
    service.probe.send(
        service.back,
        encode_frame(SessionOpened(opened.session, 1, b"token")),
        return_route="77#x => gone",
    )
    await sleep(0.01)
    assert session.state is SessionState.UP
    node.send("s => echo", b"1")
    await sleep(0.01)
    assert session.cause == "the first hop of the route is gone"
    assert session.statistics().kept == 1
    # It is up again with something kept, which then finds the same.
    opened = await service.until(OpenSession)
    service.probe.send(
        service.back,
        encode_frame(SessionOpened(opened.session, opened.epoch, b"token")),
        return_route="77#x => gone",
    )
    await sleep(0.01)
    assert (session.statistics().kept, session.downs, session.resumed) == (1, 2, True)


async def test_kept_messages_wait_for_room_behind_the_session(node: Node) -> None:
    service = Service(node, Probe())
    await node.start(lambda: service.probe, address="sessions", mailbox=MailboxOptions(limit=10))
    session = await SessionClient.on(node, "s", "sessions", options=SessionOptions(liveness=TIMES))
    for number in range(50):
        node.send("s => echo", bytes([number]))
    await service.open()
    await sleep(2)
    frames = [decode_frame(each) for each in service.probe.payloads]
    bodies = [decode_message(each.body).payload for each in frames if isinstance(each, SessionData)]
    assert bodies == [bytes([number]) for number in range(50)]
    assert session.statistics().given_back == 0


async def test_a_kept_message_that_cannot_be_sent_is_given_back(node: Node) -> None:
    session, service = await begin(node, options={"max_kept_bytes": 1 << 30})
    node.send("s => echo", bytes(node.limits.payload))
    node.send("s => echo", b"small")
    await service.open()
    await service.until(SessionData)
    assert (session.statistics().given_back, session.statistics().sent) == (1, 1)


async def test_requests_that_the_other_end_took_with_it_are_in_doubt(node: Node) -> None:
    _, service = await begin(node)
    await service.open()
    waiting = node.loop.create_task(node.request("s => echo", b"hi"))
    await service.until(SessionData)
    await sleep(5)  # no ping is answered
    service.token = b"another"
    await service.open()
    with pytest.raises(SessionLost, match="the other end was lost"):
        await waiting


async def test_it_closes_and_is_told(node: Node) -> None:
    session, service = await begin(node)
    await service.open()
    waiting = node.loop.create_task(node.request("s => echo", b"hi"))
    await service.until(SessionData)
    closing = node.loop.create_task(session.close("done"))
    assert await service.until(Close) == Close(b"token", "done")
    assert await service.until(Close) == Close(b"token", "done")  # told again
    with pytest.raises(SessionClosed):
        await node.request("s => echo", b"hi")
    with pytest.raises(SessionClosed, match="done"):
        await session.until_up()
    service.send(SessionData(b"token", encode_message(Message(route("x"), (), b""))))
    service.send(CloseAck(b"token"))
    await closing
    with pytest.raises(SessionLost):
        await waiting
    await session.close()
    await sleep(5)
    assert not node.has("s")
    assert node.dead_letters.by_reason == {"session closed": 1, FOREIGN_FRAME: 1}


async def test_the_other_end_closes(node: Node) -> None:
    closed: list[str] = []

    def hook(session: SessionClient) -> None:
        closed.append(session.cause)
        raise RuntimeError("a hook that fails")

    session, service = await begin(node, on_closed=hook, on_up=hook)
    opened = await service.open()
    node.send("s => echo", b"hi")
    service.send(Close(b"other", "not this one"))
    service.send(Close(b"token", "maintenance"))
    assert await service.until(CloseAck) == CloseAck(b"token")
    service.send(Close(b"token", "maintenance"))
    assert await service.until(CloseAck) == CloseAck(b"token")
    assert closed == ["", "maintenance"]
    assert await session.until_closed() == "maintenance"
    service.send(SessionOpened(opened.session, 1, b"token"))
    await sleep(5)
    assert not node.has("s")


async def test_a_session_that_was_never_up_has_nobody_to_tell(node: Node) -> None:
    session, service = await begin(node)
    await service.until(OpenSession)
    await sleep(2)
    assert session.downs == 1
    node.send("s => echo", b"hi")
    await sleep(0.01)
    await session.close("changed my mind")
    assert session.statistics().kept == 0
    assert node.dead_letters.by_reason == {"session closed": 1}
    assert not any(isinstance(decode_frame(each), Close) for each in service.probe.payloads)


async def test_a_worker_that_is_stopped_tells_once(node: Node) -> None:
    session, service = await begin(node)
    await service.open()
    await node.stop_worker("s")
    assert await service.until(Close) == Close(b"token", "stopped")
    assert session.state is SessionState.CLOSED
    other = await SessionClient.on(node, None, "nowhere")
    node.send([other.address, "echo"], b"hi")
    await sleep(0.1)
    await node.stop_worker(other.address)
    assert node.dead_letters.by_reason["session closed"] == 1


async def test_refusals(node: Node) -> None:
    session, service = await begin(node)
    asked: OpenSession = await service.until(OpenSession)
    service.send(SessionRefused(asked.session, 7, final=True, reason="of another handshake"))
    service.send(SessionRefused(asked.session, 1, final=False, reason="too many sessions"))
    await sleep(0.01)
    assert (session.state, session.cause) == (SessionState.DOWN, "too many sessions")
    asked = await service.until(OpenSession)
    service.send(SessionRefused(asked.session, 2, final=True, reason="denied"))
    assert await session.until_closed() == "denied"


async def test_handshakes_that_are_late_or_of_another_session(node: Node) -> None:
    session, service = await begin(node)
    asked: OpenSession = await service.until(OpenSession)
    service.send(SessionOpened(b"other", 1, b"token"))
    service.send(SessionOpened(asked.session, 2, b"token"))
    await sleep(0.01)
    assert session.state is SessionState.ESTABLISHING
    service.send(SessionOpened(asked.session, 1, b"token"))
    service.send(SessionOpened(asked.session, 1, b"twice"))
    await sleep(0.01)
    assert (session.state, session.statistics().late) == (SessionState.UP, 3)


async def test_what_is_no_frame_is_counted(node: Node) -> None:
    session, service = await begin(node)
    asked = await service.open()
    service.probe.send(service.back, b"\xff")
    service.probe.send([*service.back, "behind"], encode_frame(CloseAck(b"token")))
    service.probe.send(
        service.back, encode_frame(SessionOpened(asked.session, 1, b"token")), return_route=()
    )
    service.send(asked)
    service.send(SessionData(b"token", b"no message"))
    await sleep(0.1)
    assert session.statistics().bad == 5
    assert node.dead_letters.by_reason == {BAD_FRAME: 5}
    service.probe.send(service.back, encode_frame(Close(b"token", "x")), return_route=())
    assert await session.until_closed() == "x"


async def test_what_comes_out_is_exposed_or_a_way_back(node: Node) -> None:
    session, service = await begin(node, expose=["open"])
    await service.open()
    probe, hidden = await Probe.on(node, "open"), await Probe.on(node, "hidden")

    def come(onward: str, *back: str) -> None:
        message = Message(route(onward), route(*back), b"hi")
        service.send(SessionData(b"token", encode_message(message)))

    come("open => further", "there")
    come("hidden")
    come("")
    come("open", *["x"] * 64)
    message = await probe.next()
    assert message.onward_route == route("open => further")
    assert message.return_route == route("s => there")
    hidden.send("s => there", b"answer me")
    await service.until(SessionData)
    come("hidden")
    await hidden.next()
    await node.stop_worker("open")
    come("open")
    await sleep(0.1)
    assert session.statistics().refused == 1
    assert node.dead_letters.by_reason == {
        "not exposed": 1,
        "empty route": 1,
        "route too long": 1,
        "no such worker": 1,
    }


async def test_the_word_of_a_node_on_the_way_is_taken(node: Node) -> None:
    def error(target: Address, certain: bool = True) -> Message:
        payload = encode_error_reply(ErrorReply("no such worker", target, certain))
        return Message(service.back, (Address(0, b"onward.error"),), payload)

    session, service = await begin(node)
    await service.until(OpenSession)
    node.route(error(service.probe.address, certain=False))
    node.route(error(service.probe.address)._replace(payload=b"nonsense"))
    await sleep(0.01)
    assert (session.state, session.statistics().bad) == (SessionState.ESTABLISHING, 1)
    node.route(error(service.probe.address))
    await sleep(0.01)
    assert session.state is SessionState.DOWN
    await service.open()
    node.route(error(Address(0, b"somebody"), certain=False))
    await sleep(0.01)
    assert session.statistics().state == "UP"
    node.route(error(service.probe.address))
    await sleep(0.01)
    assert (session.statistics().state, session.downs) == ("DOWN", 2)


async def test_a_way_that_cannot_be_found(node: Node) -> None:
    async def find() -> RouteLike:
        raise LinkDown("hub")

    def broken() -> RouteLike:
        raise RuntimeError("a bug")

    for given, cause in ((find, "link down: hub"), (broken, "no route: RuntimeError")):
        session = await SessionClient.on(node, None, given)
        assert await session.until_down() == cause
        await session.close()


async def test_a_way_that_takes_too_long_is_given_up(node: Node) -> None:
    calls: list[int] = []

    async def find() -> RouteLike:
        calls.append(len(calls))
        if len(calls) == 1:
            await sleep(1000)
        return "sessions"

    service = Service(node, await Probe.on(node, "sessions"))
    session = await SessionClient.on(node, "s", find, options=SessionOptions(liveness=TIMES))
    await sleep(1.1)
    assert session.cause == "no answer in time"
    await service.open()
    assert (session.state, calls) == (SessionState.UP, [0, 1])
