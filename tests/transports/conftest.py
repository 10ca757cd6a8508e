from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from onward.actors import Node
from tests.support.loops import LoopFactory, loops_of
from tests.support.transports import eventually


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    return loops_of(item)


def open_sockets() -> int:
    """How many sockets this process has open, where the system tells."""
    folder = Path("/proc/self/fd")
    count = 0
    for each in folder.iterdir() if folder.exists() else ():
        try:
            count += os.readlink(each).startswith("socket:")  # noqa: PTH115 - not a path
        except OSError:
            continue  # closed while we looked, as the folder's own
    return count


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Node, Node, Node]]:
    """Three nodes; when they have stopped, no task and no socket of theirs is left."""
    tasks = asyncio.all_tasks()
    sockets = open_sockets()
    async with Node("a") as a, Node("b") as b, Node("c") as c:
        yield a, b, c
    await eventually(lambda: asyncio.all_tasks() <= tasks | {asyncio.current_task()})
    await eventually(lambda: open_sockets() <= sockets)
    gc.collect(0)  # what was not closed warns now, and a warning is an error


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
    """The third of the three nodes, mostly the one that listens."""
    return nodes[2]
