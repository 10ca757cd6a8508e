"""Node-to-node echo over loopback TCP, against bare asyncio echoing the same bytes.

Client and server are two processes on the same loop class; each frame has a length of four bytes,
two routes and a payload of 64 bytes.

- *onward*: a worker sends to a worker of another node over a link, and gets its replies.
- *bare*: an `asyncio.Protocol` that splits frames by their length and writes back all frames of
  one read in one write, without parsing them. This is the fastest program.
- *streams*: the same with `StreamReader.readexactly` and `StreamWriter.write`, as is usual.

*Pipelined* keeps 256 messages in flight; its figure is CPU of both processes for each message and
its reply. *One at a time* sends each message after the reply to the one before; its figure is the
time between two messages. *Awaited* is the same from a coroutine: `node.request`, with its mailbox,
random address and timeout, against a future.

Targets: pipelined at most 5 times the CPU of *bare*, one at a time at most 1.5 times its time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from _harness import Report, parse_arguments, repeat

from onward.actors import Node, Worker, new_event_loop
from onward.protocol import Address, Message, format_route, route
from onward.protocol.ockam import WireConnection, encode_message

T = TypeVar("T")

IN_FLIGHT = 256
PIPELINED, ONE, AWAITED = "pipelined", "one at a time", "one at a time, awaited"
PAYLOAD = b"x" * 64
BODY = encode_message(Message(route("echo"), (Address(0, b"a" * 32),), PAYLOAD))
FRAME = len(BODY).to_bytes(4) + BODY


def run(work: Awaitable[T]) -> T:
    """Run an awaitable to its end on the loop class of nodes."""
    loop = new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


# --- the servers: each in a process of its own ----------------------------------------------


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Relay(Worker):
    def handle_message(self, message: Message) -> None:
        self.forward(message)


class Frames(asyncio.Protocol):
    """A protocol that splits the data received into frames by their length."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.rest:
            data = self.rest + data
        bodies: list[bytes] = []
        position, end = 0, len(data)
        while end - position >= 4:
            size = int.from_bytes(data[position : position + 4])
            if end - position - 4 < size:
                break
            bodies.append(data[position + 4 : position + 4 + size])
            position += 4 + size
        self.rest = data[position:]
        if bodies:
            self.frames_received(bodies)

    def frames_received(self, bodies: list[bytes]) -> None:
        """Echo the frames."""
        self.transport.write(b"".join([len(body).to_bytes(4) + body for body in bodies]))


