"""Each composes with each: any chain of them gets a question through, an answer back, and on."""

from __future__ import annotations

import random
from functools import partial

import pytest

from onward.actors import Node, Worker
from onward.actors.workers import Echo, Forwarder, Proxy, Spread, Spreader, Tap
from onward.protocol import MAX_ROUTE_LENGTH, format_route
from tests.support.counts import times


def any_worker(pick: random.Random, following: str) -> tuple[Worker, str]:
    """Make a worker of a random kind; return it, and what comes behind it in a route."""
    match pick.randrange(7):
        case 0:
            return Proxy(following), ""
        case 1:
            return Proxy(following, transparent=True), ""
        case 2:
            return Spreader([following, following], pick.choice(list(Spread))), ""
        case 3:
            return Spreader([following] * 3, key=lambda message: message.payload), ""
        case 4:
            return Tap("observer"), following
        case 5:
            return Proxy("road"), following
        case _:
            return Forwarder(), following


@pytest.mark.parametrize("seed", range(times(20, 100)))
async def test_a_chain_of_any_workers(seed: int, node: Node) -> None:
    pick = random.Random(seed)
    await node.start(Forwarder, address="road")
    await node.start(Echo, address="observer")
    await node.start(Echo, address="echo")
    route = "echo"
    for number in range(pick.randrange(1, 10)):
        worker, following = any_worker(pick, route)
        await node.start(partial(_same, worker), address=f"w{number}")
        route = " => ".join(filter(None, (f"w{number}", following)))
    back = route
    for payload in (b"1", b"2", b"3"):
        # Who goes on with the conversation does so along the way the answer shows.
        answer = await node.request(back, payload, timeout=5)
        assert answer.payload == payload, route
        assert len(answer.return_route) < MAX_ROUTE_LENGTH
        back = format_route(answer.return_route)
    assert set(node.dead_letters.by_reason) <= {"no such worker"}  # the observer's answers
    assert node.statistics().failed == 0


def _same(worker: Worker) -> Worker:
    return worker
