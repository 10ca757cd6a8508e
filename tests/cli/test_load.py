"""A load of requests: what an open loop shows that a closed one hides, and how requests end."""

from __future__ import annotations

import asyncio

import pytest

from onward.cli import _load
from onward.cli._load import MAX_PROBLEMS, End, LoadPlan, Measured, Send, generate, kind_of
from onward.protocol import LinkDown, LinkLost, NotDelivered, OnwardError, RequestTimeout
from onward.transports.client import RequestCanceled, RequestRejected
from onward.transports.rsocket import DestinationError
from tests.support.virtual import virtual_time

SERVICE_TIME = 0.001


def server(*, stalls: tuple[float, float] = (0.0, 0.0)) -> Send:
    """Return a server that answers after a millisecond, and stalls for some time."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def send(_: int, __: Measured) -> None:
        begin, end = stalls
        if begin <= loop.time() - began < end:
            await asyncio.sleep(began + end - loop.time())
        await asyncio.sleep(SERVICE_TIME)

    return send


async def measure(plan: LoadPlan, *clients: Send) -> Measured:
    measured = Measured()
    await generate(plan, clients, asyncio.get_running_loop().time, measured)
    return measured


@virtual_time
async def test_a_server_that_stalls_shows_in_the_percentiles_of_an_open_loop() -> None:
    plan = LoadPlan(rate=100, duration=10)
    found = await measure(plan, server(stalls=(3.0, 4.0)))
    # A tenth of all requests were due in that second, and waited half of it on average.
    assert found.ends == {End.ANSWERED: 1000}
    assert found.latencies.quantile(0.89) < 0.01
    assert 0.45 < found.latencies.quantile(0.95) < 0.55
    assert 0.85 < found.latencies.quantile(0.99) < 0.95
    assert 0.99 < found.latencies.longest < 1.01
    assert 9.9 < found.seconds < 10.1


@virtual_time
async def test_a_closed_loop_hides_it() -> None:
    found = await measure(LoadPlan(window=1, duration=10), server(stalls=(3.0, 4.0)))
    assert found.latencies.longest > 1
    assert found.latencies.quantile(0.999) < 0.01


@virtual_time
async def test_what_cannot_be_sent_in_time_counts_from_when_it_was_due() -> None:
    # At the limit of requests in flight the load itself is held up by the server.
    found = await measure(LoadPlan(rate=10, count=40), *[server(stalls=(1.0, 3.0))])
    assert (found.ends[End.ANSWERED], found.late) == (40, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_load, "MAX_IN_FLIGHT", 1)
        held = await measure(LoadPlan(rate=10, count=40), *[server(stalls=(1.0, 3.0))])
    assert 1.8 < held.late < 2.1
    assert held.latencies.quantile(0.7) > 0.5
    assert held.latencies.longest == pytest.approx(found.latencies.longest, abs=0.01)


@virtual_time
async def test_a_closed_loop_keeps_its_window_and_its_count() -> None:
    running: list[int] = [0, 0]
    most = [0, 0]

    def client(own: int) -> Send:
        async def send(_: int, __: Measured) -> None:
            running[own] += 1
            most[own] = max(most[own], running[own])
            await asyncio.sleep(SERVICE_TIME)
            running[own] -= 1

        return send

    found = await measure(LoadPlan(window=3, count=100), client(0), client(1))
    assert (found.ends[End.ANSWERED], most) == (100, [3, 3])
    found = await measure(LoadPlan(window=1, duration=1), client(0))
    assert found.ends[End.ANSWERED] in (1000, 1001)


@virtual_time
async def test_an_open_loop_ends_with_its_count_or_its_duration() -> None:
    for plan, sent in (
        (LoadPlan(rate=50, count=20), 20),
        (LoadPlan(rate=50, duration=2), 100),
        (LoadPlan(rate=50, duration=2, count=30), 30),
        (LoadPlan(rate=0.1, duration=1), 1),
    ):
        found = await measure(plan, server())
        assert (found.sent, found.ends[End.ANSWERED]) == (sent, sent)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RequestRejected(0x202, "busy"), End.REJECTED),
        (RequestCanceled(0x203, "gone"), End.CANCELED),
        (DestinationError(0x201, "no"), End.ERROR),
        (RequestTimeout("it", "1 s"), End.TIMEOUT),
        (LinkLost("it", "gone"), End.LOST),
        (LinkDown("it", "no"), End.NOT_SENT),
        (NotDelivered("it", "full"), End.NOT_SENT),
        (OnwardError("else"), End.ERROR),
    ],
)
def test_how_a_request_ends(error: OnwardError, end: End) -> None:
    assert kind_of(error) is end


@virtual_time
async def test_errors_are_apart_and_not_among_the_latencies() -> None:
    async def send(number: int, _: Measured) -> None:
        if number % 4 == 3:
            raise DestinationError(0x201, f"no {number}")

    found = await measure(LoadPlan(rate=100, count=400), send)
    assert found.ends == {End.ANSWERED: 300, End.ERROR: 100}
    assert found.latencies.count == 300
    assert len(found.problems) == MAX_PROBLEMS


@virtual_time
async def test_what_was_measured_stays_when_it_is_stopped() -> None:
    measured = Measured()
    loop = asyncio.get_running_loop()
    load = generate(LoadPlan(rate=100, duration=100), [server()], loop.time, measured)
    task = asyncio.ensure_future(load)
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert measured.latencies.count in (99, 100)
    assert measured.seconds == pytest.approx(1)
