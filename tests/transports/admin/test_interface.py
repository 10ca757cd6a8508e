"""The paths of the admin interface: health, metrics, the API, events and operations."""

from __future__ import annotations

import asyncio
import json
import linecache
import logging
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.monitoring import Monitor, Stage
from onward.actors.security import Authentication, Authenticator
from onward.protocol.security import BearerToken, Principal
from onward.transports.admin import (
    AdminOptions,
    AdminPaths,
    AdminServer,
    admin_paths,
    json_response,
)
from onward.transports.admin._api import plain
from onward.transports.client import connect
from tests.support.fixtures import Patch
from tests.support.http_peer import Answer, HttpPeer, Served, serving
from tests.support.pages import ROOT, cells, missing, section
from tests.support.security import gated
from tests.support.transports import eventually
from tests.support.workers import Echo


@dataclass
class World:
    """A broker with a listener, a destination and an admin interface."""

    broker: Broker
    monitor: Monitor
    served: Served
    uri: str

    async def get(self, path: str, *fields: str) -> Answer:
        return await (await self.served.connect()).get(path, *fields)

    async def json(self, path: str, status: int = 200) -> Any:
        answer = await self.get(path)
        assert answer.status == status, answer.body
        return json.loads(answer.body)

    async def post(self, path: str, **arguments: Any) -> tuple[int, Any]:
        peer = await self.served.connect()
        answer = await peer.post(path, json.dumps(arguments).encode())
        return answer.status, json.loads(answer.body) if answer.status == 200 else answer.body


@asynccontextmanager
async def world(options: AdminOptions | None = None) -> AsyncGenerator[World]:
    async with Node("world") as node:
        waiting = WaitingOptions(no_route_timeout=60.0)
        broker = await Broker.attach(node, BrokerOptions(waiting=waiting))
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        worker = await node.start(Echo, address="store")
        broker.register(worker, service="store", tags={"region": "eu"})
        monitor = Monitor(node, broker)
        monitor.start()
        given = options or AdminOptions()
        server = AdminServer("http://127.0.0.1:0", admin_paths(monitor, given), given)
        await node.start(lambda: server, address="admin")
        served = Served(node, server)
        try:
            yield World(broker, monitor, served, listener.uri)
        finally:
            for peer in served.peers:
                peer.writer.transport.abort()
            await monitor.stop()


# --- health ---------------------------------------------------------------------------------


async def test_health_in_stages() -> None:
    async with world() as w:
        assert (await w.get("/livez")).body == b"ok\n"
        starting = await w.get("/startupz")
        assert (starting.status, starting.body) == (503, b"not started\n")
        assert (await w.get("/readyz")).status == 503
        w.monitor.started = True
        for path in ("/startupz", "/readyz", "/healthz"):
            assert (await w.get(path)).body == b"ok\n"
        found = await w.json("/readyz?verbose")
        assert found == {
            "stage": "ready",
            "passed": True,
            "checks": [
                {"name": name, "passed": True, "problem": ""}
                for name in ("started", "listeners", "draining")
            ],
        }
        w.monitor.checks.add(Stage.READY, "own", lambda: "out of paper")
        assert (await w.json("/healthz?verbose", 503))["checks"][-1] == {
            "name": "own",
            "passed": False,
            "problem": "out of paper",
        }


async def test_the_texts_of_checks_need_credentials() -> None:
    text = "the password of the store is wrong"
    users = "reader", "other"
    _, authentication = gated({BearerToken(it.encode()): Principal(it, "test") for it in users})
    async with world() as w:
        w.monitor.started = True
        w.monitor.checks.add(Stage.READY, "own", lambda: text)

        def permits(principal: Principal, needs: str) -> bool:
            return (principal.name, needs) == ("reader", "read")

        async with serving(
            admin_paths(w.monitor), authentication=authentication, permits=permits
        ) as served:
            for token in (None, "reader", "other", "unknown"):
                fields = [] if token is None else [f"Authorization: Bearer {token}"]
                answer = await (await served.connect()).get("/readyz?verbose", *fields)
                own = {"name": "own", "passed": False}
                shown = {"problem": text} if token == "reader" else {}
                assert answer.status == 503
                assert json.loads(answer.body)["checks"][-1] == {**own, **shown}


async def test_readiness_does_not_depend_on_destinations() -> None:
    async with world() as w:
        w.monitor.started = True
        await w.served.node.stop_worker("store")
        assert (await w.get("/readyz")).status == 200


