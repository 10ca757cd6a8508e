"""No path of the admin interface tells a principal what it may not see."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from onward.actors import Node
from onward.actors.broker import MANAGEMENT_SERVICE, Broker, BrokerOptions, WaitingOptions
from onward.actors.monitoring import Monitor
from onward.actors.security import Authentication, Authenticator, Authorization
from onward.actors.tracing import HopTracer
from onward.protocol.security import (
    Action,
    BearerToken,
    Credentials,
    PeerIdentity,
    Principal,
    read_rules,
)
from onward.transports.admin import AdminOptions, AdminPaths, AdminServer, admin_paths, answer_paths
from onward.transports.client import Client, connect
from onward.transports.rsocket import DestinationError
from tests.support.http_peer import Answer, Served
from tests.support.workers import Echo

SECRET = "topsecret"
"""In each name of what only readers may see: services, tags, queries, workers, principals."""

RULES = """\
[[rule]]
roles = ["reader", "both"]
read = true

[[rule]]
roles = ["operator", "both"]
operate = true

[[rule]]
roles = ["tenant"]
request = "service=own"
register = "service=own"

[[rule]]
roles = ["owner"]
register = ["service=topsecret"]

[[rule]]
roles = ["reader", "operator", "both", "tenant", "nothing"]
request = "service=onward.management"
"""

QUERIES = (
    "",
    f"q=service%3D{SECRET}",
    f"service={SECRET}",
    "limit=1",
    "sort=-service",
    "state=closed",
    "verbose",
    f"family=service_destinations&service={SECRET}",
    "family=colour",
    "colour=red",
)
BODIES: tuple[dict[str, object], ...] = (
    {},
    {"connection": 1},
    {"connection": 10**9},
    {"query": f"service={SECRET}"},
    {"route": f"0#{SECRET}"},
    {"trace": True},
    {"logger": "onward", "level": "info"},
)


class Named(Authenticator):
    """Each token is the name of a principal, and of its role."""

    method = "token"

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        if not isinstance(credentials, BearerToken):
            return None
        name = credentials.token.decode()
        forced = frozenset({("tenant", "a")}) if name == "tenant" else frozenset[tuple[str, str]]()
        role = "owner" if name == SECRET else name
        return Principal(name, "token", frozenset({role}), forced)


@dataclass
class World:
    """A broker with secrets, and its admin interface."""

    broker: Broker
    paths: AdminPaths
    served: Served
    uri: str

    async def ask(self, who: str, method: str, target: str, body: dict[str, object]) -> Answer:
        peer = await self.served.connect()
        fields = [f"Authorization: Bearer {who}"] if who else []
        try:
            if method == "POST":
                return await peer.post(target, json.dumps(body).encode(), *fields)
            return await peer.get(target, *fields, method=method)
        finally:
            peer.writer.transport.abort()


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    async with Node("leaks") as node:
        authorization = Authorization(read_rules(RULES))
        authentication = Authentication([Named()])
        options = BrokerOptions(waiting=WaitingOptions(no_route_timeout=60.0))
        broker = await Broker.attach(node, options, authorization=authorization)
        node.add_instrument(HopTracer(node))
        listener = await node.listen(
            "rsocket+tcp://127.0.0.1:0", broker=broker, authentication=authentication
        )
        worker = await node.start(Echo, address=f"worker-{SECRET}")
        broker.register(worker, service=SECRET, tags={"region": SECRET})
        broker.register(worker, service="own", tags={"tenant": "b", "region": SECRET})
        monitor = Monitor(node, broker)
        monitor.configuration[SECRET] = SECRET

        def operation() -> object:
            raise AssertionError("it was not allowed")

        broker.operations["reload"] = operation  # type: ignore[assignment]
        monitor.started = True
        paths = admin_paths(monitor)
        answer_paths(broker, paths)
        server = AdminServer(
            "http://127.0.0.1:0",
            paths,
            AdminOptions(),
            authentication=authentication,
            permits=lambda who, needs: authorization.allows(who, Action(needs)),
        )
        await node.start(lambda: server, address="admin")
        served = Served(node, server)
        async with connect(listener.uri, service=SECRET, credentials=BearerToken(SECRET.encode())):
            yield World(broker, paths, served, listener.uri)
        for peer in served.peers:
            peer.writer.transport.abort()


def asked(paths: AdminPaths) -> Iterator[tuple[str, str, str, dict[str, object], str]]:
    """Yield method, path, query, body and need of each request to be tried."""
    for path in paths:
        for method in ("GET", "POST"):
            try:
                needs = paths.find(method, path).needs
            except Exception:
                continue
            for body in BODIES if method == "POST" else ({},):
                for query in QUERIES if method == "GET" else ("",):
                    yield method, path, query, body, needs


async def test_the_walk_finds_secrets_where_they_may_be_seen() -> None:
    async with world() as w:
        seen = 0
        for path in ("routes", "services", "connections", "workers", "config", "status"):
            answer = await w.ask("reader", "GET", f"/api/v1/{path}", {})
            assert answer.status == 200
            seen += SECRET.encode() in answer.body
        assert seen >= 5


@pytest.mark.parametrize("who", ["", "nothing", "tenant", "operator"])
async def test_no_path_tells_who_may_not_read_anything(who: str) -> None:
    permitted = {"operator": {"nothing", "operate"}}.get(who, {"nothing"})
    status, text = (403, b"not allowed: ") if who else (401, b"not authenticated\n")
    async with world() as w:
        tried = 0
        for method, path, query, body, needs in asked(w.paths):
            if needs in permitted and needs != "nothing":
                continue
            target = f"{path}?{query}" if query else path
            answer = await w.ask(who, method, target, body)
            assert SECRET.encode() not in answer.body, (target, answer.body)
            if needs != "nothing":
                # One text for what there is and what there is not.
                assert answer.status == status, (method, target, answer)
                whole = text + needs.encode() + b"\n" if who else text
                assert answer.body == whole
            tried += 1
        assert tried > 100


async def test_who_may_read_does_not_operate() -> None:
    async with world() as w:
        for method, path, query, body, needs in asked(w.paths):
            if needs == "operate":
                answer = await w.ask("reader", method, f"{path}?{query}", body)
                assert (answer.status, answer.body) == (403, b"not allowed: operate\n"), path
        assert w.broker.listeners()[0][1].accepting


@pytest.mark.parametrize("who", ["nothing", "tenant"])
async def test_the_paths_tell_no_more_through_the_broker(who: str) -> None:
    async def told(client: Client, question: str) -> str:
        try:
            answer = await client.request(f"service={MANAGEMENT_SERVICE}", question.encode())
        except DestinationError as error:
            return error.text
        return answer.data.decode()

    async with world() as w, connect(w.uri, credentials=BearerToken(who.encode())) as client:
        for method, path, query, body, needs in asked(w.paths):
            question = f"{path}?{query}" + (f" {json.dumps(body)}" if method == "POST" else "")
            found = await told(client, question)
            assert SECRET not in found, question
            if needs != "nothing":
                assert found == f"not allowed: {needs}", question
        for question in ("routes", "services", "statistics", "workers", "dead-letters", "resolve"):
            found = await told(client, question)
            assert SECRET not in found, question
        found = await told(client, f"resolve service={SECRET}")
        unknown = await told(client, "resolve service=otherthing")
        assert found.replace(SECRET, "otherthing") == unknown
