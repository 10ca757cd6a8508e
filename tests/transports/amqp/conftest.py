"""What tests of links through to a container have."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from tests.support.amqp_chain import CIRCUITS, Chain


@pytest.fixture
async def chain() -> AsyncIterator[Chain]:
    async with Node("edge") as node:
        dispatcher = await Dispatcher.attach(node)
        dispatcher.provision("jobs/#", CIRCUITS)
        made = Chain(dispatcher)
        yield made
        made.cut()
