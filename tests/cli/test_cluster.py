"""Brokers that form a cluster: their options, and three of them as processes."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import pytest

from onward.actors.broker import Handlers, Request
from onward.cli import main
from onward.cli._client import ask_broker
from onward.cli._cluster import Clustering, advertised, clustering_of, hint, ids_of, told_clients
from onward.cli._main import parser_of
from onward.cli._process import Place
from onward.cli._status import CommandError, Status
from onward.protocol import DeliveryError, InDoubt
from onward.protocol.security import BearerToken
from onward.transports.client import (
    Client,
    ClientOptions,
    RequestRejected,
    RetryOptions,
    connect,
)
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys
from tests.support.proxy import CuttingProxy

TCP = "rsocket+tcp://127.0.0.1:0"
ALL = "rsocket+tcp://127.0.0.1:*"
B = "rsocket+tls://b:2"
OWN_SEED = [("WARNING", "cluster.own_seed")]


def clustering(*words: str) -> Clustering | None:
    return clustering_of(parser_of("broker").parse_args(words))


# --- options ------------------------------------------------------------------------------------


def test_a_broker_is_in_no_cluster_by_default() -> None:
    assert clustering() is None


def test_the_options_of_a_cluster() -> None:
    made = clustering(
        *("--cluster-seed", "rsocket+tcp://a:1", "--cluster-seed", "rsocket+tls://b:2"),
        *("--cluster-allow", "rsocket+tls://*.example:1", "--cluster-name", "one"),
        *("--cluster-locality", "even", "--cluster-hold", "7", "--cluster-max-peers", "3"),
        *("--cluster-ready", "2"),
        *("--cluster-advertise", "rsocket+tcp://c:3", "--cluster-token", "peer.token"),
        *("--certificate", "own.pem", "--authority", "ca.pem"),
        *("--cluster-clients", "rsocket+tls://d:0", "--cluster-zone", "north"),
        *("--cluster-group-without", "shop", "--cluster-max-gateways", "9"),
    )
    assert made is not None
    options = made.options
    assert options.seeds == ("rsocket+tcp://a:1", "rsocket+tls://b:2")
    assert options.allowed_peers == ("rsocket+tls://*.example:1",)
    assert (options.name, options.locality) == ("one", "even")
    assert options.ready_peers == 2
    assert (options.zone, options.group_keys, options.limits.max_gateways) == (
        "north",
        ("shop",),
        9,
    )
    assert (options.limits.peer_hold, options.limits.max_peers) == (7, 3)
    assert made.clients == "rsocket+tls://d:0"
    assert told_clients(made, "rsocket+tcp://x:5") == "rsocket+tls://d:5"
    assert told_clients(None, "rsocket+tcp://x:5") == ""
    assert (made.advertise, made.token) == ("rsocket+tcp://c:3", Path("peer.token"))
    assert made.tls is not None
    assert (made.tls.certificate, made.tls.authority) == ("own.pem", "ca.pem")


@pytest.mark.parametrize(
    ("words", "listener", "told"),
    [
        ((), "rsocket+tcp://10.0.0.1:8001", []),
        ((), "rsocket+tcp://0.0.0.0:8001", [("WARNING", "cluster.no_address")]),
        ((), "rsocket+tcp://[::]:8001", [("WARNING", "cluster.no_address")]),
        (("--cluster-advertise", "rsocket+tcp://b:1"), "rsocket+tcp://0.0.0.0:8001", []),
        (("--cluster-advertise", "rsocket+tcp://a:0"), "rsocket+tcp://0.0.0.0:1", OWN_SEED),
        ((), "rsocket+tcp://a:1", OWN_SEED),
        (
            ("--cluster-seed", "rsocket+tcp://b:1"),
            "rsocket+tcp://a:1",
            [("INFO", "cluster.own_seed")],
        ),
    ],
)
def test_what_looks_like_a_mistake_is_told(
    words: tuple[str, ...],
    listener: str,
    told: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = clustering("--cluster-seed", "rsocket+tcp://a:1", *words)
    assert made is not None
    with caplog.at_level(logging.INFO):
        hint(made, [listener])
    assert [(each.levelname, each.__dict__["event"]) for each in caplog.records] == told


async def test_the_token_is_read_at_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "peer.token"
    made = clustering("--cluster-seed", "rsocket+tcp://a:1", "--cluster-token", str(file))
    assert made is not None
    for token in (b"first", b"second"):
        file.write_bytes(token + b"\n")
        assert await made.credentials() == BearerToken(token)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--cluster-allow", ALL), "go with --cluster-seed or --cluster-advertise"),
        (("--cluster-clients", "rsocket+tcp://a:1"), "go with --cluster-seed or --cluster-adv"),
        (("--cluster-token", "file"), "go with --cluster-seed or --cluster-advertise"),
        (("--cluster-seed", "tcp://a:1"), "does not start with rsocket+"),
        (("--cluster-advertise", "a:1"), "does not start with rsocket+"),
        (("--cluster-seed", "rsocket+tcp://a"), "rsocket+tcp://a: bad address 'a': not host:port"),
        (("--cluster-advertise", "rsocket+tls://a:x"), "rsocket+tls://a:x: bad address 'a:x': the"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told.replace("+", r"\+")) as caught:
        clustering(*words)
    assert caught.value.status == Status.USAGE


def test_a_name_that_is_too_long(capsys: Capsys) -> None:
    words = ("--listen", TCP, "--cluster-seed", "rsocket+tcp://a:1", "--cluster-name", "n" * 128)
    assert main(["broker", *words]) == Status.FAILED
    assert "128" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "listener", "uri"),
    [
        (None, "rsocket+tcp://10.0.0.1:8001", "rsocket+tcp://10.0.0.1:8001"),
        (None, "rsocket+tcp://0.0.0.0:8001", ""),
        (None, "rsocket+tcp://[::]:8001", ""),
        (None, "rsocket+tcp://broker.example:8001", "rsocket+tcp://broker.example:8001"),
        (None, "rsocket+unix:///run/broker", "rsocket+unix:///run/broker"),
        ("rsocket+tls://a:9", "rsocket+tcp://0.0.0.0:8001", "rsocket+tls://a:9"),
        ("rsocket+ws://a:0/x", "rsocket+tcp://0.0.0.0:8001", "rsocket+ws://a:8001/x"),
        ("rsocket+tls://a:0", "rsocket+unix:///run/broker", "rsocket+tls://a:0"),
    ],
)
def test_the_uri_that_others_are_told(given: str | None, listener: str, uri: str) -> None:
    made = clustering("--cluster-seed", "rsocket+tcp://a:1")
    assert made is not None
    assert advertised(Clustering(made.options, given), listener) == uri


def test_the_ids_of_processes_are_known_before_they_start() -> None:
    words = ("--processes", "2", "--cluster-advertise", "rsocket+tls://b:2")
    arguments = parser_of("broker").parse_args(words)
    made = list[UUID | None]()
    for index in (0, 1):
        arguments.place = Place(index, 2, (str(uuid4()),) * 2, "/run/x", (), 3)
        found = clustering_of(arguments)
        assert found is not None
        made.append(found.broker_id)
    assert ids_of(arguments) == [str(each) for each in made]
    arguments.cluster_advertise = None
    assert len({*ids_of(arguments), *ids_of(arguments)}) == 4


def test_the_id_of_a_broker_lasts_if_it_advertises_an_address() -> None:
    def made(*words: str, place: Place | None = None) -> UUID | None:
        arguments = parser_of("broker").parse_args(words)
        arguments.place = place
        found = clustering_of(arguments)
        assert found is not None
        return found.broker_id

    seed = ("--cluster-seed", "rsocket+tcp://a:1")
    one = made("--cluster-advertise", "rsocket+tls://b:2", *seed)
    assert one == made("--cluster-advertise", "rsocket+tls://b:2") == uuid5(NAMESPACE_URL, B)
    assert one != made("--cluster-advertise", "rsocket+tls://b:3")
    # It has another port, or another address, at each start.
    assert made("--cluster-advertise", "rsocket+tls://b:0") is None
    assert made(*seed) is None
    # One of several processes.
    other = str(uuid4())
    places = [Place(index, 2, (other, other), "/run/x", (), 3) for index in (0, 1)]
    words = ("--processes", "2", "--cluster-advertise", "rsocket+tls://b:2")
    assert [made(*words, place=each) for each in places] == [
        one,
        uuid5(NAMESPACE_URL, B[:-1] + "3"),
    ]
    assert made("--processes", "2", place=places[0]) == UUID(other)


# --- processes ----------------------------------------------------------------------------------

ONCE = ClientOptions(request_timeout=10.0, retry=RetryOptions(max_tries=1))


class Process:
    """A broker as a process.

    Attributes:
        uri: The URI that it listens at.
        process: The process.
    """

    def __init__(self, name: str, process: Popen[str]) -> None:
        self.name = name
        self.process = process
        assert process.stdout is not None
        self.uri = process.stdout.readline().removeprefix("listening ").strip()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.uri.rpartition(":")[2])

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    async def rows(self) -> list[dict[str, Any]]:
        """Return the rows of its peer brokers."""
        found = await ask_broker(self.uri, "/api/v1/peers?kind=broker", TIMEOUT)
        rows: list[dict[str, Any]] = found["rows"]
        return rows

    async def peers(self) -> dict[str, str]:
        """Return the state of each of its peer brokers by name."""
        return {row["peer"]: row["state"] for row in await self.rows()}

    async def services(self) -> list[str]:
        """Return the services of all destinations that it has."""
        rows = await ask_broker(self.uri, "routes", TIMEOUT)
        return sorted(row["service"] for row in rows if not row["service"].startswith("onward."))

    async def until(self, **peers: str) -> None:
        """Wait until its peer brokers have some states."""
        async with asyncio.timeout(TIMEOUT):
            while not peers.items() <= (await self.peers()).items():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def until_known(self, *services: str) -> None:
        """Wait until it has these destinations and no others."""
        async with asyncio.timeout(TIMEOUT):
            while await self.services() != sorted(services):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@contextmanager
def broker(name: str, *words: str) -> Any:
    listen = ("--listen", TCP, "--cluster-name", name)
    with onward("broker", *listen, *words) as process:
        yield Process(name, process)


def served_by(name: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return name.encode() + request.data

    del answer
    return handlers


class Clients:
    """A destination and a requester at each of some brokers.

    Attributes:
        seen: What the requesters saw: the destinations that answered, or the class of the error.
        sent: The number of requests.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self.seen: Counter[str] = Counter()
        self.sent = 0
        self._stack = stack
        self._requesters: dict[str, Client] = {}

    async def join(self, *brokers: Process) -> None:
        """Connect a destination and a requester to each broker."""
        for each in brokers:
            served = connect(each.uri, service=each.name, handlers=served_by(each.name))
            await self._stack.enter_async_context(served)
            requester = connect(each.uri, options=ONCE)
            self._requesters[each.name] = await self._stack.enter_async_context(requester)

    async def ask(self, at: str, service: str) -> str:
        """Send a request; return the answer, or the class of the error."""
        self.sent += 1
        try:
            asked = f"@no-route=reject service={service}"
            answer = await self._requesters[at].request(asked, b"")
            found = answer.data.decode()
        except DeliveryError as error:
            found = type(error).__name__
        self.seen[found] += 1
        return found


