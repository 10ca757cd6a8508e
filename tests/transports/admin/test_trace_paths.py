"""The trace of a message of the node, and the peers of its links."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.actors.monitoring import Monitor
from onward.actors.testing import virtual_time
from onward.actors.tracing import HopTracer
from onward.actors.workers import Forwarder
from onward.transports.admin import AdminPaths, HttpError, HttpRequest, HttpResponse, admin_paths
from onward.transports.admin._trace_paths import MAX_PAYLOAD, MAX_TRACES
from tests.support.clusters import SOON, clusters
from tests.support.transports import eventually
from tests.support.workers import Echo, Recorder


async def asked(paths: AdminPaths, **arguments: Any) -> dict[str, Any]:
    request = HttpRequest("POST", "/api/v1/trace", body=json.dumps(arguments).encode())
    response: HttpResponse = await paths.find("POST", request.path).handle(request)
    assert isinstance(response.body, bytes)
    found: dict[str, Any] = json.loads(response.body)
    return found


async def refused(paths: AdminPaths, **arguments: Any) -> tuple[int, str]:
    with pytest.raises(HttpError) as caught:
        await asked(paths, **arguments)
    return caught.value.status.value, caught.value.text


async def test_a_request_and_a_route_are_traced() -> None:
    async with Node("traced") as node:
        broker = await Broker.attach(node)
        node.add_instrument(HopTracer(node))
        paths = admin_paths(Monitor(node, broker))
        worker = await node.start(Echo, address="echo")
        await node.start(Forwarder, address="relay")
        broker.register(worker, service="echo")
        found = await asked(paths, query="service=echo", payload="hi", timeout=5)
        assert bytes.fromhex(found["answer"]["payload"]) == b"hi"
        assert [hop["worker"] for hop in found["hops"]][-1] == "0#echo"
        found = await asked(paths, route="relay => echo", payload="hi")
        assert [hop["worker"] for hop in found["hops"]] == ["0#relay", "0#echo", "0#relay"]
        lost = await asked(paths, route="relay => nowhere", timeout=0.1)
        assert (lost["answer"], lost["lost"]) == (None, "no such worker")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "query, or route"),
        ({"query": "service=a", "route": "a"}, "query, or route"),
        ({"query": 1}, "query, or route"),
        ({"query": "@nonsense"}, "nonsense"),
        ({"route": "=>"}, ""),
        ({"route": "a", "payload": 1}, "payload must be"),
        ({"route": "a", "payload": "x" * (MAX_PAYLOAD + 1)}, "payload must be"),
        ({"route": "a", "payload": "\ud800"}, "not JSON"),
        ({"route": "a", "timeout": 0}, "timeout must be"),
        ({"route": "a", "timeout": "1"}, "timeout must be"),
        ({"route": "a", "timeout": True}, "timeout must be"),
        ({"route": "a", "timeout": 31}, "at most 30 seconds"),
        ({"route": "a", "to": "b"}, "unknown: to"),
    ],
)
async def test_wrong_questions_are_refused(arguments: dict[str, Any], text: str) -> None:
    async with Node("traced") as node:
        node.add_instrument(HopTracer(node))
        status, told = await refused(admin_paths(Monitor(node)), **arguments)
        assert status == 400
        assert text in told


async def test_a_node_that_does_not_trace_says_so() -> None:
    async with Node("untraced") as node:
        paths = admin_paths(Monitor(node))
        assert await refused(paths, route="a") == (
            409,
            "the node does not trace: start it with --trace",
        )
        node.add_instrument(HopTracer(node))
        assert (await refused(paths, route="unknown"))[0] == 409


async def test_the_number_of_traces_is_bounded() -> None:
    async with Node("traced") as node:
        node.add_instrument(HopTracer(node))
        paths = admin_paths(Monitor(node))
        recorder = Recorder()
        await node.start(lambda: recorder, address="silent")
        traces = [
            asyncio.ensure_future(asked(paths, route="silent", timeout=30))
            for _ in range(MAX_TRACES)
        ]
        await eventually(lambda: len(recorder.messages) == MAX_TRACES)
        status, text = await refused(paths, route="silent")
        assert (status, text) == (503, f"there are {MAX_TRACES} traces already")
        for each in traces:
            each.cancel()
        await asyncio.wait(traces)
        assert (await asked(paths, route="silent", timeout=0.01))["answer"] is None


async def test_the_peers_of_links() -> None:
    async def peers(query: str = "") -> dict[str, Any]:
        response = await paths.find("GET", "/api/v1/peers").handle(
            HttpRequest("GET", "/api/v1/peers", query)
        )
        assert isinstance(response.body, bytes)
        found: dict[str, Any] = json.loads(response.body)
        return found

    async with Node("near") as near, Node("far") as far:
        paths = admin_paths(Monitor(far))
        assert await peers() == {"total": 0, "offset": 0, "rows": []}
        await far.start(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        there = listener.uri.removeprefix("tcp://")
        assert (await near.request(f"1#{there} => echo", b"x")).payload == b"x"
        (row,) = (await peers())["rows"]
        assert (row["principal"], row["state"]) == ("", "up")
        assert row["received"] == 1
        assert (await peers("state=up&sort=-received"))["total"] == 1
        assert (await peers("state=closed"))["total"] == 0


@virtual_time
async def test_the_other_brokers_of_a_cluster_are_peers() -> None:
    async def answered(path: str, query: str = "") -> bytes:
        found = await paths.find("GET", path).handle(HttpRequest("GET", path, query))
        assert isinstance(found.body, bytes)
        return found.body

    async with clusters() as made:
        one = await made.start("one", ["two"])
        two = await made.start("two")
        await two.serve("orders")
        await asyncio.sleep(SOON)
        paths = admin_paths(Monitor(one.node, one.broker, cluster=one.cluster))
        found = json.loads(await answered("/api/v1/peers", "kind=broker&sort=-routes"))
        (row,) = found["rows"]
        assert (row["peer"], row["state"], row["routes"]) == ("two", "up", 1)
        assert (row["uri"], row["sequence"], row["behind"]) == (two.uri, 1, 0)
        assert row["instance"] == pytest.approx(time.time(), abs=60)
        assert row["since"] == pytest.approx(time.time(), abs=60)
        routes = json.loads(await answered("/api/v1/routes", "service=orders"))
        assert routes["rows"][0]["broker"] == "two"
