"""Commands as processes, their output, and a node for them to talk to."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from subprocess import PIPE, Popen

from onward.actors import BackgroundNode, Worker
from onward.protocol import Message

__all__ = ["TIMEOUT", "Far", "Output", "Silent", "broker_process", "onward", "printed"]

TIMEOUT = 30.0
"""Seconds to wait for something that should come soon; only a failing test waits so long."""


class Silent(Worker):
    """Says that a message came, and answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()
        self.payload = b""

    def handle_message(self, message: Message) -> None:
        self.payload = message.payload
        self.came.set()


@dataclass(frozen=True)
class Far:
    """A node in another thread, where `echo` and `silent` are exposed, and `hidden` is not.

    Attributes:
        background: The node.
        where: Its host:port.
        silent: The worker `silent`.
    """

    background: BackgroundNode
    where: str
    silent: Silent


class Output(io.StringIO):
    """What is printed, with lines that can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._lines.put_nowait(line)
        return super().write(text)

    async def line(self) -> str:
        """Wait for the next line."""
        return await asyncio.wait_for(self._lines.get(), TIMEOUT)


@contextmanager
def printed() -> Generator[Output]:
    """Have everything that is printed end up in what is yielded."""
    with redirect_stdout(Output()) as output:
        yield output


@contextmanager
def onward(*words: str) -> Generator[Popen[str]]:
    """Run a command as a process; in the end it is killed if it still runs."""
    command = [sys.executable, "-m", "onward.cli", *words]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    with subprocess.Popen(
        command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def broker_process(*words: str) -> Generator[str]:
    """Run a broker as a process with some options; yield its URI."""
    listen = () if "--listen" in words else ("--listen", "rsocket+tcp://127.0.0.1:0")
    with onward("broker", *listen, *words) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening ").strip()
