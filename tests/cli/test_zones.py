"""Three zones of two brokers each, as processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
import trustme

from onward.actors.broker import Handlers, Request
from onward.cli import main
from onward.cli._client import ask_broker
from onward.cli._status import Status
from onward.protocol import DeliveryError, OnwardError
from onward.protocol.security import BearerToken
from onward.transports.client import Client, connect
from tests.cli.test_cluster import ALL, ONCE, TCP, Process, broker
from tests.support.authority import put_authorities, put_certificate
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys

ZONES = ("a", "b", "c")


@contextmanager
def zone(name: str, seeds: list[str]) -> Generator[list[Process]]:
    """Run two brokers of a zone."""
    words = ("--cluster-allow", ALL, "--cluster-zone", name, "--cluster-hold", "3")
    known = [word for seed in seeds for word in ("--cluster-seed", seed)]
    with (
        broker(f"{name}1", "--cluster-advertise", TCP, *known, *words) as first,
        broker(f"{name}2", "--cluster-seed", first.uri, *known, *words) as second,
    ):
        yield [first, second]


@pytest.fixture
async def brokers() -> AsyncIterator[dict[str, Process]]:
    """Three zones that know each other by one broker of the first."""
    with zone("a", []) as a, zone("b", [a[0].uri]) as b, zone("c", [a[0].uri]) as c:
        made = {each.name: each for each in (*a, *b, *c)}
        for each in made.values():
            await until_linked(each)
        yield made


async def gateways(of: Process) -> dict[str, str]:
    """Return the broker of each other zone that requests go to, by zone."""
    return {
        row["zone"]: row["peer"]
        for row in await of.rows()
        if row["role"] in ("to zone", "both ways") and row["state"] == "up"
    }


async def until_linked(of: Process) -> None:
    """Wait until a broker has a link to each other zone, and to the other broker of its own."""
    wanted = set(ZONES) - {of.name[0]}
    async with asyncio.timeout(TIMEOUT):
        while set(await gateways(of)) != wanted or not [  # noqa: ASYNC110
            row for row in await of.rows() if (row["role"], row["state"]) == ("mesh", "up")
        ]:
            await asyncio.sleep(0.1)


class Counted:
    """A destination that answers with its name, and counts what it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[bytes] = []
        self.handlers = Handlers()

        @self.handlers.response
        async def answer(request: Request) -> bytes:
            self.got.append(request.data)
            return name.encode()

        @self.handlers.fire_and_forget
        async def take(request: Request) -> None:
            self.got.append(request.data)

        del answer, take


async def eventually(client: Client, query: str, wanted: str) -> None:
    """Ask until a destination answers with a name."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                answer = await client.request(f"@no-route=reject {query}", b"?")
            except DeliveryError:
                await asyncio.sleep(0.1)
                continue
            if answer.data.decode() == wanted:
                return
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_zones_of_brokers(brokers: dict[str, Process]) -> None:
    async with AsyncExitStack() as stack:
        served: dict[str, Counted] = {}
        requesters: dict[str, Client] = {}
        for number, (name, process) in enumerate(brokers.items(), 1):
            made = served[name] = Counted(name)
            destination = connect(
                process.uri,
                service=name,
                tags={"kind": "all"},
                route_ids=[UUID(int=number)],
                handlers=made.handlers,
            )
            await stack.enter_async_context(destination)
            requesters[name] = await stack.enter_async_context(connect(process.uri, options=ONCE))
        # Every client reaches every destination, by its service and by its route id.
        for at in requesters.values():
            for number, name in enumerate(brokers, 1):
                await eventually(at, f"service={name}", name)
                await eventually(at, f"route={UUID(int=number)}", name)
        # A multicast arrives once at each of them.
        for each in served.values():
            each.got.clear()
        for name, at in requesters.items():
            await at.send("@multicast kind=all", name.encode())
        async with asyncio.timeout(TIMEOUT):
            while any(len(each.got) < len(brokers) for each in served.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        assert all(sorted(each.got) == sorted(map(str.encode, brokers)) for each in served.values())

        rows = await ask_broker(brokers["a1"].uri, "groups b", TIMEOUT)
        assert {row["service"]: row["routes"] for row in rows} == {"b1": 1, "b2": 1}

        # A destination that connects again in another zone has one connection.
        moved = Counted("moved")
        await stack.enter_async_context(
            connect(
                brokers["c1"].uri,
                service="moved",
                route_ids=[UUID(int=100)],
                handlers=moved.handlers,
            )
        )
        await eventually(requesters["a1"], f"route={UUID(int=100)}", "moved")
        again = Counted("again")
        await stack.enter_async_context(
            connect(
                brokers["b2"].uri,
                service="moved",
                route_ids=[UUID(int=100)],
                handlers=again.handlers,
            )
        )
        await eventually(requesters["b1"], "service=moved", "again")

        # The broker of zone b that a1 sends requests to is killed: the other one takes over.
        gone = (await gateways(brokers["a1"]))["b"]
        left = {"b1": "b2", "b2": "b1"}[gone]
        brokers[gone].kill(signal.SIGKILL)
        await eventually(requesters["a1"], f"service={left}", left)
        await eventually(requesters["a2"], f"service={left}", left)
        assert (await gateways(brokers["a1"]))["b"] == left


OWNED = UUID("00000000-0000-0000-0000-00000000000a")
RULES = """
[[rule]]
roles = ["broker"]
peer = true

