"""The notifications to systemd, read from its end of the socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.cli._systemd import MARGIN, Notifier
from tests.support.virtual import virtual_time


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The name of a socket, as in NOTIFY_SOCKET, and the socket."""
    name = str(tmp_path / "notify")
    if request.param == "abstract":
        name = f"@onward-test-{os.getpid()}-{id(request)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name.replace("@", "\0", 1))
        sock.setblocking(False)
        yield name, sock


def received(sock: socket.socket) -> list[dict[str, str]]:
    """Return the assignments of each datagram."""
    datagrams = list[dict[str, str]]()
    while True:
        try:
            lines = sock.recv(4096).decode().splitlines()
        except BlockingIOError:
            return datagrams
        datagrams.append(dict(line.split("=", 1) for line in lines))


def test_what_a_service_tells(manager: tuple[str, socket.socket]) -> None:
    name, sock = manager
    notifier = Notifier.of({"NOTIFY_SOCKET": name})
    notifier.ready("listening")
    notifier.reloading()
    notifier.stopping(25.0, "draining")
    ready, reloading, stopping = received(sock)
    assert ready == {"READY": "1", "STATUS": "listening"}
    # In one datagram: systemd ignores RELOADING=1 without the time.
    assert reloading.keys() == {"RELOADING", "MONOTONIC_USEC"}
    assert int(reloading["MONOTONIC_USEC"]) > 0
    assert stopping == {
        "STOPPING": "1",
        "EXTEND_TIMEOUT_USEC": str(int(25_000_000 + MARGIN * 1e6)),
        "STATUS": "draining",
    }


def test_a_service_that_stops_goes_back_to_nothing_else(
    manager: tuple[str, socket.socket],
) -> None:
    name, sock = manager
    notifier = Notifier.of({"NOTIFY_SOCKET": name})
    notifier.stopping(2.0, "draining")
    notifier.reloading()
    notifier.ready("listening")
    notifier.stopping(0.0, "draining")  # a second request shortens the time
    assert [each.get("STOPPING") for each in received(sock)] == ["1", "1"]


@virtual_time
async def test_the_loop_shows_that_it_is_alive(manager: tuple[str, socket.socket]) -> None:
    name, sock = manager
    notifier = Notifier.of({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000000"})
    with notifier.watched(asyncio.get_running_loop()):
        await asyncio.sleep(39)
    await asyncio.sleep(60)
    assert received(sock) == [{"WATCHDOG": "1"}] * 4


@virtual_time
async def test_the_watchdog_may_be_for_another_process(manager: tuple[str, socket.socket]) -> None:
    name, sock = manager
    others = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}
    with Notifier.of(others).watched(asyncio.get_running_loop()):
        await asyncio.sleep(60)
    assert received(sock) == []


async def test_without_systemd_nothing_is_sent(tmp_path: Path) -> None:
    for environment in (
        {},
        {"NOTIFY_SOCKET": str(tmp_path / "nobody")},
        {"WATCHDOG_USEC": "often"},
    ):
        notifier = Notifier.of(environment)
        with notifier.watched(asyncio.get_running_loop()):
            notifier.ready("listening")
