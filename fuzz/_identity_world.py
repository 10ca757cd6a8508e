"""A node with a router of identities, and a strange node that has joined it, for fuzzers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Final, NamedTuple

from _identity_records import (
    KEYS,
    NOW,
    SEALING,
)

from onward.actors import Node, Worker
from onward.actors.identity import ROUTER, IdentityKeys, IdentityOptions, Router
from onward.actors.identity._correspondences import Correspondence
from onward.actors.identity.links._greetings import START_SECONDS
from onward.actors.identity.links._session import Session
from onward.protocol import (
    Address,
    Message,
)
from onward.protocol.identity import (
    MAX_HANDLES_OF_PEER,
    SCOPE_ANY,
    ControlContent,
    Destination,
    DomainRequestLimits,
    EngineAdvert,
    EngineMessage,
    Greeting,
    Identity,
    LayerTags,
    LinkDialler,
    P2PContent,
    P2PMessage,
    Peeler,
    RelayLoadLimits,
    RelayPolicy,
    SigningKey,
    Verifiers,
    identity_text,
    serialize_greeting,
    serialize_p2p_message,
    sign_advert,
)
from onward.transports.identity import Identities

OURS: Final = SigningKey(b"router".rjust(32, b"-"))
STRANGE: Final = KEYS[0]
KEYED: Final = KEYS[1]
"""The key of an engine at the strange node."""
DOMAIN: Final = SigningKey(b"domain".rjust(32, b"-"))
"""The key of a domain that the node serves, as a member and as its founder."""
LOCAL: Final = SigningKey(b"local".rjust(32, b"-"))
"""The key of an engine of the node."""
KEYS_OF_ROUTER: Final = IdentityKeys(OURS, bytes(32), None, None, "", NOW)
"""The keys of the node, of which `SEALING` has the one to seal to."""
LOAD: Final = RelayLoadLimits(rate=4000, burst=4000, held_messages=64, peer_messages=32)
ASKED: Final = SigningKey(b"asked".rjust(32, b"-"))
"""The key of a domain with the strange node alone as a member."""
PUBLISHERS: Final = (STRANGE.identity, LOCAL.identity)
"""What may publish to the topic that may go everywhere."""
OPTIONS: Final = IdentityOptions(
    max_correspondents=40, max_peers=8, max_parked=8, max_topics=16, max_subscribers=8
)
LIMITS: Final = DomainRequestLimits()
MADE_ROOM: Final = (
    "links of identities that made room for others",
    "links of identities that made room for others of their node",
    "engines that made room for others of their node",
)
"""Counts of what was let go, beside those of what was refused."""


class Sink(Worker):
    """The strange node: a worker that has proved its key, and hears nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.dialler: LinkDialler | None = None
        self.way: tuple[Address, ...] = ()
        self.heard = 0

    def dial(self, seed: bytes) -> None:
        """Begin a handshake."""
        self.dialler = LinkDialler(STRANGE, seed, Verifiers(), 0.0)
        self.send(self.way, self.dialler.begin(0.0))

    def handle_message(self, message: Message) -> None:
        """Go on with the handshake."""
        self.heard += 1
        if self.dialler is not None and self.dialler.channel is None:
            proof = self.dialler.receive(message.payload, 0.0)
            if proof is not None:
                self.send(self.way, proof)

    def say(self, content: P2PContent, to: Identity) -> None:
        """Send a content as a frame."""
        self.frame(serialize_p2p_message(P2PMessage(STRANGE.identity, to, content)))

    def frame(self, record: bytes) -> None:
        """Send a record as a frame."""
        if self.dialler is not None and self.dialler.channel is not None:
            self.send(self.way, self.dialler.channel.seal(record))


class Silent(Worker):
    """An engine that hears nothing."""

    def handle_message(self, message: Message) -> None:
        """Ignore a message."""


class Watched(NamedTuple):
    """The link of two identities, which keeps what is delivered to it."""

    link: Correspondence
    pair: tuple[Identity, Identity]
    world: World

    def receive(self, message: Message) -> None:
        """Keep what is delivered, and pass it on."""
        self.world.delivered.append((self.pair, message))
        self.link.receive(message)

    def receive_answer(self, message: Message) -> None:
        """Keep the answer of a domain that is delivered, and pass it on."""
        self.world.delivered.append((self.pair, message))
        self.link.receive_answer(message)

    def receive_copy(self, message: Message) -> bool:
        """Keep a copy that is delivered, and pass it on."""
        self.world.delivered.append((self.pair, message))
        return self.link.receive_copy(message)

    def is_waiting(self) -> bool:
        """Whether a request over the link waits for its answer."""
        return self.link.is_waiting()

    def way_lost(self, detail: str) -> None:
        """End the requests over the link."""
        self.link.way_lost(detail)


