"""Programs of other languages as child processes, and the broker they talk through."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

__all__ = ["LISTENING", "TIMEOUT", "TRANSPORTS", "Program", "running_broker"]

TIMEOUT = 90.0
"""Seconds to wait for a program; only a failing test waits so long. A JVM that starts and makes its
first TLS handshake takes half a minute on a machine with ten times as much work as cores."""

TRANSPORTS = ("tcp", "ws")
"""What clients reach the broker by: TCP and WebSocket."""

LISTENING = "listening rsocket+"


class Program:
    """A child process that prints lines."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def running(cls, *command: str) -> AsyncGenerator[Program]:
        """Start a program, and kill it in the end if it still runs."""
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        program = cls(process)
        try:
            yield program
        finally:
            await program.kill()

    async def tell(self, line: str) -> None:
        """Send the program a line."""
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def line(self) -> str:
        """Wait for the next line, and return it without its end.

        Raises:
            EOFError: The program ended.
        """
        async with asyncio.timeout(TIMEOUT):
            line = await self.line_or_end()
        if not line:
            raise EOFError
        return line

    async def line_or_end(self) -> str:
        """Wait as long as it takes for the next line; it is empty if the program ended."""
        assert self._process.stdout
        return (await self._process.stdout.readline()).decode().rstrip("\n")

    async def report(self) -> dict[str, Any]:
        """Wait for the next line, which is a JSON object."""
        report: dict[str, Any] = json.loads(await self.line())
        return report

    async def finished(self) -> int:
        """Wait until the program ends by itself, and return its status."""
        async with asyncio.timeout(TIMEOUT):
            await self._process.communicate()
            return await self._process.wait()

    def tell_signal(self, number: Signals) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def signal(self) -> None:
        """Kill the program, if it still runs, and do not wait for its end."""
        if self._process.returncode is None:
            self._process.kill()

    async def kill(self) -> None:
        """End the program without a chance to say goodbye."""
        self.signal()
        await self._process.communicate()


@contextmanager
def running_broker(
    *options: str, transports: Sequence[str] = ("tcp",)
) -> Generator[dict[str, str]]:
    """Run `onward broker` as its own process, and yield where it listens.

    Args:
        options: More options for it.
        transports: What it listens by, each on any free port.

    Yields:
        For each transport the URI that clients of other makes know it by, such as
        `tcp://127.0.0.1:8001`.

    Raises:
        AssertionError: It did not end cleanly when told to.
    """
    listeners = [
        word for name in transports for word in ("--listen", f"rsocket+{name}://127.0.0.1:0")
    ]
    command = [str(Path(sys.executable).with_name("onward")), "broker", *listeners, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            lines = (line.strip() for line in process.stdout)
            uris = (line.partition(LISTENING)[2] for line in lines if LISTENING in line)
            found = dict(zip(transports, uris, strict=False))
            assert len(found) == len(transports), "the broker ended before it listened"
            yield found
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
