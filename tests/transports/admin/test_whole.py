"""Several processes that are one program to its operators: brokers of one loop in their place."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.monitoring import Monitor
from onward.protocol.security import Principal
from onward.transports.admin import (
    AdminPaths,
    HttpError,
    HttpRequest,
    HttpResponse,
    QuestionLimits,
    Questions,
    Whole,
    admin_paths,
    asked,
    inner_paths,
    part_paths,
    whole_paths,
)
from onward.transports.admin._part_paths import PART
from onward.transports.admin._parts import PartMissing, body_of, principal_of_row, principal_row
from onward.transports.client import Client, connect
from onward.transports.rsocket import number_connections
from tests.support.transports import eventually
from tests.support.workers import Echo

WAITING = BrokerOptions(waiting=WaitingOptions(no_route_timeout=60.0))
COUNT = 2
BOUNDS = QuestionLimits(
    max_questions=6,
    max_questions_per_client=4,
    max_anonymous_questions=6,
    max_operations=6,
    max_operations_per_client=4,
    shared_for=0,
)


class _Parts:
    """Brokers in the place of processes.

    Attributes:
        silent: Those that do not answer.
        asked: How often each was asked for each path.
        held: Unset: no process answers.
        runs: How often each has been started anew.
    """

    def __init__(self) -> None:
        self.brokers: list[Broker] = []
        self.uris: list[str] = []
        self.paths: list[tuple[AdminPaths, AdminPaths]] = []
        self.monitors: list[Monitor] = []
        self.silent: set[int] = set()
        self.asked: Counter[tuple[int, str]] = Counter()
        self.held = asyncio.Event()
        self.held.set()
        self.runs = [0] * COUNT

    @property
    def numbers(self) -> Sequence[int]:
        return range(COUNT)

    def run_of(self, number: int) -> str:
        return str(self.runs[number])

    def ends_of(self, number: int) -> int:
        return self.runs[number]

    async def ask(self, number: int, request: HttpRequest, timeout: float) -> HttpResponse:
        assert timeout > 0
        self.asked[number, request.path] += 1
        await self.held.wait()
        if number in self.silent:
            raise PartMissing
        own, parts = self.paths[number]
        paths = parts if request.path.startswith(PART) else own
        # As by a channel: the principal as values of JSON, and the body whole.
        principal = principal_of_row(json.loads(json.dumps(principal_row(request.principal))))
        target = f"{request.path}?{request.query}"
        answer = await asked(paths, target, request.body, principal, request.reads)
        return HttpResponse(await body_of(answer), answer.content_type, answer.status)


class World:
    """The program.

    Attributes:
        parts: The processes.
        whole: The program.
        calls: The operations that it was asked for.
    """

    def __init__(self, parts: _Parts) -> None:
        self.parts = parts
        self.calls: list[str] = []
        names = ("drain", "reload")
        operations = {name: self._operation(name) for name in names}
        self.whole = Whole("all", parts, operations)
        # What a test changes is to be seen at once.
        self.whole.questions = Questions(BOUNDS)
        self.paths = inner_paths(self.whole)

    def _operation(self, name: str) -> Any:
        async def operate() -> object:
            self.calls.append(name)
            return {name: True}

        return operate

    async def answer(self, target: str, **arguments: Any) -> HttpResponse:
        body = json.dumps(arguments).encode() if arguments else b""
        return await asked(self.paths, target, body)

    async def text(self, target: str, **arguments: Any) -> str:
        return (await body_of(await self.answer(target, **arguments))).decode()

    async def json(self, target: str, **arguments: Any) -> Any:
        return json.loads(await self.text(f"/api/v1/{target}", **arguments))

    async def of(self, number: int, target: str) -> Any:
        paths, _ = self.parts.paths[number]
        return json.loads(await body_of(await asked(paths, f"/api/v1/{target}")))


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    parts = _Parts()
    async with AsyncExitStack() as stack:
        for number in range(COUNT):
            node = await stack.enter_async_context(Node(f"part-{number}"))
            broker = await Broker.attach(node, WAITING)
            listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
            worker = await node.start(Echo, address="store")
            broker.register(worker, service="store", tags={"part": str(number)})
            monitor = Monitor(node, broker)
            monitor.start()
            stack.push_async_callback(monitor.stop)
            monitor.started = True
            siblings = frozenset(str(each.broker_id) for each in parts.brokers)
            parts.brokers.append(broker)
            parts.uris.append(listener.uri)
            parts.monitors.append(monitor)
            parts.paths.append((admin_paths(monitor), part_paths(monitor, siblings)))
        yield World(parts)


@asynccontextmanager
async def clients(w: World, *numbers: int) -> AsyncGenerator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(w.parts.uris[each])) for each in numbers]


def metrics_of(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples by name, with the values of their labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
    return found


# --- figures ------------------------------------------------------------------------------------


async def test_sums_are_those_of_the_parts() -> None:
    async with world() as w, clients(w, 0, 0, 1) as made:
        for client in made:
            await client.request("service=store", b"")
        parts = [await w.of(number, "status") for number in range(COUNT)]
        found = await w.json("status")
        assert found["missing"] == []
        for name in ("routes", "streams", "watchers"):
            assert found[name] == sum(each[name] for each in parts)
        assert len(found["listeners"]) == COUNT
        assert sum(each["connections"] for each in found["listeners"]) == 3
        services = await w.json("services?service=store")
        (store,) = services["rows"]
        assert (store["destinations"], store["requests"], store["answered"]) == (2, 3, 3)
        assert store["elsewhere"] == 0
        metrics = metrics_of(await w.text("/metrics"))
        assert sum(metrics["onward_connections"].values()) == 3
        assert metrics["onward_requests_total"]["request_response", "unicast"] == 3
        assert metrics["onward_process_up"] == {("0",): 1, ("1",): 1}
        assert set(metrics["process_cpu_seconds_total"]) == {("0",), ("1",)}
        counted = metrics["onward_request_duration_seconds_count"]["request_response",]
        each = [
            metrics_of((await body_of(await asked(paths, "/metrics"))).decode())
            for paths, _ in w.parts.paths
        ]
        name = "onward_request_duration_seconds_count"
        assert counted == sum(part[name]["request_response",] for part in each)


async def test_metrics_of_chosen_families_and_of_one_service() -> None:
    async with world() as w, clients(w, 0, 1) as made:
        for client in made:
            await client.request("service=store", b"")
        asked_for = "/metrics?family=service_requests_total&family=process_up&service=store"
        assert metrics_of(await w.text(asked_for)) == {
            "onward_service_requests_total": {("store",): 2},
            "onward_process_up": {("0",): 1, ("1",): 1},
        }
        for query, text in (("family=nothing", "no family"), ("colour=red", "unknown field")):
            with pytest.raises(HttpError, match=text):
                await w.text(f"/metrics?{query}")


async def test_counts_stay_when_a_process_is_missing_and_after_it_has_come_back() -> None:
    async with world() as w, clients(w, 0, 1) as made:
        for client in made:
            await client.request("service=store", b"")
        family = "/metrics?family=requests_total&family=connections"
        key = "request_response", "unicast"

        async def read() -> dict[str, dict[tuple[str, ...], float]]:
            return metrics_of(await w.text(family))

        assert (await read())["onward_requests_total"][key] == 2
        w.parts.silent.add(1)
        found = await read()
        assert found["onward_requests_total"][key] == 2
        assert len(found["onward_connections"]) == 1
        w.parts.silent.clear()
        w.parts.runs[1] += 1  # it has ended; the one in its place counts from 0, or here from 1
        assert (await read())["onward_requests_total"][key] == 3


async def test_a_process_that_ends_while_others_are_asked() -> None:
    """Its answer is one of the run that has ended, and readers at a time are read in turn."""
    async with world() as w, clients(w, 0, 1) as made:
        for client in made:
            await client.request("service=store", b"")
        key = "request_response", "unicast"
        parts, ask, calls = w.parts, w.parts.ask, 0
        answered = asyncio.Event()

        async def late(number: int, request: HttpRequest, timeout: float) -> HttpResponse:
            nonlocal calls
            calls += 1
            found = await ask(number, request, timeout)
            if calls <= COUNT and number == 0:
                await answered.wait()
            elif calls <= COUNT:
                parts.runs[1] += 1
            return found

        async def read() -> float:
            return metrics_of(await w.text("/metrics"))["onward_requests_total"][key]

        parts.ask = late  # type: ignore[method-assign]
        first = asyncio.create_task(read())
        await eventually(lambda: parts.runs[1] == 1)
        second = asyncio.create_task(read())
        await asyncio.sleep(0)
        answered.set()
        # The run that is there now counts from 1, as it is the same broker.
        assert [await first, await second, await read()] == [2, 3, 3]


async def test_the_last_minutes_and_the_problems() -> None:
    async with world() as w, clients(w, 0, 1):
        found = await w.json("overview")
        assert found["node"]["workers"] > 2
        assert found["broker"]["routes"] == 4
        assert (await w.json("problems"))["problems"] == []
        w.parts.silent.add(1)
        (problem,) = (await w.json("problems"))["problems"]
        assert (problem["subject"], problem["process"]) == ("process 1", 1)
        found = await w.json("overview")
        assert found["missing"] == [1]
        assert found["problems"] == [problem]


async def test_the_picture_has_all() -> None:
    async with world() as w, clients(w, 0, 1):
        text = await w.text("/api/v1/topology")
        assert text.startswith("<svg")
        for uri in w.parts.uris:
            assert uri in text
        assert "2 destinations" in text


# --- tables -------------------------------------------------------------------------------------


async def test_rows_have_their_process_and_one_order() -> None:
    async with world() as w, clients(w, 0, 1, 0, 1, 1):
        found = await w.json("connections?sort=id")
        assert found["total"] == 5
        ids = [row["id"] for row in found["rows"]]
        assert ids == sorted(ids)
        assert [row["process"] for row in found["rows"]] == [0, 1, 0, 1, 1]
        down = await w.json("connections?sort=-id&limit=2&offset=1")
        assert [row["id"] for row in down["rows"]] == ids[::-1][1:3]
        by_process = await w.json("connections?sort=-process")
        assert [row["process"] for row in by_process["rows"]] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("sort", ["", "sort=id&"])
async def test_pages_are_the_whole_table_without_gaps(sort: str) -> None:
    async with world() as w, clients(w, 0, 1, 0, 1, 1):
        whole = await w.json(f"connections?{sort}")
        for size in (1, 2, 3, 5):
            pages = [
                await w.json(f"connections?{sort}limit={size}&offset={offset}")
                for offset in range(0, 6, size)
            ]
            assert {each["total"] for each in pages} == {5}
            rows = [row["id"] for each in pages for row in each["rows"]]
            assert rows == [row["id"] for row in whole["rows"]]


async def test_filters_are_those_of_each_process() -> None:
    async with world() as w, clients(w, 0, 1):
        uri = w.parts.uris[1]
        found = await w.json(f"connections?listener={quote(uri)}")
        assert [row["process"] for row in found["rows"]] == [1]
        assert found["total"] == 1
        for query, text in (
            ("colour=red", "unknown field"),
            ("sort=colour", "sort must be"),
            ("limit=x", "limit must be"),
            ("sort=id&offset=5000", "at most 4096"),
        ):
            with pytest.raises(HttpError, match=text):
                await w.json(f"connections?{query}")


async def test_each_route_is_there_once() -> None:
    async with world() as w:
        rows = (await w.json("routes?service=store"))["rows"]
        assert [(row["tags"]["part"], row["process"]) for row in rows] == [("0", 0), ("1", 1)]


async def test_small_tables() -> None:
    async with world() as w:
        assert (await w.json("peers"))["rows"] == []
        workers = await w.json("workers?kind=Broker")
        assert [row["process"] for row in workers["rows"]] == [0, 1]
        limits = await w.json("limits?name=max_routes")
        assert [row["process"] for row in limits["rows"]] == [0, 1]
        for name in ("links", "dead-letters"):
            found = await w.json(name)
            assert (found["node"], found["missing"]) == ("all", [])
        assert json.loads(await w.text(f"{PART}workers"))["total"] == sum(
            [(await w.of(number, "workers"))["total"] for number in range(COUNT)]
        )


async def test_requests_that_wait_for_one_query_are_one_row() -> None:
    async with world() as w, clients(w, 0, 1, 1) as made:
        waits = [
            asyncio.create_task(each.request("service=nowhere", b"", timeout=60)) for each in made
        ]

        def all_wait() -> bool:
            return sum(each.statistics().waiting for each in w.parts.brokers) == len(made)

        await eventually(all_wait)
        (row,) = (await w.json("waiting"))["rows"]
        assert row["requests"] == len(made)
        assert "process" not in row
        for each in waits:
            each.cancel()
        await asyncio.wait(waits)


# --- floods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", ["", "&process=1"])
async def test_a_flood_of_health_questions_is_one_question(process: str) -> None:
    async with world() as w:
        w.parts.held.clear()
        flood = [
            asyncio.create_task(w.text(f"/readyz?n={number}{process}")) for number in range(100)
        ]
        # Of one process that one alone is asked.
        asked = {1} if process else set(range(COUNT))
        await eventually(lambda: w.parts.asked.total() == len(asked))
        w.parts.held.set()
        assert set(await asyncio.gather(*flood)) == {"ok\n"}
        assert w.parts.asked == {(number, "/readyz"): 1 for number in asked}
        assert w.whole.questions.refused.total() == 0


@pytest.mark.parametrize(
    "target", ["status?n={}", "connections?limit={}", "status?process=1&n={}", "kick"]
)
async def test_a_flood_of_other_questions_leaves_places_to_others(target: str) -> None:
    async with world() as w:

        async def status(source: str, number: int) -> int:
            path, _, query = f"/api/v1/{target.format(number)}".partition("?")
            body = b'{"connection": 1000000}' if target == "kick" else b""
            method = "POST" if body else "GET"
            request = HttpRequest(method, path, query, body=body, source=source)
            try:
                return (await w.paths.find(method, path).handle(request)).status
            except HttpError as error:
                return error.status if error.status < 429 or error.headers else 0

        w.parts.held.clear()
        flood = [asyncio.create_task(status("10.0.0.1", number)) for number in range(20)]
        others = [asyncio.create_task(status("10.0.0.2", number)) for number in range(3)]
        await eventually(lambda: sum(each.done() for each in (*flood, *others)) == 17)
        asked = w.parts.asked.total()
        health = asyncio.create_task(w.text("/readyz"))
        await eventually(lambda: w.parts.asked.total() == asked + COUNT)
        w.parts.held.set()
        found = Counter(await asyncio.gather(*flood))
        assert found[429] == 16
        assert Counter(await asyncio.gather(*others))[503] == 1
        assert await health == "ok\n"
        name = "onward_process_questions_refused_total"
        metrics = metrics_of(await w.text("/metrics"))
        assert metrics[name] == {("client",): 16, ("anonymous",): 0, ("all",): 1}
        assert metrics["onward_process_event_faults_total"] == {("0",): 0, ("1",): 0}


# --- health, and who is missing -----------------------------------------------------------------


async def test_it_is_ready_when_all_are() -> None:
    async with world() as w:
        assert await w.text("/readyz") == "ok\n"
        w.parts.monitors[1].started = False
        answer = await w.answer("/readyz?verbose")
        assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        failed = [
            each["name"]
            for each in json.loads(await body_of(answer))["checks"]
            if not each["passed"]
        ]
        assert failed == ["process 1: started"]
        assert not (await w.json("self"))["ready"]
        w.parts.silent.add(1)
        assert await w.text("/healthz") == "not ready\n"
        # The program would start a process anew that hangs: its own end would help nothing.
        assert await w.text("/livez") == "ok\n"


async def test_the_texts_of_checks_are_for_readers() -> None:
    async with world() as w:
        w.parts.monitors[0].started = False

        async def never() -> bool:
            return False

        for target in ("/readyz?verbose", "/readyz?verbose&process=0"):
            answer = await asked(w.paths, target, reads=never)
            assert "problem" not in (await body_of(answer)).decode()
            assert "the start is not over" in await w.text(target)


@pytest.mark.parametrize(
    "target",
    [
        "connections",
        "connections?sort=id",
        "routes",
        "peers",
        "services",
        "status",
        "problems",
        "overview",
        "self",
        "links",
        "waiting",
        "limits",
        "workers",
    ],
)
async def test_an_answer_without_a_process_says_so(target: str) -> None:
    async with world() as w, clients(w, 0, 1):
        w.parts.silent.add(1)
        found = await w.json(target)
        assert found["missing"] == [1]
        assert all(row.get("process", 0) == 0 for row in found.get("rows", ()))
        w.parts.silent.add(0)
        assert (await w.json(target))["missing"] == [0, 1]


async def test_what_all_know_is_told_by_any() -> None:
    async with world() as w:
        w.parts.silent.add(0)
        assert (await w.json("resolve?q=service=store"))["matches"] == 1
        assert "broker" in await w.json("config")
        w.parts.silent.add(1)
        with pytest.raises(HttpError, match="no process answers"):
            await w.json("config")


async def test_one_process_alone() -> None:
    async with world() as w, clients(w, 0, 1, 1):
        one = await w.json("status?process=1")
        assert one["listeners"][0]["connections"] == 2
        assert "missing" not in one
        assert (await w.json("connections?process=1&limit=1"))["total"] == 2
        assert "onward_process_up" not in await w.text("/metrics?process=0")
        w.parts.silent.add(1)
        for query, text in (
            ("process=1", "process 1 does not answer"),
            ("process=2", "there is no process 2"),
            ("process=x", "must be the number"),
        ):
            with pytest.raises(HttpError, match=text):
                await w.json(f"status?{query}")


# --- operations ---------------------------------------------------------------------------------


async def test_a_connection_is_closed_at_whichever_process_has_it() -> None:
    number_connections(1, 1)
    async with world() as w, clients(w, 0, 1, 1):
        rows = (await w.json("connections?sort=id"))["rows"]
        last = rows[-1]
        assert last["process"] == 1
        assert await w.json("kick", connection=last["id"]) == {"connection": last["id"]}
        w.parts.silent.add(0)
        with pytest.raises(HttpError, match="missing: process 0") as caught:
            await w.json("kick", connection=10**9)
        assert caught.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        w.parts.silent.clear()
        with pytest.raises(HttpError, match="there is no connection"):
            await w.json("kick", connection=10**9)
        with pytest.raises(HttpError, match="must be the id"):
            await w.json("kick", connection="x")


async def test_the_level_of_the_log_is_set_everywhere() -> None:
    async with world() as w:
        w.parts.silent.add(1)
        found = await w.json("log-level", logger="onward.whole", level="error")
        assert found == {
            "logger": "onward.whole",
            "level": "error",
            "effective": "error",
            "missing": [1],
        }
        await w.json("log-level", logger="onward.whole", level=None)
        with pytest.raises(HttpError, match="level must be"):
            await w.json("log-level", level="loud")


async def test_operations_are_those_of_all() -> None:
    async with world() as w:
        answer = await asked(w.paths, "/api/v1/drain", b"{}")
        assert json.loads(await body_of(answer)) == {"drain": True}
        assert w.calls == ["drain"]
        with pytest.raises(HttpError, match="no arguments"):
            await w.json("drain", now=True)
        with pytest.raises(HttpError, match="no such path"):
            await w.json("undo-drain", x=1)


async def test_the_insides_of_all() -> None:
    async with world() as w:
        stacks = await w.text("/debug/stacks")
        assert stacks.startswith("process 0\n\nthread")
        assert "\nprocess 1\n" in stacks
        w.parts.silent.add(1)
        assert "process 1 does not answer" in await w.text("/debug/tasks")
        memory = json.loads(await w.text("/debug/memory"))
        assert (list(memory["processes"]), memory["missing"]) == (["0"], [1])
        profile = await w.text("/debug/profile?seconds=0")
        assert all(line.startswith("process 0;") for line in profile.splitlines() if line)
        with pytest.raises(HttpError, match="does not trace"):
            await w.json("trace", query="service=store")


async def test_events_have_their_process() -> None:
    async with world() as w:
        w.whole.events.add({"kind": "joined", "process": 1})
        w.whole.events.add({"kind": "left", "process": 0}, missed=2)
        found = await w.json("recent-events")
        assert found == {
            "total": 4,
            "rows": [
                {"kind": "joined", "process": 1, "missed": 0},
                {"kind": "left", "process": 0, "missed": 2},
            ],
        }
        polled = json.loads(await w.text(f"{PART}events?after=1"))
        assert [row["kind"] for row in polled["rows"]] == ["left"]
        assert json.loads(await w.text(f"{PART}events")) == {"last": 4, "rows": []}
        waits = asyncio.create_task(w.text(f"{PART}events?after=4&wait=30"))
        await asyncio.sleep(0)
        w.whole.events.add({"kind": "lost", "process": 0})
        assert json.loads(await waits)["last"] == 5


def test_a_principal_is_the_same_at_another_process() -> None:
    one = Principal("ann", "token", frozenset({"a", "b"}), frozenset({(7, "x"), ("y", None)}), 1.5)
    assert principal_of_row(json.loads(json.dumps(principal_row(one)))) == one
    assert principal_of_row(principal_row(None)) is None


async def test_what_is_for_processes_is_not_served() -> None:
    async with world() as w:
        served = set(whole_paths(w.whole))
        assert {path for path in served if path.startswith(PART)} == set()
        assert set(w.paths) - served == {f"{PART}events", f"{PART}workers"}
        # Each path of a process is one of all together.
        own, _ = w.parts.paths[0]
        assert set(own) - served == {"/api/v1/undo-drain"}  # as this program has none
