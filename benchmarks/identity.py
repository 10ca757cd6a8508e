"""Messages to public keys beside plain ones, layers beside bare primitives, and a large directory.

- *plain*: from the program to a worker of the same node, which forwards it to the one at the end.
  *by identity, one node*: the same, with the worker at the end named by its identity. No
  cryptography: within a node nothing is signed.
- *by identity, two nodes*: from the program of one node to an engine of another, over a link in
  memory, signed, encrypted and verified. The comparison is one signature and one verification by
  `cryptography`, of as many bytes, in the same run.
- *fan-out*: one publication to a topic with 1,000 subscribers of the node. The comparison is a
  plain message, as above, to each of the same 1,000 workers, in the same run.
- *build* and *open*: a message of 1 KiB for four nodes in layers, and one layer of it, beside the
  signatures, seals and openings that they are made of.
- *directory*: adverts of nodes, each with one address.

Targets: 5 times a plain hop without cryptography; 1.5 times the bare primitives for a message
between nodes, and for layers; twice the plain messages for a fan-out. All times are CPU times of
all nodes. Each round measures both sides of a ratio, one right after the other, and the median of
the rounds' ratios counts: a machine that is slow for a while is slow for both. The full size takes
about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median, quantiles
from time import process_time

from _report import Report
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from onward.actors import MailboxOptions, Node, Worker, new_event_loop
from onward.actors.identity import ROUTER
from onward.protocol import Address, Message, Route
from onward.protocol.identity import (
    AdvertAddress,
    AdvertSource,
    Destination,
    DestinationKind,
    Directory,
    EngineMessage,
    Hop,
    Identity,
    LayerTags,
    NodeAdvert,
    Peeler,
    Protocol,
    SealingKeys,
    SigningKey,
    Verifiers,
    build_onion,
    identity_text,
    sign_advert,
    sign_engine_message,
)
from onward.transports.identity import Identities

IN_FLIGHT = 64
PAYLOAD = b"x" * 64
SUBSCRIBERS = 1_000
RELAY, END = Address(0, b"relay"), Address(0, b"end")
NOW = 1_800_000_000_000
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Size:
    """The number of rounds, of messages in one, of layers that are built, and of adverts."""

    rounds: int
    messages: int
    layers: int
    adverts: int


FULL = Size(rounds=45, messages=1_000, layers=40, adverts=100_000)
QUICK = Size(rounds=3, messages=200, layers=5, adverts=500)


class Relay(Worker):
    """The worker of a forwarded hop."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


class End(Worker):
    """The worker at the end: one message has ended.

    Args:
        ended: Called for each message.
    """

    def __init__(self, ended: Callable[[], object]) -> None:
        super().__init__()
        self._ended = ended

    def handle_message(self, message: Message) -> None:
        del message
        self._ended()


