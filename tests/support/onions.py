"""Nodes in memory that seal, open and answer, with fixed keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from onward.protocol.identity import (
    Destination,
    DestinationKind,
    EngineMessage,
    Hop,
    Identity,
    LayerTags,
    Peeled,
    Peeler,
    Protocol,
    RelayContent,
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

    def may_exit(self, source: Identity, destination: Destination, size: int) -> bool:
        return size > 0 and self.exits and destination.identity not in self.refused

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
        self.tags = LayerTags()
        self.peeler = Peeler(self.identity, self.keys, self.tags, self.rules, Verifiers())

    @property
    def identity(self) -> Identity:
        return self.key.identity

    @property
    def hop(self) -> Hop:
        return Hop(self.identity, self.keys.public)

    def take(self, content: RelayContent, peer: Identity, now: int = NOW) -> Peeled:
        return self.peeler.peel(content.envelope, peer, now)


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
