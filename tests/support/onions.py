"""Nodes in memory that seal, open and answer, with fixed keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from onward.protocol.identity import (
    NO_REPLY,
    Destination,
    DestinationKind,
    EngineMessage,
    HandleRefusal,
    HandleTable,
    Hop,
    Identity,
    LayerTags,
    PassedBack,
    Peeled,
    Peeler,
    PeelOutcome,
    Protocol,
    RelayContent,
    ReturnHandle,
    SealingKeys,
    SigningKey,
    Verifiers,
    sign_engine_message,
)

NOW = 1_800_000_000_000
"""Unix milliseconds."""
EXPIRY = NOW + 60_000

SENDER = SigningKey(bytes(range(32)))
"""The node that sends, and its engine."""


def secret(name: str, size: int = 32) -> bytes:
    """Return bytes that are the same for the same name."""
    return hashlib.shake_256(name.encode()).digest(size)


@dataclass
class Rules:
    """Rules that allow what is not in a set of refused identities."""

    here: set[Identity] = field(default_factory=set)
    refused: set[Identity] = field(default_factory=set)
    exits: bool = False

    def may_open(self, source: Identity, peer: Identity) -> bool:
        return not {source, peer} & self.refused

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        return size > 0 and following not in self.refused

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        return is_asked and self.exits and message.dst.identity not in self.refused

    def is_here(self, destination: Destination) -> bool:
        return destination.identity in self.here


class OnionNode:
    """A node with all that it needs to relay, to receive and to answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = SigningKey(secret(f"{name} signs"))
        self.engine = SigningKey(secret(f"{name} engine"))
        self.keys = SealingKeys(secret(f"{name} opens"))
        self.rules = Rules(here={self.engine.identity})
        self.handles = HandleTable()
        self.tags = LayerTags()
        self.peeler = Peeler(self.identity, self.keys, self.tags, self.rules, Verifiers())
        self._drawn = 0

    @property
    def identity(self) -> Identity:
        return self.key.identity

    @property
    def hop(self) -> Hop:
        return Hop(self.identity, self.keys.public)

    def draw(self, size: int) -> bytes:
        self._drawn += 1
        return secret(f"{self.name} {self._drawn}", size)

    def take(self, content: RelayContent, peer: Identity, now: int = NOW) -> Peeled:
        return self.peeler.peel(content.envelope, peer, now)

    def take_with_handle(
        self, content: RelayContent, peer: Identity, now: int = NOW
    ) -> tuple[Peeled, RelayContent]:
        """Open a layer; return the result and what goes on, with the handle of this node."""
        peeled = self.take(content, peer, now)
        handle = None
        wanted = peeled.outcome is PeelOutcome.UNCHANGED or peeled.reply_key != NO_REPLY
        if content.handle is not None and wanted:
            handle = self.draw(16)
            entry = ReturnHandle(
                peer, content.handle, peeled.reply_key, peeled.expiry, peeled.following
            )
            assert self.handles.add(handle, entry, now) is None
        return peeled, RelayContent(peeled.envelope, handle)


def message_to(node: OnionNode, body: bytes = b"hello") -> bytes:
    """Return the envelope of a message to the engine of a node."""
    message = EngineMessage(
        SENDER.identity,
        Destination(DestinationKind.ENGINE, node.engine.identity),
        7,
        Protocol("wire", 1),
        body,
        expiry=EXPIRY,
    )
    return sign_engine_message(message, SENDER)


def passed(result: PassedBack | HandleRefusal) -> PassedBack:
    assert isinstance(result, PassedBack)
    return result
