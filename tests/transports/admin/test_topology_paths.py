"""The picture of what surrounds a broker, by HTTP."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
import xml.etree.ElementTree as ET

from onward.protocol.drawing import Picture
from onward.transports.admin import _topology_paths
from onward.transports.client import connect
from tests.support.fixtures import Patch
from tests.support.transports import eventually
from tests.transports.admin.test_interface import world

SVG = "{http://www.w3.org/2000/svg}"


async def test_the_picture_has_requesters_services_and_peers() -> None:
    async with world() as w, connect(w.uri) as client, connect(w.uri, service="web"):
        assert (await client.request("service=store", b"x")).data == b"x"
        node = w.served.node
        listener = await node.listen("tcp://127.0.0.1:0", expose=["store"])
        await node.request(f"1#{listener.uri.removeprefix('tcp://')} => store", b"x")
        answer = await w.get("/api/v1/topology")
        assert (answer.status, answer.headers["content-type"]) == (200, "image/svg+xml")
        texts = [each.text for each in ET.fromstring(answer.body).iter(f"{SVG}text")]
        assert "Around node world" in texts
        assert {"no service", "service=store", "service=web", "1 requester"} <= set(texts)
        assert {"1 request", "2 connections", w.uri} <= set(texts)
        assert any(str(each).startswith("peer 127.0.0.1:") for each in texts)
        assert not any("onward.management" in str(each) for each in texts)


async def test_the_picture_may_use_its_own_style_alone() -> None:
    async with world() as w:
        answer = await w.get("/api/v1/topology")
        style = re.search("<style>(.*?)</style>", answer.body.decode(), re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        assert answer.headers["content-security-policy"] == (
            f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
        )


async def test_one_picture_is_made_at_a_time(monkeypatch: Patch) -> None:
    begun, drawing = list[int](), list[int]()
    go_on = threading.Event()

    def slow(_: Picture) -> str:
        drawing.append(1)
        begun.append(len(drawing))
        assert go_on.wait(60)
        drawing.pop()
        return "<svg/>"

    monkeypatch.setattr(_topology_paths, "draw", slow)
    async with world() as w:
        pictures = [asyncio.create_task(w.get("/api/v1/topology")) for _ in range(4)]
        try:
            await eventually(lambda: len(begun) > 0)
            # The others have been read by now, and wait.
            await eventually(lambda: w.served.server.statistics().connections == len(pictures))
            assert (await w.get("/livez")).status == 200
        finally:
            go_on.set()
        assert [(await each).status for each in pictures] == [200] * 4
    assert begun == [1] * 4
