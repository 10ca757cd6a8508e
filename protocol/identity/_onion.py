"""Paths of relays: a sealed layer for each, of which each relay opens one.

```
layer_i = sign(relay, [src_i, dst_i, tprefs, expiry, seal(key of dst_i, inner_i)])
inner_i = layer_{i+1}, and in the last one the message of an engine
```

The last hop is the node of the destination, or one that lets messages out for the sender: only the
sender can ask for that, by the kind of what is in the innermost layer. Each layer adds the same
bytes to what is in it, so all messages of one bucket have the same size on each link. A relay
learns the nodes next to it, and by the size how many layers are left.

The source of a layer is a key: of the node that sends, in all layers, so that relays may decide by
it; or one of this layer alone, so that they learn nothing of it. What is around the sealed bytes is
bound to them: with another source, relay, wish or expiry they do not open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cbor2 import dumps

from ._errors import BadKey, BadPath
from ._identities import Identity, is_derived
from ._keys import SEED_SIZE, SigningKey
from ._padding import bucket_of
from ._preferences import MAX_HOPS, TransportPrefs, transport_items
from ._relay_message import RelayMessage, sign_relay_message
from ._sealing import NO_REPLY, InnerKind, room_for, seal

__all__ = ["Hop", "build_onion", "one_time_signers", "relay_info"]

_INFO: Final = b"onward/identity/1/relay"


@dataclass(frozen=True, slots=True)
class Hop:
    """A node of a path.

    Attributes:
        node: Its identity.
        sealing_key: The public key of its advert, 32 bytes.

    Raises:
        BadPath: The node has no key.
    """

    node: Identity
    sealing_key: bytes

    def __post_init__(self) -> None:
        if is_derived(self.node):
            raise BadPath("a hop is a node, which has a key")


def relay_info(src: Identity, dst: Identity, tprefs: TransportPrefs | None, expiry: int) -> bytes:
    """Return the `info` that the sealed bytes of a message for a relay are bound to."""
    record: bytes = dumps((src, dst, transport_items(tprefs), expiry))
    return _INFO + record


def one_time_signers(random: bytes) -> list[SigningKey]:
    """Return keys that sign one layer each, for a sender that relays do not learn.

    Args:
        random: 32 secret random bytes for each key.

    Raises:
        BadKey: They are not a multiple of 32 bytes.
    """
    if len(random) % SEED_SIZE:
        raise BadKey(f"each seed has {SEED_SIZE} bytes, and there are {len(random)}")
    return [SigningKey(random[at : at + SEED_SIZE]) for at in range(0, len(random), SEED_SIZE)]


def build_onion(
    hops: Sequence[Hop],
    message: bytes,
    *,
    expiry: int,
    signers: Sequence[SigningKey],
    reply_keys: Sequence[bytes] = (),
    tprefs: TransportPrefs | None = None,
    lets_out: bool = False,
) -> bytes:
    """Return the outermost layer of a message: the envelope of a `RelayMessage` for the first hop.

    Args:
        hops: The relays in their order, then the node that the message is for or that lets it out.
        message: The envelope of an `EngineMessage`.
        expiry: When it is of no use any more, in Unix milliseconds.
        signers: A key for each hop: that of this node each time, or `one_time_signers`.
        reply_keys: 32 secret random bytes for each hop; none if no answer is wanted.
        tprefs: What all layers ask of their carriage, if anything.
        lets_out: Whether the last hop may let the message out, if it is for another node.

    Raises:
        BadKey: The sealing key of a hop, or a reply key, is none.
        BadPath: There are no hops or too many, two of the same node follow each other, or there is
            not one key for each.
        MessageTooBig: The message is over the greatest bucket.
    """
    _check_path(hops, signers, reply_keys)
    keys = reply_keys or (NO_REPLY,) * len(hops)
    kind = InnerKind.EXIT if lets_out else InnerKind.ENGINE
    inner, room = message, bucket_of(room_for(message))
    for hop, signer, reply_key in reversed(list(zip(hops, signers, keys, strict=True))):
        info = relay_info(signer.identity, hop.node, tprefs, expiry)
        sealed = seal(hop.sealing_key, kind, reply_key, inner, room=room, info=info)
        layer = RelayMessage(signer.identity, hop.node, expiry, sealed, tprefs)
        kind, inner = InnerKind.RELAY, sign_relay_message(layer, signer)
        room = room_for(inner)
    return inner


def _check_path(
    hops: Sequence[Hop], signers: Sequence[SigningKey], reply_keys: Sequence[bytes]
) -> None:
    if not 1 <= len(hops) <= MAX_HOPS:
        raise BadPath(f"it has 1 to {MAX_HOPS} hops, not {len(hops)}")
    if len(signers) != len(hops):
        raise BadPath(f"{len(hops)} hops need as many keys that sign, not {len(signers)}")
    if reply_keys and len(reply_keys) != len(hops):
        raise BadPath(f"{len(hops)} hops need as many reply keys or none, not {len(reply_keys)}")
    for hop, following in pairwise(hops):
        if hop.node == following.node:
            raise BadPath("a node follows itself")
