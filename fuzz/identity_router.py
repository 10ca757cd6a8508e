"""Send random and mutated records to the router of a node, through its entrances.

- `node`: what another node sends that has proved its key. The contents are those of the table in
  `_identity_contents.py`; most have items changed, and are signed again, by the right key and by
  others. Each is given to the router as it is, with small changes, and again. A few come over a
  link, as frames.
- `relay`: layers for a relay, with changed items within and without, sealed and signed again.
- `engine`: what workers of the node send: addresses of type 36 with any value, what follows them,
  and routes along links that there are.
- `request`: what workers of the node ask its router for, as control records.

The invariant: nothing but the documented errors is raised, and no worker fails. What another node
has sent to an engine is delivered once or counted once, as its signer has signed it, and never
twice. All tables stay within their limits, and the process does not grow.

    python fuzz/identity_router.py --count 1000000 --seed 1 --entrance node
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Final

from _fuzzing import MAX_GROWTH, arguments_of, noise, nudged, resident
from _identity_contents import ALL_TREES, MAKERS, USES, changed, layer, random_route
from _identity_records import (
    KEY_OF,
    KEYS,
    PIECES,
    TARGET_TEXTS,
    TREES,
    reshaped,
    written,
)
from _identity_world import KEYED, LOCAL, OURS, STRANGE, World
from cbor2 import loads

from onward.actors import Unresolved
from onward.actors.identity import ROUTER
from onward.actors.testing import VirtualLoop
from onward.protocol import (
    IDENTITY,
    Address,
    EmptyRoute,
    Message,
    NotExposed,
    OnwardError,
    UnreadableAddress,
)
from onward.protocol.identity import (
    SCOPE_ANY,
    SCOPE_LOCAL,
    BadRecord,
    ControlContent,
    ControlRecord,
    Destination,
    DestinationKind,
    EngineContent,
    Identity,
    P2PContent,
    P2PMessage,
    RoutingScope,
    SigningKey,
    TopicCreateRequest,
    TopicDeleteRequest,
    TopicSubRequest,
    TopicUnsubRequest,
    derived_engine,
    destination_text,
    open_engine_message,
    parse_engine_message,
    parse_p2p_message,
    parse_signed,
    serialize_control,
    serialize_p2p_message,
    sign_engine_message,
)

RECORDER: Final = Address(0, b"recorder")
BATCH: Final = 128
"""Inputs between two turns of the loop, in which the time moves on."""
LIFE: Final = 100_000
"""Inputs until all begins anew, so that what was delivered need not be kept for long."""


# --- what another node sends --------------------------------------------------------------------


class FromNode:
    """The entrance of other nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[P2PContent] = []
        self.content: P2PContent | None = None

    def make(self, random: Random) -> bytes:
        if not self.waiting:
            self.waiting = MAKERS[int(random.random() * len(MAKERS))](self.world, random)
        own = self.world.router.own
        self.content = self.waiting.pop()
        record = serialize_p2p_message(P2PMessage(STRANGE.identity, own, self.content))
        chance = random.random()
        if chance > 0.05:
            return record
        if chance < 0.03:
            record = nudged(random, record, PIECES)
        elif chance < 0.04:
            record = written(random, reshaped(random, loads(record), ALL_TREES), 0.0)
        else:
            record = noise(random)
        self.content = content_of(record)
        return record

    def check(self, random: Random, record: bytes) -> bool:
        """Give a record to the router; return whether it was taken."""
        world, router = self.world, self.world.router
        if random.random() < 0.02:
            # As a frame, and now and then one that nothing was sealed in, which ends the link.
            if random.random() < 0.01:
                world.sink.send(world.sink.way, nudged(random, record, PIECES) or b"x")
            else:
                world.sink.frame(record)
            return False
        before = world.refused()
        router.received(world.session, record)
        refused = world.refused() - before
        delivered = world.delivered
        if isinstance(self.content, EngineContent):
            if delivered:
                self.check_delivered(self.content.envelope, delivered)
            if bool(delivered) + refused != 1:
                raise AssertionError(f"{len(delivered)} delivered, {refused} refused")
        delivered.clear()
        return not refused

    def check_delivered(
        self, envelope: bytes, delivered: list[tuple[tuple[Identity, Identity], Message]]
    ) -> None:
        """Check that a message is delivered as it was signed, to its destination, and once."""
        message = parse_engine_message(parse_signed(envelope).payload)
        key = (message.src, message.dst, message.id)
        ends = {(pair, inner[0][0]) for pair, inner in delivered}
        if len(ends) != len(delivered) or key in self.world.taken:
            raise AssertionError(f"{key} is delivered again")
        self.world.taken.add(key)
        # Each subscriber of a topic has a copy.
        is_copied = message.dst.kind is DestinationKind.TOPIC
        own = self.world.router.own if is_copied else message.dst.identity
        if {pair for pair, _ in ends} != {(own, message.src)} or len(ends) > 1 > is_copied:
            raise AssertionError(f"{message} is delivered to {ends}")
        if sign_engine_message(message, KEY_OF[message.signer]) != envelope:
            raise AssertionError(f"{message} is not what was signed")


