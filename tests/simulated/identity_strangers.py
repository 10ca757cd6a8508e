"""A hostile node with a key of its own, which it has proven."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from onward.actors import Worker
from onward.actors.identity import ROUTER
from onward.protocol import Address, Message, OnwardError
from onward.protocol.identity import (
    SCOPE_LOCAL,
    AdvertEnvelope,
    AdvertKind,
    ControlContent,
    Destination,
    DestinationKind,
    EngineAdvert,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Greeting,
    Identity,
    IdentityError,
    LinkChannel,
    LinkDialler,
    LinkState,
    P2PContent,
    P2PMessage,
    Protocol,
    RelayContent,
    ReplyContent,
    RoutingPrefs,
    SigningKey,
    Verifiers,
    derived_engine,
    first_id_time,
    parse_greeting,
    parse_p2p_message,
    serialize_engine_advert,
    serialize_engine_message,
    serialize_greeting,
    serialize_p2p_message,
    sign_advert,
    sign_engine_message,
)
from onward.protocol.identity._signed import SignedKind, sign
from onward.protocol.ockam import encode_message
from tests.simulated.identity_ledger import Ledger
from tests.simulated.identity_liars import altered
from tests.support.identities import NOW

__all__ = ["Stranger"]

_KEPT: Final = 100


@dataclass(slots=True, eq=False)
class Talk:
    """What a stranger has with a node over one link."""

    host: str
    link: Address
    dialler: LinkDialler
    channel: LinkChannel | None = None
    begins: int = 0
    ahead: int = 0
    frames: list[bytes] = field(default_factory=list[bytes])


class Stranger(Worker):
    """A hostile node with a key that it has proven: the worker at the address of its router.

    What it says in its own name is in the ledger, and is delivered once at most, as what all say.

    Args:
        draw: What it does.
        key: Its key.
        ledger: The messages.
        targets: Returns the identities that it may send to: those of nodes, and of their engines.
    """

    def __init__(
        self,
        draw: random.Random,
        key: SigningKey,
        ledger: Ledger,
        targets: Callable[[str], tuple[Identity, list[Identity]] | None],
    ) -> None:
        super().__init__()
        self.key: Final = key
        self.talks: Final[dict[Address, Talk]] = {}
        self._draw: Final = draw
        self._ledger: Final = ledger
        self._targets: Final = targets
        self._envelopes: Final[deque[bytes]] = deque(maxlen=_KEPT)
        self._adverts: Final[deque[AdvertEnvelope]] = deque(maxlen=20)
        self._verifiers: Final = Verifiers()
        self._count = 0
        self._engine: Final = SigningKey(draw.randbytes(32))
        own = {derived_engine(key.identity, b"%d" % each) for each in range(100)}
        ledger.strange.update(own, {key.identity, self._engine.identity})

    # --- to talk ------------------------------------------------------------------------------

    async def dial(self, host: str) -> None:
        """Dial a node, if there is no talk with it."""
        for link, talk in list(self.talks.items()):
            if not self.node.has(link):
                del self.talks[link]
            elif talk.host == host:
                return
        with suppress(OnwardError):
            link = await self.node.connect(f"sim://{host}", expose=[ROUTER, b"strange"])
            self._hello(host, link)

    def _hello(self, host: str, link: Address) -> None:
        seed, now = self._draw.randbytes(32), self.node.loop.time()
        dialler = LinkDialler(self.key, seed, self._verifiers, now)
        self.talks[link] = Talk(host, link, dialler)
        self._send(link, dialler.begin(now))

    def _send(self, link: Address, frame: bytes) -> None:
        with suppress(OnwardError):
            self.send([link, ROUTER], frame)

    def handle_message(self, message: Message) -> None:
        """Go on with a handshake, or keep what is said."""
        talk = self.talks.get(message.return_route[0])
        if talk is None:
            return
        if talk.channel is None:
            self._shake(talk, message.payload)
            return
        record = talk.channel.open(message.payload)
        if not isinstance(record, bytes):
            return
        content = parse_p2p_message(record).content
        if isinstance(content, EngineContent):
            self._envelopes.append(content.envelope)
        elif isinstance(content, ControlContent):
            with suppress(IdentityError):
                greeting = parse_greeting(content.record)
                if not talk.begins:
                    talk.begins = first_id_time(greeting.started, greeting.now)
                talk.ahead = greeting.now - self._now()
                self._adverts.extend(greeting.adverts)

    def _shake(self, talk: Talk, data: bytes) -> None:
        dialler, now = talk.dialler, self.node.loop.time()
        proof = dialler.receive(data, now)
        if dialler.state is LinkState.UP:
            talk.channel = dialler.channel
            assert proof is not None
            self._send(talk.link, proof)
            self._greet(talk, self._now())
        elif dialler.state is LinkState.FAILED:
            del self.talks[talk.link]
            worker = self.node.parts.table.worker_at(talk.link)
            if worker is not None:
                worker.stop()

    def _now(self) -> int:
        return int((NOW + self.node.loop.time()) * 1000)

    def _greet(self, talk: Talk, now: int, *adverts: AdvertEnvelope) -> None:
        advert = EngineAdvert(self._engine.identity, self.key.identity, None, 1, int(NOW * 1000))
        all_of_them = sign_advert(advert, self._engine), *adverts
        self._say(talk, ControlContent(serialize_greeting(Greeting(0, now, all_of_them))))

    def _say(self, talk: Talk, content: P2PContent, src: Identity | None = None) -> None:
        if talk.channel is None or talk.dialler.peer is None:
            return
        message = P2PMessage(src or self.key.identity, talk.dialler.peer, content)
        with suppress(OnwardError):
            frame = talk.channel.seal(serialize_p2p_message(message))
            talk.frames.append(frame)
            self._send(talk.link, frame)

    # --- what it does -------------------------------------------------------------------------

    def act(self) -> None:  # noqa: C901 - one of eleven
        """Do one thing."""
        draw = self._draw
        talks = [each for each in self.talks.values() if each.channel is not None]
        if not talks:
            return
        talk = draw.choice(talks)
        kind = draw.choices([*DEEDS], [*DEEDS.values()])[0]
        self._ledger.counts[f"deeds of strangers: {kind}"] += 1
        match kind:
            case "message":
                self._message(talk)
            case "replay" if self._envelopes:
                self._say(talk, EngineContent(draw.choice(self._envelopes)))
            case "replay all":
                self._replay_all(talk)
            case "alter" if self._envelopes:
                self._say(talk, EngineContent(altered(draw, draw.choice(self._envelopes))))
            case "claim":
                self._claim(talk)
            case "bad":
                self._bad(talk)
            case "greet":
                self._greeting(talk)
            case "flood":
                for number in range(70):
                    self._message(talk, number)
                for seconds in (1, 3, 6):
                    self.after(seconds, lambda: self._replay_all(talk))
            case "junk":
                self._junk(talk)
            case "old frame" if talk.frames:
                self._send(talk.link, draw.choice(talk.frames))
            case "again":
                self._hello(talk.host, talk.link)
            case _:
                pass

    def _replay_all(self, talk: Talk) -> None:
        for each in list(self._envelopes):
            self._say(talk, EngineContent(each))

    async def come_back(self, host: str) -> None:
        """Dial a node that was started again, and repeat what it was sent before."""
        await self.dial(host)
        await asyncio.sleep(1)
        for talk in list(self.talks.values()):
            if talk.host == host:
                self._replay_all(talk)

    def _made(
        self, talk: Talk, engine: int | None = None
    ) -> tuple[EngineMessage, SigningKey] | None:
        """Return a message in its own name that may be delivered, and the key that signs it."""
        draw, to = self._draw, self._targets(talk.host)
        if to is None:
            return None
        node, engines = to
        key, origin, src = draw.choice((self.key, self._engine)), None, self.key.identity
        if engine is not None:
            name = b"%d" % engine
            key, origin = self.key, EngineOrigin(self.key.identity, name)
            src = derived_engine(self.key.identity, name)
        elif key is self._engine:
            src = self._engine.identity
        target = draw.choice((node, *engines))
        kind = DestinationKind.NODE if target == node else DestinationKind.ENGINE
        sent = self._ledger.make(src, target)
        onward = Address(0, b"open") if target == node else Address(36, b"self")
        inner = Message((onward,), (Address(0, b"strange"),), sent.payload)
        now = self._now() + talk.ahead
        self._count += 1
        begins = talk.begins if draw.random() < 0.8 else now + draw.choice((0, 29_000, 29_900))
        number = (begins << 20) + self._count
        life = draw.choice((100, 5_000, 50_000, 600_000))
        made = EngineMessage(
            *(src, Destination(kind, target), number),
            *(Protocol("onward", 1), encode_message(inner)),
            expiry=now + life,
            origin=origin,
        )
        return made, key

    def _message(self, talk: Talk, engine: int | None = None) -> None:
        made = self._made(talk, engine)
        if made is not None:
            self._tell(talk, sign_engine_message(*made))

    def _tell(self, talk: Talk, envelope: bytes) -> None:
        self._envelopes.append(envelope)
        self._say(talk, EngineContent(envelope))

    def _claim(self, talk: Talk) -> None:
        """Say something in the name of another identity."""
        made, other = self._made(talk), self._other()
        if made is None or other is None:
            return
        message = replace(made[0], src=other, origin=None)
        sent = self._ledger.sent[-1]
        sent.forbidden = "is not of the identity that it says"
        if self._draw.random() < 0.5:
            envelope = sign(SignedKind.ENGINE, serialize_engine_message(message), self.key)
            self._tell(talk, envelope)
        else:  # in an envelope of its own, in a message between two others
            envelope = sign_engine_message(*made)
            self._say(talk, EngineContent(envelope), src=other)

    def _other(self) -> Identity | None:
        """Return the identity of another node or engine."""
        hosts = [each for talk in self.talks.values() if (each := self._targets(talk.host))]
        if not hosts:
            return None
        node, engines = self._draw.choice(hosts)
        keyed = [each for each in engines if len(each) == len(node) and each[0] == node[0]]
        return self._draw.choice((node, *keyed))

    def _bad(self, talk: Talk) -> None:
        """Say something in its own name that may not be delivered."""
        made, draw = self._made(talk), self._draw
        if made is None:
            return
        message, key = made
        sent = self._ledger.sent[-1]
        now = self._now() + talk.ahead
        sent.forbidden = draw.choice(("expired", "far", "no expiry", "local", "elsewhere", "kind"))
        if sent.forbidden == "elsewhere":
            message = replace(message, dst=Destination(message.dst.kind, self.key.identity))
        elif sent.forbidden == "local":
            prefs = RoutingPrefs(SCOPE_LOCAL)
            message = replace(message, rprefs=prefs)
        elif sent.forbidden != "kind":
            expiry = {"expired": now - 40_000, "far": now + 700_000}.get(sent.forbidden)
            message = replace(message, expiry=expiry)
        kind = SignedKind.ENGINE_ADVERT if sent.forbidden == "kind" else SignedKind.ENGINE
        self._tell(talk, sign(kind, serialize_engine_message(message), key))

    def _greeting(self, talk: Talk) -> None:
        """Say that engines of others are here, or a time that is none."""
        draw, other = self._draw, self._other()
        adverts = list(self._adverts)[-3:]
        if other is not None:
            stolen = EngineAdvert(other, self.key.identity, None, 2**40, int(NOW * 1000))
            envelope = sign(SignedKind.ENGINE_ADVERT, serialize_engine_advert(stolen), self.key)
            adverts.append(AdvertEnvelope(AdvertKind.ENGINE, envelope))
        times = (self._now(), self._now(), 0, 2**42 - 1)
        self._greet(talk, draw.choice(times), *adverts)

    def _junk(self, talk: Talk) -> None:
        draw = self._draw
        junk = draw.randbytes(draw.choice((1, 60, 300)))
        handle = draw.randbytes(16)
        contents = (
            EngineContent(junk),
            ControlContent(junk),
            ControlContent(bytes((0x82, 0x18, draw.randrange(24, 256))) + junk),
            ControlContent(bytes((0x80 + draw.randrange(24), draw.randrange(24))) + junk),
            RelayContent(junk, draw.choice((None, handle))),
            ReplyContent(handle, junk),
        )
        self._say(talk, draw.choice(contents))


DEEDS: Final = {
    "message": 20,
    "replay": 12,
    "replay all": 2,
    "alter": 6,
    "claim": 8,
    "bad": 10,
    "greet": 4,
    "flood": 2,
    "junk": 5,
    "old frame": 1,
    "again": 1,
}
"""How often a stranger does each thing, relative to the others."""
