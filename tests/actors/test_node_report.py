"""Reports about a node: bounded, without payloads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onward.actors import Node, Worker
from onward.actors._node_report import MAX_REPORT, MAX_TEXT, node_report
from onward.protocol import Message, route
from tests.support.workers import Echo


class Broken(Worker):
    def statistics(self) -> None:
        raise RuntimeError("on purpose")


class Other(Worker):
    def statistics(self) -> str:
        return "no figures"


def report(node: Node, question: str) -> Any:
    answer = node_report(node, question)
    assert answer is not None
    return json.loads(answer)


async def test_workers_come_with_the_most_waiting_first() -> None:
    async with Node("n") as node:
        node.spawn(Echo, address="idle")
        node.spawn(Echo, address="busy")
        node.send("busy", b"a")
        node.send("busy", b"b")
        found = report(node, "workers")
        assert (found["node"], found["total"]) == ("n", 2)
        first, second = found["rows"]
        assert (first["address"], first["kind"], first["waiting"]) == ("0#busy", "Echo", 2)
        assert (second["address"], second["waiting"]) == ("0#idle", 0)


async def test_a_long_report_is_cut_and_says_how_many_there_are(node: Node) -> None:
    for _ in range(400):
        node.spawn(Echo)
    answer = node_report(node, "workers")
    assert answer is not None
    assert MAX_REPORT - 1024 < len(answer) < MAX_REPORT + 1024
    found = json.loads(answer)
    assert found["total"] == 400
    assert 100 < len(found["rows"]) < 400


@pytest.mark.real_time
async def test_links_are_workers_with_a_peer_or_a_uri(caplog: pytest.LogCaptureFixture) -> None:
    async with Node("far") as far, Node("near") as near:
        far.spawn(Echo, address="echo")
        far.spawn(Broken, address="broken")
        far.spawn(Other, address="other")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        where = listener.uri.removeprefix("tcp://")
        await near.request(f"1#{where} => echo", b"")
        (link,) = report(near, "links")["rows"]
        assert (link["peer"], link["state"], link["sent"]) == (where, "up", 1)
        told, accepted = report(far, "links")["rows"]
        assert (told["uri"], told["kind"]) == (listener.uri, "ListenerWorker")
        assert (accepted["kind"], accepted["received"]) == ("AcceptedLink", 1)
    assert "has no statistics" in caplog.text


async def test_dead_letters_come_last_first_and_without_payloads() -> None:
    now = [100.0]
    async with Node(clock=lambda: now[0]) as node:
        node.parts.router.dispatch_or_lose(Message(route("a" * 500), (), b"secret"))
        now[0] = 103.0
        node.parts.router.dispatch_or_lose(Message(route("b => c"), (), b"secret"))
        now[0] = 104.5
        answer = node_report(node, "dead-letters") or b""
        assert b"secret" not in answer
        found = json.loads(answer)
        assert (found["total"], found["reasons"]) == (2, {"no such worker": 2})
        last, first = found["rows"]
        assert (last["age"], last["onward_route"], last["size"]) == (1.5, "0#b => 0#c", 6)
        assert (first["age"], len(first["onward_route"])) == (4.5, MAX_TEXT)


async def test_the_figures_of_the_node() -> None:
    async with Node("n") as node:
        node.spawn(Echo, address="echo")
        await node.request("echo", b"")
        (row,) = report(node, "node")["rows"]
        assert (row["worker_count"], row["handled"], row["dead_letter_reasons"]) == (1, 1, {})


async def test_another_question_has_no_report(node: Node) -> None:
    assert node_report(node, "secrets") is None