def content_of(record: bytes) -> P2PContent | None:
    """Return the content of a record, if it is one of the strange node for this one."""
    try:
        message = parse_p2p_message(record)
    except BadRecord:
        return None
    ours = (message.src, message.dst) == (STRANGE.identity, OURS.identity)
    return message.content if ours else None


# --- layers for a relay -------------------------------------------------------------------------


class ToRelay:
    """The entrance of a relay: what opens layers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[bytes] = []

    def make(self, random: Random) -> bytes:
        if not self.waiting:
            envelope = layer(self.world, random)
            self.waiting = [envelope, envelope]
            self.waiting += [nudged(random, envelope, PIECES) for _ in range(USES)]
            random.shuffle(self.waiting)
        return self.waiting.pop()

    def check(self, random: Random, envelope: bytes) -> bool:
        """Open an envelope; return whether it goes on."""
        world = self.world
        peeled = world.peeler.peel(envelope, random.choice(KEYS).identity, world.now())
        world.peels += 1
        if sum(world.peeler.outcomes.values()) != world.peels:
            raise AssertionError(f"{world.peels} inputs, and {world.peeler.outcomes}")
        if peeled.outcome.is_drop is not (not peeled.envelope):
            raise AssertionError(f"{peeled}")
        if peeled.outcome.is_drop:
            return False
        # A layer goes on once, whatever is around it.
        if peeled.message is not None:
            opened = open_engine_message(peeled.envelope, world.router.verifiers)
            if opened != peeled.message:
                raise AssertionError(f"{peeled} has another message than {opened}")
        if envelope in world.peeled:
            raise AssertionError(f"{envelope.hex()} goes on again")
        world.peeled.add(envelope)
        return True


# --- what workers of the node send --------------------------------------------------------------


class FromEngine:
    """The entrance of the workers of the node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.base = b""
        self.number = 0

    def make(self, random: Random) -> bytes:
        if self.number % USES == 0:
            self.base = self.value(random)
        self.number += 1
        return self.base if random.random() < 0.3 else nudged(random, self.base, PIECES)

    def value(self, random: Random) -> bytes:
        """Return the value of an address, which leads somewhere in many cases."""
        chance = random.random()
        if chance < 0.4:
            router = self.world.router
            names = [b"engine %d" % each for each in range(4)]
            known = (
                *(STRANGE.identity, KEYED.identity, LOCAL.identity, self.world.local, router.own),
                *(derived_engine(STRANGE.identity, name) for name in names),
                derived_engine(OURS.identity, random.randbytes(2)),
            )
            to = Destination(random.choice(tuple(DestinationKind)), random.choice(known))
            return target_of(random, to)
        if chance < 0.7:
            return random.choice(TARGET_TEXTS)
        if chance < 0.8:
            return random.choice((b"by:\x85\x00\x80\xf6\xf6\xf6", b"reply:\x01x", b"self"))
        return noise(random)

    def check(self, random: Random, value: bytes) -> bool:
        """Resolve an address, and send what follows now and then; return whether it leads on."""
        first = Address(IDENTITY, value or b"x")
        rest = random_route(random) if random.random() < 0.3 else ()
        source = random.choice((None, RECORDER, Address(0, b"keyed"), Address(0, b"x")))
        router, chance = self.world.router, random.random()
        if chance < 0.01:
            self.send((first, *rest))
        elif chance < 0.02:
            # Along a link that there is, as an answer goes, or to the worker of a topic.
            links = [link for _, link in router.links._links.values()]
            links += self.world.identities._topics._workers._of.values()
            self.send((random.choice(links), first, *rest))
        try:
            resolved = router.resolve(Message((first, *rest), (), b"x", source))
        except (EmptyRoute, UnreadableAddress, NotExposed, Unresolved) as error:
            check_local_text_of(error)
            return False
        if isinstance(resolved, Message) and resolved.onward_route[: len(rest)] == (first, *rest):
            raise AssertionError(f"{first} is resolved to itself")
        return True

    def send(self, route: tuple[Address, ...]) -> None:
        try:
            self.world.node.send(route, b"sent")
        except OnwardError as error:
            check_local_text_of(error)