class World:
    """A node with a router, and a strange node that has joined it."""

    def __init__(self, node: Node, identities: Identities, strange: Node, sink: Sink) -> None:
        self.node = node
        self.strange = strange
        self.sink = sink
        self.identities = identities
        self.router: Router = identities._router
        self.delivered: list[tuple[tuple[Identity, Identity], Message]] = []
        self.taken: set[tuple[Identity, Destination, int]] = set()
        self.session: Session
        self.ids = 0
        self.peeled: set[bytes] = set()
        self.local: Identity
        tags = LayerTags(limit=2048, share=1024)
        self.peeler = Peeler(self.router.own, SEALING, tags, Rules(self.router), Verifiers())
        self.peels = 0

    @classmethod
    @asynccontextmanager
    async def made(cls) -> AsyncGenerator[World]:
        """Make a world."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with Node("node") as node, Node("strange") as strange:
            identities = await Identities.attach(
                node,
                KEYS_OF_ROUTER,
                OPTIONS,
                clock=lambda: NOW / 1000 + loop.time() - begun,
                relay=RelayPolicy(from_any=True, exits=True),
                relay_limits=LOAD,
            )
            if identities.sealing_key != SEALING.public:
                raise AssertionError("the layers are for another key")
            worker = Sink()
            await strange.start(lambda: worker, address=ROUTER)
            world = cls(node, identities, strange, worker)
            inner = world.router.links.open

            def opened(own: Identity, other: Identity) -> tuple[Correspondence, Address]:
                link, address = inner(own, other)
                return Watched(link, (own, other), world), address

            world.router.links.open = opened
            for name in ("recorder", "keyed"):
                await node.start(Silent, address=name)
            world.local = identities.engine("recorder")
            identities.engine("keyed", LOCAL)
            # One topic that may go everywhere, and one that stays here.
            identities.create_topic(
                KEYS[2], engine="recorder", scope=SCOPE_ANY, publishers=PUBLISHERS
            )
            identities.create_topic(LOCAL, engine="recorder")
            for topic in (KEYS[2], LOCAL):
                for name in ("recorder", "keyed"):
                    await identities.subscribe(topic.identity, name)
            # A domain of the two nodes, which a worker here serves, and one that is asked.
            draws = Random(0)
            world.identities._domains.random = lambda: draws.getrandbits(62)
            both = OURS.identity, STRANGE.identity
            identities.found_domain(DOMAIN, both, admit=lambda _: True)
            identities.serve(DOMAIN.identity, "recorder", expose=["keyed"])
            identities.found_domain(
                ASKED, [STRANGE.identity], admit=lambda request: request.created % 2 == 0
            )
            listener = await node.listen("memory://router", expose=[ROUTER])
            link = await strange.connect(listener.uri, expose=[ROUTER])
            worker.way = (link, ROUTER)
            await world.join(bytes(32))
            yield world

    async def join(self, seed: bytes) -> None:
        """Join the two nodes, again if their link was closed."""
        # A node that has said too often that it was started is not believed for a while.
        for tries in range(3):
            await asyncio.sleep(tries * START_SECONDS)
            self.sink.dial(bytes(each ^ tries for each in seed))
            await asyncio.sleep(0.01)
            advert = EngineAdvert(KEYED.identity, STRANGE.identity, None, 1, self.now())
            greeting = Greeting(0, NOW, (sign_advert(advert, KEYED),))
            self.sink.say(ControlContent(serialize_greeting(greeting)), self.router.own)
            await asyncio.sleep(0.01)
            self.session = self.router.peers.sessions[STRANGE.identity]
            if self.session.is_greeted:
                break
        else:
            raise AssertionError("the strange node is not joined")

    def now(self) -> int:
        """Return the time, in Unix milliseconds."""
        return self.router.milliseconds()

    def ask(self) -> None:
        """Send messages to the domain of the strange node, with a way back and without."""
        route = f"36#domain:{identity_text(ASKED.identity)}"
        for sender in ("recorder", "keyed"):
            worker = self.node.parts.table.worker_at(Address(0, sender.encode()))
            if isinstance(worker, Worker):
                worker.send(route, b"?")
        self.node.send(route, b"!")

    async def turn(self, random: Random) -> None:
        """Wait until what was sent has arrived, and time has passed; then check the limits."""
        self.ask()
        await asyncio.sleep(0.02 if random.random() < 0.95 else 5.0)
        router, held = self.router, self.identities.relay_statistics()
        domains = self.identities._domains
        sizes = (
            ("links", len(router.links._links), OPTIONS.max_correspondents),
            ("ways", len(router.peers._ways), OPTIONS.max_peers),
            ("sessions", len(router.peers.sessions), OPTIONS.max_peers),
            ("windows", len(router.incoming._windows), 2 * OPTIONS.max_correspondents),
            ("clocks", len(router.greetings._clocks), OPTIONS.max_peers + 1),
            ("destinations that are waited for", len(router.awaited._parked), 1024),
            ("verifiers", len(router.verifiers), 16_384),
            ("topics", len(self.identities.topics()), OPTIONS.max_topics + 1),
            ("messages that are held", held.held, LOAD.held_messages),
            ("ways of answers", held.handles, MAX_HANDLES_OF_PEER),
            ("requests to domains", len(domains.requests), LIMITS.pending),
            ("answers to domains", domains.served.waiting, LIMITS.pending_of_peer),
            ("domains that are asked", len(domains._asked._of), len(domains.requests)),
            ("requests to join", len(domains.memberships._deciding), 1),
            ("reasons", len(router.counts), 100),
            ("addresses", sum(map(len, router.links._values.values())), 64 * 128),
        )
        for name, size, limit in sizes:
            if size > limit:
                raise AssertionError(f"{size} {name}, over {limit}")
        for each in (self.node, self.strange):
            if each.statistics(workers=False).failed:
                raise AssertionError(f"a worker of {each.name} has failed")
        if self.router.peers.sessions.get(STRANGE.identity) is not self.session:
            await self.join(random.randbytes(32))

    def refused(self) -> int:
        """Return how much was refused; what made room for others was not."""
        counts = self.router.counts
        return sum(counts.values()) - sum(counts[reason] for reason in MADE_ROOM)


class Rules:
    """Rules of a relay that depend on the size alone."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def may_open(self, source: Identity, peer: Identity) -> bool:
        return source != KEYS[2].identity

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        return size % 3 > 0

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        return is_asked and len(message.body) % 3 > 0

    def is_here(self, destination: Destination) -> bool:
        return self._router.engines.of(destination.identity) is not None
