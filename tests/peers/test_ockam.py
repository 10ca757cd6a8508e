"""The TCP transport and a node of the Ockam Rust crates, both ways.

`make peers` builds the program; its 320 crates take minutes, once. One that was built by hand,
as `README.md` says, is taken instead.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from textwrap import indent

import pytest

from onward.actors import Node, Worker
from onward.actors.services import RelayClient, RelayService, StaticRelayService
from onward.protocol import Message
from onward.protocol.ockam import MAX_PART
from tests.peers.foreign import PeerMissing, built
from tests.peers.programs import TIMEOUT, Program

pytestmark = pytest.mark.peer(requester="rust, onward", destination="onward, rust", broker="none")

VARIABLE = "ONWARD_OCKAM_PEER"
BUILD_TIMEOUT = 3600.0
"""Seconds. It compiles 320 crates: some minutes on cores that have nothing else to do."""
ROOT = Path(__file__).parents[2]

# One message "hello" to `echoer` from `app`, with and without its optional last field, and to
# `raw` by way of `hop`; and what the Rust node answers, to the byte. The last field of an answer
# is the text of an empty tracing context.
EXCHANGES = {
    "four fields": (
        "0000001a 84 81 82004665 63686f6572 81 820043617070 46 0568656c6c6f f6",
        "0000001c 84 81 820043617070 81 82004665 63686f6572 46 0568656c6c6f 627b7d",
    ),
    "three fields": (
        "00000019 83 81 82004665 63686f6572 81 820043617070 46 0568656c6c6f",
        "0000001c 84 81 820043617070 81 82004665 63686f6572 46 0568656c6c6f 627b7d",
    ),
    "two hops": (
        "0000001b 84 82 820043686f70 820043726177 81 820043617070 44 000102ff f6",
        "0000001d 84 81 820043617070 82 820043686f70 820043726177 44 000102ff 627b7d",
    ),
}


def bare_string(text: str) -> bytes:
    """Encode a string as a Rust worker of the message type String wants it: BARE.

    A length in LEB128, here below 128, then UTF-8.
    """
    encoded = text.encode()
    assert len(encoded) < 128
    return bytes([len(encoded)]) + encoded


class Echo(Worker):
    """Sends every payload back."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Hop(Worker):
    """Passes every message on."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


@pytest.fixture(scope="session")
def program() -> str:
    """The path of the program built from `rust/`: the one that is named, or built now."""
    path = os.environ.get(VARIABLE, "")
    if Path(path).is_file():
        return path
    try:
        place = built("rust", [["cargo", "build", "--quiet"]], timeout=BUILD_TIMEOUT)
    except PeerMissing as error:
        pytest.skip(f"Ockam peer: {VARIABLE} names no program of tests/peers/rust; {error}")
    return str(place / "target/debug/onward-ockam-peer")


@pytest.fixture
async def rust_port(program: str) -> AsyncGenerator[int]:
    """The port of a Rust node with the workers `echoer`, `raw` and `hop`."""
    async with Program.running(program, "serve", "0") as rust:
        yield int((await rust.line()).removeprefix("ready "))


@pytest.fixture
async def node() -> AsyncGenerator[Node]:
    async with Node("python") as node:
        yield node


@pytest.mark.parametrize(("sent", "answered"), EXCHANGES.values(), ids=EXCHANGES)
async def test_rust_exchanges_the_bytes_of_vectors(
    rust_port: int, sent: str, answered: str
) -> None:
    expected = bytes.fromhex(answered)
    reader, writer = await asyncio.open_connection("127.0.0.1", rust_port)
    writer.write(b"\x01" + bytes.fromhex(sent))
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readexactly(1 + len(expected)) == b"\x01" + expected
    writer.close()
    await writer.wait_closed()


async def test_the_rust_echoer_answers_a_request(rust_port: int, node: Node) -> None:
    payload = bare_string("héllo")
    answer = await node.request(f"1#127.0.0.1:{rust_port} => echoer", payload)
    assert answer.payload == payload
    assert answer.return_route[-1].value == b"echoer"


async def test_a_route_through_rust_workers_and_its_return_route(
    rust_port: int, node: Node
) -> None:
    answer = await node.request(f"1#127.0.0.1:{rust_port} => hop => hop => raw", b"\x00\xff")
    assert answer.payload == b"\x00\xff"
    assert [address.value for address in answer.return_route][1:] == [b"hop", b"hop", b"raw"]


async def test_a_payload_of_a_mebibyte_is_echoed(rust_port: int, node: Node) -> None:
    payload = bytes(range(256)) * 4096
    answer = await node.request(f"1#127.0.0.1:{rust_port} => raw", payload)
    assert answer.payload == payload


async def test_many_requests_in_flight_are_all_answered(rust_port: int, node: Node) -> None:
    payloads = [f"request {number}".encode() for number in range(500)]
    # Not by way of `hop`: Rust's mailboxes hold 8 messages, and two workers that send to each
    # other stall when both are full.
    route = f"1#127.0.0.1:{rust_port} => raw"
    answers = await asyncio.gather(*(node.request(route, payload) for payload in payloads))
    assert [answer.payload for answer in answers] == payloads


async def test_rust_calls_a_python_worker(program: str, node: Node) -> None:
    await node.start(Echo, address="echo")
    listener = await node.listen("tcp://127.0.0.1:0", expose=["echo"])
    assert await call(program, listener.uri, "echo", count=200) == "200 of 200 equal"


async def test_rust_calls_through_a_python_forwarder(program: str, node: Node) -> None:
    await node.start(Echo, address="echo")
    await node.start(Hop, address="hop")
    listener = await node.listen("tcp://127.0.0.1:0", expose=["hop"], allow=["echo"])
    assert await call(program, listener.uri, "hop=>hop=>echo", count=10) == "10 of 10 equal"


async def test_a_python_node_behind_rusts_static_relay(rust_port: int, node: Node) -> None:
    hub = f"127.0.0.1:{rust_port}"
    await node.start(Echo, address="echo")
    link = await node.connect(f"tcp://{hub}", expose=["echo"])
    relay = RelayClient(f"{link} => static_forwarding_service", alias="python", api=None)
    await node.start(lambda: relay)
    async with asyncio.timeout(TIMEOUT):
        await relay.until_up()
    assert relay.name == "forward_to_python"
    async with Node("caller") as caller:
        route = f"1#{hub} => hop => forward_to_python => echo"
        for number in range(20):
            payload = b"through rust %d" % number
            assert (await caller.request(route, payload, timeout=TIMEOUT)).payload == payload


async def test_a_python_node_behind_rusts_dynamic_relay(rust_port: int, node: Node) -> None:
    hub = f"127.0.0.1:{rust_port}"
    await node.start(Echo, address="echo")
    link = await node.connect(f"tcp://{hub}", expose=["echo"])
    relay = RelayClient(f"{link} => forwarding_service", api=None)
    await node.start(lambda: relay)
    async with asyncio.timeout(TIMEOUT):
        await relay.until_up()
    async with Node("caller") as caller:
        answer = await caller.request(f"1#{hub} => {relay.name} => echo", b"hi", timeout=TIMEOUT)
    assert answer.payload == b"hi"


@pytest.mark.parametrize("alias", ["rust", ""], ids=["static", "dynamic"])
async def test_a_rust_node_behind_our_relay(program: str, node: Node, alias: str) -> None:
    service = "static_forwarding_service" if alias else "forwarding_service"
    listener = await node.listen("tcp://127.0.0.1:0", expose=[service])
    kind = StaticRelayService if alias else RelayService
    await node.start(lambda: kind(expose_at=[listener.address]), address=service)
    hub = listener.uri.removeprefix("tcp://")
    async with Program.running(program, "register", hub, *([alias] if alias else [])) as rust:
        name = (await rust.line()).removeprefix("registered ")
        if alias:
            assert name == "forward_to_rust"
        async with Node("caller") as caller:
            for number in range(20):
                payload = b"through python %d" % number
                answer = await caller.request(f"1#{hub} => {name} => raw", payload, timeout=TIMEOUT)
                assert answer.payload == payload
            # Rust's own echoer, which takes a string as Rust has it.
            asked = bare_string("héllo")
            answer = await caller.request(f"1#{hub} => {name} => echoer", asked, timeout=TIMEOUT)
            assert answer.payload == asked
        # And Rust to Rust, with our relay between them.
        assert await call(program, listener.uri, f"{name}=>echoer", count=20) == "20 of 20 equal"


# --- by datagrams ---------------------------------------------------------------------------
@pytest.fixture
async def rust_udp_port(program: str) -> AsyncGenerator[int]:
    """The port of a Rust node with the workers `echoer`, `raw` and `hop`, by datagrams."""
    async with Program.running(program, "serve-udp", "0") as rust:
        yield int((await rust.line()).removeprefix("ready "))


@pytest.mark.parametrize("size", [0, 1, 400, 493 * 3, 20_000])
async def test_rust_answers_by_datagrams(rust_udp_port: int, node: Node, size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    route = f"2#127.0.0.1:{rust_udp_port} => hop => raw"
    answer = await node.request(route, payload[:size], timeout=TIMEOUT)
    assert answer.payload == payload[:size]


async def test_messages_of_full_parts_cross_by_datagrams(rust_udp_port: int, node: Node) -> None:
    # A Rust node then sends one more part, which is empty.
    route = f"2#127.0.0.1:{rust_udp_port} => raw"
    for size in range(2 * MAX_PART - 120, 2 * MAX_PART + 2):
        answer = await node.request(route, bytes(size), timeout=TIMEOUT)
        assert len(answer.payload) == size


async def test_rust_calls_a_python_worker_by_datagrams(program: str, node: Node) -> None:
    await node.start(Echo, address="echo")
    await node.start(Hop, address="hop")
    listener = await node.listen("udp://127.0.0.1:0", expose=["echo", "hop"])
    assert await call(program, listener.uri, "echo", count=100) == "100 of 100 equal"
    assert await call(program, listener.uri, "hop=>echo", count=10) == "10 of 10 equal"


# --- the page -------------------------------------------------------------------------------
def test_the_rust_code_of_the_page_is_what_is_compiled() -> None:
    page = (ROOT / "docs/how-to/talk-to-ockam.md").read_text()
    compiled = (ROOT / "tests/peers/rust/src/page.rs").read_text()
    found = re.findall(r"```rust\n(.*?)```", page, re.DOTALL)
    assert len(found) == 2
    for code in found:
        assert indent(code, "    ") in compiled


async def call(program: str, uri: str, route: str, *, count: int) -> str:
    """Let Rust send a string so many times and compare the answers; return what it counted."""
    scheme, _, peer = uri.partition("://")
    how = "call" if scheme == "tcp" else "call-udp"
    async with Program.running(program, how, peer, route, "héllo", str(count)) as rust:
        counted, figures = (await rust.line()).split(", ", 1)
        print(f"Rust to {route} and back: {figures}")
        assert re.fullmatch(r"round trip median \d+ us, p99 \d+ us", figures)
        assert await rust.finished() == 0
        return counted