@asynccontextmanager
async def clients() -> AsyncGenerator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(stack)


@pytest.fixture
async def three() -> AsyncIterator[list[Process]]:
    """Three brokers that know each other, by one seed."""
    words = ("--cluster-allow", ALL)
    with (
        broker("a", "--cluster-advertise", TCP, *words) as a,
        broker("b", "--cluster-seed", a.uri, *words) as b,
        broker("c", "--cluster-seed", a.uri, *words) as c,
    ):
        await a.until(b="up", c="up")
        await b.until(a="up", c="up")
        yield [a, b, c]


async def test_each_client_reaches_the_destinations_of_all_brokers(three: list[Process]) -> None:
    async with clients() as made:
        await made.join(*three)
        for each in three:
            await each.until_known("a", "b", "c")
        for at in "abc":
            for service in "abc":
                assert await made.ask(at, service) == service
        assert made.seen == Counter({"a": 3, "b": 3, "c": 3})


async def test_a_broker_that_is_killed(three: list[Process]) -> None:
    a, b, c = three
    async with clients() as made:
        await made.join(a, b, c)
        for each in three:
            await each.until_known("a", "b", "c")
        b.kill(signal.SIGKILL)
        for each in (a, c):
            await each.until(b="suspended")
        assert await made.ask("a", "c") == "c"
        assert await made.ask("c", "a") == "a"
        assert await made.ask("a", "b") == "RequestRejected"
        assert made.sent == made.seen.total()


