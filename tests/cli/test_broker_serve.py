"""The start of a broker or a node: what the first peer finds, at the moment that a port opens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Listener, Node
from onward.cli import main
from onward.cli._admin import Admin
from onward.cli._broker_serve import serve
from onward.cli._client import ask_broker, ask_of, connected
from onward.cli._main import parser_of
from onward.cli._node import serve as serve_node
from onward.cli._run import StopRequest
from onward.cli._service import Service
from onward.cli._status import Status
from onward.transports.client import ClientOptions
from tests.support.commands import TIMEOUT, broker_process, printed
from tests.support.fixtures import Capsys, Patch

ANY = "rsocket+tcp://127.0.0.1:0"

Opened = Callable[[str], Awaitable[None]]
"""Called with the URI of a listener at the moment that it accepts connections."""


def at_the_opening(monkeypatch: Patch, opened: Opened) -> None:
    """Have each listener of a node, once it is open, wait for a function."""
    listen = Node.listen

    async def listen_and_tell(node: Node, uri: str, **options: Any) -> Listener:
        listener = await listen(node, uri, **options)
        await asyncio.wait_for(opened(listener.uri), TIMEOUT)
        return listener

    monkeypatch.setattr(Node, "listen", listen_and_tell)


async def seen_by_a_client(uri: str, service: str) -> tuple[bool, list[tuple[str, str]]]:
    """Connect with a service; return whether the broker is ready, and its recent events."""
    options = ClientOptions(connect_timeout=TIMEOUT)
    async with connected(uri, TIMEOUT, options=options, service=service) as client:
        ask = ask_of(client, uri, TIMEOUT)
        ready = await ask("/readyz?verbose")
        events = await ask("/api/v1/recent-events")
    return ready["passed"], [(row["kind"], row["service"]) for row in events["rows"]]


async def test_a_client_at_the_printed_line_finds_a_broker_that_is_ready() -> None:
    with broker_process() as uri:
        assert await seen_by_a_client(uri, "first") == (True, [("joined", "first")])


async def test_a_client_at_the_opening_finds_the_admin_paths_and_its_event(
    monkeypatch: Patch,
) -> None:
    seen = list[tuple[bool, list[tuple[str, str]]]]()

    async def connect_at_once(uri: str) -> None:
        seen.append(await seen_by_a_client(uri, f"client-{len(seen)}"))

    at_the_opening(monkeypatch, connect_at_once)
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY, ANY], quiet=True))
        uri = (await output.line()).removeprefix("listening ")
        assert (await ask_broker(uri, "/readyz?verbose", TIMEOUT))["passed"]
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)
    first, second = seen
    assert first == (False, [("joined", "client-0")])
    assert not second[0]
    assert second[1][0] == ("joined", "client-0")
    assert second[1][-1] == ("joined", "client-1")


async def status_of(path: Path) -> str:
    """Ask the admin interface at a Unix socket whether the program is ready."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.split(b" ", 2)[1].decode()


@pytest.mark.parametrize("broker", [True, False])
async def test_the_admin_interface_is_there_first_and_not_ready(
    broker: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    path = tmp_path / "admin"
    seen = list[str]()

    async def ask(uri: str) -> None:
        seen.append(await status_of(path))

    at_the_opening(monkeypatch, ask)
    stop = StopRequest()
    given = parser_of("node").parse_args(
        ["--listen", "tcp://127.0.0.1:0", "--admin", f"unix://{path}", "--quiet"]
    )
    with printed() as output:
        serving = asyncio.create_task(
            serve(stop, [ANY], quiet=True, admin=Admin(f"unix://{path}"))
            if broker
            else serve_node(stop, given)
        )
        assert (await output.line()).startswith("listening ")
        assert await output.line() == f"admin unix://{path}"
        seen.append(await status_of(path))
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)
    assert seen == ["503", "200"]


async def test_a_reload_at_the_opening_waits_for_the_end_of_the_start(monkeypatch: Patch) -> None:
    service, stop = Service(), StopRequest()
    reloads = list[asyncio.Task[tuple[str, ...]]]()

    async def reload(uri: str) -> None:
        reloads.append(asyncio.create_task(service.reload()))
        await asyncio.sleep(0)
        assert service.reloads.statistics().done == 0

    async def part() -> Callable[[], object]:
        return lambda: None

    service.reloads.add("part", part)
    at_the_opening(monkeypatch, reload)
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY], quiet=True, service=service))
        await output.line()
        (reloading,) = reloads
        assert await asyncio.wait_for(reloading, TIMEOUT) == ("part",)
        assert service.reloads.statistics().done == 1
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)


def test_a_listener_that_cannot_open_closes_all(tmp_path: Path, capsys: Capsys) -> None:
    admin, first = tmp_path / "admin", tmp_path / "first"
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"rsocket+tcp://127.0.0.1:{server.getsockname()[1]}"
        words = ("--listen", f"rsocket+unix://{first}", "--listen", taken)
        assert main(["broker", *words, "--admin", f"unix://{admin}"]) == Status.FAILED
        told = capsys.readouterr()
        assert told.err == f"onward broker: cannot listen at {taken}: Address already in use\n"
        assert told.out == ""
        assert not admin.exists()
        assert not first.exists()
        uri = taken.removeprefix("rsocket+")
        words = ("--listen", uri, "--admin", f"unix://{admin}")
        assert main(["node", *words]) == Status.FAILED
    assert (
        capsys.readouterr().err == f"onward node: cannot listen at {uri}: Address already in use\n"
    )
    assert not admin.exists()


async def test_a_stop_while_the_listeners_open_closes_all(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    stop, path = StopRequest(), tmp_path / "admin"

    async def stop_at_once(uri: str) -> None:
        stop.wish()
        await asyncio.Event().wait()

    at_the_opening(monkeypatch, stop_at_once)
    with printed() as output:
        serving = serve(stop, [ANY], admin=Admin(f"unix://{path}"))
        await asyncio.wait_for(serving, TIMEOUT)
    assert output.getvalue() == ""
    assert not path.exists()
