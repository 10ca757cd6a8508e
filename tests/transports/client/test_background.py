"""The client with blocking calls: threads, timeouts, streams that are left, and its end."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from onward.actors import Node, WouldDeadlock
from onward.actors.broker import (
    Answer,
    Broker,
    BrokerOptions,
    Handlers,
    Incoming,
    Request,
    WaitingOptions,
)
from onward.protocol import InDoubt, LinkDown, NodeStopped, NotDelivered, RequestTimeout
from onward.protocol.payloads import JSON, PayloadError
from onward.transports.client import (
    BackgroundClient,
    ClientOptions,
    LoadOptions,
    RequestRejected,
    connect,
)
from tests.support.commands import TIMEOUT

ECHO = "service=echo"
left = threading.Event()
handlers = Handlers()


@handlers.response
async def echo(request: Request) -> Answer:
    return Answer(request.data, request.metadata)


@handlers.response("never")
async def never(_request: Request) -> bytes:
    await asyncio.Event().wait()
    return b""


@handlers.fire_and_forget
async def hear(request: Request) -> None:
    heard.append(request.data)
    came.set()


heard: list[bytes] = []
came = threading.Event()


@handlers.stream
async def count(request: Request) -> AsyncGenerator[bytes]:
    try:
        for number in range(int(request.data)):
            yield b"%d" % number
    finally:
        left.set()


@handlers.channel
async def shout(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
    async for data in incoming:
        yield data.upper()


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with Node.in_background("edge") as background:

        async def start() -> str:
            node = background.node
            broker = await Broker.attach(
                node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
            )
            broker.serve(handlers, service="echo")
            return (await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)).uri

        yield background.call(start)


@pytest.fixture
def client(uri: str) -> Iterator[BackgroundClient]:
    with connect(uri).in_background() as client:
        yield client


def test_each_call_blocks_until_it_is_done(client: BackgroundClient) -> None:
    assert client.request(ECHO, b"hi", b"meta") == Answer(b"hi", b"meta")
    assert client.request_value(ECHO, {"a": 1}, dict[str, int]) == {"a": 1}
    came.clear()
    client.send(ECHO, b"sent")
    assert came.wait(TIMEOUT)
    assert heard[-1] == b"sent"
    assert client.statistics().requests == 3


def test_threads_share_a_client(client: BackgroundClient) -> None:
    def ask(number: int) -> bytes:
        return client.request(ECHO, b"%d" % number).data

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(200))) == [b"%d" % number for number in range(200)]
    assert client.statistics().connected == 1


def test_a_timeout_is_in_doubt(client: BackgroundClient) -> None:
    with pytest.raises(RequestTimeout):
        client.request(ECHO, b"", route="never", timeout=0.05)
    assert client.request(ECHO, b"on").data == b"on"


def test_errors_are_those_of_the_client(client: BackgroundClient) -> None:
    with pytest.raises(RequestRejected):
        client.request("service=nowhere", b"")
    with pytest.raises(PayloadError):
        client.request_value(ECHO, "text", int, codec=JSON)


def test_a_stream_is_an_iterator(client: BackgroundClient) -> None:
    with client.stream(ECHO, b"100") as numbers:
        assert [each.data for each in numbers] == [b"%d" % number for number in range(100)]
        assert next(numbers, None) is None
    values = client.stream_values(ECHO, 3, int, codec=JSON)
    assert list(values) == [0, 1, 2]


def test_closing_a_stream_cancels_it(client: BackgroundClient) -> None:
    left.clear()
    with client.stream(ECHO, b"1000000") as numbers:
        assert next(numbers).data == b"0"
    assert left.wait(TIMEOUT)
    numbers.close()


def test_a_stream_that_is_forgotten_is_cancelled(client: BackgroundClient) -> None:
    left.clear()
    for number in client.stream(ECHO, b"1000000"):
        assert number.data == b"0"
        break
    gc.collect()
    assert left.wait(TIMEOUT)


def test_the_source_of_a_channel_may_block(client: BackgroundClient) -> None:
    more = threading.Event()

    def source() -> Generator[bytes]:
        yield b"a"
        assert more.wait(TIMEOUT)
        yield b"b"

    with client.channel(ECHO, source()) as answers:
        assert next(answers).data == b"A"
        more.set()
        assert [each.data for each in answers] == [b"B"]


class Idle:
    """Sources that yield `first`, and then block until the end."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def source(self, *first: bytes) -> Generator[bytes]:
        yield from first
        assert self.over.wait(TIMEOUT)

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.over.set()


