"""The paths of several processes that are one program: the same as those of each, for all together.

An answer in JSON has the numbers of the processes that are `missing` in it, and rows have their
`process`. With the field `process` in its query, a path is that of one process.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlencode

from ...actors.broker.table._services import SERVICE_COLUMNS, service_row
from ...actors.monitoring import RecentEvents
from ...actors.monitoring._process import PROCESSES_FAMILIES, processes_metrics
from ...protocol.metrics import MergedMetrics, Metric, metrics_text, text_format
from . import _whole_merge as merge
from ._api import PEERS, WAITING
from ._console_paths import add_console
from ._event_paths import add_events, add_polled_events
from ._health_paths import STAGES, in_turns, of_service
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, text_response
from ._options import AdminOptions
from ._part_paths import PART, metrics_of_rows, service_of_row, surroundings_of_row
from ._parts import Answers, Parts, ask_all, ask_any, part_request
from ._paths import METRICS, AdminPaths, Handler, Needs
from ._questions import Questions
from ._topology_paths import picture_response
from ._whole_operations import add_whole_operations
from ._whole_tables import PROCESS, Source, all_rows, page_of_all, page_of_rows

__all__ = ["Whole", "inner_paths", "whole_paths"]

_OPTIONS: Final = AdminOptions()

_TABLES: Final = {
    "connections": (Source("/api/v1/connections"),),
    "workers": (Source("/api/v1/workers"),),
    "limits": (Source("/api/v1/limits"),),
    # Each process has the routes of the others as well; those of other machines all have alike.
    "routes": (
        Source("/api/v1/routes", (("broker", ""),)),
        Source(f"{PART}elsewhere", once=True),
    ),
}
"""The tables that may be large, with where their rows are."""


@dataclass
class Whole:
    """A program of several processes, as its operators see it.

    Attributes:
        name: Its name.
        parts: The processes.
        operations: Its operations by name, such as `drain`: each is one of all processes.
        events: The recent events of all processes, each with its process.
        began: The time of its start, in seconds since 1970.
        questions: The requests in hand for which the processes are asked.
        faults: How often the events of a process could not be taken, by its number.
    """

    name: str
    parts: Parts
    operations: Mapping[str, Callable[[], Awaitable[object]]]
    events: RecentEvents[Mapping[str, Any]] = field(default_factory=RecentEvents[Mapping[str, Any]])
    began: float = field(default_factory=time.time)
    questions: Questions = field(default_factory=Questions)
    faults: Counter[int] = field(default_factory=Counter[int])


def whole_paths(whole: Whole, options: AdminOptions = _OPTIONS) -> AdminPaths:
    """Return the paths of a program of several processes.

    Args:
        whole: The program.
        options: The options of the server.
    """
    paths = AdminPaths()
    made = _WholePaths(whole, paths)
    for path, stage in STAGES.items():
        paths.add(path, made.health(path, stage.value), needs="nothing")
    made.add(METRICS, made.metrics)
    for name, sources in _TABLES.items():
        made.add(f"/api/v1/{name}", made.table(sources))
    for handler in (
        made.peers,
        made.waiting,
        made.services,
        made.status,
        made.problems,
        made.overview,
        made.self,
        made.topology,
    ):
        made.add(f"/api/v1/{handler.__name__}", handler)
    for path in ("/api/v1/links", "/api/v1/dead-letters"):
        made.add(path, made.report(path))
    for name in ("config", "resolve"):
        made.add(f"/api/v1/{name}", made.any_process)
    add_events(paths, whole.events, _row_of, uuid.uuid4().hex[:8], options)
    add_whole_operations(paths, whole.parts, whole.operations, made.add, made.placed)
    add_console(paths)
    return paths


def inner_paths(whole: Whole) -> AdminPaths:
    """Return the paths of a program of several processes for these processes.

    Those that are not served by HTTP are among them: the next events, and all workers.
    """
    paths = whole_paths(whole)
    path = f"{PART}workers"
    paths.add(path, _WholePaths(whole, paths).report(path))
    add_polled_events(paths, f"{PART}events", whole.events, _row_of)
    return paths


def _row_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row


class _WholePaths:
    """The handlers. See `whole_paths`."""

    def __init__(self, whole: Whole, paths: AdminPaths) -> None:
        self._whole = whole
        self._parts = whole.parts
        self._questions = whole.questions
        self._paths = paths
        self._metrics = MergedMetrics()
        self._drawing = asyncio.Lock()
        self._summing = asyncio.Lock()

    def add(
        self, path: str, handle: Handler, *, method: str = "GET", needs: Needs = "read"
    ) -> None:
        """Add a path of all processes that can be asked of one as well."""

        async def either(request: HttpRequest) -> HttpResponse:
            number, other = self._process_of(request)
            if number is None:
                return await handle(request)
            answers = await ask_all(self._parts, other, numbers=[number])
            for error in answers.refused.values():
                raise error
            if answers.missing:
                raise _missing(number)
            return answers.found[number]

        self._paths.add(path, self.placed(either, needs), method=method, needs=needs)

    def placed(self, handle: Handler, needs: Needs) -> Handler:
        """Return a handler that holds a place for each request; see `Questions.place`."""

        async def placed(request: HttpRequest) -> HttpResponse:
            with self._questions.place(request, needs):
                return await handle(request)

        return placed

    def _process_of(self, request: HttpRequest) -> tuple[int | None, HttpRequest]:
        """Return the process that a request is for, if it is for one. Raises as `_process_of`."""
        number, other = _process_of(request)
        if number is not None and number not in self._parts.numbers:
            raise HttpError(HTTPStatus.NOT_FOUND, f"there is no process {number}")
        return number, other

    async def _ask(
        self, path: str, fields: Sequence[tuple[str, str]] = (), number: int | None = None
    ) -> Answers:
        """Ask one process, or all; the answers are shared with equal questions."""
        request = part_request(path, fields)
        numbers = self._parts.numbers if number is None else [number]
        return await self._questions.shared(
            f"{path}?{request.query} of {number}",
            partial(ask_all, self._parts, request, numbers=numbers),
        )

    # --- health and metrics -------------------------------------------------------------------

    def health(self, path: str, stage: str) -> Handler:
        """Return the handler of the checks of a stage.

        A process that hangs or ends is started anew by this one: nothing would be won if all were
        started anew. So it is live while it answers, and ready when all processes are.

        These paths need no authentication: all probes of one time are answered from one question,
        or from one for each process that is named, so that no flood of them asks more often.
        """

        async def handle(request: HttpRequest) -> HttpResponse:
            number, _ = self._process_of(request)
            answers = await self._ask(path, [("verbose", "")], number)
            if number is None:
                checks = _checks_of_all(answers)
                passed = stage == "live" or all(each["passed"] for each in checks)
            elif number in answers.missing:
                raise _missing(number)
            else:
                said = answers.json()[number]
                checks, passed = said["checks"], said["passed"]
            status = HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE
            if "verbose" not in dict(request.fields()):
                return text_response("ok" if passed else f"not {stage}", status)
            if not await request.reads():
                for each in checks:
                    each.pop("problem", None)
            return json_response({"stage": stage, "passed": passed, "checks": checks}, status)

        return handle

    async def metrics(self, request: HttpRequest) -> HttpResponse:
        """Answer with the metrics of all processes together."""
        families: list[tuple[str, str]] = []
        service: str | None = None
        for name, value in request.fields():
            if name == "service":
                service = value
            elif name == "family":
                families.append((name, value))
            else:
                text = f"unknown field {name!r}: family or service"
                raise HttpError(HTTPStatus.BAD_REQUEST, text)
        # Of the families of this process the others know nothing.
        asked = [each for each in families if each[1].removeprefix("onward_") not in _OF_PROCESSES]
        # One at a time: an answer that came before another one is added before it. A process that
        # ends while others are asked has answered for its run, not for the one after it.
        async with self._summing:
            runs = {number: self._parts.run_of(number) for number in self._parts.numbers}
            answers = await ask_all(self._parts, part_request(f"{PART}metrics", asked))
            found = {
                number: (runs[number], metrics_of_rows(rows))
                for number, rows in answers.json().items()
            }
            merged: list[Metric] = [*self._metrics.merge(found)]
        wanted = {value.removeprefix("onward_") for _, value in families}
        numbers = self._parts.numbers
        merged += [
            each
            for each in processes_metrics(
                {number: number in found for number in numbers},
                {number: self._parts.ends_of(number) for number in numbers},
                {number: self._whole.faults[number] for number in numbers},
                self._questions.refused,
            )
            if not wanted or each.family.name.removeprefix("onward_") in wanted
        ]
        if service is not None:
            merged = [each for each in map(of_service(service), merged) if each is not None]
        kind = text_format(request.headers.get("accept", ""))
        return HttpResponse(in_turns(metrics_text(merged, kind)), kind.value)

    # --- tables -------------------------------------------------------------------------------

    def table(self, sources: tuple[Source, ...]) -> Handler:
        """Return the handler of a table that may be large."""

        async def handle(request: HttpRequest) -> HttpResponse:
            return await page_of_all(self._parts, request, sources)

        return handle

    async def peers(self, request: HttpRequest) -> HttpResponse:
        """Answer with the peers: other processes of this program are of the kind `process`."""
        rows, missing = await all_rows(self._parts, f"{PART}peers")
        return await page_of_rows(request, rows, (*PEERS, PROCESS), missing, self._paths.turn)

    async def waiting(self, request: HttpRequest) -> HttpResponse:
        """Answer with the queries that requests wait for, those with most requests first."""
        order = [("sort", "-requests")]
        rows, missing = await all_rows(self._parts, "/api/v1/waiting", order)
        found = merge.queries(rows)
        return await page_of_rows(request, found, WAITING, missing, self._paths.turn)

    async def services(self, request: HttpRequest) -> HttpResponse:
        """Answer with the services."""
        answers = await self._ask(f"{PART}services")
        parts = {
            number: map(service_of_row, said["rows"]) for number, said in answers.json().items()
        }
        rows = map(service_row, merge.services(parts))
        return await page_of_rows(request, rows, SERVICE_COLUMNS, answers.missing, self._paths.turn)

    def report(self, path: str) -> Handler:
        """Return the handler of a report about the nodes of all processes."""

        async def handle(_: HttpRequest) -> HttpResponse:
            answers = await self._ask(path)
            found = answers.json()
            rows = [
                {**row, PROCESS: number} for number, each in found.items() for row in each["rows"]
            ]
            apart = ("node", "rows")
            others = [
                {name: value for name, value in each.items() if name not in apart}
                for each in found.values()
            ]
            figures: dict[str, Any] = merge.summed(others) or {}
            head = {"node": self._whole.name, **figures}
            return json_response({**head, "missing": list(answers.missing), "rows": rows})

        return handle

    # --- figures ------------------------------------------------------------------------------

    async def status(self, _: HttpRequest) -> HttpResponse:
        """Answer with the figures of all brokers together."""
        answers = await self._ask(f"{PART}status")
        found = merge.statuses(answers.json())
        return json_response({**found, "missing": list(answers.missing)})

    async def problems(self, _: HttpRequest) -> HttpResponse:
        """Answer with what is wrong."""
        answers = await self._ask("/api/v1/problems")
        found = {number: each["problems"] for number, each in answers.json().items()}
        rows = [*_absent(answers), *merge.problems(found)]
        missing = list(answers.missing)
        return json_response({"at": time.time(), "problems": rows, "missing": missing})

    async def overview(self, _: HttpRequest) -> HttpResponse:
        """Answer with the last five minutes."""
        answers = await self._ask("/api/v1/overview")
        found = merge.overviews(answers.json())
        found["problems"] = [*_absent(answers), *found["problems"]]
        return json_response({**found, "missing": list(answers.missing)})

    async def self(self, request: HttpRequest) -> HttpResponse:
        """Answer with what this program is, and what the peer may do."""
        answers = await self._ask("/api/v1/self")
        ready = [each["ready"] for each in answers.json().values()]
        principal = request.principal
        operations = sorted(self._whole.operations) if request.operates else []
        return json_response(
            {
                "node": self._whole.name,
                "broker": True,
                "version": version("onward"),
                "started": self._whole.began,
                "ready": all(ready) and not answers.missing,
                "principal": None if principal is None else principal.name,
                "operate": request.operates,
                "operations": operations,
                "processes": len(self._parts.numbers),
                "missing": list(answers.missing),
            }
        )

    async def topology(self, _: HttpRequest) -> HttpResponse:
        """Answer with the picture of what surrounds the processes."""
        answers = await self._ask(f"{PART}surroundings")
        name = self._whole.name
        parts = [surroundings_of_row(name, each) for each in answers.json().values()]
        async with self._drawing:
            return await picture_response(merge.surroundings(name, parts))

    async def any_process(self, request: HttpRequest) -> HttpResponse:
        """Answer with what each process would answer."""
        return await ask_any(self._parts, request)


_OF_PROCESSES: Final = {each.name.removeprefix("onward_") for each in PROCESSES_FAMILIES}

_ABSENT: Final = {
    "severity": "critical",
    "kind": "process",
    "text": "it does not answer",
    "advice": "See the log: a process that has ended, or hangs, is started anew.",
}


def _missing(number: int) -> HttpError:
    return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, f"process {number} does not answer")


def _checks_of_all(answers: Answers) -> list[dict[str, Any]]:
    """Return the checks of all processes; one that has not answered has failed."""
    checks = [
        {**check, "name": f"process {number}: {check['name']}"}
        for number, said in answers.json().items()
        for check in said["checks"]
    ]
    for number in answers.missing:
        name = f"process {number}: answer"
        checks.append({"name": name, "passed": False, "problem": "there is none"})
    return checks


def _absent(answers: Answers) -> list[dict[str, Any]]:
    """Return a problem for each process that has not answered."""
    return [
        {**_ABSENT, "subject": f"process {number}", PROCESS: number} for number in answers.missing
    ]


def _process_of(request: HttpRequest) -> tuple[int | None, HttpRequest]:
    """Return the process that a request is for, if it is for one, and the request without it.

    Raises:
        HttpError: The field `process` is no number.
    """
    fields = request.fields()
    given = dict(fields).get(PROCESS)
    if given is None:
        return None, request
    if not (given.isascii() and given.isdecimal() and len(given) < 5):
        raise HttpError(HTTPStatus.BAD_REQUEST, "process must be the number of a process")
    query = urlencode([(name, value) for name, value in fields if name != PROCESS])
    return int(given), replace(request, query=query)
