"""What a node does with a message for a relay: open its layer, or pass it on as it is.

The steps, in this order; the first one that fails decides, and nothing is sent to any peer for it:

| step | check | outcome if it fails |
| --- | --- | --- |
| 1 | it is an envelope of a `RelayMessage`, signed by its source | `BAD_RECORD`, `BAD_SIGNATURE` |
| 2 | it is for this node; for another node the rules allow it | `REFUSED` |
| 3 | its expiry is neither past nor too late | `NOT_FRESH` |
| 4 | the rules allow that anything by its source is opened | `REFUSED` |
| 5 | its layer was not opened before | `REPLAYED` |
| 6 | it opens, and its tag has room among those that are remembered | `NOT_OPENED`, `NO_ROOM` |
| 7 | what is in it can be read, and is not for this node as a relay again | `BAD_INNER` |
| 8 | the rules allow the next node; or to let it out, which its sender asks for | `REFUSED` |

The tag of a layer is recorded after the layer was opened: an observer that puts the same ephemeral
key before other bytes uses up nothing. What passes unchanged is known by the whole envelope
instead, so two nodes that each take the other for the way pass it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from ._errors import BadRecord
from ._freshness import FreshnessRefusal, expiry_refusal
from ._identities import Destination, Identity
from ._keys import Verifiers
from ._layer_tags import LayerTag, LayerTags, layer_tag
from ._messages import EngineMessage, open_engine_message
from ._onion import relay_info
from ._preferences import TransportPrefs
from ._relay_message import RelayMessage, open_relay_message, parse_relay_message
from ._sealing import NO_REPLY, InnerKind, Opened, SealingKeys, encapsulated_key
from ._signed import parse_signed

__all__ = ["MAX_SOURCES", "PeelOutcome", "Peeled", "Peeler", "RelayRules"]

MAX_SOURCES: Final = 256
"""Most public keys of sources of layers that are kept ready to verify. The one that was used
longest ago is let go: most have signed one layer."""

_UNCHANGED: Final = b"onward/identity/1/unchanged"


class PeelOutcome(StrEnum):
    """The outcome of a message for a relay. As a value, the text for people."""

    DELIVER = "for an engine of this node"
    NEXT = "for the next relay"
    EXIT = "let out to another node"
    UNCHANGED = "passed on unchanged"
    BAD_RECORD = "it is no message for a relay"
    BAD_SIGNATURE = "its signature is wrong"
    NOT_FRESH = "its expiry is past, or too late"
    REFUSED = "the rules refuse it"
    REPLAYED = "it was received before"
    NOT_OPENED = "it does not open"
    NO_ROOM = "as many are remembered as may be"
    BAD_INNER = "what is in it cannot be used"

    @property
    def is_drop(self) -> bool:
        """Whether the message ends here. A peer cannot tell the reasons apart."""
        return self not in _ONWARD


_ONWARD: Final = frozenset(
    {PeelOutcome.DELIVER, PeelOutcome.NEXT, PeelOutcome.EXIT, PeelOutcome.UNCHANGED}
)


class RelayRules(Protocol):
    """The decisions of a node about messages for relays. They neither wait nor raise."""

    def may_open(self, source: Identity, peer: Identity) -> bool:
        """Whether a layer by `source`, which came from `peer`, is opened at all."""
        ...

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        """Whether `size` bytes by `source` may go on to the node `following`."""
        ...

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        """Whether the message of an engine may go to its destination, which is of another node.

        Args:
            source: The source of its layer.
            message: The message, which is verified.
            peer: The node that the layer came from.
            is_asked: Whether its sender asks for that; else it may not.
        """
        ...

    def is_here(self, destination: Destination) -> bool:
        """Whether a destination is of this node."""
        ...


@dataclass(frozen=True, slots=True)
class Peeled:
    """The result for a message for a relay.

    Attributes:
        outcome: What is to be done; the rest is of no use for a drop.
        envelope: What goes on: the layer inside, the message of an engine, or the same envelope.
        expiry: When it is of no use any more, in Unix milliseconds.
        reply_key: The key of this node for the answer; `NO_REPLY` if none is wanted.
        following: The node that it goes to, of `NEXT` and `UNCHANGED`.
        message: The message of an engine, which is verified, of `DELIVER` and `EXIT`.
        source: The source of the layer.
        tprefs: What the layer asks of the carriage of what goes on, if anything.
    """

    outcome: PeelOutcome
    envelope: bytes = field(default=b"", repr=False)
    expiry: int = 0
    reply_key: bytes = field(default=NO_REPLY, repr=False)
    following: Identity | None = None
    message: EngineMessage | None = field(default=None, repr=False)
    source: Identity | None = None
    tprefs: TransportPrefs | None = None


class Peeler:
    """The part of a node that opens layers.

    Args:
        node: The identity of the node.
        keys: Its sealing keys.
        tags: The layers that it has opened.
        rules: What it does for others.
        verifiers: The public keys of engines.

    Attributes:
        outcomes: How often there was each outcome.
    """

    __slots__ = ("_engines", "_keys", "_node", "_rules", "_sources", "_tags", "outcomes")

    def __init__(
        self,
        node: Identity,
        keys: SealingKeys,
        tags: LayerTags,
        rules: RelayRules,
        verifiers: Verifiers,
    ) -> None:
        self._node = node
        self._keys = keys
        self._tags = tags
        self._rules = rules
        self._engines = verifiers
        self._sources = Verifiers(MAX_SOURCES)
        self.outcomes = dict.fromkeys(PeelOutcome, 0)

    def peel(self, envelope: bytes, peer: Identity, now: int) -> Peeled:
        """Return what is to be done with the envelope of a message for a relay.

        Args:
            envelope: The message.
            peer: The node at the other end of the link by which it came.
            now: The time, in Unix milliseconds.
        """
        try:
            message = open_relay_message(envelope, self._sources)
        except BadRecord:
            peeled = Peeled(PeelOutcome.BAD_RECORD)
        else:
            if message is None:
                peeled = Peeled(PeelOutcome.BAD_SIGNATURE)
            elif message.dst == self._node:
                peeled = self._open(message, peer, now)
            else:
                peeled = self._pass_unchanged(message, envelope, peer, now)
        self.outcomes[peeled.outcome] += 1
        return peeled

    def _pass_unchanged(
        self, message: RelayMessage, envelope: bytes, peer: Identity, now: int
    ) -> Peeled:
        following = message.dst
        if following == peer or not self._rules.may_pass(message.src, following, len(envelope)):
            return Peeled(PeelOutcome.REFUSED)
        if expiry_refusal(message.expiry, now) is not None:
            return Peeled(PeelOutcome.NOT_FRESH)
        tag = layer_tag(_UNCHANGED + envelope)
        if (refusal := self._record(tag, message, peer, now)) is not None:
            return refusal
        return Peeled(
            PeelOutcome.UNCHANGED,
            envelope,
            message.expiry,
            following=following,
            source=message.src,
            tprefs=message.tprefs,
        )

    def _record(
        self, tag: LayerTag, message: RelayMessage, peer: Identity, now: int
    ) -> Peeled | None:
        """Record a tag; return the drop, if it is none."""
        source = None if message.src == peer else message.src
        refusal = self._tags.record(tag, message.expiry, peer, now, source)
        if refusal is None:
            return None
        return Peeled(_TAG_OUTCOMES.get(refusal, PeelOutcome.REPLAYED))

    def _open(self, message: RelayMessage, peer: Identity, now: int) -> Peeled:
        if expiry_refusal(message.expiry, now) is not None:
            return Peeled(PeelOutcome.NOT_FRESH)
        if not self._rules.may_open(message.src, peer):
            return Peeled(PeelOutcome.REFUSED)
        tag = layer_tag(encapsulated_key(message.sealed))
        if self._tags.check(tag, message.expiry, now) is not None:
            return Peeled(PeelOutcome.REPLAYED)
        info = relay_info(message.src, message.dst, message.tprefs, message.expiry)
        opened = self._keys.open(message.sealed, info, now)
        if opened is None:
            return Peeled(PeelOutcome.NOT_OPENED)
        if (refusal := self._record(tag, message, peer, now)) is not None:
            return refusal
        try:
            return self._decide(message, opened, peer)
        except BadRecord:
            return Peeled(PeelOutcome.BAD_INNER)

    def _decide(self, layer: RelayMessage, opened: Opened, peer: Identity) -> Peeled:
        """Return what is to be done with what was in a layer.

        Raises:
            BadRecord: It is not what it says that it is.
        """
        envelope = opened.inner
        if opened.kind is InnerKind.RELAY:
            # The next node verifies it, and this one has nothing of it.
            following = parse_relay_message(parse_signed(envelope).payload).dst
            if following == self._node:
                return Peeled(PeelOutcome.BAD_INNER)
            if not self._rules.may_pass(layer.src, following, len(envelope)):
                return Peeled(PeelOutcome.REFUSED)
            return Peeled(
                PeelOutcome.NEXT,
                envelope,
                layer.expiry,
                opened.reply_key,
                following,
                source=layer.src,
                tprefs=layer.tprefs,
            )
        message = open_engine_message(envelope, self._engines)
        if message is None:
            return Peeled(PeelOutcome.BAD_INNER)
        is_asked = opened.kind is InnerKind.EXIT
        if self._rules.is_here(message.dst):
            outcome = PeelOutcome.DELIVER
        elif self._rules.may_exit(layer.src, message, peer, is_asked=is_asked):
            outcome = PeelOutcome.EXIT
        else:
            return Peeled(PeelOutcome.REFUSED)
        return Peeled(
            outcome,
            envelope,
            layer.expiry,
            opened.reply_key,
            message=message,
            source=layer.src,
            tprefs=layer.tprefs,
        )


_TAG_OUTCOMES: Final = {
    FreshnessRefusal.SHARE_FULL: PeelOutcome.NO_ROOM,
    FreshnessRefusal.SOURCE_FULL: PeelOutcome.NO_ROOM,
    FreshnessRefusal.FULL: PeelOutcome.NO_ROOM,
}
"""The outcomes of tags that are not recorded, but those of `REPLAYED`."""