async def test_what_clients_saw_of_a_broker_that_is_killed_adds_up(three: list[Process]) -> None:
    a, b, c = three
    handled: list[bytes] = []
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        handled.append(request.data)
        await asyncio.sleep(0.002)
        return request.data

    del answer
    outcomes: dict[bytes, str] = {}
    ends = False

    async def ask(requester: Client, name: int) -> None:
        number = 0
        while not ends:
            number += 1
            data = b"%d-%d" % (name, number)
            try:
                found = await requester.request("@no-route=reject service=echo", data)
                outcomes[data] = "answered" if found.data == data else "another answer"
            except RequestRejected:
                outcomes[data] = "rejected"
            except InDoubt:
                outcomes[data] = "in doubt"

    async with AsyncExitStack() as stack:
        for each in (b, c):
            served = connect(each.uri, service="echo", handlers=handlers)
            await stack.enter_async_context(served)
        await a.until_known("echo", "echo")
        requester = await stack.enter_async_context(connect(a.uri, options=ONCE))
        asking = [asyncio.create_task(ask(requester, name)) for name in range(16)]
        for at in (200, 1000):
            async with asyncio.timeout(TIMEOUT):
                while len(outcomes) < at:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            if at == 200:
                b.kill(signal.SIGKILL)
        ends = True
        await asyncio.wait(asking)
    # Each was handled once at most; those that were rejected never, those answered for certain.
    assert len(handled) == len(set(handled))
    by_outcome = {what: {k for k, v in outcomes.items() if v == what} for what in outcomes.values()}
    assert by_outcome.get("rejected", set()).isdisjoint(handled)
    assert by_outcome["answered"] <= set(handled)
    assert set(by_outcome) <= {"answered", "rejected", "in doubt"}
    # Only what was under way there is in doubt.
    assert len(by_outcome.get("in doubt", ())) <= 16


