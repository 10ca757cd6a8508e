from __future__ import annotations

import asyncio

from onward.transports.simulated import Faults, SimulatedNetwork, Traffic
from tests.transports.simulated.stage import kinds, simulated, two_nodes


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(each) for each in payloads]


async def send(network: SimulatedNetwork, count: int) -> list[int]:
    """Send numbers from `a` to `b`, and return what came."""
    a, _, link, _, far = await two_nodes(network)
    for number in range(count):
        a.send([link, "far"], b"%d" % number)
    await asyncio.sleep(10)
    return numbers(far.payloads)


@simulated()
async def test_a_millisecond_and_nothing_else(network: SimulatedNetwork) -> None:
    a, _, link, _, far = await two_nodes(network)
    loop = asyncio.get_running_loop()
    began = loop.time()
    a.send([link, "far"], b"x")
    await far.next()
    assert loop.time() == began + 0.001
    assert network.traffic("a", "b") == Traffic(sent=1, arrived=1)
    assert network.traffic("b", "a") == Traffic()
    assert kinds(network) == ["connected", "sent", "arrived"]
    sent, arrived = network.history[-2:]
    assert (sent.source, sent.target, sent.number, sent.size) == ("a", "b", 1, 1)
    assert arrived == sent._replace(at=arrived.at, kind="arrived")


@simulated(faults=Faults(latency=(0.1, 2.0)))
async def test_latency_varies_and_order_is_kept(network: SimulatedNetwork) -> None:
    assert await send(network, 200) == list(range(200))
    waits = [
        arrived.at - sent.at
        for sent in network.history
        for arrived in network.history
        if (sent.kind, arrived.kind) == ("sent", "arrived") and sent.number == arrived.number
    ]
    assert all(0.1 <= wait <= 2.0 for wait in waits)
    assert max(waits) > 1.5


@simulated(faults=Faults(loss=0.3))
async def test_loss(network: SimulatedNetwork) -> None:
    came = await send(network, 1000)
    assert came == sorted(set(came))
    assert 620 < len(came) < 780
    assert network.traffic() == Traffic(sent=1000, arrived=len(came), lost=1000 - len(came))


@simulated(faults=Faults(duplicate=0.3))
async def test_duplicates(network: SimulatedNetwork) -> None:
    came = await send(network, 500)
    assert sorted(set(came)) == list(range(500))
    assert came == sorted(came)
    copied = len(came) - 500
    assert 100 < copied < 200
    assert network.traffic() == Traffic(sent=500, copied=copied, arrived=len(came))


@simulated(faults=Faults(reorder=0.2, reorder_by=0.01))
async def test_disorder(network: SimulatedNetwork) -> None:
    came = await send(network, 500)
    assert sorted(came) == list(range(500))
    assert came != list(range(500))
    assert network.traffic().overtaken > 50
    # Those that are not overtaken keep their order among themselves.
    late = {event.number - 1 for event in network.history if event.kind == "overtaken"}
    in_order = [number for number in came if number not in late]
    assert in_order == sorted(in_order)


@simulated(faults=Faults(loss=1))
async def test_everything_is_lost(network: SimulatedNetwork) -> None:
    assert await send(network, 10) == []
    assert network.traffic("a") == Traffic(sent=10, lost=10)


@simulated()
async def test_what_is_on_the_way_is_counted(network: SimulatedNetwork) -> None:
    a, _, link, _, _ = await two_nodes(network)
    a.send([link, "far"], b"x")
    await asyncio.sleep(0.0005)
    assert network.traffic(target="b") == Traffic(sent=1, on_the_way=1)


@simulated(faults=Faults(loss=0.5))
async def test_each_way_has_numbers_of_its_own(network: SimulatedNetwork) -> None:
    # What happens from `b` to `a` does not change what happens from `a` to `b`.
    a, b, link, near, far = await two_nodes(network)
    near.send([link, "far"], b"hello")
    while not far.messages:
        near.send([link, "far"], b"hello")
        await asyncio.sleep(1)
    for _ in range(50):
        b.send(far.messages[0].return_route, b"back")
    sent = network.traffic("a", "b").sent
    for number in range(100):
        a.send([link, "far"], b"%d" % number)
    await asyncio.sleep(1)
    lost = [
        event.number for event in network.history if (event.kind, event.source) == ("lost", "a")
    ]
    assert lost
    assert sent + 100 == network.traffic("a", "b").sent
