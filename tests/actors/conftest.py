"""The virtual clock, and nodes on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from onward.actors import Node
from onward.actors.testing import VirtualLoop
from onward.transports.simulated import SimulatedNetwork
from tests.support.loops import LoopFactory, loops_of


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run tests on a virtual loop, or on real ones if they are marked `real_time`."""
    if item.get_closest_marker("real_time") is None:
        return {"virtual": VirtualLoop}
    return loops_of(item)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node() as node:
        yield node


@pytest.fixture
async def network() -> AsyncIterator[SimulatedNetwork]:
    async with SimulatedNetwork() as network:
        yield network