class Load:
    """A load of one kind at a time.

    Args:
        node: The node of the sender.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._message = Message((END,), (), PAYLOAD, None, None)
        self._left = self._open = 0
        self._over = asyncio.get_running_loop().create_future()

    def ended(self) -> None:
        """Send the next message, since one has ended."""
        if self._left:
            self._left -= 1
            self._node.route(self._message)
            return
        self._open -= 1
        if not self._open:
            self._over.set_result(None)

    async def run(self, route: Route, messages: int) -> float:
        """Send messages; return the seconds of CPU for each."""
        self._message = Message(route, (), PAYLOAD, None, None)
        self._open, self._left = IN_FLIGHT, messages
        self._over = asyncio.get_running_loop().create_future()
        began = process_time()
        for _ in range(IN_FLIGHT):
            self._node.route(self._message)
        await self._over
        return (process_time() - began) / (messages + IN_FLIGHT)


def key_of(number: int) -> SigningKey:
    return SigningKey(Random(number).randbytes(32))


def timed(work: Callable[[], object], times: int) -> float:
    began = process_time()
    for _ in range(times):
        work()
    return (process_time() - began) / times


def noise(rounds: list[float]) -> float:
    """Return half the range of the middle half of the rounds, relative to their median."""
    low, middle, high = quantiles(rounds, n=4)
    return (high - low) / 2 / middle


def ratios(ours: list[float], bare: list[float]) -> list[float]:
    """Return the ratio of each round."""
    return [one / other for one, other in zip(ours, bare, strict=True)]


async def add_messages(report: Report, size: Size) -> None:
    """Add messages within a node and between two."""
    plain: list[float] = []
    within: list[float] = []
    between: list[float] = []
    bare: list[float] = []
    async with Node("near") as near, Node("far") as far:
        load = Load(near)
        ours = await Identities.attach(near, key_of(1))
        theirs = await Identities.attach(far, key_of(2))
        for node in (near, far):
            await node.start(Relay, address=RELAY)
            await node.start(lambda: End(load.ended), address=END)
        here = ours.address_of(ours.engine(END))
        there = ours.address_of(theirs.engine(END))
        listener = await far.listen("memory://identity-benchmark", expose=[ROUTER])
        await ours.join(listener.uri, identity=theirs.own)
        key, data = Ed25519PrivateKey.from_private_bytes(bytes(32)), bytes(300)
        public = key.public_key()
        for _ in range(size.rounds):
            plain.append(await load.run((RELAY, END), size.messages))
            within.append(await load.run((RELAY, here), size.messages))
            between.append(await load.run((there,), size.messages))
            signature = key.sign(data)
            signs = timed(partial(key.sign, data), size.messages)
            bare.append(signs + timed(partial(public.verify, signature, data), size.messages))
        if ours.refused() or theirs.refused():
            raise AssertionError(f"messages were refused: {ours.refused()} {theirs.refused()}")
    report.figure("plain, one node", median(plain) * MICRO, "µs", noise(plain))
    report.figure("by identity, one node", median(within) * MICRO, "µs", noise(within))
    report.target("by identity / plain, one node", median(ratios(within, plain)), "x", at_most=5.0)
    report.figure("by identity, two nodes", median(between) * MICRO, "µs", noise(between))
    report.figure("sign and verify", median(bare) * MICRO, "µs", noise(bare))
    report.target(
        "by identity, two nodes / sign and verify",
        median(ratios(between, bare)),
        "x",
        at_most=1.5,
        noise=noise(ratios(between, bare)),
    )


class Arrivals:
    """The end of many messages: a number of them at a time.

    Attributes:
        over: Resolved when as many have come.
    """

    def __init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self._left = 0

    def expect(self, messages: int) -> None:
        """Expect a number of messages."""
        self.over, self._left = asyncio.get_running_loop().create_future(), messages

    def ended(self) -> None:
        """Count one."""
        self._left -= 1
        if not self._left:
            self.over.set_result(None)


async def add_fan_out(report: Report, size: Size) -> None:
    """Add a publication to many subscribers beside a message to each."""
    spread: list[float] = []
    plain: list[float] = []
    async with Node("near") as node:
        arrivals = Arrivals()
        ours = await Identities.attach(node, key_of(1))
        await node.start(Relay, address=RELAY, mailbox=MailboxOptions(limit=2 * SUBSCRIBERS))
        ends = [node.spawn(lambda: End(arrivals.ended)) for _ in range(SUBSCRIBERS)]
        owner = node.spawn(Relay)
        topic = ours.create_topic(key_of(4), engine=owner)
        for end in ends:
            await ours.subscribe(topic, end)
        to = Address(36, f"topic:{identity_text(topic)}".encode())
        messages = [Message((RELAY, end), (), PAYLOAD, None, None) for end in ends]
        times = size.messages // 100
        for _ in range(size.rounds):
            began = process_time()
            for _ in range(times):
                arrivals.expect(SUBSCRIBERS)
                node.route(Message((to,), (), PAYLOAD, None, None))
                await arrivals.over
            spread.append((process_time() - began) / times / SUBSCRIBERS)
            began = process_time()
            for _ in range(times):
                arrivals.expect(SUBSCRIBERS)
                for message in messages:
                    node.route(message)
                await arrivals.over
            plain.append((process_time() - began) / times / SUBSCRIBERS)
        if ours.refused() or node.dead_letters.total:
            raise AssertionError(f"copies were refused: {ours.refused()}")
    report.figure("fan-out to 1,000, each copy", median(spread) * MICRO, "µs", noise(spread))
    report.target(
        "fan-out to 1,000 / 1,000 plain messages",
        median(ratios(spread, plain)),
        "x",
        at_most=2.0,
        noise=noise(ratios(spread, plain)),
    )


class Rules:
    """Rules that allow everything."""

    def may_open(self, source: Identity, peer: Identity) -> bool:
        return True

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        return True

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        return True

    def is_here(self, destination: Destination) -> bool:
        return True


def add_layers(report: Report, size: Size) -> None:
    """Add layers beside the primitives that they are made of."""
    node = key_of(3)
    keys = [SealingKeys(Random(each).randbytes(32)) for each in range(4)]
    nodes = [key_of(10 + each) for each in range(4)]
    hops = [Hop(each.identity, key.public) for each, key in zip(nodes, keys, strict=True)]
    destination = Destination(DestinationKind.ENGINE, nodes[-1].identity)
    message = EngineMessage(
        node.identity, destination, 1, Protocol("onward", 1), bytes(900), expiry=NOW + 60_000
    )
    envelope = sign_engine_message(message, node)

    def build() -> bytes:
        return build_onion(hops, envelope, expiry=NOW + 60_000, signers=[node] * 4)

    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    signing = Ed25519PrivateKey.from_private_bytes(bytes(32))
    data = bytes(1500)
    sealed, signature = suite.encrypt(data, private.public_key(), b""), signing.sign(data)

    def bare_build() -> None:
        for _ in range(4):
            suite.encrypt(data, private.public_key(), b"")
            signing.sign(data)

    def bare_open() -> None:
        signing.public_key().verify(signature, data)
        suite.decrypt(sealed, private, b"")

    building: list[float] = []
    bare: list[float] = []
    opening: list[float] = []
    bare_opening: list[float] = []
    for _ in range(size.rounds):
        building.append(timed(build, size.layers))
        bare.append(timed(bare_build, size.layers))
        layers = iter([build() for _ in range(size.layers)])
        peeler = Peeler(nodes[0].identity, keys[0], LayerTags(), Rules(), Verifiers())
        opening.append(
            timed(lambda: peeler.peel(next(layers), node.identity, NOW), size.layers)  # noqa: B023 - called at once
        )
        if any(count for outcome, count in peeler.outcomes.items() if outcome.is_drop):
            raise AssertionError(f"layers were dropped: {peeler.outcomes}")
        bare_opening.append(timed(bare_open, size.layers))
    report.figure("build four layers", median(building) * MICRO, "µs", noise(building))
    report.target(
        "build four layers / bare primitives", median(ratios(building, bare)), "x", at_most=1.5
    )
    report.figure("open one layer", median(opening) * MICRO, "µs", noise(opening))
    report.target(
        "open one layer / bare primitives",
        median(ratios(opening, bare_opening)),
        "x",
        at_most=1.5,
    )


def add_directory(report: Report, size: Size) -> None:
    """Add the memory of a record of the directory, and the look-up."""
    keys = [key_of(1000 + each) for each in range(size.adverts)]
    adverts = [
        sign_advert(
            NodeAdvert(
                each.identity, (AdvertAddress("1#198.51.100.7:4000", 1),), bytes(32), 1, NOW
            ),
            each,
        )
        for each in keys
    ]
    names = [each.identity for each in keys]
    del keys
    gc.collect()
    tracemalloc.start()
    directory = Directory(Verifiers())
    began = process_time()
    for advert in adverts:
        directory.put_advert(advert, NOW, AdvertSource.LOCAL)
        directory.take_updates()
    put = (process_time() - began) / len(adverts)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    kept = len(directory)
    began = process_time()
    found = sum(directory.peek(each, NOW) is not None for each in names)
    look_up = (process_time() - began) / len(names)
    if found != kept:
        raise AssertionError(f"{kept} records, and {found} of them found")
    report.figure("records of the directory", kept, "records")
    report.figure("memory of a record, without its envelope", taken / kept, "bytes")
    report.figure("put an advert", put * MICRO, "µs")
    report.figure("look one up", look_up * MICRO, "µs")


def measure(size: Size) -> Report:
    """Measure everything once and report it."""
    report = Report("identity")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(add_messages(report, size))
        runner.run(add_fan_out(report, size))
    add_layers(report, size)
    add_directory(report, size)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    options = parser.parse_args()
    measure(QUICK if options.quick else FULL).print(as_json=options.json)


if __name__ == "__main__":
    main()
