"""Arguments of calls that are options: a wrong one is refused where it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from onward.actors import MailboxOptions, Node, OnFailure, Supervision, Worker
from onward.actors.batches import BatchTaker
from onward.actors.broker import Broker
from onward.actors.eventlog import EventLog
from onward.actors.pipes import (
    PipeChannel,
    PipeChannelService,
    PipeReceiver,
    PipeSender,
    PipeService,
)
from onward.actors.services import (
    DiscoveryClient,
    DiscoveryService,
    PubSubService,
    RelayService,
    StaticRelayService,
)
from onward.actors.sessions import SessionClient, SessionService
from onward.actors.testing import Probe, virtual_time
from onward.actors.tracing import HopTracer, trace
from onward.actors.workers import Echo, Spawner, Spreader
from onward.transports.client import connect
from onward.transports.simulated import SimulatedNetwork
from tests.support.compiled import WRONG_TYPE

WRONG_TIMES: list[Any] = [nan, inf, -1.0, "1", None]
NO_SECONDS = r"^\w+ must be a number of seconds|^float object expected"
"""What is said of such a time; the second is what compiled code says by itself."""


def first_byte(*_given: object) -> Any: ...


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("mailbox", 5, "MailboxOptions"),
        ("mailbox", 0, "MailboxOptions"),
        ("supervision", OnFailure.RESTART, "Supervision"),
        ("supervision", "restart", "Supervision"),
    ],
)
async def test_what_a_worker_is_spawned_with(name: str, value: Any, wanted: str) -> None:
    class Parent(Worker):
        async def on_start(self) -> None:
            with pytest.raises(ValueError, match=f"^{name} must be {wanted}, not "):
                self.spawn(Echo, **{name: value})
            with pytest.raises(ValueError, match=f"^{name} must be {wanted}, not "):
                await self.start_child(Echo, **{name: value})

    async with Node() as node:
        with pytest.raises(ValueError, match=f"^{name} must be {wanted}, not "):
            node.spawn(Echo, address="echo", **{name: value})
        with pytest.raises(ValueError, match=f"^{name} must be {wanted}, not "):
            await node.start(Echo, address="echo", **{name: value})
        await node.start(Parent)
        assert await node.start(Echo, address="echo", mailbox=MailboxOptions(1)) is not None


def test_what_a_background_node_starts_a_worker_with() -> None:
    with Node.in_background() as node:
        wrong: dict[str, Any]
        for wrong in ({"mailbox": 0}, {"supervision": "restart"}):
            with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be "):
                node.start(Echo, **wrong)
        for timeout in WRONG_TIMES:
            with pytest.raises(WRONG_TYPE, match=NO_SECONDS):
                node.request("echo", b"", timeout=timeout)
            with pytest.raises(WRONG_TYPE, match=NO_SECONDS):
                node.stop(timeout=timeout)


def test_what_a_node_is_made_with() -> None:
    wrong: dict[str, Any]
    for wrong in ({"limits": 5}, {"diagnostics": True}, {"name": 5}):
        said = rf"^{next(iter(wrong))} must be |object expected"
        with pytest.raises(WRONG_TYPE, match=said):
            Node(**wrong)


@pytest.mark.parametrize("wrong", WRONG_TIMES)
@virtual_time
async def test_timeouts_of_calls(wrong: Any) -> None:
    class Asks(Worker):
        async def on_start(self) -> None:
            with pytest.raises(WRONG_TYPE, match=NO_SECONDS):
                await self.request("echo", b"", timeout=wrong)
            for set_timer in (self.after, self.every):
                with pytest.raises(WRONG_TYPE, match=NO_SECONDS):
                    set_timer(wrong, lambda: None)

    async with Node() as node:
        probe = node.spawn(Probe, address="probe")
        node.spawn(Echo, address="echo")
        with pytest.raises(WRONG_TYPE, match=NO_SECONDS):
            await node.request("echo", b"", timeout=wrong)
        assert node.statistics().requests == 0
        await node.start(Asks)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: node.stop(timeout=wrong),
            lambda: node.stop_worker(probe, timeout=wrong),
        ]
        for call in calls:
            with pytest.raises(WRONG_TYPE, match=NO_SECONDS):
                await call()
        with pytest.raises(ValueError, match=r"^timeout must be a number of seconds"):
            DiscoveryClient(node, "discovery", timeout=wrong)
        assert (await node.request("echo", b"x", timeout=5)).payload == b"x"


@virtual_time
async def test_a_wrong_timeout_is_refused_also_when_many_have_been_used() -> None:
    async with Node() as node:
        node.spawn(Echo, address="echo")
        for number in range(1, 100):
            await node.request("echo", b"", timeout=float(number))
        for wrong in (nan, -1.0, inf):
            with pytest.raises(ValueError, match=r"^timeout must be a number of seconds"):
                await node.request("echo", b"", timeout=wrong)


WITH_OPTIONS: list[Callable[[Any], object]] = [
    lambda wrong: RelayService(options=wrong),
    lambda wrong: StaticRelayService(options=wrong),
    lambda wrong: PubSubService(options=wrong),
    lambda wrong: DiscoveryService(options=wrong),
    lambda wrong: SessionService(options=wrong),
    lambda wrong: SessionClient("service", options=wrong),
    lambda wrong: PipeSender("receiver", options=wrong),
    lambda wrong: PipeReceiver(options=wrong),
    lambda wrong: PipeService(options=wrong),
    lambda wrong: PipeChannel("service", options=wrong),
    lambda wrong: PipeChannelService(options=wrong),
    lambda wrong: BatchTaker(first_byte, options=wrong),
    lambda wrong: Spreader([["echo"]], options=wrong),
    lambda wrong: Spawner(first_byte, first_byte, options=wrong),
    Broker,
    EventLog,
    lambda wrong: HopTracer(Node(), options=wrong),
    lambda wrong: SimulatedNetwork(0, options=wrong),
    lambda wrong: connect("rsocket+tcp://h:1", options=wrong),
]


@pytest.mark.parametrize("make", WITH_OPTIONS)
@pytest.mark.parametrize("wrong", [5, "restart", Path(), Supervision()])
async def test_options_of_another_class(make: Callable[[Any], object], wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^options must be .*Options, not "):
        make(wrong)


async def test_options_of_a_trace() -> None:
    wrong: Any = 5
    async with Node() as node:
        with pytest.raises(ValueError, match=r"^options must be TraceOptions, not 5"):
            await trace(node, "echo", b"", options=wrong)


@pytest.mark.parametrize("tags", ["a=b", ["a"], {"a": 5}, {5: "a"}, 5])
async def test_tags_are_a_mapping(tags: Any) -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        node.spawn(Echo, address="echo")
        with pytest.raises(ValueError, match=r"^tags must be a mapping from a text to .*, not "):
            broker.register("echo", service="echo", tags=tags)
    with pytest.raises(ValueError, match=r"^tags must be a mapping from a text to .*, not "):
        connect("rsocket+tcp://h:1", service="s", tags=tags)


@pytest.mark.parametrize(
    "wrong", [{"connections": 0}, {"connections": "2"}, {"connections": True}, {"handlers": 5}]
)
def test_what_a_client_is_made_with(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be "):
        connect("rsocket+tcp://h:1", service="s", **wrong)


@pytest.mark.parametrize("wrong", [nan, inf, -1.0, "1"])
async def test_timeouts_of_a_client(wrong: Any) -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        async with connect(listener.uri) as client:
            with pytest.raises(ValueError, match=r"^timeout must be a number of seconds"):
                await client.request("service=a", b"", timeout=wrong)
            with pytest.raises(ValueError, match=r"^timeout must be a number of seconds"):
                client.stream("service=a", b"", timeout=wrong)
            with pytest.raises(ValueError, match=r"^element_timeout must be a number of seconds"):
                client.stream("service=a", b"", element_timeout=wrong)


WITH_SEVERAL: list[Callable[[Any], object]] = [
    lambda one: RelayService(expose_at=one),
    lambda one: PubSubService(expose_at=one),
    lambda one: DiscoveryService(expose_at=one),
    lambda one: SessionClient("service", expose=one),
]


@pytest.mark.parametrize("make", WITH_SEVERAL)
async def test_one_address_where_there_are_several(make: Callable[[Any], object]) -> None:
    for one in ("listener", b"listener"):
        with pytest.raises(TypeError, match="takes several addresses"):
            make(one)


@pytest.mark.parametrize("scheme", ["tcp", "udp", "ws", "uds"])
async def test_options_of_a_link_of_another_class(scheme: str, tmp_path: Path) -> None:
    uri = f"uds://{tmp_path}/s" if scheme == "uds" else f"{scheme}://127.0.0.1:0"
    wrong: Any
    async with Node() as node:
        for wrong in (5, MailboxOptions()):
            with pytest.raises(ValueError, match=r"^options must be None or \w+Options, not "):
                await node.listen(uri, options=wrong)
            with pytest.raises(ValueError, match=r"^options must be None or \w+Options, not "):
                await node.connect(uri.replace(":0", ":1"), options=wrong)
