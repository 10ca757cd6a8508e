"""The management service of a node, over a link."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.services import ManagementService
from onward.protocol import Message, RequestTimeout, route
from tests.support.workers import Echo


@pytest.mark.real_time
async def test_it_answers_those_it_is_exposed_to(tmp_path: Path) -> None:
    async with Node("far") as far, Node("near") as near:
        await far.start(Echo, address="echo")
        await far.start(ManagementService, address="management")
        inside = await far.listen(f"uds://{tmp_path}/far.sock", expose=["management"])
        outside = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        link = await near.connect(inside.uri)
        answer = json.loads((await near.request([link, "management"], b" workers ")).payload)
        assert answer["node"] == "far"
        assert "0#echo" in [row["address"] for row in answer["rows"]]
        other = await near.connect(outside.uri)
        with pytest.raises(RequestTimeout):
            await near.request([other, "management"], b"workers", timeout=0.1)
        (letter,) = far.dead_letters.recent
        assert letter.reason == "not exposed"


async def test_an_unknown_question_is_told_of(node: Node) -> None:
    await node.start(ManagementService, address="management")
    answer = json.loads((await node.request("management", b"\xff")).payload)
    assert answer == {"error": "ask for workers, links, dead-letters or node"}


async def test_a_question_without_a_return_route_is_a_dead_letter(node: Node) -> None:
    await node.start(ManagementService, address="management")
    node.parts.router.dispatch_or_lose(Message(route("management"), (), b"workers"))
    await node.request("management", b"node")
    assert node.dead_letters.total == 1