class Requests:
    """The entrance of the requests of workers: control records to the worker of the router."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[bytes] = []

    def make(self, random: Random) -> bytes:
        if not self.waiting:
            if random.random() < 0.4:
                topic = random.choice((KEYS[2].identity, LOCAL.identity, *TOPICS))
                scope = SCOPE_LOCAL if random.random() < 0.8 else SCOPE_ANY
                request = random.choice(REQUESTS)(topic, scope)
                tree = loads(serialize_control(request))
            else:
                tree = random.choice(TREES["control record"])
            contents = changed(random, tree, ControlContent)
            self.waiting = [each.record for each in contents if isinstance(each, ControlContent)]
        return self.waiting.pop()

    def check(self, random: Random, record: bytes) -> bool:
        """Give a record to the worker of the router; return whether it was a request."""
        source = random.choice((None, RECORDER, RECORDER, Address(0, b"keyed"), Address(0, b"x")))
        back = random.choice(((), (RECORDER,), (Address(0, b"keyed"),), (ROUTER,)))
        message = Message((ROUTER,), back, record, source)
        if not self.world.identities._worker.requests.take(message):
            self.world.router.peers.receive(message)
            return False
        return True


TOPICS: Final = tuple(SigningKey(bytes((each,)) * 32).identity for each in range(10, 40))
REQUESTS: Final[tuple[Callable[[Identity, RoutingScope], ControlRecord], ...]] = (
    TopicCreateRequest,
    TopicDeleteRequest,
    TopicSubRequest,
    TopicUnsubRequest,
)


def check_local_text_of(error: OnwardError) -> None:
    """Check that the text of an error is printable; a worker may see the address that it sent."""
    text = str(error)
    if not (0 < len(text) <= 8 * 1024 and text.isprintable()):
        raise AssertionError(f"the error's text: {text!r}")


def target_of(random: Random, to: Destination) -> bytes:
    """Return the text of a destination with some wishes."""
    wishes = ("scope=local", "scope=any", "ordered=no", "reliable=no", "hops=2", "hops=99", "x")
    some = random.sample(wishes, int(random.random() ** 2 * 4))
    return (destination_text(to) + ("?" if some else "") + "&".join(some)).encode()


ENTRANCES: Final[dict[str, type[FromNode] | type[ToRelay] | type[FromEngine] | type[Requests]]] = {
    "node": FromNode,
    "relay": ToRelay,
    "engine": FromEngine,
    "request": Requests,
}


async def fuzz(name: str, count: int, seed: int) -> bool:
    """Give a number of inputs to an entrance; return whether the invariant held for all."""
    random = Random(f"{name} {seed}")
    begun, before, number, taken = time.perf_counter(), 0, 0, 0
    reasons: set[str] = set()
    while number < count:
        async with World.made() as world:
            entrance = ENTRANCES[name](world)
            for _ in range(0, min(LIFE, count - number), BATCH):
                for _ in range(min(BATCH, count - number)):
                    data = entrance.make(random)
                    try:
                        taken += entrance.check(random, data)
                    except Exception as error:  # noqa: BLE001 - any is a finding
                        print(f"{name}: FAILED at input {number}, seed {seed}: {error!r}")
                        print(f"input {data.hex()}")
                        return False
                    number += 1
                try:
                    await world.turn(random)
                except AssertionError as error:
                    print(f"{name}: FAILED before input {number}, seed {seed}: {error}")
                    return False
                world.delivered.clear()
            reasons |= world.router.counts.keys()
        if not before and number >= count // 10:
            before = resident()
    grown = resident() - before
    print(
        f"{name}: {count} inputs, seed {seed}: {taken} taken, {count - taken} refused for "
        f"{len(reasons)} reasons, {grown / 1024:.0f} KiB grown, {time.perf_counter() - begun:.1f} s"
    )
    if grown > MAX_GROWTH:
        print(f"{name}: FAILED: over {MAX_GROWTH} bytes grown")
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of(__doc__, count=20_000)
    parser.add_argument("--entrance", choices=sorted(ENTRANCES), help="only this one")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # of links that are closed
    names = [options.entrance] if options.entrance else list(ENTRANCES)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(1e12)) as runner:
        held = [runner.run(fuzz(name, options.count, options.seed)) for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
