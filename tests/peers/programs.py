"""Programs of other languages as child processes, and the broker they talk through."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

__all__ = ["TIMEOUT", "Program", "running_broker"]

TIMEOUT = 20.0
"""Seconds to wait for a program; only a failing test waits so long."""

LISTENING = "listening rsocket+tcp://127.0.0.1:"


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

    async def line(self) -> str:
        """Wait for the next line, and return it without its end.

        Raises:
            EOFError: The program ended.
        """
        assert self._process.stdout
        async with asyncio.timeout(TIMEOUT):
            line = await self._process.stdout.readline()
        if not line:
            raise EOFError
        return line.decode().rstrip("\n")

    async def report(self) -> dict[str, Any]:
        """Wait for the next line, which is a JSON object."""
        report: dict[str, Any] = json.loads(await self.line())
        return report

    async def finished(self) -> int:
        """Wait until the program ends by itself, and return its status."""
        async with asyncio.timeout(TIMEOUT):
            await self._process.communicate()
            return await self._process.wait()

    async def kill(self) -> None:
        """End the program without a chance to say goodbye."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


@contextmanager
def running_broker(*options: str) -> Generator[int]:
    """Run `onward broker` as its own process, and yield the port it listens on.

    Args:
        options: More options for it.

    Raises:
        AssertionError: It did not end cleanly when told to.
    """
    onward = Path(sys.executable).with_name("onward")
    command = [str(onward), "broker", "--listen", "rsocket+tcp://127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            line = next((line for line in process.stdout if LISTENING in line), None)
            assert line, "the broker ended before it listened"
            yield int(line.partition(LISTENING)[2])
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