# --- metrics --------------------------------------------------------------------------------


def names_of(answer: Answer) -> set[str]:
    return {family.name for family in text_string_to_metric_families(answer.body.decode())}


async def test_metrics_are_read_by_prometheus() -> None:
    async with world() as w:
        answer = await w.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert {"onward_routes", "onward_connections", "process_open_fds"} <= names_of(answer)
        accept = "Accept: application/openmetrics-text;version=1.0.0"
        other = await w.get("/metrics", accept)
        assert other.headers["content-type"].startswith("application/openmetrics-text")
        assert other.body.endswith(b"# EOF\n")


async def test_families_and_services_are_chosen() -> None:
    async with world() as w:
        found = await w.get("/metrics?family=routes&family=onward_workers")
        assert names_of(found) == {"onward_routes", "onward_workers"}
        found = await w.get("/metrics?family=service_destinations&service=store")
        assert found.body.splitlines()[-1] == b'onward_service_destinations{service="store"} 1'
        assert len(found.body.splitlines()) == 3
        assert (await w.get("/metrics?family=colour")).status == 400
        assert (await w.get("/metrics?colour=red")).status == 400


async def test_a_scrape_that_goes_away_leaves_nothing() -> None:
    async with world() as w:
        for number in range(3000):
            w.broker.register("store", service=f"s{number}")
        peer = await w.served.connect()
        peer.write(
            b"GET /metrics?family=service_latency_seconds HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.reset()
        await eventually(lambda: w.served.server.statistics().connections == 0)
        assert (await w.get("/livez")).status == 200


# --- the API --------------------------------------------------------------------------------


async def test_the_status_is_that_of_the_management_service() -> None:
    async with world() as w:
        found = await w.json("/api/v1/status")
        assert found["routes"] == 2
        assert found["listeners"][0]["uri"] == w.uri


async def test_routes_and_where_a_request_would_go() -> None:
    async with world() as w:
        found = await w.json("/api/v1/routes?service=store")
        assert found["total"] == 1
        assert found["rows"][0]["tags"]["region"] == "eu"
        assert (await w.json("/api/v1/routes?tags=region=us"))["total"] == 0
        assert (await w.json("/api/v1/routes?sort=-service&limit=1"))["total"] == 2
        found = await w.json("/api/v1/resolve?q=service%3Dstore")
        assert len(found["matching"]) == 1
        assert (await w.get("/api/v1/resolve?q=@nonsense")).status == 400


async def test_the_figures_of_services() -> None:
    async with world() as w, connect(w.uri) as client:
        for _ in range(3):
            await client.request("service=store", b"hi")
        found = await w.json("/api/v1/services?service=store")
        assert found["total"] == 1
        (row,) = found["rows"]
        assert (row["requests"], row["answered"], row["success"]) == (3, 3, 1.0)
        assert (row["destinations"], row["in_progress"], row["error"]) == (1, 0, 0)
        assert len(row["durations"]) == 22
        found = await w.json("/api/v1/services?sort=-requests&limit=1")
        assert (found["total"], found["rows"][0]["service"]) == (2, "store")
        assert (await w.get("/api/v1/services?sort=colour")).status == 400


async def test_connections_open_and_closed() -> None:
    async with world() as w:
        async with connect(w.uri) as client:
            await client.request("service=store", b"hi")
            (row,) = (await w.json("/api/v1/connections"))["rows"]
            assert (row["state"], row["requests"], row["closed"]) == ("open", 1, None)
            assert (await w.json("/api/v1/connections?state=closed"))["total"] == 0
            status, answer = await w.post("/api/v1/kick", connection=row["id"], text="go")
            assert (status, answer) == (200, {"connection": row["id"]})
            await eventually(lambda: any(w.broker.listeners()[0][1].closed_connections()))
        (closed, *_) = (await w.json("/api/v1/connections?state=closed&sort=opened"))["rows"]
        assert (closed["id"], closed["reason"]) == (row["id"], "by an operator")
        assert (await w.get("/api/v1/connections?state=half")).status == 400


async def test_requests_that_wait() -> None:
    async with world() as w, connect(w.uri) as client:
        asking = asyncio.ensure_future(client.request("service=none", b"hi"))
        await eventually(lambda: w.broker.statistics().waiting == 1)
        (row,) = (await w.json("/api/v1/waiting"))["rows"]
        assert (row["query"], row["requests"], row["sources"]) == ("service=none", 1, 1)
        assert row["bytes"] > 0
        assert row["oldest"] >= 0
        asking.cancel()


async def test_workers_links_dead_letters_limits_and_configuration() -> None:
    async with world() as w:
        found = await w.json("/api/v1/workers?kind=Echo")
        assert [row["address"] for row in found["rows"]] == ["0#store"]
        assert (await w.json("/api/v1/links"))["rows"][0]["uri"].startswith("http://127.0.0.1:")
        assert (await w.json("/api/v1/dead-letters"))["total"] == 0
        limits = {row["name"]: row for row in (await w.json("/api/v1/limits"))["rows"]}
        assert limits["max_routes"]["used"] == 2
        assert limits["max_connections"]["listener"] == w.uri
        found = await w.json("/api/v1/config")
        assert found["broker"]["waiting"]["no_route_timeout"] == 60.0


async def test_a_node_without_a_broker_has_what_it_has() -> None:
    async with Node() as node:
        paths = admin_paths(Monitor(node))
        assert "/api/v1/workers" in set(paths)
        assert "/metrics" in set(paths)
        assert not {"/api/v1/routes", "/api/v1/kick", "/api/v1/events"} & set(paths)


def test_secrets_and_functions_are_not_shown() -> None:
    @dataclass
    class Options:
        level: int = 1
        secret: str = field(default="s", repr=False)
        chosen: Any = len
        many: frozenset[str] = frozenset({"a"})
        stage: Stage = Stage.LIVE

    found = plain({"a": Options(), 1: (None, True, b"x")})
    assert found["a"]["level"] == 1
    assert "secret" not in found["a"]
    assert found["a"]["stage"] == "live"
    assert found["a"]["many"] == ["a"]
    assert isinstance(found["a"]["chosen"], str)
    assert found["1"][:2] == [None, True]


def test_what_json_has_no_form_for() -> None:
    written = json_response({"a": UUID(int=1), "b": b"\x01", "c": {"y", "x"}}).body
    assert written == b'{"a":"00000000-0000-0000-0000-000000000001","b":"01","c":["x","y"]}\n'
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        json_response(object())


# --- events ---------------------------------------------------------------------------------


async def listening(w: World, *fields: str) -> HttpPeer:
    peer = await w.served.connect()
    lines = ["GET /api/v1/events HTTP/1.1", "Host: localhost", *fields, "", ""]
    peer.write("\r\n".join(lines).encode())
    status, headers = await peer.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert await peer.part() == b"retry: 2000\n\n"
    return peer


def read_event(part: bytes) -> tuple[str, str, Any]:
    lines = part.decode().splitlines()
    found = dict(line.split(": ", 1) for line in lines if line)
    return found["id"], found["event"], json.loads(found["data"])


async def test_events_as_they_happen_and_from_the_last_one_on() -> None:
    async with world() as w:
        peer = await listening(w)
        leaving = w.broker.register("store", service="new")
        number, kind, data = read_event(await peer.part())
        assert (kind, data["service"], data["missed"]) == ("joined", "new", 0)
        peer.reset()
        leaving.withdraw()
        again = await listening(w, f"Last-Event-ID: {number}")
        assert read_event(await again.part())[1] == "left"


async def test_the_events_that_are_kept() -> None:
    async with world() as w:
        assert await w.json("/api/v1/recent-events") == {"total": 0, "rows": []}
        async with connect(w.uri, service="shop"):
            await eventually(lambda: w.monitor.events is not None and w.monitor.events.last == 1)
        await eventually(lambda: w.monitor.events is not None and w.monitor.events.last == 2)
        found = await w.json("/api/v1/recent-events")
        assert [row["kind"] for row in found["rows"]] == ["joined", "left"]
        assert found["rows"][0]["service"] == "shop"


async def test_a_reader_of_another_run_gets_all_that_is_kept() -> None:
    async with world() as w:
        w.broker.register("store", service="new")
        await eventually(lambda: w.monitor.events is not None and w.monitor.events.last > 0)
        for last in ("0a1b2c3d-99999", "nonsense", "-1"):
            peer = await listening(w, f"Last-Event-ID: {last}")
            assert b"event: joined" in await peer.part()


async def test_a_stream_without_events_has_comments() -> None:
    async with world(AdminOptions(heartbeat=0.01)) as w:
        peer = await listening(w)
        assert await peer.part() == b":\n\n"
        assert await peer.part() == b":\n\n"


async def test_a_stream_ends_with_the_credentials_of_its_reader() -> None:
    class Soon(Authenticator):
        method = "soon"

        async def authenticate(self, credentials: object, peer: object) -> Principal:
            return Principal("ann", self.method, expires=time.time() + 0.05)

    options = AdminOptions(heartbeat=0.01)
    async with world() as w:
        paths = admin_paths(w.monitor, options)
        server = AdminServer(
            "http://127.0.0.1:0", paths, options, authentication=Authentication([Soon()])
        )
        await w.served.node.start(lambda: server)
        w.served.port = int(server.uri.rpartition(":")[2])
        peer = await listening(w)
        while await peer.part():
            pass


@pytest.mark.parametrize("heartbeat", [0.01, 60.0])
@pytest.mark.parametrize("revoked", ["rule", "credentials"])
async def test_a_stream_ends_when_its_reader_may_no_longer_read(
    heartbeat: float, revoked: str
) -> None:
    allowed = {"rule", "credentials"}

    class Known(Authenticator):
        method = "known"

        async def authenticate(self, credentials: object, peer: object) -> Principal | None:
            return Principal("ann", self.method) if "credentials" in allowed else None

    async with world() as w:
        options = AdminOptions(heartbeat=heartbeat)
        server = AdminServer(
            "http://127.0.0.1:0",
            admin_paths(w.monitor, options),
            options,
            authentication=Authentication([Known()]),
            permits=lambda _, needs: needs == "read" and "rule" in allowed,
        )
        await w.served.node.start(lambda: server)
        w.served.port = int(server.uri.rpartition(":")[2])
        peer = await listening(w)
        allowed.remove(revoked)
        if revoked == "credentials" and heartbeat == 60.0:
            clock = w.served.node.loop
            with pytest.MonkeyPatch.context() as patch:
                now = clock.time
                patch.setattr(clock, "time", lambda: now() + heartbeat)
                w.broker.register("store", service="secret")
                rest = await peer.part()
        else:
            if heartbeat == 60.0:
                w.broker.register("store", service="secret")
            rest = b""
            while part := await peer.part():
                rest += part
        assert b"secret" not in rest


async def test_the_number_of_streams_is_bounded() -> None:
    async with world(AdminOptions(max_event_streams=2)) as w:
        first = await listening(w)
        await listening(w)
        assert (await (await w.served.connect()).get("/api/v1/events", method="HEAD")).status == 503
        answer = await w.get("/api/v1/events")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        first.reset()
        await eventually(lambda: w.served.server.statistics().connections == 2 + 1)
        peer = await w.served.connect()
        assert (await peer.get("/api/v1/events", method="HEAD")).status == 200
        await listening(w)


@pytest.mark.slow
async def test_a_reader_that_stalls_loses_events_and_is_told_how_many() -> None:
    async with world() as w:
        ring = w.monitor.events
        assert ring is not None
        peer = await listening(w)
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        (held,) = (each.transport for each in w.served.server._connections)
        # Else the system takes megabytes before the stream has to wait.
        held.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(8):
            for _ in range(500):
                w.broker.register("store", service="s" * 200).withdraw()
            last = ring.last
            await eventually(lambda last=last: ring.last >= last)  # type: ignore[misc]
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        missed = 0
        seen = 0
        await eventually(lambda: ring.last >= 8_000)
        while seen + missed < ring.last:
            for text in (await peer.part()).decode().split("\n\n")[:-1]:
                found = read_event(text.encode())
                missed += found[2]["missed"]
                seen += 1
        assert missed > 0
        assert seen + missed == ring.last


async def test_a_hundred_stalled_readers_do_not_stop_the_interface() -> None:
    options = AdminOptions(
        max_connections=101,
        max_connections_per_source=101,
        max_event_streams=100,
        write_timeout=0.2,
    )
    async with world(options) as w:
        server, probe = w.served.server, await w.served.connect()
        readers = [stalled(w.served.port) for _ in range(100)]
        try:
            await eventually(lambda: server.statistics().answers.get("200", 0) == 100)
            held = [each.transport for each in server._connections]
            for each in held:  # else the system takes megabytes for each of them
                each.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            slow = 0
            while server.statistics().closed.get("slow reader", 0) < 100:
                for _ in range(200):
                    w.broker.register("store", service="s" * 200).withdraw()
                # A stream holds what one write has: no more than the ring has events for.
                slow = max(slow, *(each.get_write_buffer_size() for each in held))
                assert (await probe.get("/livez")).status == 200
            assert slow < 1024 * 1024
            await listening(w)  # there is room again
        finally:
            for reader in readers:
                reader.close()


def stalled(port: int) -> socket.socket:
    """Return the socket of a reader of events that reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return made


# --- operations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "arguments", "status"),
    [
        ("kick", {}, 400),
        ("kick", {"connection": "1"}, 400),
        ("kick", {"connection": True}, 400),
        ("kick", {"connection": 10**12}, 404),
        ("kick", {"connection": 1, "text": "\n"}, 400),
        ("kick", {"connection": 1, "text": "x" * 201}, 400),
        ("kick", {"connection": 1, "why": "x"}, 400),
        ("log-level", {"logger": "asyncio", "level": "debug"}, 400),
        ("log-level", {"logger": "onwardly", "level": "debug"}, 400),
        ("log-level", {"logger": 1, "level": "debug"}, 400),
        ("log-level", {"level": "loud"}, 400),
        ("log-level", {"level": ["debug"]}, 400),
        ("reload", {}, 404),
    ],
)
async def test_wrong_operations_are_refused(
    path: str, arguments: dict[str, Any], status: int
) -> None:
    async with world() as w:
        assert (await w.post(f"/api/v1/{path}", **arguments))[0] == status


@pytest.mark.parametrize("body", [b"[]", b"{", b"1", b'{"level":NaN}', b"[" * 20_000, b"\xff"])
async def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    async with world() as w:
        assert (await (await w.served.connect()).post("/api/v1/kick", body)).status == 400


async def test_the_level_of_the_log_is_set() -> None:
    logger = logging.getLogger("onward.transports.tests")
    async with world() as w:
        status, answer = await w.post("/api/v1/log-level", logger=logger.name, level="debug")
        assert (status, answer["effective"]) == (200, "debug")
        assert logger.level == logging.DEBUG
        assert (await w.post("/api/v1/log-level", logger=logger.name, level=None))[0] == 200
        assert logger.level == logging.NOTSET


async def test_an_operation_of_the_program() -> None:
    async def reload() -> object:
        return {"changed": ["users"]}

    async def undo() -> object:
        return {"error": "the broker does not drain"}

    async with world() as w:
        w.broker.operations.update({"reload": reload, "undo-drain": undo})
        assert await w.post("/api/v1/reload") == (200, {"changed": ["users"]})
        assert await w.post("/api/v1/reload", x=1) == (400, b"reload has no arguments\n")
        refused = await w.post("/api/v1/undo-drain")
        assert refused == (409, b'{"error":"the broker does not drain"}\n')


async def test_the_insides_of_the_program(monkeypatch: Patch) -> None:
    async with world() as w:
        monkeypatch.setattr(linecache, "getlines", None)  # no file is read
        stacks = (await w.get("/debug/stacks")).body.decode()
        assert "thread MainThread" in stacks
        assert "_stacks" in stacks
        tasks = (await w.get("/debug/tasks")).body.decode()
        assert "EventRing.start.<locals>.keep" in tasks


def test_a_path_has_one_handler_of_a_method() -> None:
    async def handle(_: Any) -> Any:
        raise AssertionError("unexpected")

    paths = AdminPaths()
    paths.add("/x", handle)
    paths.add("/x", handle, method="POST")
    with pytest.raises(ValueError, match="GET /x has a handler already"):
        paths.add("/x", handle)
    assert isinstance(Worker(), Worker)


def test_the_page_of_the_admin_interface_names_tests_that_there_are() -> None:
    page = (ROOT / "docs" / "reference" / "transports-admin.md").read_text()
    rows = list(cells(section(page, "What it answers")))
    assert len(rows) >= 20
    assert [each for row in rows for each in missing(row[2].rstrip(" |"), ROOT)] == []


async def test_a_page_of_another_site_has_no_work_done() -> None:
    async with world() as w:
        of_another = ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors")
        for path in ("/debug/profile?seconds=1", "/api/v1/topology", "/metrics"):
            answer = await w.get(path, *of_another)
            assert (answer.status, answer.body) == (403, b"the request is of another site\n")
        assert (await w.get("/livez", *of_another)).status == 200