@pytest.mark.exhaustive
async def test_a_broker_that_hangs_and_goes_on(three: list[Process]) -> None:
    a, b, c = three
    async with clients() as made:
        await made.join(a, b, c)
        for each in three:
            await each.until_known("a", "b", "c")
        b.kill(signal.SIGSTOP)
        try:
            for each in (a, c):
                await each.until(b="suspended")
            assert await made.ask("a", "b") == "RequestRejected"
            assert await made.ask("a", "c") == "c"
        finally:
            b.kill(signal.SIGCONT)
        for each in three:
            await each.until(**{other.name: "up" for other in three if other is not each})
        assert await made.ask("a", "b") == "b"
        assert await made.ask("b", "c") == "c"
        assert made.sent == made.seen.total()


async def test_a_link_that_is_cut_and_heals() -> None:
    async with AsyncExitStack() as stack:
        a = stack.enter_context(broker("a", "--cluster-advertise", TCP))
        proxy = await stack.enter_async_context(CuttingProxy(a.port).running())
        seed = f"rsocket+tcp://127.0.0.1:{proxy.port}"
        b = stack.enter_context(broker("b", "--cluster-seed", seed))
        await a.until(b="up")
        made = Clients(stack)
        await made.join(a, b)
        for each in (a, b):
            await each.until_known("a", "b")
        assert await made.ask("a", "b") == "b"
        proxy.refuses = True
        proxy.cut()
        await a.until(b="suspended")
        await b.until(a="suspended")
        assert await made.ask("a", "b") == "RequestRejected"
        assert await made.ask("a", "a") == "a"
        proxy.refuses = False
        await a.until(b="up")
        assert await made.ask("a", "b") == "b"
        assert await made.ask("b", "a") == "a"
        assert made.sent == made.seen.total() == 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_broker_that_is_restarted_with_its_id(number: signal.Signals) -> None:
    words = ("--cluster-allow", ALL, "--drain-grace", "0.1", "--drain-spread", "0.1")
    async with AsyncExitStack() as stack:
        a = stack.enter_context(broker("a", "--cluster-advertise", TCP, *words))
        seed = ("--cluster-advertise", B, "--cluster-seed", a.uri, *words)
        b = stack.enter_context(broker("b", *seed))
        await a.until(b="up")
        async with clients() as made:
            await made.join(b)
            served = connect(b.uri, service="old", handlers=served_by("old"))
            async with served:
                await a.until_known("b", "old")
                (before,) = await a.rows()
                b.kill(number)
                await asyncio.to_thread(b.process.wait, TIMEOUT)
            listen = ("--listen", f"rsocket+tcp://127.0.0.1:{b.port}")
            again = onward("broker", "--cluster-name", "b", *listen, *seed)
            stack.enter_context(again)
            # The client of the one service comes back to it, and nothing is left of the other.
            await a.until(b="up")
            await a.until_known("b")
            (after,) = await a.rows()
        assert after["broker_id"] == before["broker_id"] == str(uuid5(NAMESPACE_URL, B))
        assert after["instance"] > before["instance"]
        assert (after["draining"], after["routes"]) == (False, 1)


