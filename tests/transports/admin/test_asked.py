"""The paths of the admin interface, asked through the management service of a broker."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.broker import MANAGEMENT_SERVICE, Broker, Request
from onward.actors.monitoring import Monitor
from onward.actors.security import Authentication, Authorization
from onward.protocol.rsocket import ErrorCode
from onward.protocol.security import BearerToken, Credentials, Principal, read_rules
from onward.transports.admin import (
    AdminOptions,
    HttpRequest,
    HttpResponse,
    admin_paths,
    answer_paths,
)
from onward.transports.admin._messages import TEXT
from onward.transports.admin._parts import MAX_ANSWER
from onward.transports.client import Client, RequestRejected, connect
from onward.transports.rsocket import DestinationError
from tests.support.security import gated

TO = f"service={MANAGEMENT_SERVICE}"
RULES = """\
[[rule]]
roles = ["reader", "operator"]
read = true
request = "service=onward.management"

[[rule]]
roles = ["operator"]
operate = true

[[rule]]
roles = ["tenant"]
request = "service=onward.management"
"""


@asynccontextmanager
async def world(
    authorization: Authorization | None = None, authentication: Authentication | None = None
) -> AsyncGenerator[tuple[str, Broker]]:
    """Run a broker that answers paths; yield its URI."""
    async with Node("asked") as node:
        broker = await Broker.attach(node, authorization=authorization)
        more: dict[str, Any] = {} if authentication is None else {"authentication": authentication}
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker, **more)
        monitor = Monitor(node, broker)
        paths = admin_paths(monitor, AdminOptions(open_metrics=True))
        paths.add("/long", long)
        paths.add("/long-parts", long_parts)
        answer_paths(broker, paths)
        yield listener.uri, broker


async def long(_: HttpRequest) -> HttpResponse:
    return HttpResponse(b"x" * MAX_ANSWER, TEXT)


async def long_parts(_: HttpRequest) -> HttpResponse:
    return HttpResponse(_parts(), TEXT)


async def _parts() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * (MAX_ANSWER // 2)


async def ask(client: Client, question: str) -> Any:
    return json.loads((await client.request(TO, question.encode())).data)


async def test_tables_are_those_of_the_admin_interface() -> None:
    async with world() as (uri, _), connect(uri, service="shop") as client:
        found = await ask(client, "/api/v1/connections?state=open&sort=-requests")
        assert (found["total"], found["rows"][0]["service"]) == (1, "shop")
        assert (await ask(client, "/api/v1/connections?nonsense=1"))["error"].startswith("unknown")
        assert await ask(client, "/nonsense") == {"error": "there is no such path"}
        assert "onward_routes" in await ask(client, "/metrics")
        assert not (await ask(client, "/readyz?verbose"))["passed"]
        by_route = await client.request(TO, b"", route="/api/v1/limits")
        assert json.loads(by_route.data)["total"] > 0


async def test_without_rules_no_client_operates() -> None:
    async with world() as (uri, _), connect(uri) as client:
        for question in ('/api/v1/kick {"connection": 1}', "/debug/stacks"):
            with pytest.raises(DestinationError, match="not allowed: operate") as refused:
                await ask(client, question)
            assert refused.value.code == ErrorCode.INVALID


async def test_without_rules_anonymous_clients_read_no_paths_where_others_are_known() -> None:
    token = BearerToken(b"ann")
    known: dict[Credentials | None, Principal] = {
        token: Principal("ann", "test"),
        None: Principal("anonymous", "anonymous"),
    }
    _, authentication = gated(known)
    async with world(authentication=authentication) as (uri, _):
        async with connect(uri, credentials=token) as client:
            assert (await ask(client, "/api/v1/connections"))["total"] == 1
        async with connect(uri) as client:
            assert await ask(client, "/livez") == "ok\n"
            for question in ("/api/v1/connections", "/api/v1/config", "/metrics"):
                with pytest.raises(DestinationError, match="not allowed: read"):
                    await ask(client, question)


async def test_a_path_needs_the_rule_that_it_needs_by_http() -> None:
    names = ("reader", "operator", "tenant")
    _, authentication = gated(
        {BearerToken(name.encode()): Principal(name, "test", frozenset({name})) for name in names}
    )
    async with world(Authorization(read_rules(RULES)), authentication) as (uri, _):

        async def told(name: str, question: str) -> Any:
            async with connect(uri, credentials=BearerToken(name.encode())) as client:
                try:
                    return await ask(client, question)
                except DestinationError as error:
                    return error.text

        assert await told("tenant", "/api/v1/connections") == "not allowed: read"
        # Open are the metrics for those that reach the admin interface, and not for all tenants.
        assert await told("tenant", "/metrics") == "not allowed: read"
        assert await told("tenant", "/livez") == "ok\n"
        for name, keys in (
            ("tenant", {"name", "passed"}),
            ("reader", {"name", "passed", "problem"}),
        ):
            (started, *_) = (await told(name, "/readyz?verbose"))["checks"]
            assert started.keys() == keys
        assert (await told("reader", "/api/v1/connections"))["total"] == 1
        assert await told("reader", "/debug/stacks") == "not allowed: operate"
        assert "thread MainThread" in await told("operator", "/debug/stacks")
        kicked = await told("operator", '/api/v1/kick {"connection": 999}')
        assert kicked == {"error": "there is no connection 999"}


async def test_all_processes_are_told_which_client_asks() -> None:
    async with Node("asked") as node:
        broker = await Broker.attach(node)
        seen: list[HttpRequest] = []

        async def whole(request: HttpRequest) -> HttpResponse:
            seen.append(request)
            return HttpResponse(b"1")

        answer_paths(broker, admin_paths(Monitor(node, broker)), whole)
        assert broker.admin is not None
        ann = Principal("ann", "test")
        for what in ("statistics", "/api/v1/status?process=1"):
            asks = Request(b"", principal=ann, shared=True, source="10.0.0.1")
            assert await broker.admin(what, "", asks) == b'"1"'
        assert [(each.path, each.query) for each in seen] == [
            ("/api/v1/status", ""),
            ("/api/v1/status", "process=1"),
        ]
        assert {(each.method, each.principal, each.source) for each in seen} == {
            ("GET", ann, "10.0.0.1")
        }
        assert await seen[0].reads()
        # Nor does it ask all who connect to it alone.
        assert await broker.admin("/livez", "", Request(b"")) == b'"ok\\n"'
        assert len(seen) == 2


@pytest.mark.parametrize("path", ["/long", "/long-parts"])
async def test_an_answer_is_bounded(path: str) -> None:
    async with world() as (uri, _), connect(uri) as client:
        with pytest.raises(RequestRejected, match="ask for a part"):
            await ask(client, path)


async def test_a_stream_without_an_end_is_refused_and_leaves_its_place() -> None:
    async with world() as (uri, _), connect(uri) as client:
        for _ in range(30):
            with pytest.raises(DestinationError, match="it has no end"):
                await ask(client, "/api/v1/events")
