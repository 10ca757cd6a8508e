"""A server and the system that runs it: its pace of stopping, and its reloads."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, DrainOptions
from onward.cli._run import Pace, StopRequest
from onward.cli._service import Service, drain, operations_of, times_of
from onward.cli._systemd import Notifier
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Patch
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    STREAM,
    asked_for,
    composite,
    errors,
    request,
    route_setup,
    setup,
    split,
)
from tests.support.virtual import virtual_time

OPTIONS = DrainOptions(grace=5, spread=20, timeout=60)
STOPS = "the broker stops: a drain by SIGTERM or SIGINT cannot be undone"


class Told(Notifier):
    """A notifier that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = list[tuple[str, ...]]()

    def send(self, *lines: str) -> None:
        self.sent.append(lines)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.parametrize(
    ("pace", "times"),
    [
        (Pace.AT_ONCE, DrainOptions(0, 0, 0)),
        (Pace.SOON, DrainOptions(0, 0, 2)),
        (Pace.ORDERLY, DrainOptions(5, 10, 25)),
        (Pace.CONFIGURED, OPTIONS),
    ],
)
def test_the_times_of_a_pace(pace: Pace, times: DrainOptions) -> None:
    assert times_of(pace, OPTIONS) == times


async def test_a_broker_drains_and_reports_it(told: Told) -> None:
    stop, service = StopRequest(), Service(told)
    stop.wish(Pace.ORDERLY)
    async with Node("edge") as node:
        await drain(stop, await Broker.attach(node), service)
    assert told.sent == [
        ("STOPPING=1", "EXTEND_TIMEOUT_USEC=35000000", "STATUS=draining"),
        ("STATUS=draining: 0 connections left",),
    ]


@pytest.mark.parametrize(
    ("paces", "answer"),
    [
        ((Pace.CONFIGURED,), {"draining": False}),
        ((Pace.ORDERLY,), {"error": STOPS}),
        ((Pace.SOON,), {"error": STOPS}),
        ((Pace.CONFIGURED, Pace.ORDERLY), {"error": STOPS}),
        ((Pace.ORDERLY, Pace.CONFIGURED), {"error": STOPS}),
    ],
)
async def test_only_a_drain_with_the_configured_times_can_be_undone(
    paces: tuple[Pace, ...], answer: dict[str, object]
) -> None:
    stop = StopRequest()
    for pace in paces:
        stop.wish(pace)
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        ending = asyncio.ensure_future(broker.drain(OPTIONS))
        await asyncio.sleep(0)
        assert broker.draining
        # In its grace: without connections it is over at its next step.
        assert await operations_of(stop, broker, Service(Told()))["undo-drain"]() == answer
        assert broker.draining is ("error" in answer)
        await asyncio.wait_for(ending, TIMEOUT)


def applying(log: list[str], name: str) -> Callable[[], object]:
    return lambda: log.append(name)


@virtual_time
async def test_a_reload_is_reported_with_its_begin_and_end(told: Told) -> None:
    service, log = Service(told), list[str]()

    async def rules() -> Callable[[], object]:
        return applying(log, "rules")

    service.reloads.add("rules", rules)
    with service.serving("listening"):
        service.signals()["SIGHUP"]()
        await asyncio.sleep(1)
    assert log == ["rules"]
    ready, reloading, ready_again = told.sent
    assert ready == ready_again == ("READY=1", "STATUS=listening")
    assert reloading[0] == "RELOADING=1"


@virtual_time
async def test_a_refused_reload_ends_too_and_has_its_reason(told: Told) -> None:
    service = Service(told)

    async def broken() -> Callable[[], object]:
        raise ValueError("line 3: no such key")

    service.reloads.add("rules", broken)
    with service.serving("listening"):
        service.signals()["SIGHUP"]()
        await asyncio.sleep(1)
    assert told.sent[-1] == (
        "READY=1",
        "STATUS=listening; the last reload was refused: rules: line 3: no such key",
    )


def test_signals_of_a_process(tmp_path: Path, monkeypatch: Patch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT)
        words = ("--listen", "rsocket+tcp://127.0.0.1:0", "--drain-grace", "0", "--drain-spread")
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with onward("broker", *words, "0") as process:
            assert process.stdout is not None
            uri = process.stdout.readline().removeprefix("listening ").strip()
            assert manager.recv(4096).decode() == f"READY=1\nSTATUS={uri}"
            process.send_signal(signal.SIGHUP)
            assert manager.recv(4096).startswith(b"RELOADING=1\n")
            assert manager.recv(4096).startswith(b"READY=1\n")
            host, _, port = uri.removeprefix("rsocket+tcp://").rpartition(":")
            where = (host, int(port))
            with socket.create_connection(where) as destination:
                registration = composite((BROKER_FRAME, route_setup(UUID(int=1), "a")))
                destination.sendall(setup(registration))
                with socket.create_connection(where) as requester:
                    requester.settimeout(TIMEOUT)
                    requester.sendall(setup() + request(STREAM, 1, asked_for("a"), n=1))
                    destination.settimeout(TIMEOUT)
                    assert destination.recv(4096)
                    process.send_signal(signal.SIGTERM)
                    assert manager.recv(4096).startswith(b"STOPPING=1\n")
                    assert manager.recv(4096) == b"STATUS=draining: 2 connections left"
                    with pytest.raises(ConnectionRefusedError):
                        socket.create_connection(where)
                    assert process.poll() is None
                    process.send_signal(signal.SIGTERM)
                    got = b""
                    while data := requester.recv(4096):
                        got += data
                    canceled, closed = errors(split(got)[0])
                    assert canceled == (1, 0x203, "the broker drains")
                    assert closed == (0, 0x102, "the broker drains")
            assert process.wait(TIMEOUT) == 0
