"""Destination processes that are killed under load, and who hears of what."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.transports.rsocket import RSocketListener
from tests.support.loops import on_both_loops
from tests.support.rsocket_peer import *
from tests.support.transports import eventually
from tests.transports.rsocket.test_sockets import Client, Edge

REJECTED, CANCELED = 0x202, 0x203
ANSWERED = 0
KINDS = (RR, STREAM, CHANNEL, FNF)
EACH = 800
WINDOW = 300

DESTINATION = """
import os, socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.sendall(bytes.fromhex(sys.argv[2]))
data, turn = b"", 0
while chunk := peer.recv(65536):
    data += chunk
    while len(data) >= 3 and len(data) >= (end := 3 + int.from_bytes(data[:3], "big")):
        frame, data = data[:end], data[end:]
        kind = frame[7] >> 2
        if kind not in (4, 5, 6, 7):
            continue
        os.write(1, frame[-8:])  # what it has seen, before it answers
        turn += 1
        if kind == 5 or turn % 3 == 0:  # every third stays in hand
            continue
        head = bytes.fromhex("000006") + frame[3:7]
        if kind != 4:
            peer.sendall(head + bytes.fromhex("2820"))
        peer.sendall(head + bytes.fromhex("2860" if kind == 4 else "2840"))
"""


class Destination:
    """A process that answers some requests and keeps the others in hand."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdout is not None
        self._seen = asyncio.ensure_future(process.stdout.read())

    @classmethod
    async def start(cls, edge: Edge, number: int, service: str) -> Destination:
        hello = setup(composite((BROKER_FRAME, route_setup(UUID(int=number), service))))
        before = edge.served()
        made = cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                DESTINATION,
                str(edge.port),
                hello.hex(),
                stdout=asyncio.subprocess.PIPE,
            )
        )
        await eventually(lambda: edge.served() == before + 1)
        return made

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    async def seen(self) -> set[bytes]:
        """Return what it has read, by the number in each request, once it is dead."""
        raw = await self._seen
        return {raw[at : at + 8] for at in range(0, len(raw), 8)}

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._seen


@dataclass
class Requester:
    """One that sends requests of all kinds, so many at a time, and keeps how each ended."""

    number: int
    client: Client
    ends: dict[int, int] = field(default_factory=dict)
    sent: int = 0

    def name(self, stream: int) -> bytes:
        """The number of a request, unlike that of any other of any requester."""
        return self.number.to_bytes(4) + stream.to_bytes(4)

    def send(self, count: int) -> None:
        for _ in range(count):
            kind, stream = KINDS[self.sent % 4], 1 + 2 * self.sent
            n = 10 if kind in {STREAM, CHANNEL} else None
            flags = C if kind == CHANNEL else 0
            self.client.send(
                request(kind, stream, asked_for("a"), self.name(stream), n=n, flags=flags)
            )
            self.sent += 1

    @property
    def answerable(self) -> int:
        """How many of those sent are to end: a fire-and-forget does not."""
        return self.sent - self.sent // 4

    async def next_end(self) -> None:
        """Wait until one more request has ended."""
        while True:
            raw = await self.client.next()
            stream, kind = stream_of(raw), kind_of(raw)
            assert kind in {PAYLOAD, ERROR}
            assert stream not in self.ends, "a request ended twice"
            assert KINDS[stream // 2 % 4] != FNF
            if kind == ERROR:
                self.ends[stream] = int.from_bytes(raw[9:13])
                return
            if raw[8] & C:
                self.ends[stream] = ANSWERED
                return


async def load(requesters: list[Requester], marks: list[tuple[int, Destination]]) -> None:
    """Send all requests, and kill each destination at its number of requests that ended."""

    async def run(one: Requester) -> None:
        while one.sent < EACH or len(one.ends) < one.answerable:
            free = WINDOW - (one.answerable - len(one.ends))
            one.send(max(0, min(free, EACH - one.sent)))
            await one.next_end()
            while marks and sum(len(each.ends) for each in requesters) >= marks[0][0]:
                marks.pop(0)[1].kill()

    await asyncio.gather(*map(run, requesters))


@asynccontextmanager
async def edge_that_rejects_at_once() -> AsyncGenerator[Edge]:
    async with Node("edge") as node:
        broker = await Broker.attach(
            node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))
        )
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        assert isinstance(listener, RSocketListener)
        edge = Edge(node, broker, listener)
        try:
            yield edge
        finally:
            for client in edge.clients:
                client.reset()
    await asyncio.sleep(0)


@on_both_loops
async def test_processes_killed_under_load() -> None:
    async with edge_that_rejects_at_once() as edge:
        destinations: list[Destination] = []
        try:
            for number, service in ((1, "a"), (2, "a"), (3, "bystander")):
                destinations.append(await Destination.start(edge, number, service))
            first, second, _ = destinations
            requesters = [Requester(number, await edge.connect()) for number in range(4)]
            bystander = await edge.connect()
            bystander.send(request(RR, 1, asked_for("bystander"), bytes(8)))
            assert kind_of(await bystander.next()) == PAYLOAD

            await load(requesters, [(400, first), (1000, second)])
            await eventually(lambda: edge.served() == 1)
            for each in requesters:  # now that it is known that nobody is left
                each.send(8)
                for _ in range(6):
                    await each.next_end()

            # What was rejected was seen by nobody, and what was answered was seen.
            seen = await first.seen() | await second.seen()
            ends = {
                each.name(stream): end for each in requesters for stream, end in each.ends.items()
            }
            assert len(ends) == sum(each.answerable for each in requesters)
            by_end = Counter(ends.values())
            assert set(by_end) == {ANSWERED, CANCELED, REJECTED}, by_end
            assert by_end[REJECTED] >= 24
            for name, end in ends.items():
                assert end == CANCELED or (name in seen) == (end == ANSWERED)

            # Nothing is left of them, and everybody else is still there.
            await nothing_is_left(edge)
            assert edge.connections() == len(requesters) + 2
            bystander.send(request(RR, 3, asked_for("bystander"), bytes(8)))
            assert kind_of(await bystander.next()) == PAYLOAD
            assert edge.listener.statistics().closed.keys() <= {"by the peer"}
        finally:
            for destination in destinations:
                await destination.end()


async def nothing_is_left(edge: Edge) -> None:
    """Check that no stream, mailbox or count keeps anything of the requests."""

    def workers() -> list[str]:
        statistics = edge.node.statistics()
        return [str(worker.address) for worker in statistics.workers if worker.waiting]

    await eventually(lambda: not workers())
    for link in edge.listener._links:
        assert not link.core.streams
        assert link.worker.local.waiting == 0
    assert edge.broker.statistics().waiting == 0
    assert [row for row in edge.broker.routes() if row.outstanding] == []
