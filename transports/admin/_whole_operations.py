"""The paths that change several processes that are one program, or show their insides."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

from ._debug_paths import MAX_PROFILE
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, text_response
from ._operate_paths import operated, set_level
from ._paging import number_of
from ._parts import DEADLINE, Parts, ask_all, ask_any
from ._paths import AdminPaths, Handler, Needs

__all__ = ["Add", "add_whole_operations"]

TRACE: Final = 30.0
"""The seconds for a trace, the most that one may ask for."""


class Add(Protocol):
    """A function that adds a path which can be asked of one process as well."""

    def __call__(
        self, path: str, handle: Handler, *, method: str = "GET", needs: Needs = "read"
    ) -> None:
        """Add the path."""
        ...


def add_whole_operations(
    paths: AdminPaths,
    parts: Parts,
    operations: Mapping[str, Callable[[], Awaitable[object]]],
    add: Add,
    placed: Callable[[Handler, Needs], Handler],
) -> None:
    """Add the paths.

    Args:
        paths: The paths of the program.
        parts: The processes.
        operations: The operations on all processes, by name.
        add: Adds a path that can be asked of one process as well.
        placed: Returns a handler that holds a place for each request; see `Questions.place`.
    """
    for name, operation in operations.items():
        handle = partial(operated, name, operation)
        paths.add(f"/api/v1/{name}", handle, method="POST", needs="operate")
    add("/api/v1/log-level", partial(_set_level, parts), method="POST", needs="operate")
    add("/api/v1/trace", partial(_trace, parts), method="POST", needs="operate")
    kick = placed(partial(_kick, parts), "operate")
    paths.add("/api/v1/kick", kick, method="POST", needs="operate")
    for name in ("stacks", "tasks"):
        add(f"/debug/{name}", partial(_texts, parts), needs="operate")
    add("/debug/profile", partial(_profile, parts), needs="operate")
    add("/debug/memory", partial(_memory, parts), needs="operate")
    add("/debug/memory", partial(_memory, parts), method="POST", needs="operate")


async def _set_level(parts: Parts, request: HttpRequest) -> HttpResponse:
    """Set the level in this process, and in all others."""
    own = await set_level(request)
    answers = await ask_all(parts, request)
    if not isinstance(own.body, bytes):
        raise AssertionError("the answer is not whole")  # noqa: TRY004
    answers.json()
    return json_response({**json.loads(own.body), "missing": list(answers.missing)})


async def _kick(parts: Parts, request: HttpRequest) -> HttpResponse:
    """Close a connection, at the process that has it."""
    answers = await ask_all(parts, request)
    for found in answers.found.values():
        return found
    if answers.missing:
        silent = ", ".join(map(str, answers.missing))
        text = f"there is no such connection where there is an answer; missing: process {silent}"
        raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, text)
    for error in answers.refused.values():
        raise error
    raise AssertionError("there is no process")


async def _trace(parts: Parts, request: HttpRequest) -> HttpResponse:
    return await ask_any(parts, request, TRACE + DEADLINE)


async def _texts(parts: Parts, request: HttpRequest) -> HttpResponse:
    """Answer with the texts of all processes, one after the other."""
    answers = await ask_all(parts, request)
    found = [f"process {number}\n\n{text}" for number, text in answers.texts().items()]
    found += [f"process {number} does not answer\n" for number in answers.missing]
    return text_response("\n".join(found).rstrip("\n"))


async def _profile(parts: Parts, request: HttpRequest) -> HttpResponse:
    """Answer with the stacks of all processes: the lowest frame of each is the process."""
    given = dict(request.fields()).get("seconds", "10")
    seconds = number_of("seconds", given, MAX_PROFILE)
    answers = await ask_all(parts, request, seconds + DEADLINE)
    lines = [
        f"process {number};{line}"
        for number, text in answers.texts().items()
        for line in text.splitlines()
        if line
    ]
    return text_response("\n".join(lines))


async def _memory(parts: Parts, request: HttpRequest) -> HttpResponse:
    """Answer with the report of each process by its number."""
    answers = await ask_all(parts, request)
    found: dict[str, Any] = {str(number): each for number, each in answers.json().items()}
    return json_response({"processes": found, "missing": list(answers.missing)})
