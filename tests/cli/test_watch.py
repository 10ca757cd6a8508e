"""`onward watch`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest

from onward.actors import Node
from onward.actors.broker import (
    MANAGEMENT_SERVICE,
    ApplicationError,
    Broker,
    BrokerOptions,
    Handlers,
    Request,
)
from onward.cli import main
from onward.cli._client import WINDOW, ask_broker, watch_broker
from onward.cli._status import CommandError, Status
from onward.cli._watch import show
from tests.support.commands import TIMEOUT, onward
from tests.support.transports import eventually
from tests.support.workers import Echo

JOINED = {
    "kind": "joined",
    "at": 1_700_000_000.5,
    "route_id": "r",
    "service": "a",
    "tags": [["service", "a"], ["region", "e\nu"], ["route", "r"]],
    "peer": "10.0.0.1:5",
    "reason": "",
    "query": "",
    "missed": 0,
}
REJECTED = {
    **JOINED,
    "kind": "rejected",
    "route_id": None,
    "service": "",
    "tags": [],
    "peer": "",
    "reason": "no route: service=a",
    "query": "service=a",
    "missed": 3,
}


async def test_it_tells_what_happens_until_the_broker_stops() -> None:
    async with Node() as node:
        broker = await Broker.attach(node, BrokerOptions(max_events=10 * WINDOW))
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        events = watch_broker(listener.uri, TIMEOUT)
        first = asyncio.ensure_future(anext(events))
        await eventually(lambda: len(broker.events) == 1)
        await node.start(Echo, address="echo")
        for _ in range(3 * WINDOW):  # more than is asked for at once
            broker.register("echo", service="a").withdraw()
        kinds = [(await first)["kind"]] + [
            (await anext(events))["kind"] for _ in range(6 * WINDOW - 1)
        ]
        assert kinds == ["joined", "left"] * 3 * WINDOW
        last = asyncio.ensure_future(anext(events))
        await node.stop_worker("broker")
        with pytest.raises(CommandError):
            await last


async def test_a_service_that_tells_nothing_or_fails() -> None:
    handlers = Handlers()

    @handlers.stream
    async def ends(request: Request) -> AsyncGenerator[bytes]:
        if request.data != b"watch":
            yield request.data

    @handlers.response
    async def fails(request: Request) -> bytes:
        raise ApplicationError(0x301, "not today")

    async with Node() as node:
        broker = await Broker.attach(node, BrokerOptions(management=False))
        broker.serve(handlers, service=MANAGEMENT_SERVICE)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        with pytest.raises(CommandError, match="sends no more events: it has stopped"):
            await anext(watch_broker(listener.uri, TIMEOUT))
        with pytest.raises(CommandError, match=r"does not answer as .*not today"):
            await ask_broker(listener.uri, "routes", TIMEOUT)


def test_it_ends_when_it_is_told_to() -> None:
    with Node.in_background("broker") as background:

        async def start() -> tuple[Broker, str]:
            broker = await Broker.attach(background.node)
            listener = await background.node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
            await background.node.start(Echo, address="echo")
            return broker, listener.uri

        async def join(broker: Broker) -> None:
            await eventually(lambda: len(broker.events) == 1)
            broker.register("echo", service="a")

        broker, uri = background.call(start)
        with onward("watch", "--broker", uri, "--json") as process:
            background.call(join, broker)
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
            assert (event["kind"], event["service"]) == ("joined", "a")
            process.terminate()
            assert process.wait(TIMEOUT) == Status.OK


def test_nobody_there_has_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    uri = "rsocket+tcp://127.0.0.1:1"
    assert main(["watch", "--broker", uri]) == Status.FAILED
    assert "Connection refused" in capsys.readouterr().err


def test_an_event_is_a_line() -> None:
    printed = show(JOINED)
    assert printed.endswith("joined    a  region=e\\nu  10.0.0.1:5  r")
    missed, line = show(REJECTED).splitlines()
    assert missed == "... 3 events missed"
    assert line.endswith("rejected  no route: service=a")
    unsaid = show({**REJECTED, "reason": "", "missed": 0})
    assert unsaid.endswith("rejected  service=a")


@pytest.mark.parametrize("event", [5, {}, {**JOINED, "at": "x"}, {**JOINED, "tags": 5}])
def test_what_is_no_event(event: object) -> None:
    with pytest.raises(CommandError, match="an invalid event"):
        show(event)