def test_the_timeout_of_a_channel_includes_its_first_element(client: BackgroundClient) -> None:
    late = pytest.raises(NotDelivered, match=r"no first element in 0\.05 s")
    with Idle() as idle, client.channel(ECHO, idle.source(), timeout=0.05) as answers, late:
        next(answers)


def test_what_a_source_raises_is_raised(client: BackgroundClient) -> None:
    def source() -> Generator[bytes]:
        yield b"a"
        raise KeyError("the source's own")

    with client.channel(ECHO, source()) as answers, pytest.raises(KeyError, match="own"):
        list(answers)
    with client.channel(ECHO, 5) as answers, pytest.raises(TypeError):  # type: ignore[arg-type]
        next(answers)
    assert list(client.channel(ECHO, [])) == []


def test_sources_that_block_have_threads_of_their_own_up_to_a_limit(uri: str) -> None:
    load = LoadOptions(max_sources=40)
    options = ClientOptions(load=load, drain_timeout=0.05)
    with Idle() as idle, connect(uri, options=options).in_background() as client:
        many = [client.channel(ECHO, idle.source(b"a")) for _ in range(40)]
        assert {next(each).data for each in many} == {b"A"}
        with pytest.raises(NotDelivered, match=r"of 40 channels .* \(max_sources\)"):
            next(client.channel(ECHO, [b"b"]))
        readers = [each for each in threading.enumerate() if each.name == "source of a channel"]
        assert all(each.daemon for each in readers)
        for each in many:
            each.close()
        idle.over.set()
        for reader in readers:
            reader.join(TIMEOUT)
        assert [each.data for each in client.channel(ECHO, [b"b", b"c"])] == [b"B", b"C"]


def test_its_end_closes_streams_and_channels_in_silence(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Idle() as idle, connect(uri).in_background() as client:
        streams = [client.stream(ECHO, b"1000000") for _ in range(8)]
        channels = [client.channel(ECHO, idle.source(b"a")) for _ in range(8)]
        assert {next(each).data for each in streams + channels} == {b"0", b"A"}
        client.close()
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


async def test_no_call_is_made_on_a_loop(uri: str) -> None:
    with pytest.raises(WouldDeadlock):
        connect(uri).in_background().open()


def test_no_call_is_made_before_it_is_open(uri: str) -> None:
    client = connect(uri).in_background()
    with pytest.raises(RuntimeError, match="client has not been started"):
        client.request(ECHO, b"")
    client.close()


def test_no_call_is_made_after_its_end(uri: str) -> None:
    with connect(uri).in_background() as client:
        numbers = client.stream(ECHO, b"10")
        next(numbers)
    with pytest.raises(NodeStopped):
        client.request(ECHO, b"")
    numbers.close()
    client.close()
    with pytest.raises(RuntimeError, match="started already"):
        client.open()


def test_its_end_ends_the_calls_of_other_threads(uri: str) -> None:
    client = connect(uri, options=ClientOptions(drain_timeout=0.05)).in_background()
    client.open()
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(client.request, ECHO, b"", route="never") for _ in range(2)]
        while client.statistics().in_flight < 2:
            pass
        client.close()
        for call in calls:
            with pytest.raises(InDoubt):
                call.result(TIMEOUT)


def test_no_thread_is_left_without_a_broker() -> None:
    before = threading.active_count()
    options = ClientOptions(connect_timeout=0.1)
    with pytest.raises(LinkDown):
        connect("rsocket+unix:///nowhere/broker.sock", options=options).in_background().open()
    assert threading.active_count() == before


# From Python 3.12 on a fork with threads is warned of; the child calls nothing but what it must.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_it_is_closed_in_the_child_of_a_fork(client: BackgroundClient) -> None:
    client.request(ECHO, b"")
    child = os.fork()
    if child == 0:
        try:
            client.request(ECHO, b"")
        except NodeStopped:
            client.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert client.request(ECHO, b"on").data == b"on"
