"""The handshake of a link between two nodes as a table, and why one fails.

Theory of operation
===================

The node that dials sends a hello with a fresh key. The other one replies with a fresh key of its
own and, sealed, its identity with its signature over both. The first one proves its identity in the
same way, and both have the link.

```
dials                               is dialled
AWAITS_REPLY   ── hello ─────────▶  AWAITS_HELLO
               ◀───────── reply ──  AWAITS_PROOF
UP             ── proof ─────────▶  UP
```

A message that the table does not list for a state, and one that cannot be opened, is wrong: it ends
a handshake on an ordered route. On one that repeats and reorders, it is ignored, up to a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from ._identities import Identity

__all__ = [
    "LINK",
    "LinkFailure",
    "LinkInput",
    "LinkRefusalCode",
    "LinkState",
    "link_replaces",
]


class LinkState(Enum):
    """The state of a handshake."""

    AWAITS_HELLO = "the other node has not said hello"
    AWAITS_REPLY = "the hello is sent"
    AWAITS_PROOF = "the reply is sent"
    UP = "both nodes have proven their identities"
    FAILED = "the handshake has failed; the caller disconnects"


class LinkInput(Enum):
    """An input of a handshake."""

    HELLO = "a hello"
    REPLY = "a reply that proves the identity of the other node"
    PROOF = "a proof of the identity of the other node"
    REFUSAL = "the other node refuses"
    WRONG = "a message that does not prove what it has to"
    LATE = "the time is over"


_S, _I = LinkState, LinkInput

LINK: Final[Mapping[tuple[LinkState, LinkInput], LinkState]] = MappingProxyType(
    {
        (_S.AWAITS_HELLO, _I.HELLO): _S.AWAITS_PROOF,
        (_S.AWAITS_REPLY, _I.REPLY): _S.UP,
        (_S.AWAITS_PROOF, _I.PROOF): _S.UP,
        (_S.AWAITS_REPLY, _I.REFUSAL): _S.FAILED,
        (_S.AWAITS_PROOF, _I.REFUSAL): _S.FAILED,
        # The proof was refused.
        (_S.UP, _I.REFUSAL): _S.FAILED,
        (_S.AWAITS_HELLO, _I.WRONG): _S.FAILED,
        (_S.AWAITS_REPLY, _I.WRONG): _S.FAILED,
        (_S.AWAITS_PROOF, _I.WRONG): _S.FAILED,
        (_S.UP, _I.WRONG): _S.FAILED,
        (_S.AWAITS_HELLO, _I.LATE): _S.FAILED,
        (_S.AWAITS_REPLY, _I.LATE): _S.FAILED,
        (_S.AWAITS_PROOF, _I.LATE): _S.FAILED,
    }
)
"""(state, input) to the next state."""


class LinkRefusalCode(IntEnum):
    """The reason for which a node refuses a link, as the other one is told.

    None says whether it was the identity, the proof or the trust in it.
    """

    VERSION = 1
    """There is no version that both know."""
    BUSY = 2
    """The node has as many links as it may."""
    REFUSED = 3
    """Any other reason."""
    NO_SESSION = 4
    """A frame came, and there is no session: the other node may begin a handshake."""


class LinkFailure(StrEnum):
    """The reason for which a link has failed, for this node only. As a value, the text."""

    BAD_MESSAGE = "a message that cannot be read, or that does not belong there"
    BAD_KEY = "a key that is no proper X25519 key, or this node's own"
    UNPROVEN = "the other node has not proven its identity"
    OWN_IDENTITY = "this node is at the other end as well"
    OTHER_IDENTITY = "another node is there than was dialled"
    NOT_ADMITTED = "the other node is not admitted"
    VERSION = "there is no version that both nodes know"
    BUSY = "the other node has as many links as it may"
    REFUSED = "the other node refuses"
    TIMEOUT = "the other node has not proved an identity in time; it may have none"
    REPEATED = "a frame that came before"
    FORGED = "a frame that cannot be opened"
    EXHAUSTED = "the session has had as many frames as it may"


def link_replaces(own: Identity, peer: Identity, *, began: bool, old_began: bool) -> bool:
    """Whether a new link to a node replaces the one that is there.

    Both nodes decide alike, after the handshake: if each has begun one, the link stays over which
    the smaller identity has. Of two over which one node has, the newer does, since it only begins
    another if it takes the old one for lost.

    Args:
        own: The identity of this node.
        peer: The identity of the other one.
        began: Whether this node has begun the handshake over the new link.
        old_began: Whether it has begun the last handshake over the old one.
    """
    return began is old_began or began is (own < peer)
