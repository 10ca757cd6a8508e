"""A broker with a configuration file, in the process of the test."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from onward.cli._broker import work_of
from onward.cli._config import configured
from onward.cli._main import parser_of
from onward.cli._reconfigure import Reconfiguration
from onward.cli._run import StopRequest
from onward.cli._service import Service
from onward.cli._systemd import Notifier
from tests.support.commands import TIMEOUT, printed

__all__ = ["ConfiguredBroker", "Told", "broker_of", "read"]


class Told(Notifier):
    """A notifier that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = list[tuple[str, ...]]()
        self.ready_once = asyncio.Event()

    def send(self, *lines: str) -> None:
        self.sent.append(lines)
        self.ready_once.set()


class ConfiguredBroker:
    """A broker that runs by a file.

    Attributes:
        file: The file.
        uris: The URIs of its listeners.
        stop: The request to stop it.
        running: Its configuration.
        service: Its ties to the system.
        told: What the service manager was told.
    """

    def __init__(self, file: Path, *words: str) -> None:
        self.file = file
        self.stop = StopRequest()
        self.told = Told()
        self.service = Service(self.told)
        read_again = partial(read, file, *words)
        self.running = Reconfiguration(read_again(), read_again)
        self.uris = list[str]()

    async def reload(self, text: str | None = None) -> tuple[str, ...]:
        """Write the file, and reload."""
        if text is not None:
            self.file.write_text(text)
        return await self.service.reload()


def read(file: Path, *words: str) -> argparse.Namespace:
    """Return the options of a broker with a file."""
    parser = parser_of("broker")
    return configured(parser, "broker", parser.parse_args(["--config", str(file), *words]))


@asynccontextmanager
async def broker_of(file: Path, text: str, *words: str) -> AsyncGenerator[ConfiguredBroker]:
    """Run a broker by a file with a text; in the end it has stopped."""
    file.write_text(text)
    made = ConfiguredBroker(file, *words)
    listeners = max(1, text.count("[[listener]]"))
    with printed() as output:
        serving = asyncio.ensure_future(work_of(made.running, made.service)(made.stop))
        made.uris = [(await output.line()).removeprefix("listening ") for _ in range(listeners)]
        await asyncio.wait_for(made.told.ready_once.wait(), TIMEOUT)
        try:
            yield made
        finally:
            made.stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)
