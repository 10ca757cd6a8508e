"""The paths that show the insides of a program: stacks, tasks, memory, and a profile."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Final

from ...actors.monitoring import Monitor
from ...actors.monitoring._memory import MAX_FRAMES, MAX_LINES, MemoryTrace
from ...actors.monitoring._profile import profile
from ...protocol import counted
from ._messages import HttpError, HttpRequest, HttpResponse, json_response, text_response
from ._paging import number_of
from ._paths import AdminPaths

__all__ = ["add_debug"]

MAX_TASKS: Final = 1000
"""The maximum number of tasks in an answer; the others are counted."""

FRAMES: Final = 8
"""The frames of a task that are shown, the innermost ones."""

MAX_PROFILE: Final = 60
"""The maximum number of seconds of a profile."""


def add_debug(paths: AdminPaths, monitor: Monitor) -> None:
    """Add the paths."""
    memory = MemoryTrace(monitor.node.loop)
    paths.add("/debug/stacks", _stacks, needs="operate")
    paths.add("/debug/tasks", _tasks, needs="operate")
    paths.add("/debug/memory", partial(_memory, memory), needs="operate")
    paths.add("/debug/memory", partial(_trace_memory, memory), method="POST", needs="operate")
    paths.add("/debug/profile", _Profiles().handle, needs="operate")


async def _stacks(_: HttpRequest) -> HttpResponse:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for number, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(number, number)}\n")
        # Without the lines of the sources: they would be read from files, on the loop.
        calls = [_call(each, line) for each, line in traceback.walk_stack(frame)]
        parts += reversed(calls)
        parts.append("\n")
    return text_response("".join(parts).rstrip("\n"))


def _call(frame: FrameType, line: int) -> str:
    return f"  {frame.f_code.co_qualname} at {frame.f_code.co_filename}:{line}\n"


async def _tasks(_: HttpRequest) -> HttpResponse:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    parts = [f"{counted(len(tasks), 'task')}\n"]
    for number, task in enumerate(tasks[:MAX_TASKS], 1):
        parts.append(f"{task.get_name()} {task.get_coro()!r:.200}\n")
        frames = task.get_stack(limit=FRAMES)
        parts += [_call(frame, frame.f_lineno) for frame in frames]
        if number % 100 == 0:
            await asyncio.sleep(0)
    return text_response("".join(parts).rstrip("\n"))


# --- memory ---------------------------------------------------------------------------------


async def _memory(memory: MemoryTrace, request: HttpRequest) -> HttpResponse:
    lines = _only(request, "lines", 20, MAX_LINES)
    return json_response(await memory.report(lines))


async def _trace_memory(memory: MemoryTrace, request: HttpRequest) -> HttpResponse:
    arguments = request.known("trace", "frames")
    trace, frames = arguments.get("trace"), arguments.get("frames", 1)
    if not isinstance(trace, bool):
        raise HttpError(HTTPStatus.BAD_REQUEST, "trace must be true or false")
    if not isinstance(frames, int) or isinstance(frames, bool) or not 0 < frames <= MAX_FRAMES:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"frames must be a number from 1 to {MAX_FRAMES}")
    if trace:
        memory.start(frames)
    else:
        memory.stop()
    return json_response({"tracing": trace})


# --- a profile ------------------------------------------------------------------------------


class _Profiles:
    """The profiles of the loop, of which one is taken at a time."""

    def __init__(self) -> None:
        self._busy = False

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer with the stacks of the loop's thread over some seconds.

        Raises:
            HttpError: Another one is being taken.
        """
        seconds = _only(request, "seconds", 10, MAX_PROFILE)
        if request.method == "HEAD":
            return text_response("")
        if self._busy:
            raise HttpError(HTTPStatus.CONFLICT, "a profile is being taken already")
        self._busy = True
        try:
            return text_response((await profile(seconds)).rstrip("\n"))
        finally:
            self._busy = False


def _only(request: HttpRequest, name: str, default: int, most: int) -> int:
    """Return the number in the one field that a query may have.

    Raises:
        HttpError: It has another one, or the number is out of its range.
    """
    found = default
    for field, value in request.fields():
        if field != name:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"unknown field {field!r}; known is {name}")
        found = number_of(name, value, most)
    return found
