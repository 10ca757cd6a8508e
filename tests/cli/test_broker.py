"""`onward broker`."""

from __future__ import annotations

import asyncio
import socket

import pytest

from onward.actors.broker import BrokerOptions
from onward.cli import main
from onward.cli._broker import serve
from onward.cli._client import ask_broker
from onward.cli._run import Stop
from onward.cli._status import Status
from tests.support.commands import TIMEOUT, printed

ANY = "rsocket+tcp://127.0.0.1:0"


async def test_it_serves_at_each_uri_and_ends_with_totals() -> None:
    stop = Stop()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY, ANY], BrokerOptions(), quiet=False))
        uris = [(await output.line()).removeprefix("listening ") for _ in range(2)]
        tables = [await ask_broker(uri, "routes", TIMEOUT) for uri in uris]
        stop.wish()
        await serving
    assert len(set(uris)) == 2
    # One broker: the same destination answers at both.
    assert tables[0][0]["route"] == tables[1][0]["route"]
    assert output.getvalue().splitlines()[2:] == [
        "stopped: 2 connections taken, 0 destinations left, 0 requests waited, 0 rejected, 0 lost"
    ]


async def test_it_can_be_quiet() -> None:
    stop = Stop()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY], BrokerOptions(), quiet=True))
        await output.line()
        stop.wish()
        await serving
    assert len(output.getvalue().splitlines()) == 1


async def test_it_stops_while_it_starts() -> None:
    stop = Stop()
    stop.wish()
    with printed() as output:
        await asyncio.wait_for(serve(stop, [ANY], BrokerOptions(), quiet=False), TIMEOUT)
    assert "stopped" not in output.getvalue()


def test_a_port_that_is_taken_has_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"rsocket+tcp://127.0.0.1:{server.getsockname()[1]}"
        assert main(["broker", "--listen", uri]) == Status.FAILED
    told = f"onward broker: cannot listen at {uri}: Address already in use\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:0", "rsocket+carrier://x", "rsocket+tcp://x"])
def test_a_wrong_uri_has_status_2(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--listen", uri]) == Status.USAGE
    told = capsys.readouterr().err
    assert told.startswith("onward broker: ")
    assert uri in told
    assert told.count("\n") == 1
