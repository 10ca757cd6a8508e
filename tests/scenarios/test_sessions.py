"""Sessions, as the reference's tests have them: handshakes, routes, a conversation with a state."""

from __future__ import annotations

from asyncio import sleep

from onward.actors import Node, Worker
from onward.actors.sessions import (
    SessionClient,
    SessionOptions,
    SessionService,
    SessionServiceOptions,
)
from onward.actors.testing import Probe
from onward.actors.workers import Forwarder, Spawner
from onward.protocol import Address, Message, RouteLike, address, route
from onward.protocol.bare import BareReader, encode_uint
from onward.protocol.sessions import (
    LivenessOptions,
    OpenSession,
    SessionOpened,
    SessionState,
    decode_frame,
    encode_frame,
)
from onward.transports.simulated import Faults, SimulatedNetwork, simulate_many
from tests.support.counts import times
from tests.support.virtual import virtual_time
from tests.support.workers import start_worker

TOP = 20
OPTIONS = SessionOptions(
    liveness=LivenessOptions(ping_interval=1, open_timeout=1, retry=0.5, longest_retry=1),
    keep_for=30,
)


def number_in(message: Message) -> int:
    reader = BareReader(message.payload)
    number = reader.uint()
    reader.finish()
    return number


class Counting(Worker):
    """One end of a count: says the number after the one that it is told, up to the top."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[int] = []
        self.done = False

    def handle_message(self, message: Message) -> None:
        following = number_in(message) + 1
        last = self.said[-1] if self.said else 0
        if following > last and following <= TOP:
            self.said.append(following)
        if following >= last and following <= TOP:  # said again if it was asked for again
            self.reply(message, encode_uint(following))
        self.done = self.done or following >= TOP


class Beginning(Counting):
    """The end that begins, as soon as it has started."""

    def __init__(self, way: RouteLike) -> None:
        super().__init__()
        self.way = way

    def on_start(self) -> None:
        self.said.append(1)
        self.send(self.way, encode_uint(1))


@virtual_time
async def test_the_handshake_is_sent_when_the_client_starts() -> None:
    async with Node() as node:
        service = await Probe.on(node, "service")
        session = await SessionClient.on(node, "session", "service")
        message = await service.next()
        frame = decode_frame(message.payload)
        assert isinstance(frame, OpenSession)
        assert (frame.epoch, session.state) == (1, SessionState.ESTABLISHING)
        assert message.onward_route == route("service")

        # And the answer makes it a session.
        service.reply(message, encode_frame(SessionOpened(frame.session, frame.epoch, b"token")))
        await session.until_up()


@virtual_time
async def test_the_service_answers_a_handshake() -> None:
    async with Node() as node:
        await node.start(SessionService, address="sessions")
        answer = await node.request("sessions", encode_frame(OpenSession(b"session", 1, 10_000)))
        frame = decode_frame(answer.payload)
        assert isinstance(frame, SessionOpened)
        assert (frame.session, frame.epoch) == (b"session", 1)


@virtual_time
async def test_the_routes_of_a_session_through_other_workers() -> None:
    """Whoever is between the two ends is not on the routes of what goes through them."""
    async with Node() as node:
        await node.start(Forwarder, address="one")
        await node.start(Forwarder, address="two")
        service = await start_worker(node, SessionService(expose=["last"]), "sessions")
        last = await Probe.on(node, "last", answer=lambda message: message.payload)
        session = await SessionClient.on(node, "session", "one => two => sessions")
        await session.until_up()
        asker = await Probe.on(node, "asker")
        asker.send("session => last", b"hi")
        answer = await asker.next()
        (message,) = last.messages
        (accepted,) = service.sessions
        assert message.onward_route == route("last")
        assert message.return_route == (accepted.address, address("asker"))
        assert (answer.payload, answer.onward_route) == (b"hi", route("asker"))
        assert answer.return_route == (session.address, address("last"))


@virtual_time
async def test_two_workers_count_to_a_number_in_turn() -> None:
    """A handshake of many steps, of which each end has a state; each client has an end its own."""
    async with Node() as node:
        ends: list[Counting] = []

        def made(_: bytes) -> Counting:
            ends.append(Counting())
            return ends[-1]

        spawner = Spawner(made, lambda message: message.return_route[-1].value)
        await node.start(lambda: spawner, address="counting")
        beginners = [Beginning("counting") for _ in range(3)]
        for beginner in beginners:
            await node.start(lambda beginner=beginner: beginner)  # type: ignore[misc]
        await sleep(1)
        for beginner in beginners:
            assert beginner.said == list(range(1, TOP + 1, 2))
        assert [end.said for end in ends] == [list(range(2, TOP + 1, 2))] * 3
        assert all(end.done for end in [*beginners, *ends])


async def counts_over_a_session(network: SimulatedNetwork) -> None:
    """The count goes on where it was, though the way is cut and replaced in its midst."""
    a, b = await network.node("a"), await network.node("b")
    far = await start_worker(b, Counting(), "counting")
    service = SessionService(expose=["counting"], options=SessionServiceOptions(session=OPTIONS))
    await b.start(lambda: service, address="sessions")
    await b.listen("sim://b", expose=["sessions"])
    links: list[Address] = []

    async def way() -> RouteLike:
        links.append(await a.connect("sim://b"))
        return [links[-1], "sessions"]

    session = await SessionClient.on(a, "session", way, options=OPTIONS)
    await session.until_up()
    near = Beginning("session => counting")
    await a.start(lambda: near)
    await sleep(0.15)
    assert not near.done
    await a.stop_worker(links[0])
    await session.until_up(30)
    for _ in range(30):
        if near.done and far.done:
            break
        # What was on the way when it broke is lost, as on any route: say the last number again.
        near.send("session => counting", encode_uint(near.said[-1]))
        await sleep(1)
    assert sorted(near.said + far.said) == list(range(1, TOP + 1))
    assert len(links) > 1
    await session.close()


def test_a_count_goes_on_over_a_session_whose_way_is_replaced() -> None:
    simulate_many(
        counts_over_a_session, seeds=range(times(5, 20)), faults=Faults(latency=(0.01, 0.02))
    )