[[rule]]
names = ["*"]
read = true
request = "*"
register = "*"
"""


@contextmanager
def secure(name: str, *words: str) -> Generator[tuple[str, Process]]:
    """Run a broker that others reach over TLS; yield that URI, and the process."""
    listen = ("--listen", "rsocket+tls://127.0.0.1:0", "--listen", TCP)
    with onward("broker", *listen, "--cluster-name", name, *words) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        yield uri, Process(name, process)


@pytest.mark.slow
async def test_zones_over_tls_with_tokens(tmp_path: Path, capsys: Capsys) -> None:
    authority = trustme.CA()
    server, trusted, principals, rules, token = (
        tmp_path / name for name in ("server.pem", "ca.pem", "principals", "rules", "token")
    )
    put_certificate(server, authority)
    put_authorities(trusted, authority)
    rules.write_text(RULES)
    made = main(["token", "new", "brokers", "--role", "broker", "--file", str(principals)])
    assert made == Status.OK
    token.write_text(capsys.readouterr().out.split()[0])
    words = (
        *("--certificate", str(server), "--authority", str(trusted), "--anonymous"),
        *("--principals", str(principals), "--rules", str(rules), "--cluster-token", str(token)),
    )
    advertise = ("--cluster-advertise", "rsocket+tls://127.0.0.1:0")
    with (
        secure("a1", *advertise, "--cluster-zone", "a", *words) as (uri, a),
        secure("b1", "--cluster-seed", uri, *advertise, "--cluster-zone", "b", *words) as (_, b),
    ):
        answering = Counted("b1")
        async with asyncio.timeout(TIMEOUT):
            while await gateways(b) != {"a": "a1"}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        async with (
            connect(a.uri, service="served", handlers=answering.handlers),
            connect(b.uri, options=ONCE) as requester,
        ):
            await eventually(requester, "service=served", "b1")
            (row,) = await b.rows()
            assert (row["zone"], row["uri"].partition(":")[0]) == ("a", "rsocket+tls")
            shown = await asyncio.to_thread(main, ["resolve", "--broker", b.uri, "service=served"])
            lines = capsys.readouterr().out.splitlines()
            assert shown == Status.OK
            assert "zone a by broker a1: 1 destination" in lines
            assert await asyncio.to_thread(main, ["peers", "--broker", b.uri]) == Status.OK
            heading, line = capsys.readouterr().out.splitlines()
            assert {"ZONE", "LINK", "GROUPS"} <= set(heading.split())
            assert line.split()[:2] == ["a1", "up"]


@pytest.mark.slow
async def test_a_route_id_belongs_to_its_principal_in_all_zones(
    tmp_path: Path, capsys: Capsys
) -> None:
    principals, rules, token = (tmp_path / name for name in ("principals", "rules", "token"))
    rules.write_text(RULES)
    tokens: dict[str, str] = {}
    for name, *role in (("brokers", "--role", "broker"), ("ann",), ("bob",)):
        assert main(["token", "new", name, *role, "--file", str(principals)]) == Status.OK
        tokens[name] = capsys.readouterr().out.split()[0]
    token.write_text(tokens["brokers"])
    words = (
        *("--cluster-advertise", TCP, "--principals", str(principals), "--rules", str(rules)),
        *("--anonymous", "--cluster-token", str(token), "--cluster-allow", ALL),
    )

    def destination(of: Process, name: str) -> Client:
        return connect(
            of.uri,
            service="served",
            handlers=Counted(name).handlers,
            credentials=BearerToken(tokens[name].encode()),
            route_ids=[OWNED],
        )

    in_a, in_b = ("--cluster-zone", "a"), ("--cluster-zone", "b")
    async with AsyncExitStack() as stack:
        a = stack.enter_context(broker("a1", *words, *in_a))
        b = stack.enter_context(broker("b1", *words, *in_b))
        # The zones do not know each other yet. The owner connects anew when another one has its id.
        for of, name in ((a, "ann"), (b, "bob"), (a, "ann")):
            await stack.enter_async_context(destination(of, name))
            asker = await stack.enter_async_context(connect(of.uri, options=ONCE))
            await eventually(asker, f"route={OWNED}", name)
        requester = await stack.enter_async_context(connect(b.uri, options=ONCE))
        await eventually(requester, f"route={OWNED}", "bob")
        seeds = ("--cluster-seed", a.uri, "--cluster-seed", b.uri)
        stack.enter_context(broker("a2", *words, *in_a, *seeds))
        await eventually(requester, f"route={OWNED}", "ann")
        with pytest.raises(OnwardError, match="not allowed: register"):
            async with destination(b, "bob"):
                pass
        await eventually(requester, f"route={OWNED}", "ann")
