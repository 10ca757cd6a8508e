"""`onward up`: each node of a topology as a process; none is left running at the end."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO

from ..actors.topology import RequestOutcome
from ..protocol.topology import RequestPlan, TopologyPlan
from ._event_log import words as event_log_words
from ._run import Interrupted, StopRequest, run
from ._show import printable
from ._status import CommandError, Status
from ._up import RESTART_FIRST, RESTART_LIMIT, RESTART_LONGEST, RESTART_STEADY, judge
from ._up_steps import FOLDER, GRACE, Said, decode, encode

__all__ = ["run_processes"]

STEP_TIMEOUT: Final = 60.0
"""Longest time of a node for one step, in seconds; then all are ended."""

LAST_WORDS: Final = 1.0
"""Seconds for which the output of an ended node is read: a child of its may still hold it."""

MAX_LINE: Final = 65536
"""Most bytes of a line of a node's output; a longer one is cut into several."""


def run_processes(plan: TopologyPlan, arguments: argparse.Namespace) -> None:
    """Run all nodes until one ends or the command is asked to stop.

    Raises:
        CommandError: One ended, a request had an unexpected outcome, or a link cannot join
            processes.
    """
    listeners = {each.id: each for each in plan.listeners}
    for link in plan.links:
        to = listeners.get(link.to_listener)
        if to is not None and to.node != link.node and to.uri.startswith("memory:"):
            raise CommandError(
                f"{link.place}: {to.uri} joins nodes of one process: run it with --in-process",
                Status.USAGE,
            )
    run(lambda stop: _run(stop, plan, arguments))


async def _run(stop: StopRequest, plan: TopologyPlan, arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix=FOLDER) as directory:
        children = _Children(plan, arguments, directory)
        try:
            await stop.unless(children.start())
            print(f"up: {printable(plan.title)}", flush=True)
            if arguments.check:
                judge([await stop.unless(children.ask(each)) for each in plan.requests])
            else:
                await stop.unless(children.watch(arguments.duration))
        except Interrupted:
            if arguments.check:
                raise
        finally:
            await children.end()


