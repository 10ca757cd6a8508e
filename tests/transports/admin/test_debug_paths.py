"""The paths that show insides: memory and profiles. Stacks and tasks are in `test_interface`."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from onward.actors import Node
from onward.actors.monitoring import Monitor
from onward.transports.admin import AdminOptions, AdminServer, admin_paths
from tests.support.fixtures import Patch
from tests.support.http_peer import Served
from tests.support.transports import eventually

PROFILE = "onward.transports.admin._debug_paths.profile"


@asynccontextmanager
async def serving_node() -> AsyncGenerator[Served]:
    async with Node("debugged") as node:
        server = AdminServer("http://127.0.0.1:0", admin_paths(Monitor(node)), AdminOptions())
        await node.start(lambda: server, address="admin")
        served = Served(node, server)
        try:
            yield served
        finally:
            for peer in served.peers:
                peer.writer.transport.abort()
            tracemalloc.stop()


async def test_memory_is_traced_on_request() -> None:
    async with serving_node() as served:
        peer = await served.connect()
        found = json.loads((await peer.get("/debug/memory")).body)
        assert (found["tracing"], "lines" in found) == (False, False)
        assert found["blocks"] > 1000
        assert (await peer.post("/debug/memory", b'{"trace": true, "frames": 2}')).status == 200
        kept = [bytes(1000) for _ in range(500)]
        found = json.loads((await peer.get("/debug/memory?lines=100")).body)
        assert found["tracing"]
        assert found["bytes"] >= 1000 * len(kept)
        here = [line for line in found["lines"] if "test_debug_paths.py" in line["at"][0]]
        assert max(line["blocks"] for line in here) >= len(kept)
        assert 500 < found["seconds_left"] <= 600
        few = json.loads((await peer.get("/debug/memory?lines=1")).body)
        assert len(few["lines"]) == 1
        assert (await peer.post("/debug/memory", b'{"trace": false}')).status == 200
        assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    "body", [b"{}", b'{"trace":1}', b'{"trace":true,"frames":17}', b'{"trace":true,"frames":true}']
)
async def test_wrong_questions_about_memory_are_refused(body: bytes) -> None:
    async with serving_node() as served:
        assert (await (await served.connect()).post("/debug/memory", body)).status == 400
        assert (await (await served.connect()).get("/debug/memory?lines=101")).status == 400
        assert not tracemalloc.is_tracing()


async def test_a_profile_has_the_stacks_of_the_loop() -> None:
    async with serving_node() as served:
        answer = await (await served.connect()).get("/debug/profile?seconds=1")
        assert answer.status == 200
        lines = answer.body.decode().splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) > 10
        # The loop is at the end of each stack, or what it has called.
        assert all("(asyncio/" in line or "uvloop" in line for line in lines)


async def test_one_profile_is_taken_at_a_time(monkeypatch: Patch) -> None:
    go_on = asyncio.Event()
    asked: list[float] = []

    async def profile(seconds: float) -> str:
        asked.append(seconds)
        await go_on.wait()
        return "main 1\n"

    monkeypatch.setattr(PROFILE, profile)
    async with serving_node() as served:
        first = asyncio.ensure_future((await served.connect()).get("/debug/profile"))
        await eventually(lambda: asked == [10])
        second = await served.connect()
        assert (await second.get("/debug/profile")).status == 409
        assert (await second.get("/debug/profile", method="HEAD")).status == 200
        for wrong in ("seconds=61", "seconds=x", "minutes=1"):
            assert (await second.get(f"/debug/profile?{wrong}")).status == 400
        go_on.set()
        assert (await first).body == b"main 1\n"
        assert (await second.get("/debug/profile?seconds=0")).status == 200


async def test_a_profile_ends_with_the_connection(monkeypatch: Patch) -> None:
    ended: list[bool] = []

    async def profile(_: float) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        raise AssertionError("unexpected")

    monkeypatch.setattr(PROFILE, profile)
    async with serving_node() as served:
        peer = await served.connect()
        peer.write(b"GET /debug/profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await eventually(lambda: not served.server._idle)
        peer.reset()
        await eventually(lambda: ended == [True])
