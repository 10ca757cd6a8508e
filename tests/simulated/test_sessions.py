"""Sessions over a network that loses, doubles, delays, is cut, and whose nodes crash."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from random import Random

import pytest

from onward.actors import Node
from onward.actors.sessions import (
    SessionClient,
    SessionOptions,
    SessionService,
    SessionServiceOptions,
)
from onward.actors.testing import Probe
from onward.protocol import Address, DeliveryError, Message
from onward.protocol.sessions import LivenessOptions, SessionState
from onward.transports.simulated import Faults, SimulatedNetwork, simulate, simulate_many
from tests.support.counts import times
from tests.support.workers import start_worker

TIMES = LivenessOptions(
    ping_interval=1, open_timeout=1, retry=0.5, longest_retry=2, forget_after=30
)
OPTIONS = SessionOptions(liveness=TIMES, keep_for=20)
SERVICE = SessionServiceOptions(session=OPTIONS)
BAD = Faults(latency=(0.001, 0.2), loss=0.2, duplicate=0.2, reorder=0.2)


async def serve(node: Node) -> SessionService:
    service = await start_worker(node, SessionService(expose=["echo"], options=SERVICE), "sessions")
    await Probe.on(node, "echo", answer=lambda message: message.payload)
    await node.listen(f"sim://{node.name}", expose=["sessions"])
    return service


async def client(
    node: Node, target: str, address: str, on_up: Callable[[SessionClient], object] | None = None
) -> SessionClient:
    async def way() -> tuple[Address, str]:
        return await node.connect(f"sim://{target}"), "sessions"

    return await SessionClient.on(node, address, way, options=OPTIONS, on_up=on_up)


async def asked(node: Node, session: str, payload: bytes) -> Message:
    """Ask until there is an answer."""
    for _ in range(50):
        try:
            return await node.request([session, "echo"], payload, timeout=3)
        except DeliveryError:
            await sleep(0.1)
    raise AssertionError("there was no answer")


async def survives(network: SimulatedNetwork) -> tuple[int, float]:
    """A cut, a crash of the other node, and each time the same address works again."""
    random = Random(network.seed)
    a, b = await network.node("a"), await network.node("b")
    await serve(b)
    began: list[bool] = []
    session = await client(a, "b", "stable", lambda end: began.append(not end.resumed))
    answer = await asked(a, "stable", b"first")
    assert (answer.payload, answer.return_route[0]) == (b"first", session.address)

    network.partition({"a"}, {"b"})
    await sleep(random.uniform(0, 10))
    network.heal()
    assert (await asked(a, "stable", b"second")).payload == b"second"

    await network.crash("b")
    await sleep(random.uniform(0, 5))
    service = await serve(await network.restart("b"))
    assert (await asked(a, "stable", b"third")).payload == b"third"
    assert began.count(True) == 2  # the node that crashed knew nothing of it
    assert len(service.sessions) == 1

    network.set_faults("a", "b", Faults())
    await sleep(1)  # what was on its way has come
    await session.until_up()
    other = service.sessions[0]
    await session.close("done")
    assert (session.cause, other.cause, len(service.sessions)) == ("done", "done", 0)
    return session.statistics().ups, a.loop.time()


@pytest.mark.slow
def test_a_session_comes_back_at_the_same_address() -> None:
    runs = simulate_many(survives, seeds=range(times(15, 100)), faults=BAD)
    assert min(ups for ups, _ in runs) >= 2


def test_the_same_seed_is_the_same_run() -> None:
    assert simulate(survives, seed=3, faults=BAD) == simulate(survives, seed=3, faults=BAD)


async def keeps_apart(network: SimulatedNetwork) -> None:
    """Several sessions with one service: whoever asks gets the answer to what it asked."""
    random = Random(network.seed)
    a, b = await network.node("a"), await network.node("b")
    await serve(b)
    names = [f"s{number}" for number in range(4)]
    sessions = [await client(a, "b", name) for name in names]
    for number in range(5):
        name = random.choice(names)
        payload = f"{name} {number}".encode()
        answer = await asked(a, name, payload)
        assert answer.payload == payload
        assert answer.return_route[0] == Address(0, name.encode())
        if number == 2:
            network.partition({"a"}, {"b"})
            await sleep(random.uniform(0, 6))
            network.heal()
    for session in sessions:
        stats = session.statistics()
        assert (stats.bad, stats.refused) == (0, 0)


@pytest.mark.slow
def test_no_message_comes_out_of_another_session() -> None:
    simulate_many(keeps_apart, seeds=range(times(10, 60)), faults=BAD)


async def forgets(network: SimulatedNetwork) -> None:
    """The opening node crashes: the other side notices, and forgets."""
    a, b = await network.node("a"), await network.node("b")
    service = await serve(b)
    session = await client(a, "b", "stable")
    await session.until_up()
    end = service.sessions[0]
    await network.crash("a")
    await sleep(2 * TIMES.silence)
    assert end.state is SessionState.DOWN
    await sleep(TIMES.forget_after)
    assert end.statistics().state == "CLOSED"
    assert (len(service.sessions), service.statistics().forgotten) == (0, 1)
    again = await client(await network.restart("a"), "b", "stable")
    await again.until_up(60)
    await sleep(1)
    assert len(service.sessions) == 1


@pytest.mark.slow
def test_the_other_side_forgets_who_is_gone() -> None:
    simulate_many(
        forgets, seeds=range(times(15, 100)), faults=Faults(latency=(0.001, 0.1), duplicate=0.2)
    )


async def is_told(network: SimulatedNetwork) -> None:
    """The accepting end closes while the network is cut: the opening one hears of it later."""
    a, b = await network.node("a"), await network.node("b")
    service = await serve(b)
    session = await client(a, "b", "stable")
    await session.until_up(60)
    network.partition({"a"}, {"b"})
    await service.sessions[0].close("maintenance")
    network.heal()
    await session.until_closed()
    assert session.cause in {"maintenance", "the session is over"}
    assert service.sessions == ()


@pytest.mark.slow
def test_a_close_is_told_also_when_it_was_missed() -> None:
    simulate_many(is_told, seeds=range(times(15, 100)), faults=BAD)


async def answered_by_another_way(network: SimulatedNetwork) -> None:
    """The answer to what came by the old way goes back by the new one."""
    a, b = await network.node("a"), await network.node("b")
    await serve(b)
    slow = await Probe.on(b, "slow")
    await start_worker(b, SessionService(expose=["slow"], options=SERVICE), "more")
    await b.listen("sim://b2", expose=["more"])
    links: list[Address] = []

    async def way() -> tuple[Address, str]:
        links.append(await a.connect("sim://b2"))
        return links[-1], "more"

    session = await SessionClient.on(a, "stable", way, options=OPTIONS)
    await session.until_up()
    asker = await Probe.on(a, "asker")
    asker.send("stable => slow", b"question")
    question = await slow.next()
    await a.stop_worker(links[0])
    await sleep(2)
    assert (session.state, len(links)) == (SessionState.UP, 2)
    assert session.resumed
    slow.reply(question, b"answer")
    answer = await asker.next()
    assert answer.payload == b"answer"
    assert answer.return_route == (session.address, slow.address)


def test_an_answer_comes_back_by_the_new_way() -> None:
    simulate_many(answered_by_another_way, seeds=range(20))
