"""`onward broker --processes`, as its operators see it: all processes as one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onward.cli import _process_whole, main
from onward.cli._client import ask_broker, watch_broker
from onward.cli._process import said_of
from onward.cli._process_channel import Said
from onward.cli._process_slot import MAX_ENDS, Slot
from onward.cli._process_whole import WholeBroker
from onward.cli._service import Service
from onward.cli._status import Status
from onward.protocol.metrics import PROCESS
from onward.protocol.security import (
    ANONYMOUS,
    TOKEN_BYTES,
    Principal,
    make_token,
    token_digest,
)
from onward.transports.admin import HttpRequest, QuestionLimits
from onward.transports.client import connect
from tests.support.commands import TIMEOUT
from tests.support.fixtures import Capsys, Patch
from tests.support.process_brokers import (
    ONCE,
    Brokers,
    HttpAdmin,
    brokers,
    served_by,
    until,
)
from tests.support.transports import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

ADMIN = ("--admin", "http://127.0.0.1:0")
RULES = """\
[[rule]]
names = ["*"]
read = true
operate = true
request = "service=*"
register = "service=*"
"""
LONG = 4 * TIMEOUT
"""Seconds for what takes several starts of a process, on a busy machine."""


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by its labels."""
    return {
        tuple(each.labels.values()): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == name
    }


async def requests_of(admin: HttpAdmin, query: str = "") -> float:
    """Return the number of requests that were answered."""
    status, text = await admin.get(f"/metrics{query}")
    assert status == 200
    ended = samples(text, "onward_requests_ended_total")
    return ended.get(("request_response", "answered"), 0.0)


async def ended_within(made: Brokers, seconds: float) -> int:
    """Return the status of a broker that ends by itself."""
    return await asyncio.to_thread(made.process.wait, seconds)


async def seen_by(uri: str, service: str) -> Any:
    """Return the first event of a service."""
    async with aclosing(watch_broker(uri, TIMEOUT)) as events:
        async for event in events:
            if event["service"] == service:
                return event
    raise AssertionError("there are no more events")


# --- counted ------------------------------------------------------------------------------------


async def test_processes_are_shown_as_peers_of_each_other(capsys: Capsys) -> None:
    with brokers(2) as made:
        await made.joined()
        asked = ("peers", "--broker", made.uri)
        assert await asyncio.to_thread(main, asked) == Status.OK
        headings, *rows = capsys.readouterr().out.splitlines()
        assert (headings.split()[0], headings.split()[-1]) == ("PEER", "PROCESS")
        shown = [(row.split()[0], row.split()[1], row.split()[-1]) for row in rows]
        assert shown == [("process-1", "up", "0"), ("process-0", "up", "1")]
        chosen = ("--sort", "peer", "--top", "1", "--filter", "state=up")
        assert await asyncio.to_thread(main, [*asked, *chosen]) == Status.OK
        _, row, more = capsys.readouterr().out.splitlines()
        assert (row.split()[0], more) == ("process-0", "... and 1 more")


async def test_sums_are_those_of_the_processes() -> None:
    with brokers(2, *ADMIN) as made:
        admin = made.admin()
        await made.joined()
        async with AsyncExitStack() as stack:
            before = await requests_of(admin)  # the questions of this test
            own = [await stack.enter_async_context(connect(uri)) for uri in made.own]
            served = connect(made.uri, service="store", handlers=served_by("store"))
            await stack.enter_async_context(served)
            for client in own:
                for _ in range(5):
                    # From one of them it crosses to the other process.
                    assert (await client.request("service=store", b"!")).data == b"store!"

            async def counted() -> bool:
                return await requests_of(admin) == before + 10

            await until(counted)
            of_each = [await requests_of(admin, f"?process={each}") for each in (0, 1)]
            assert sum(of_each) == before + 10
            _, text = await admin.get("/metrics")
            parts = [(await admin.get(f"/metrics?process={each}"))[1] for each in (0, 1)]
            opened = "onward_connections_opened_total"
            whole = samples(text, opened)
            assert whole[made.uri,] == sum(samples(each, opened)[made.uri,] for each in parts)
            assert samples(text, "onward_process_up") == {("0",): 1, ("1",): 1}
            for name in ("process_cpu_seconds_total", "process_resident_memory_bytes"):
                assert set(samples(text, name)) == {("0",), ("1",)}

            (row,) = (await admin.json("services?service=store"))["rows"]
            assert (row["destinations"], row["elsewhere"]) == (1, 0)
            rows = (await admin.json("connections?limit=1024"))["rows"]
            assert Counter(row["process"] for row in rows if ".sock" in row["listener"]) == {
                0: 1,
                1: 1,
            }
            assert len({row["id"] for row in rows}) == len(rows)
            rows = (await admin.json("peers?kind=process"))["rows"]
            assert [row["process"] for row in rows] == [0, 1]
            assert (await admin.json("peers?kind=broker"))["rows"] == []
            found = await admin.json("status")
            each = [await admin.json(f"status?process={number}") for number in (0, 1)]
            assert found["routes"] == sum(part["routes"] for part in each)
            assert found["peer_routes"] == 0
            flood = [admin.get(f"/readyz?n={number}") for number in range(200)]
            assert set(await asyncio.gather(*flood)) == {(200, "ok\n")}
            _, text = await admin.get("/metrics")
            assert samples(text, "onward_process_up") == {("0",): 1, ("1",): 1}
            assert (await admin.get("/"))[0] == 200
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0


