"""The virtual clock, and nodes on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node
from onward.actors.testing import VirtualLoop
from onward.transports.simulated import SimulatedNetwork
from tests.support.loops import LoopFactory


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, LoopFactory]:
    """Run tests on a virtual loop, or on a real one if they are marked `real_time`."""
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualLoop}


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node() as node:
        yield node


@pytest.fixture
async def network() -> AsyncIterator[SimulatedNetwork]:
    async with SimulatedNetwork() as network:
        yield network
