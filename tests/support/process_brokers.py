"""Brokers of several processes, for tests."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

from onward.actors.broker import Handlers, Request
from onward.cli._client import ask_broker
from onward.cli._status import CommandError
from onward.transports.client import ClientOptions, RetryOptions
from tests.support.commands import TIMEOUT, onward

__all__ = ["ONCE", "TCP", "Brokers", "HttpAdmin", "brokers", "children", "served_by", "until"]

TCP = "rsocket+tcp://127.0.0.1:0"
ONCE = ClientOptions(request_timeout=20.0, retry=RetryOptions(max_tries=1))


class Brokers:
    """A broker as several processes.

    Attributes:
        process: The process that has started them.
        uris: The URIs that it listens at.
        own: The URI of each process.
    """

    def __init__(self, process: Popen[str], count: int) -> None:
        self.process = process
        self.uris: list[str] = []
        self.own: list[str] = []
        while len(self.own) < count:
            words = self.line().split()
            assert words, self.errors()
            (self.uris if words[0] == "listening" else self.own).append(words[-1])

    @property
    def uri(self) -> str:
        """The URI of its listener."""
        (found,) = self.uris
        return found

    def line(self) -> str:
        """Read a line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def errors(self) -> str:
        """Read all that it has said on stderr, after its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def pids(self) -> dict[int, int]:
        """Return the process id of each process by its number."""
        return children(self.process.pid)

    async def peers(self, index: int) -> Counter[str]:
        """Return the states of the peer brokers of a process."""
        found = await ask_broker(self.own[index], "/api/v1/peers?kind=broker", TIMEOUT)
        return Counter(row["state"] for row in found["rows"])

    async def joined(self) -> None:
        """Wait until each process knows all others."""
        for index in range(len(self.own)):

            async def up(index: int = index) -> bool:
                return (await self.peers(index))["up"] == len(self.own) - 1

            await until(up)

    async def services(self, index: int) -> list[str]:
        """Return the services of all destinations that a process knows."""
        rows = await ask_broker(self.own[index], "routes", TIMEOUT)
        return sorted(row["service"] for row in rows if not row["service"].startswith("onward."))

    def admin(self) -> HttpAdmin:
        """Return its admin interface, the URI of which is the next line."""
        uri = self.line().removeprefix("admin ").strip()
        if not uri.startswith("unix:"):
            assert self.line() == f"console {uri}/\n"
        return HttpAdmin(uri)

    async def ended(self) -> int:
        """Wait for its end, and return its status."""
        return await asyncio.to_thread(self.process.wait, TIMEOUT)


class HttpAdmin:
    """An admin interface.

    Attributes:
        uri: Its URI.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    async def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of an answer."""
        return await self.ask("GET", path, None, None)

    async def ask(
        self, method: str, path: str, body: str | None, token: str | None
    ) -> tuple[int, str]:
        """Send a request, with a token if there is one; return the status and the body."""
        return await asyncio.to_thread(self._asked, method, path, body, token)

    async def json(self, path: str) -> Any:
        """Return an answer of the API."""
        status, text = await self.get(f"/api/v1/{path}")
        assert status == 200, text
        return json.loads(text)

    async def post(self, path: str, **arguments: Any) -> Any:
        """Ask for a change, and return the answer."""
        body = json.dumps(arguments)
        status, text = await self.ask("POST", f"/api/v1/{path}", body, None)
        assert status == 200, text
        return json.loads(text)

    def _asked(
        self, method: str, path: str, body: str | None, token: str | None
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
        if self.uri.startswith("unix://"):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(TIMEOUT)
            connection.sock.connect(self.uri.removeprefix("unix://"))
        else:
            where = self.uri.removeprefix("http://")
            connection = http.client.HTTPConnection(where, timeout=TIMEOUT)
        try:
            headers = {} if body is None else {"Content-Type": "application/json"}
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def children(pid: int) -> dict[int, int]:
    """Return the processes that one has started, by their numbers."""
    found: dict[int, int] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            entries = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            for entry in entries:
                name, _, value = entry.partition(b"=")
                if name == b"ONWARD_PROCESS":
                    found[json.loads(value)["index"]] = int(child)
    return found


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = TIMEOUT) -> None:
    """Wait until something holds; what cannot be asked yet does not."""
    async with asyncio.timeout(seconds):
        while True:
            with suppress(CommandError):
                if await holds():
                    return
            await asyncio.sleep(0.05)


@contextmanager
def brokers(count: int, *words: str, listen: str = TCP) -> Generator[Brokers]:
    with onward("broker", "--listen", listen, "--processes", str(count), *words) as process:
        yield Brokers(process, count)


def served_by(name: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return name.encode() + request.data

    del answer
    return handlers
