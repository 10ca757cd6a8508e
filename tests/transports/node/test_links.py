"""Listening and links on each transport that loses nothing, beyond the conformance suite."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

import pytest

from onward.actors import Node
from onward.protocol import NodeStopped, NotDelivered
from tests.support.transports import eventually

Uri: TypeAlias = Callable[[], str]
_names = count()


@pytest.fixture(params=["memory", "tcp", "uds", "ws"])
def uri(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Makes URIs to listen on."""
    if request.param in {"tcp", "ws"}:
        return lambda: f"{request.param}://127.0.0.1:0"
    if request.param == "uds":
        folder = tmp_path_factory.mktemp("s")  # short: there are 107 bytes for a path
        return lambda: f"uds://{folder}/{next(_names)}"
    return lambda: f"memory://links-{next(_names)}"


async def test_a_message_for_the_link_itself(a: Node, c: Node, uri: Uri) -> None:
    link = await a.connect((await c.listen(uri())).uri)
    with pytest.raises(Exception, match="the onward route is empty"):
        await a.request(link, b"who are you?")


async def test_a_node_that_stops_while_it_begins_to_listen(uri: Uri) -> None:
    for ticks in range(12):
        where = uri()
        if where.endswith(":0"):
            with socket.create_server(("127.0.0.1", 0)) as free:
                where = where[:-1] + str(free.getsockname()[1])
        node = Node("brief")
        await node.__aenter__()
        listening = asyncio.create_task(node.listen(where))
        for _ in range(ticks):
            await asyncio.sleep(0)
        await node.stop()
        with contextlib.suppress(NodeStopped):
            assert not node.has((await listening).address)
        async with Node("later") as later:
            with pytest.raises(NotDelivered, match="link down"):
                await later.connect(where)


async def test_listening_that_is_given_up_leaves_nothing(a: Node, uri: Uri) -> None:
    for ticks in range(8):
        listening = asyncio.create_task(a.listen(uri()))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if listening.cancel():
            await asyncio.wait([listening])
            await eventually(lambda: a.statistics().worker_count == 0)
        else:
            await (await listening).close()


async def test_a_closed_listener_is_forgotten(a: Node, uri: Uri) -> None:
    closed = weakref.WeakSet[object]()

    async def listen(by_its_worker: bool) -> None:
        listener = await a.listen(uri())
        closed.add(listener)
        await (a.stop_worker(listener.address) if by_its_worker else listener.close())

    for by_its_worker in (False, True) * 5:
        await listen(by_its_worker)
    await eventually(lambda: gc.collect() or not closed)