async def test_commands_at_a_listener_are_for_all_processes(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    with brokers(2, *ADMIN, "--rules", str(rules), "--log", "info") as made:
        admin = made.admin()
        await made.joined()

        async def asked(question: str, uri: str = made.uri) -> Any:
            return await ask_broker(uri, question, TIMEOUT)

        async with AsyncExitStack() as stack:
            for uri in made.own:
                await stack.enter_async_context(connect(uri))
            rows = (await asked("/api/v1/connections?limit=1024"))["rows"]
            of_clients = [row for row in rows if row["listener"] in made.own]
            assert sorted(row["process"] for row in of_clients) == [0, 1]
            # At the socket of a process: those of this one.
            (alone,) = [
                row["id"]
                for row in (await asked("/api/v1/connections?limit=1024", made.own[1]))["rows"]
                if row["listener"] == made.own[1] and row["opened"] <= of_clients[-1]["opened"]
            ]
            assert alone == of_clients[1]["id"]
            assert len((await asked("statistics"))["listeners"]) > len(made.own)
            assert "missing" not in await asked("statistics", made.own[0])
            of_one = await asked("workers", made.own[0])
            assert (await asked("workers"))["total"] > of_one["total"]
            assert (await asked("dead-letters"))["missing"] == []
            assert await asked("/livez") == "ok\n"
            seen = asyncio.create_task(seen_by(made.uri, "new"))
            for row in of_clients:  # at either process, wherever the question comes in
                assert await asked(f'/api/v1/kick {{"connection": {row["id"]}}}') == {
                    "connection": row["id"]
                }
            assert "no connection" in (await asked('/api/v1/kick {"connection": 1000000}'))["error"]
            level = '/api/v1/log-level {"logger": "onward.whole", "level": "error"}'
            assert (await asked(level))["effective"] == "error"
            for uri in made.own:
                served = connect(uri, service="new", handlers=served_by("new"))
                await stack.enter_async_context(served)
            assert (await asyncio.wait_for(seen, TIMEOUT))["kind"] == "joined"

            async def kept() -> bool:
                rows = (await admin.json("recent-events"))["rows"]
                return {row["process"] for row in rows if row["service"] == "new"} == {0, 1}

            await until(kept)
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0
        errors = made.errors()
    said = "the level of onward.whole is now error"
    assert {line.split()[3].rstrip(":") for line in errors.splitlines() if said in line} == {
        "onward.transports.admin",
        "onward.transports.admin[0]",
        "onward.transports.admin[1]",
    }


# --- who may ---------------------------------------------------------------------------------


async def test_who_may_ask_is_decided_as_for_one_process(tmp_path: Path) -> None:
    names = ("reader", "operator", "other")
    tokens = {name: make_token(name.encode().ljust(TOKEN_BYTES)) for name in names}
    principals, rules = tmp_path / "principals.toml", tmp_path / "rules.toml"
    principals.write_text(
        "".join(
            f'[[tokens]]\nname = "{name}"\nroles = ["{name}"]\n'
            f'sha256 = "{token_digest(token.encode()).hex()}"\n'
            for name, token in tokens.items()
        )
    )
    reads = '[[rule]]\nroles = ["reader", "operator"]\nread = true\n'
    rules.write_text(f'{reads}[[rule]]\nroles = ["operator"]\noperate = true\n')
    words = ("--principals", str(principals), "--rules", str(rules))
    with brokers(2, *ADMIN, *words) as made:
        admin = made.admin()

        async def statuses(method: str, path: str, body: str | None = None) -> list[int]:
            names = (None, "other", "reader", "operator")
            given = [None if name is None else tokens[name] for name in names]
            return [(await admin.ask(method, path, body, token))[0] for token in given]

        for path in ("/api/v1/status", "/metrics", "/api/v1/connections?process=1"):
            assert await statuses("GET", path) == [401, 403, 200, 200]
        assert await statuses("GET", "/debug/stacks") == [401, 403, 403, 200]
        assert await statuses("GET", "/livez") == [200] * 4
        level = '{"logger": "onward.whole", "level": "error"}'
        assert await statuses("POST", "/api/v1/log-level", level) == [401, 403, 403, 200]
        for path in ("/api/v1/kick", "/api/v1/trace", "/api/v1/log-level"):
            # Sent as Latin-1: a byte that is no UTF-8 is no JSON either.
            assert await statuses("POST", path, '{"\xff": 1}') == [401, 403, 403, 400]
        # What is for other processes only is served to none.
        for path in ("/part/status", "/part/metrics"):
            assert set(await statuses("GET", path)) <= {401, 403, 404}
        for path, name in (("", "process 1: started"), ("&process=1", "started")):
            _, text = await admin.ask("GET", f"/readyz?verbose{path}", None, None)
            assert f'"{name}"' in text
            assert "problem" not in text
            _, text = await admin.ask("GET", f"/readyz?verbose{path}", None, tokens["reader"])
            assert "problem" in text
        # The rules of the interface are read anew with those of the processes.
        rules.write_text(reads)
        made.process.send_signal(signal.SIGHUP)

        async def reloaded() -> bool:
            return await statuses("GET", "/debug/stacks") == [401, 403, 403, 403]

        await until(reloaded)
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0


# --- trouble ------------------------------------------------------------------------------------


async def test_a_process_that_is_killed_while_metrics_are_read() -> None:
    with brokers(2, *ADMIN) as made:
        admin = made.admin()
        await made.joined()
        async with AsyncExitStack() as stack:
            served = connect(made.own[0], service="store", handlers=served_by(""))
            await stack.enter_async_context(served)
            clients = [
                await stack.enter_async_context(connect(uri, options=ONCE)) for uri in made.own
            ]
            begun = await requests_of(admin)
            for client in clients:
                for _ in range(20):
                    await client.request("service=store", b"")

            async def all_counted() -> bool:
                return await requests_of(admin) == begun + 40

            await until(all_counted)
            last = begun + 40
            before = made.pids()
            os.kill(before[1], signal.SIGKILL)
            up = False
            async with asyncio.timeout(LONG):
                while not up:
                    status, text = await admin.get("/metrics")
                    assert status == 200
                    now = samples(text, "onward_requests_ended_total")[
                        "request_response", "answered"
                    ]
                    assert now >= last
                    last = now
                    ends = samples(text, "onward_process_ends_total")
                    up = ends["1",] == 1 and samples(text, "onward_process_up")["1",] == 1
            assert (await admin.json("status"))["missing"] == []
            await clients[0].request("service=store", b"")

            async def counted() -> bool:
                return await requests_of(admin) > last

            await until(counted)
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0


async def test_an_answer_does_not_wait_for_a_process_that_hangs() -> None:
    with brokers(2, *ADMIN) as made:
        admin = made.admin()
        await made.joined()
        stopped = made.pids()[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert (await admin.json("status"))["missing"] == [1]
            status, text = await admin.get("/metrics")
            assert status == 200
            assert samples(text, "onward_process_up") == {("0",): 1, ("1",): 0}
            assert (await admin.get("/readyz"))[0] == 503
            assert (await admin.get("/livez"))[0] == 200
            (problem,) = [
                each
                for each in (await admin.json("problems"))["problems"]
                if each["kind"] == PROCESS
            ]
            assert problem["subject"] == "process 1"
            assert (await admin.get("/api/v1/status?process=1"))[0] == 503
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(10):
                # It is known to be silent: 0.2 s for each, and not 2.
                assert (await admin.json("connections"))["missing"] == [1]
            assert loop.time() - began < 15.0
        finally:
            os.kill(stopped, signal.SIGCONT)

        async def well() -> bool:
            return (await admin.get("/readyz"))[0] == 200

        await until(well)
        assert made.pids()[1] == stopped
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0


@pytest.mark.exhaustive
async def test_a_process_that_hangs_is_started_anew() -> None:
    with brokers(2, *ADMIN) as made:
        admin = made.admin()
        await made.joined()
        stopped = made.pids()[1]
        os.kill(stopped, signal.SIGSTOP)

        async def another() -> bool:
            return made.pids().get(1, stopped) != stopped

        async def well() -> bool:
            return (await admin.get("/readyz"))[0] == 200

        await until(another, LONG)
        await until(well)
        await made.joined()
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0
        assert "it has hung, and was killed; it is started anew" in made.errors()


@pytest.mark.exhaustive
async def test_a_process_that_ends_again_and_again_ends_all() -> None:
    with brokers(2) as made:
        killed: set[int] = set()
        async with asyncio.timeout(LONG):
            while len(killed) <= MAX_ENDS and made.process.poll() is None:
                pid = made.pids().get(0)
                if pid is not None and pid not in killed:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.05)
        assert await ended_within(made, LONG) == Status.FAILED
        errors = made.errors()
    assert len(killed) == MAX_ENDS + 1
    assert errors.count("process 0 was killed by signal 9; it is started anew") == MAX_ENDS
    assert "it has ended more than 5 times within 60 s" in errors


# --- events that cannot be read -------------------------------------------------------------------

BROKEN = (
    '{"last": 1, "rows": [{"kind": "joined", "at": 1, "missed": 0}]}',
    '{"last": 3, "rows": [{"kind": "left", "at": 2, "missed": 0}, {"kind": "joined", "at": 3}]}',
    "what is no JSON",
    '{"last": 5, "rows": [{"kind": "drained", "at": 5, "missed": 1}]}',
)


class _Scripted:
    """A process that answers questions for its events from a script, and then waits."""

    def __init__(self) -> None:
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.silent = False
        self._script = iter(BROKEN)
        self.asked: list[str] = []

    async def ask(self, what: str, timeout: float, *, target: str, **_: object) -> Said:
        assert (what, timeout > 0) == ("path", True)
        body = "[]"
        if target.startswith("/part/events"):
            self.asked.append(target.partition("after=")[2].partition("&")[0])
            body = next(self._script, "")
            if not body:
                await self.over
        return {"status": 200, "type": "application/json", "headers": {}, "body": body}


async def test_events_that_cannot_be_read_are_told_counted_and_asked_for_again(
    monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_process_whole, "AGAIN", 0.0)
    slot, process = Slot(0, "id"), _Scripted()
    fake: Any = process
    slot.child = fake
    whole = WholeBroker("all", [slot], {})
    plan: Any = SimpleNamespace(admin=None)

    async def answer(target: str) -> str:
        path, _, query = target.partition("?")
        said = await whole.asked(await said_of(HttpRequest("GET", path, query)))
        return str(said["body"])

    async with whole.administered(plan, Service()):

        async def last() -> bool:
            return '"last":5' in (await answer("/part/events?after=0")).replace(" ", "")

        await until(last)
        rows = json.loads(await answer("/part/events?after=0"))["rows"]
        found = [(row["kind"], row["process"], row["missed"]) for row in rows]
        # One was lost with the event that could not be read, one in the process itself.
        assert found == [("joined", 0, 0), ("left", 0, 0), ("drained", 0, 2)]
        assert process.asked[:4] == ["0", "1", "3", "3"]
        faults = samples(await answer("/metrics"), "onward_process_event_faults_total")
        assert faults == {("0",): 2}
    told = [each for each in caplog.records if "could not be read" in each.message]
    assert [each.levelname for each in told] == ["ERROR"]  # the second is one of those like it
    assert told[0].exc_info is not None


# --- clients of the management service ------------------------------------------------------------


class _Held:
    """A process that answers once it is let."""

    def __init__(self) -> None:
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.silent = False
        self.asked: list[Said] = []
        self.open = asyncio.Event()

    async def ask(self, what: str, timeout: float, **said: Any) -> Said:
        self.asked.append(said)
        await self.open.wait()
        return {"status": 200, "type": "application/json", "headers": {}, "body": "[]"}


async def test_each_anonymous_client_has_a_share_of_its_own() -> None:
    slot, process, limits = Slot(0, "id"), _Held(), QuestionLimits()
    fake: Any = process
    slot.child = fake
    whole = WholeBroker("all", [slot], {})

    async def status(source: str, principal: Principal | None, path: str = "status") -> int:
        method, body = ("POST", b"{}") if path == "kick" else ("GET", b"")
        request = HttpRequest(
            method, f"/api/v1/{path}", body=body, principal=principal, source=source
        )
        # As by the channel from a process.
        said = await whole.asked(json.loads(json.dumps(await said_of(request))))
        return int(said["status"])

    count = limits.max_questions_per_client
    asks = [asyncio.create_task(status("10.0.0.1", ANONYMOUS)) for _ in range(count + 1)]
    await eventually(asks[-1].done)
    assert asks[-1].result() == 429
    others = limits.max_anonymous_questions - count
    asks += [asyncio.create_task(status(f"10.0.1.{each}", None)) for each in range(others)]
    asks.append(asyncio.create_task(status("10.0.0.2", ANONYMOUS)))
    await eventually(asks[-1].done)
    assert asks[-1].result() == 503
    # Neither a client with a name nor an operator finds all places taken.
    asks.append(asyncio.create_task(status("10.0.0.1", Principal("ann", "token"))))
    asks.append(asyncio.create_task(status("10.0.0.1", ANONYMOUS, "kick")))
    await eventually(lambda: any(each["target"].endswith("kick") for each in process.asked))
    assert not asks[-1].done()
    process.open.set()
    assert Counter(await asyncio.gather(*asks)) == {200: count + others + 2, 429: 1, 503: 1}


# --- sockets, and other machines ----------------------------------------------------------------

_PASSES = """\
import os, sys
number = int(sys.argv[1])
os.dup2(number, 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="web")
os.execv(sys.executable, [sys.executable, "-m", "onward.cli", *sys.argv[2:]])
"""


def passed(web: socket.socket, *words: str) -> Popen[str]:
    """Run a command that has a socket of systemd, by the name `web`."""
    number = web.fileno()
    command = [sys.executable, "-c", _PASSES, str(number), *words]
    return Popen(command, pass_fds=(number,), stdout=PIPE, stderr=PIPE, text=True)


async def test_a_socket_of_systemd_is_shared_by_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:
        port = web.getsockname()[1]
        process = passed(web, "broker", "--listen", "rsocket+tcp://sd:web", "--processes", "2")
    uri = f"rsocket+tcp://127.0.0.1:{port}"
    try:
        made = Brokers(process, 2)
        await made.joined()
        async with AsyncExitStack() as stack:
            served = connect(uri, service="store", handlers=served_by("store"))
            await stack.enter_async_context(served)
            seen: set[int] = set()
            async with asyncio.timeout(LONG):
                while len(seen) < 2:  # each process takes some of the connections
                    await stack.enter_async_context(connect(uri))
                    found = await ask_broker(uri, "/api/v1/connections?limit=1024", TIMEOUT)
                    tcp = [
                        row for row in found["rows"] if row["listener"].startswith("rsocket+tcp")
                    ]
                    seen = {row["process"] for row in tcp}
            for each in made.own:
                client = await stack.enter_async_context(connect(each, options=ONCE))
                assert (await client.request("service=store", b"!")).data == b"store!"
        process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that are free."""
    for first in range(20_000, 60_000, count):
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no ports are free")


async def test_two_machines_with_two_processes_each() -> None:
    first = free_ports(4)
    at = [f"rsocket+tcp://127.0.0.1:{first + 2 * machine}" for machine in (0, 1)]
    allowed = "rsocket+tcp://127.0.0.1:*"
    common = ("--cluster-allow", allowed, *ADMIN)
    with (
        brokers(2, "--cluster-advertise", at[0], "--cluster-name", "one", *common) as one,
        brokers(
            2,
            *("--cluster-advertise", at[1], "--cluster-seed", at[0], "--cluster-name", "two"),
            *common,
        ) as two,
    ):
        admins = [one.admin(), two.admin()]

        async def meshed() -> bool:
            for made in (one, two):
                for index in (0, 1):
                    if (await made.peers(index))["up"] != 3:
                        return False
            return True

        await until(meshed)
        async with AsyncExitStack() as stack:
            for number, made in enumerate((one, one, two, two)):
                uri = made.own[number % 2]
                served = connect(uri, service="store", handlers=served_by(f"{number}."))
                await stack.enter_async_context(served)

            async def known() -> bool:
                found = [await made.services(index) for made in (one, two) for index in (0, 1)]
                return all(each == ["store"] * 4 for each in found)

            await until(known)
            for made in (one, two):
                for uri in made.own:
                    client = await stack.enter_async_context(connect(uri, options=ONCE))
                    await client.request("service=store", b"")
            for admin in admins:
                # Each route once, those of the other machine as well.
                rows = (await admin.json("routes?service=store"))["rows"]
                assert sorted(bool(row["broker"]) for row in rows) == [False, False, True, True]
                found = (await admin.json("peers?state=up"))["rows"]
                kinds = Counter(row["kind"] for row in found)
                # Two processes with a link to each other, and to two of the other machine.
                assert (kinds["process"], kinds["broker"]) == (2, 4)
                (row,) = (await admin.json("services?service=store"))["rows"]
                assert (row["destinations"], row["elsewhere"]) == (2, 2)
                assert (await admin.json("status"))["peer_routes"] == 2
        for made in (one, two):
            made.process.send_signal(signal.SIGTERM)
        for made in (one, two):
            assert await made.ended() == 0
