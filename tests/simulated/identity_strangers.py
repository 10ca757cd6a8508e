"""A hostile node with a key of its own, which it has proven."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from onward.actors.identity._carriage import ASKS
from onward.protocol import Address, Message
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
    Identity,
    Protocol,
    RelayContent,
    ReplyContent,
    RoutingPrefs,
    SigningKey,
    derived_engine,
    parse_engine_message,
    serialize_engine_advert,
    serialize_engine_message,
    sign_engine_message,
)
from onward.protocol.identity._signed import SignedKind, parse_signed, sign
from onward.protocol.ockam import decode_message, encode_message
from tests.simulated.identity_ledger import Ledger
from tests.simulated.identity_liars import altered
from tests.simulated.identity_talks import Talk, Talker
from tests.support.identities import NOW

__all__ = ["Stranger"]

_KEPT: Final = 100
_PROTOCOL: Final = Protocol("onward", 1)
_WINDOWS: Final = 64
"""Windows of a node with few: so many further engines have its table overflow."""


class Voice(NamedTuple):
    """Who says something: an engine, the key that signs for it, and what it is derived of."""

    identity: Identity
    key: SigningKey
    origin: EngineOrigin | None = None


class Stranger(Talker):
    """A hostile node with a key that it has proven.

    What it says in its own name is in the ledger, and is delivered once at most, as what all say.

    Args:
        draw: What it does.
        key: Its key.
        ledger: The messages.
        targets: Returns the identities that it may send to: those of nodes, and of their engines.
        captured: What relays have passed on, and to which node, as one of them has told.
        others: The source, the destination and the id of messages of others, as it may guess them.
    """

    def __init__(
        self,
        draw: random.Random,
        key: SigningKey,
        ledger: Ledger,
        targets: Callable[[str], tuple[Identity, list[Identity]] | None],
        captured: Sequence[tuple[Identity, RelayContent | ReplyContent]],
        others: Sequence[tuple[Identity, Identity, int]],
    ) -> None:
        super().__init__(draw, key)
        self._ledger: Final = ledger
        self._targets: Final = targets
        self._captured: Final = captured
        self._others: Final = others
        self._envelopes: Final[deque[bytes]] = deque(maxlen=_KEPT)
        self._questions: Final[deque[EngineMessage]] = deque(maxlen=_KEPT)
        self._count = 0
        self._voices = 100
        own = {derived_engine(key.identity, b"%d" % each) for each in range(self._voices)}
        ledger.strange.update(own, {key.identity, self.engine.identity})

    def heard(self, talk: Talk, envelope: bytes) -> None:
        """Keep the message of an engine."""
        self._envelopes.append(envelope)
        message = parse_engine_message(parse_signed(envelope).payload)
        if decode_message(message.body).return_route[:1] == (ASKS,):
            self._questions.append(message)
            if self._draw.random() < 0.7:
                self._answer(talk, message)

    def act(self) -> None:  # noqa: C901 - one of fourteen
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
                self.say(talk, EngineContent(draw.choice(self._envelopes)))
            case "replay all":
                self._replay_all(talk)
            case "alter" if self._envelopes:
                self.say(talk, EngineContent(altered(draw, draw.choice(self._envelopes))))
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
                self.send_frame(talk.link, draw.choice(talk.frames))
            case "again":
                self.hello(talk.host, talk.link)
            case "answer" if self._questions:
                self._answer(talk, draw.choice(self._questions))
            case "layer" if self._captured:
                self._relay(talk)
            case "overflow":
                self._overflow(talk)
            case _:
                pass

    def _replay_all(self, talk: Talk) -> None:
        for each in list(self._envelopes):
            self.say(talk, EngineContent(each))

    async def come_back(self, host: str) -> None:
        """Dial a node that was started again, and repeat what it was sent before."""
        await self.dial(host)
        await asyncio.sleep(1)
        for talk in list(self.talks.values()):
            if talk.host == host:
                self._replay_all(talk)

    # --- what it says ---------------------------------------------------------------------------

    def _voice(self, engine: int) -> Voice:
        """Return an engine of this node without a key, by its number."""
        name = b"%d" % engine
        origin = EngineOrigin(self.key.identity, name)
        return Voice(derived_engine(self.key.identity, name), self.key, origin)

    def _new_voice(self) -> Voice:
        self._voices += 1
        voice = self._voice(self._voices)
        self._ledger.strange.add(voice.identity)
        return voice

    def _made(
        self, talk: Talk, engine: int | None = None
    ) -> tuple[EngineMessage, SigningKey] | None:
        """Return a message in its own name that may be delivered, and the key that signs it."""
        draw, to = self._draw, self._targets(talk.host)
        if to is None:
            return None
        node, engines = to
        own = Voice(self.key.identity, self.key), Voice(self.engine.identity, self.engine)
        voice = draw.choice(own) if engine is None else self._voice(engine)
        target = draw.choice((node, *engines))
        kind = DestinationKind.NODE if target == node else DestinationKind.ENGINE
        now = self.now() + talk.ahead
        begins = talk.begins if draw.random() < 0.8 else now + draw.choice((0, 29_000, 29_900))
        life = draw.choice((100, 5_000, 50_000, 600_000))
        return self._written(talk, voice, Destination(kind, target), begins, life), voice.key

    def _written(
        self, talk: Talk, voice: Voice, to: Destination, begins: int, life: int
    ) -> EngineMessage:
        """Return a message that is in the ledger.

        Args:
            talk: With which node.
            voice: What says it.
            to: What it is for.
            begins: The time of its id, in Unix milliseconds.
            life: The time until it expires, in milliseconds.
        """
        sent = self._ledger.make(voice.identity, to.identity)
        onward = Address(0, b"open") if to.kind is DestinationKind.NODE else Address(36, b"self")
        inner = Message((onward,), (Address(0, b"strange"),), sent.payload)
        self._count += 1
        return EngineMessage(
            *(voice.identity, to, (begins << 20) + self._count, _PROTOCOL, encode_message(inner)),
            expiry=self.now() + talk.ahead + life,
            origin=voice.origin,
        )

    def _message(self, talk: Talk, engine: int | None = None) -> None:
        made = self._made(talk, engine)
        if made is not None:
            self._tell(talk, sign_engine_message(*made))

    def _tell(self, talk: Talk, envelope: bytes) -> None:
        self._envelopes.append(envelope)
        self.say(talk, EngineContent(envelope))

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
            self.say(talk, EngineContent(envelope), src=other)

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
        now = self.now() + talk.ahead
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

    def _answer(self, talk: Talk, asked: EngineMessage) -> None:
        """Answer a request, by its id or by that of another message."""
        draw, to = self._draw, self._targets(talk.host)
        sent = self._ledger.find(decode_message(asked.body).payload)
        if to is None or sent is None:
            return
        numbers = [asked.id, asked.id, asked.id + draw.randint(1, 1000)]
        numbers += [number for source, _, number in self._others if source == asked.src][-1:]
        kind = DestinationKind.NODE if asked.src == to[0] else DestinationKind.ENGINE
        voice = Voice(self.key.identity, self.key)
        answer = self._written(talk, voice, Destination(kind, asked.src), talk.begins, 5_000)
        route = decode_message(asked.body).return_route[1:]
        inner = Message(route, (Address(0, b"strange"),), sent.answer)
        answer = replace(answer, body=encode_message(inner), reply_to=draw.choice(numbers))
        self._tell(talk, sign_engine_message(answer, self.key))

    def _relay(self, talk: Talk) -> None:
        """Send again what a relay has passed on, to the node that it was for or to another one."""
        draw, peer = self._draw, talk.dialler.peer
        here = [content for node, content in self._captured if node == peer]
        content = draw.choice(here or [content for _, content in self._captured])
        if isinstance(content, RelayContent):
            handle = draw.choice((content.handle, draw.randbytes(16)))
            content = RelayContent(content.envelope, handle)
        self.say(talk, content)

    def _overflow(self, talk: Talk) -> None:
        """Have the windows of a node overflow, and repeat what was in those that expire first.

        A pair has a few windows, which are let go together. So there is room for more then, and
        what was in them would be taken again if it were not known to be of before.
        """
        to = self._targets(talk.host)
        if to is None:
            return
        node, first = Destination(DestinationKind.NODE, to[0]), self._new_voice()
        old = [self._signed(talk, first, node, talk.begins + each, -20_000) for each in range(3)]
        for each in old:
            self._tell(talk, each)
        for _ in range(_WINDOWS):
            envelope = self._signed(talk, self._new_voice(), node, talk.begins, 40_000)
            for each in envelope, self._draw.choice(old):
                self.say(talk, EngineContent(each))

    def _signed(self, talk: Talk, voice: Voice, to: Destination, begins: int, life: int) -> bytes:
        return sign_engine_message(self._written(talk, voice, to, begins, life), voice.key)

    def _greeting(self, talk: Talk) -> None:
        """Say that engines of others are here, or a time that is none."""
        draw, other = self._draw, self._other()
        adverts = list(self.adverts)[-3:]
        if other is not None:
            stolen = EngineAdvert(other, self.key.identity, None, 2**40, int(NOW * 1000))
            envelope = sign(SignedKind.ENGINE_ADVERT, serialize_engine_advert(stolen), self.key)
            adverts.append(AdvertEnvelope(AdvertKind.ENGINE, envelope))
        times = (self.now(), self.now(), 0, 2**42 - 1)
        self.greet(talk, draw.choice(times), *adverts)

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
        self.say(talk, draw.choice(contents))


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
    "answer": 4,
    "layer": 6,
    "overflow": 8,
}
"""How often a stranger does each thing, relative to the others."""
