from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node
from tests.support.transports import eventually


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Node, Node, Node]]:
    """Three nodes; when they have stopped, no task of theirs is left."""
    tasks = asyncio.all_tasks()
    async with Node("a") as a, Node("b") as b, Node("c") as c:
        yield a, b, c
    await eventually(lambda: asyncio.all_tasks() <= tasks | {asyncio.current_task()})


@pytest.fixture
def a(nodes: tuple[Node, Node, Node]) -> Node:
    """The first of the three nodes."""
    return nodes[0]


@pytest.fixture
def b(nodes: tuple[Node, Node, Node]) -> Node:
    """The second of the three nodes."""
    return nodes[1]


@pytest.fixture
def c(nodes: tuple[Node, Node, Node]) -> Node:
    """The third of the three nodes."""
    return nodes[2]