async def echo_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readexactly(4)
            writer.write(head + await reader.readexactly(int.from_bytes(head)))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(kind: str) -> None:
    """Serve until standard input ends; answer each of its lines with the CPU time used."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def answer() -> None:
        if sys.stdin.readline():
            print(time.process_time(), flush=True)
        elif not ended.done():
            ended.set_result(None)

    loop.add_reader(sys.stdin.fileno(), answer)
    if kind == "onward":
        async with Node("server") as node:
            await node.start(Echo, address="echo")
            listener = await node.listen("tcp://127.0.0.1:0", expose=["echo"])
            print(listener.uri.rpartition(":")[2], flush=True)
            await ended
        return
    if kind == "bare":
        server = await loop.create_server(Frames, "127.0.0.1", 0)
    else:
        server = await asyncio.start_server(echo_streams, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended
    server.close()


class Server:
    """A server in its own process."""

    def __init__(self, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).resolve(), "--serve", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._read())

    def cpu(self) -> float:
        """Return the CPU seconds that the server has used."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read())

    def stop(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


# --- the clients ----------------------------------------------------------------------------


class Client:
    """A client of one server; the two methods run on its connection."""

    async def pipelined(self, count: int, in_flight: int) -> None:
        """Send `count` messages, `in_flight` at a time, and wait for all answers."""
        raise NotImplementedError

    async def one_at_a_time(self, count: int) -> None:
        """Send `count` messages, and await the answer to each."""
        raise NotImplementedError


class Pump(Worker):
    """A worker that keeps a number of messages in flight."""

    def __init__(
        self, link: Address, count: int, in_flight: int, done: asyncio.Future[None]
    ) -> None:
        super().__init__()
        self.link = link
        self.in_flight = in_flight
        self.due = count
        self.left = count
        self.done = done

    def on_start(self) -> None:
        echo = (self.link, Address(0, b"echo"))
        self.message = Message(echo, (self.address,), PAYLOAD)
        for _ in range(min(self.in_flight, self.due)):
            self.left -= 1
            self.node.route(self.message)

    def handle_message(self, message: Message) -> None:
        self.due -= 1
        if self.left:
            self.left -= 1
            self.node.route(self.message)
        elif not self.due:
            self.done.set_result(None)


class OnwardClient(Client):
    def __init__(self, node: Node, link: Address) -> None:
        self.node = node
        self.link = link

    async def pipelined(self, count: int, in_flight: int) -> None:
        done = asyncio.get_running_loop().create_future()
        pump = await self.node.start(lambda: Pump(self.link, count, in_flight, done))
        await done
        await self.node.stop_worker(pump)

    async def one_at_a_time(self, count: int) -> None:
        onward = format_route((self.link, Address(0, b"echo")))
        for _ in range(count):
            await self.node.request(onward, PAYLOAD)


class BareClient(Client, Frames):
    def __init__(self) -> None:
        super().__init__()
        self.due = 0
        self.left = 0
        self.done: asyncio.Future[None] | None = None

    def frames_received(self, bodies: list[bytes]) -> None:
        """Count the answers, and send as many messages, each built anew."""
        self.due -= len(bodies)
        more = min(len(bodies), self.left)
        if more:
            self.left -= more
            self.transport.write(b"".join([len(BODY).to_bytes(4) + BODY for _ in range(more)]))
        elif not self.due and self.done is not None:
            self.done.set_result(None)

    async def pipelined(self, count: int, in_flight: int) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.due, self.left = count, max(0, count - in_flight)
        self.transport.write(FRAME * (count - self.left))
        await self.done

    async def one_at_a_time(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            self.done, self.due = loop.create_future(), 1
            self.transport.write(FRAME)
            await self.done


class StreamsClient(Client):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def _answer(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def pipelined(self, count: int, in_flight: int) -> None:
        left = max(0, count - in_flight)
        self.writer.write(FRAME * (count - left))
        for _ in range(count):
            await self._answer()
            if left:
                left -= 1
                self.writer.write(FRAME)

    async def one_at_a_time(self, count: int) -> None:
        for _ in range(count):
            self.writer.write(FRAME)
            await self._answer()


# --- the measurement ------------------------------------------------------------------------


async def measure(client: Client, server: Server, count: int) -> dict[str, float]:
    """Return the microseconds of one run, by kind."""
    await client.pipelined(count // 10, IN_FLIGHT)
    cpu = server.cpu(), time.process_time()
    await client.pipelined(count, IN_FLIGHT)
    ours = time.process_time() - cpu[1]
    theirs = server.cpu() - cpu[0]
    figures = {PIPELINED: (ours + theirs) / count * 1e6}
    count //= 10
    await client.pipelined(count // 10, 1)
    began = time.perf_counter()
    await client.pipelined(count, 1)
    figures[ONE] = (time.perf_counter() - began) / count * 1e6
    await client.one_at_a_time(count // 10)
    began = time.perf_counter()
    await client.one_at_a_time(count)
    figures[AWAITED] = (time.perf_counter() - began) / count * 1e6
    return figures


async def once(servers: dict[str, Server], count: int) -> dict[str, float]:
    """Measure all three, one after the other."""
    loop = asyncio.get_running_loop()
    figures: dict[str, float] = {}

    async def add(kind: str, client: Client) -> None:
        for what, value in (await measure(client, servers[kind], count)).items():
            figures[f"{kind} {what}"] = value

    _, bare = await loop.create_connection(BareClient, "127.0.0.1", servers["bare"].port)
    await add("bare", bare)
    bare.transport.close()
    async with Node("client") as node:
        link = await node.connect(f"tcp://127.0.0.1:{servers['onward'].port}")
        await add("onward", OnwardClient(node, link))
    reader, writer = await asyncio.open_connection("127.0.0.1", servers["streams"].port)
    await add("streams", StreamsClient(reader, writer))
    writer.close()
    await writer.wait_closed()
    return figures


async def parts(count: int) -> dict[str, float]:
    """Return the CPU microseconds of the parts of a pipelined message, each measured alone."""
    message = Message(route("echo"), (Address(0, b"a" * 32),), PAYLOAD)
    ours, theirs = WireConnection(), WireConnection(own=Address(0, b"b" * 32))
    theirs.receive_data(ours.data_to_send())
    data = b""
    began = time.process_time()
    for _ in range(count // 64):
        for _ in range(64):
            ours.send(message)
        data = ours.data_to_send()
    writing = time.process_time() - began
    began = time.process_time()
    for _ in range(count // 64):
        theirs.receive_data(data)
    reading = time.process_time() - began
    async with Node("local") as node:
        await node.start(Echo, address="echo")
        await node.start(Relay, address="relay")
        client = OnwardClient(node, Address(0, b"relay"))
        began = time.process_time()
        await client.pipelined(count, IN_FLIGHT)
        local = time.process_time() - began
    return {
        "both ends write and read": 2 * (writing + reading) / count * 1e6,
        "both ends route: four hops, with an echo, in one node": local / count * 1e6,
    }


def main() -> None:
    arguments = parse_arguments(__doc__, runs=7)
    count = 2_000 if arguments.quick else 50_000
    servers = {kind: Server(kind) for kind in ("bare", "onward", "streams")}
    try:
        one: Callable[[], Any] = lambda: run(once(servers, count))  # noqa: E731
        measured = repeat(arguments.runs, one)
    finally:
        for server in servers.values():
            server.stop()
    report = Report("tcp", arguments)
    for what, unit in ((PIPELINED, "CPU µs"), (ONE, "µs"), (AWAITED, "µs")):
        for kind in servers:
            report.add({f"{kind}, {what}, {unit}": measured[f"{kind} {what}"]})
        for kind in ("bare", "streams"):
            above, below = measured[f"onward {what}"], measured[f"{kind} {what}"]
            report.ratio(f"{what}: onward / {kind}", above, below)
    apart = repeat(arguments.runs, lambda: run(parts(count)))
    report.add({f"of pipelined: {name}, CPU µs": values for name, values in apart.items()})
    report.at_most(f"{PIPELINED}: onward / bare", 5.0)
    report.at_most(f"{ONE}: onward / bare", 1.5)
    report.at_most(f"{AWAITED}: onward / bare", 1.5)
    report.note(
        "One at a time, nothing is batched: each message wakes two processes, and runs cold."
    )
    report.print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        run(serve(sys.argv[2]))
    else:
        main()
