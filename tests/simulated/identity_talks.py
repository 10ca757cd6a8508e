"""A node of a simulation that has proven its key and says what it likes: its links."""

from __future__ import annotations

import random
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from onward.actors import Worker
from onward.actors.identity import ROUTER
from onward.protocol import Address, Message, OnwardError
from onward.protocol.identity import (
    AdvertEnvelope,
    ControlContent,
    EngineAdvert,
    EngineContent,
    Greeting,
    Identity,
    IdentityError,
    LinkChannel,
    LinkDialler,
    LinkState,
    P2PContent,
    P2PMessage,
    SigningKey,
    Verifiers,
    first_id_time,
    parse_greeting,
    parse_p2p_message,
    serialize_greeting,
    serialize_p2p_message,
    sign_advert,
)
from tests.support.identities import NOW

__all__ = ["Talk", "Talker"]


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


class Talker(Worker):
    """A node that talks to others by hand: the worker at the address of its router.

    Args:
        draw: What it says.
        key: Its key.

    Attributes:
        key: Its key.
        engine: The key of the engine that it says that it has.
        talks: What it has with other nodes, by the links.
        adverts: The last adverts that it was told.
    """

    def __init__(self, draw: random.Random, key: SigningKey) -> None:
        super().__init__()
        self.key: Final = key
        self.talks: Final[dict[Address, Talk]] = {}
        self.adverts: Final[deque[AdvertEnvelope]] = deque(maxlen=20)
        self.engine: Final = SigningKey(draw.randbytes(32))
        self._draw: Final = draw
        self._verifiers: Final = Verifiers()

    async def dial(self, host: str) -> None:
        """Dial a node, if there is no talk with it."""
        for link, talk in list(self.talks.items()):
            if not self.node.has(link):
                del self.talks[link]
            elif talk.host == host:
                return
        with suppress(OnwardError):
            link = await self.node.connect(f"sim://{host}", expose=[ROUTER, b"strange"])
            self.hello(host, link)

    def hello(self, host: str, link: Address) -> None:
        """Begin a handshake with a node over a link."""
        seed, now = self._draw.randbytes(32), self.node.loop.time()
        dialler = LinkDialler(self.key, seed, self._verifiers, now)
        self.talks[link] = Talk(host, link, dialler)
        self.send_frame(link, dialler.begin(now))

    def send_frame(self, link: Address, frame: bytes) -> None:
        """Send something over a link."""
        with suppress(OnwardError):
            self.send([link, ROUTER], frame)

    def handle_message(self, message: Message) -> None:
        """Go on with a handshake, or hear what is said."""
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
            self.heard(talk, content.envelope)
        elif isinstance(content, ControlContent):
            with suppress(IdentityError):
                greeting = parse_greeting(content.record)
                if not talk.begins:
                    talk.begins = first_id_time(greeting.started, greeting.now)
                talk.ahead = greeting.now - self.now()
                self.adverts.extend(greeting.adverts)

    def heard(self, talk: Talk, envelope: bytes) -> None:
        """Hear the message of an engine."""

    def _shake(self, talk: Talk, data: bytes) -> None:
        dialler, now = talk.dialler, self.node.loop.time()
        proof = dialler.receive(data, now)
        if dialler.state is LinkState.UP:
            talk.channel = dialler.channel
            assert proof is not None
            self.send_frame(talk.link, proof)
            self.greet(talk, self.now())
        elif dialler.state is LinkState.FAILED:
            del self.talks[talk.link]
            worker = self.node.parts.table.worker_at(talk.link)
            if worker is not None:
                worker.stop()

    def now(self) -> int:
        """Return the time, in Unix milliseconds."""
        return int((NOW + self.node.loop.time()) * 1000)

    def greet(self, talk: Talk, now: int, *adverts: AdvertEnvelope) -> None:
        """Say that it is there since ever, with the engine that has a key, and some adverts."""
        advert = EngineAdvert(self.engine.identity, self.key.identity, None, 1, int(NOW * 1000))
        all_of_them = sign_advert(advert, self.engine), *adverts
        self.say(talk, ControlContent(serialize_greeting(Greeting(0, now, all_of_them))))

    def say(self, talk: Talk, content: P2PContent, src: Identity | None = None) -> None:
        """Say something to a node, as itself or as another one."""
        if talk.channel is None or talk.dialler.peer is None:
            return
        message = P2PMessage(src or self.key.identity, talk.dialler.peer, content)
        with suppress(OnwardError):
            frame = talk.channel.seal(serialize_p2p_message(message))
            talk.frames.append(frame)
            self.send_frame(talk.link, frame)