async def test_two_brokers_that_advertise_one_address_refuse_each_other() -> None:
    with broker("a", "--cluster-advertise", TCP, "--cluster-allow", ALL) as a:
        seed = ("--cluster-advertise", B, "--cluster-seed", a.uri)
        with broker("b", *seed) as b:
            await a.until(b="up")
            with broker("twin", *seed) as twin:
                reason = ""
                async with asyncio.timeout(TIMEOUT):
                    while not reason:
                        found = await twin.rows()
                        reason = "".join(row["reason"] for row in found)
                        await asyncio.sleep(0.05)
                assert "another broker with the same id has a link" in reason
                assert await a.peers() == {"b": "up"}
                assert await b.peers() == {"a": "up"}


@pytest.mark.exhaustive
async def test_a_rolling_restart_leaves_no_request_in_doubt() -> None:
    words = ("--cluster-allow", ALL, "--drain-grace", "0.2", "--drain-spread", "0.5")
    names = "abcde"
    async with AsyncExitStack() as stack:
        brokers = {"a": stack.enter_context(broker("a", "--cluster-advertise", TCP, *words))}
        seed = ("--cluster-seed", brokers["a"].uri)
        for name in names[1:]:
            brokers[name] = stack.enter_context(broker(name, *seed, *words))
        uris = [each.uri for each in brokers.values()]

        async def until_all_are_up() -> None:
            for each in brokers.values():
                await each.until(**{name: "up" for name in names if name != each.name})

        await until_all_are_up()
        requesters: list[Client] = []
        for at, name in enumerate(names):
            # Each client knows two brokers.
            places = [uris[at], uris[(at + 1) % len(uris)]]
            served = connect(places, service="echo", handlers=served_by(name))
            await stack.enter_async_context(served)
            requesters.append(await stack.enter_async_context(connect(places)))
        seen: Counter[str] = Counter()
        sent, ends = 0, False

        async def ask(requester: Client) -> None:
            nonlocal sent
            while not ends:
                sent += 1
                try:
                    await requester.request("service=echo", b"")
                    seen["answered"] += 1
                except InDoubt as error:
                    seen[f"in doubt: {error}"] += 1
                except DeliveryError:
                    seen["certainly not delivered"] += 1
                await asyncio.sleep(0.002)

        asking = [asyncio.create_task(ask(each)) for each in requesters]
        for name in names:
            port = brokers[name].port
            brokers[name].kill(signal.SIGTERM)
            await asyncio.to_thread(brokers[name].process.wait, TIMEOUT)
            listen = ("--listen", f"rsocket+tcp://127.0.0.1:{port}", *seed, *words)
            again = onward("broker", "--cluster-name", name, *listen)
            brokers[name] = Process(name, stack.enter_context(again))
            await until_all_are_up()
        ends = True
        await asyncio.wait(asking)
        assert seen.total() == sent
        assert [what for what in seen if what.startswith("in doubt")] == []
        assert seen["answered"] > 0.95 * sent