class _NodeProcess:
    """A node as a process."""

    def __init__(self, name: str, process: Process, token: str) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("unexpected process without pipes")
        self.name = name
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._errors = process.stderr
        self._token = token
        self._said: asyncio.Queue[Said] = asyncio.Queue()
        self.over: asyncio.Task[int] = asyncio.create_task(self._follow())

    async def do(self, what: str, timeout: float = STEP_TIMEOUT, **values: Any) -> Said:
        """Send a step to the node and return its answer.

        Raises:
            CommandError: It failed, ended, or took too long.
        """
        self.tell(what, **values)
        return await self.answer(what, timeout)

    def tell(self, what: str, **values: Any) -> None:
        """Send a step to the node."""
        self._input.write(f"{encode({'do': what, **values})}\n".encode())

    async def answer(self, what: str, timeout: float = STEP_TIMEOUT) -> Said:
        """Wait for the answer to a step; raises as `do`."""
        said = asyncio.ensure_future(self._said.get())
        try:
            await asyncio.wait(
                {said, self.over}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not said.done():
                if self.over.done():
                    raise CommandError(self.obituary())
                raise CommandError(f"{self.name} did not {what} within {timeout:g} s")
            answer = said.result()
        finally:
            said.cancel()
        if "failed" in answer:
            raise CommandError(f"{self.name}: {answer['failed']}")
        return answer

    async def end(self, timeout: float) -> None:
        """Ask the node to end; kill it if it has not ended within the timeout."""
        if not self._input.is_closing():
            self.tell("end")
            self._input.close()
        try:
            async with asyncio.timeout(timeout):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await asyncio.wait({self.over})
        if self.over.exception() is not None:
            # Its output could not be printed; the waiting caller has had that error.
            return

    def obituary(self) -> str:
        """Describe how the node ended."""
        status = self.over.result()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the node {self.name} {how}"

    async def _follow(self) -> int:
        readers = [
            asyncio.create_task(self._read(self._output, self._line)),
            asyncio.create_task(self._read(self._errors, self._error_line)),
        ]
        try:
            ended = asyncio.ensure_future(self._process.wait())
            # A reader that fails to print a node's output ends all nodes.
            await asyncio.wait({ended, *readers}, return_when=asyncio.FIRST_EXCEPTION)
            for reader in readers:
                if reader.done():
                    reader.result()
            status = await ended
            await asyncio.wait(readers, timeout=LAST_WORDS)
            return status
        finally:
            for reader in readers:
                reader.cancel()

    async def _read(self, stream: asyncio.StreamReader, line: Callable[[bytes], None]) -> None:
        rest = b""
        while chunk := await stream.read(MAX_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            for each in lines:
                line(each)
            while len(rest) > MAX_LINE:
                line(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
        if rest:
            line(rest)

    def _line(self, line: bytes) -> None:
        # A worker may have printed an unfinished line before.
        printed, mark, said = line.partition(f"{self._token} ".encode())
        if mark:
            self._said.put_nowait(decode(said))
        if printed or not mark:
            self._show(printed, sys.stdout)

    def _error_line(self, line: bytes) -> None:
        self._show(line, sys.stderr)

    def _show(self, line: bytes, file: TextIO) -> None:
        text = line.decode("utf-8", "backslashreplace")
        print(f"{self.name} | {text}", file=file, flush=True)


def _tell(text: str) -> None:
    print(printable(f"onward up: {text}"), file=sys.stderr, flush=True)


class _Children:
    """All nodes of a topology as processes."""

    def __init__(self, plan: TopologyPlan, arguments: argparse.Namespace, directory: str) -> None:
        self._plan = plan
        self._arguments = arguments
        self._directory = directory
        self._token = secrets.token_hex(16)
        self._uris: dict[str, str] = {}
        self._identities: dict[str, str] = {}
        self._children: dict[str, _NodeProcess] = {}

    async def start(self) -> None:
        """Start all nodes, step by step; see `RunningNode`."""
        for node in self._plan.nodes:
            self._children[node.name] = await self._spawn(node.name)
        for child in self._children.values():
            child.tell("listen", token=self._token, directory=self._directory)
        for child in self._children.values():
            said = await child.answer("listen")
            self._uris.update(said["uris"])
            self._identities.update(said["identities"])
        for child in self._children.values():
            child.tell("link", uris=self._uris, identities=self._identities)
        for child in self._children.values():
            await child.answer("link")
        for name in self._plan.start_order():
            await self._children[name].do("start")
        for name in self._plan.start_order():
            await self._children[name].do("subscribe")

    async def _spawn(self, name: str) -> _NodeProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "onward.cli", "up", self._arguments.file),
            *("--node", name, "--led", "--log", self._arguments.log),
            *event_log_words(self._arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # Ctrl-C on a terminal is for this process alone, which ends the others in order.
            start_new_session=True,
        )
        return _NodeProcess(name, process, self._token)

    async def ask(self, request: RequestPlan) -> RequestOutcome:
        """Make a request of the plan from its node."""
        said = await self._children[request.node].do(
            "ask",
            STEP_TIMEOUT + request.timeout + request.within,
            index=self._plan.requests.index(request),
        )
        return RequestOutcome(request, said["ok"], said["told"], said["seconds"])

    async def watch(self, duration: float | None) -> None:
        """Wait until the time is up.

        Raises:
            CommandError: A node has ended before; with `--keep`, all; with `--restart`, one too
                often.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(duration):
                if self._arguments.restart:
                    await self._keep_all_up()
                elif self._arguments.keep:
                    await self._until_all_end()
                else:
                    await self._next_end({child.over for child in self._children.values()})
                    self._raise_ended()

    async def _next_end(self, running: set[asyncio.Task[int]]) -> set[asyncio.Task[int]]:
        """Wait until one ends, and return those that run."""
        return (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[1]

    def _raise_ended(self) -> None:
        for child in self._children.values():
            if child.over.done():
                raise CommandError(child.obituary())

    async def _until_all_end(self) -> None:
        left = dict(self._children)
        while left:
            await self._next_end({child.over for child in left.values()})
            for name in [name for name, child in left.items() if child.over.done()]:
                ended = left.pop(name)
                _tell(f"{ended.obituary()}; {len(left)} still run")
        raise CommandError("all nodes have ended")

    async def _keep_all_up(self) -> None:
        keeping = [asyncio.create_task(self._keep_up(name)) for name in self._children]
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.wait(keeping)

    async def _keep_up(self, name: str) -> None:
        """Start a node again each time it ends.

        Raises:
            CommandError: It has ended too often.
        """
        clock = asyncio.get_running_loop().time
        in_row = 0
        began = clock()
        while True:
            await asyncio.wait({self._children[name].over})
            told = self._children[name].obituary()
            in_row = 0 if clock() - began >= RESTART_STEADY else in_row
            if in_row >= RESTART_LIMIT:
                raise CommandError(f"{told}, after {in_row} restarts in a row")
            delay = min(RESTART_LONGEST, RESTART_FIRST * 2**in_row)
            in_row += 1
            _tell(f"{told}; it starts again in {delay:g} s")
            await asyncio.sleep(delay)
            began = clock()
            try:
                await self._restart(name)
            except CommandError as error:
                # Its process ends, or is ended here, and counts as another end.
                _tell(str(error))
                await self._children[name].end(GRACE)

    async def _restart(self, name: str) -> None:
        await self._children[name].end(GRACE)
        self._children[name] = child = await self._spawn(name)
        own = {each.id for each in self._plan.listeners if each.node == name}
        await child.do(
            "listen",
            token=self._token,
            directory=self._directory,
            uris={id_: uri for id_, uri in self._uris.items() if id_ in own},
        )
        await child.do("link", uris=self._uris, identities=self._identities)
        await child.do("start")
        await child.do("subscribe")
        _tell(f"the node {name} runs again")

    async def end(self) -> None:
        """End all nodes, in the reverse order of their start; kill those that do not end."""
        deadline = asyncio.get_running_loop().time() + GRACE
        for name in reversed(self._plan.start_order()):
            child = self._children.get(name)
            if child is None:
                continue
            await child.end(max(0.5, deadline - asyncio.get_running_loop().time()))