RULES = """
[[rule]]
roles = ["broker"]
peer = true

[[rule]]
names = ["*"]
read = true
"""


async def test_brokers_that_rules_let_in(tmp_path: Path, capsys: Capsys) -> None:
    principals, rules, token = (tmp_path / name for name in ("principals", "rules", "token"))
    rules.write_text(RULES)
    assert (
        main(["token", "new", "brokers", "--role", "broker", "--file", str(principals)])
        == Status.OK
    )
    token.write_text(capsys.readouterr().out.split()[0])
    words = ("--principals", str(principals), "--rules", str(rules), "--anonymous")
    with (
        broker("a", "--cluster-advertise", TCP, *words) as a,
        broker("b", "--cluster-seed", a.uri, "--cluster-token", str(token), *words) as b,
        broker("c", "--cluster-seed", a.uri, *words) as c,
    ):
        await a.until(b="up")
        await b.until(a="up")
        async with asyncio.timeout(TIMEOUT):
            while not (reason := (await c.rows())[0]["reason"]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "not allowed" in reason
        assert await a.peers() == {"b": "up"}


async def test_brokers_that_are_restarted_one_after_the_other_lose_no_request() -> None:
    # Each has a destination of the service, and clients ask all the time.
    words = ("--cluster-allow", ALL, "--drain-grace", "0.2", "--drain-spread", "0.4")
    async with AsyncExitStack() as stack:
        a = stack.enter_context(broker("a", "--cluster-advertise", TCP, *words))
        others = [
            stack.enter_context(broker(name, "--cluster-seed", a.uri, *words)) for name in "bc"
        ]
        for each in others:
            await a.until(**{each.name: "up"})
            served = connect(each.uri, service="echo", handlers=served_by(each.name))
            await stack.enter_async_context(served)
        await a.until_known("echo", "echo")
        requester = await stack.enter_async_context(connect(a.uri, options=ONCE))
        seen: Counter[str] = Counter()
        sent, ends = 0, False

        async def ask() -> None:
            nonlocal sent
            while not ends:
                sent += 1
                try:
                    seen[(await requester.request("service=echo", b"")).data.decode()] += 1
                except DeliveryError as error:
                    seen[f"{type(error).__name__}: {error}"] += 1

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        async with asyncio.timeout(TIMEOUT):
            while not {"b", "c"} <= set(seen):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        others[0].kill(signal.SIGTERM)
        await asyncio.to_thread(others[0].process.wait, TIMEOUT)
        await a.until_known("echo")
        at = seen["c"]
        async with asyncio.timeout(TIMEOUT):
            while seen["c"] < at + 100:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        ends = True
        await asyncio.wait(asking)
        assert set(seen) == {"b", "c"}
        assert seen.total() == sent


async def test_what_commands_show_of_a_cluster(three: list[Process], capsys: Capsys) -> None:
    a, b, _ = three
    async with clients() as made:
        await made.join(b)
        await a.until_known("b")
        shown = await asyncio.to_thread(main, ["peers", "--broker", a.uri])
        assert shown == Status.OK
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split()[:2] == ["PEER", "STATE"]
        assert {line.split()[0]: line.split()[1] for line in lines[1:]} == {"b": "up", "c": "up"}
        assert await asyncio.to_thread(main, ["routes", "--broker", a.uri, "--at", "b"]) == 0
        heading, line = capsys.readouterr().out.splitlines()
        assert (heading.split()[-1], line.split()[-1]) == ("BROKER", "b")
        assert await asyncio.to_thread(main, ["resolve", "--broker", a.uri, "service=b"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (chosen,) = [line for line in lines if line.startswith("=> ")]
        assert chosen.split()[-1] == "b"
        # The peer is the other end of the link by which it is reached.
        assert re.search(r"  127\.0\.0\.1:\d+ +b$", chosen)
        # At its own broker it has no other one.
        assert await asyncio.to_thread(main, ["resolve", "--broker", b.uri, "service=b"]) == 0
        assert "BROKER" not in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["routes", "--broker", a.uri, "--at", "c"]) == 0
        assert "no destination is at c; there are some at -, b" in capsys.readouterr().out


async def test_events_of_peer_brokers_are_printed() -> None:
    words = ("--cluster-allow", ALL)
    with (
        broker("a", "--cluster-advertise", TCP, *words) as a,
        onward("watch", "--broker", a.uri) as watch,
    ):
        async with asyncio.timeout(TIMEOUT):
            # The stream of what is watched, besides the one that asks.
            while True:
                found = await ask_broker(a.uri, "/api/v1/connections", TIMEOUT)
                if sum(row["streams"] for row in found["rows"]) >= 2:
                    break
                await asyncio.sleep(0.05)
        with broker("other", "--cluster-seed", a.uri, *words) as other:
            await a.until(other="up")
            line = await asyncio.to_thread(_line_with, watch, "peer-up")
            assert line.split()[1:] == ["peer-up", "other"]
            other.kill(signal.SIGKILL)
            line = await asyncio.to_thread(_line_with, watch, "peer-lost")
            assert line.split()[1:3] == ["peer-lost", "other"]
            assert len(line.split()) > 3  # and why


def _line_with(process: Popen[str], word: str) -> str:
    """Return the next line that is printed with a word."""
    assert process.stdout is not None
    return next(line for line in process.stdout if word in line)


def counts_of(text: str, name: str, label: str = "") -> Counter[str]:
    """Return the values of the series of a metric, added up by its label `outcome` or another."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        head, _, labels = series.partition("{")
        if head == name and label in labels:
            outcome = labels.partition('outcome="')[2].partition('"')[0]
            found[outcome] += int(float(value))
    return found


async def test_counts_of_forwarded_requests_add_up_and_both_ends_know_the_round_trip() -> None:
    words = ("--cluster-allow", ALL, "--admin", "http://127.0.0.1:0")
    with (
        broker("a", "--cluster-advertise", TCP, *words) as a,
        broker("b", "--cluster-seed", a.uri, *words) as b,
    ):
        admins = {
            each.name: next(
                line.removeprefix("admin ").strip()
                for line in each.process.stdout
                if line.startswith("admin ")
            )
            for each in (a, b)
        }
        await a.until(b="up")
        async with clients() as made:
            await made.join(a, b)
            await a.until_known("a", "b")
            await b.until_known("a", "b")
            for _ in range(5):
                assert await made.ask("a", "b") == "b"
            for _ in range(3):
                assert await made.ask("b", "b") == "b"
            assert await made.ask("a", "none") == "RequestRejected"

        def ask(name: str, family: str) -> str:
            uri = f"{admins[name]}/metrics?family={family}"
            with urllib.request.urlopen(uri, timeout=TIMEOUT) as answer:
                return str(answer.read().decode())

        own, forwarded = Counter[str](), Counter[str]()
        for name in "ab":
            text = await asyncio.to_thread(ask, name, "service_requests_ended_total")
            own += counts_of(text, "onward_service_requests_ended_total", 'service="b"')
            text = await asyncio.to_thread(ask, name, "service_requests_forwarded_ended_total")
            forwarded += counts_of(
                text, "onward_service_requests_forwarded_ended_total", 'service="b"'
            )
        assert own["answered"] == 13
        assert forwarded["answered"] == 5
        assert (own - forwarded)["answered"] == 8  # as many as requesters have asked
        text = await asyncio.to_thread(ask, "b", "forwarded_requests_ended_total")
        found = counts_of(text, "onward_forwarded_requests_ended_total", "request_response")
        assert found["answered"] == 5
        async with asyncio.timeout(TIMEOUT):
            for each in (a, b):
                while not (await each.rows())[0]["round_trip"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
