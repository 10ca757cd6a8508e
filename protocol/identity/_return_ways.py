"""The ways of answers over relays: what a handle stands for, and why one is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ._errors import BadKey
from ._identities import Identity
from ._p2p_message import HANDLE_SIZE, ReplyContent
from ._sealing import NO_REPLY, REPLY_KEY_SIZE

__all__ = [
    "Answer",
    "ExpectedAnswer",
    "HandleRefusal",
    "PassedBack",
    "ReturnHandle",
]


class HandleRefusal(StrEnum):
    """The reason for which a handle is refused. As a value, the text for people."""

    UNKNOWN = "there is no such handle, or it was used"
    FOREIGN = "the handle is for another peer"
    EXPIRED = "the handle has expired"
    BAD_SIZE = "no answer has this size"
    TAMPERED = "the answer was changed on its way"
    IN_USE = "the handle is in use"
    SHARE_FULL = "the peer has used its share of the handles"
    SOURCE_FULL = "the source has used its share of what the peer may have"
    FULL = "there are as many handles as may be"


@dataclass(frozen=True, slots=True)
class ReturnHandle:
    """The way of an answer from here.

    Attributes:
        peer: The node that it goes to.
        handle: What that node knows its way by.
        reply_key: The key of this node, 32 bytes; `NO_REPLY` if the message has passed unchanged,
            as its answer does then.
        expiry: When it is of no use any more, in Unix milliseconds.
        user: The node that may use it; `None` if this node is the far end, and answers itself.
        source: The source of the message, if it is not the peer itself.
        reserved: The node with the reservation that the message was charged to, as the answer is.
        opens: The key that the answer is sealed with for this node, 32 bytes, if it has let the
            message out: it seals the answer anew. `NO_REPLY` for a relay.
        engines: The identities that the message is of and for, if this node has let it out.

    Raises:
        BadKey: The reply key or the handle has another size.
    """

    peer: Identity
    handle: bytes
    reply_key: bytes = field(repr=False)
    expiry: int
    user: Identity | None
    source: Identity | None = None
    reserved: Identity | None = None
    opens: bytes = field(default=NO_REPLY, repr=False)
    engines: tuple[Identity, ...] = ()

    def __post_init__(self) -> None:
        check_handle(self.handle)
        _check_reply_key(self.reply_key)
        _check_reply_key(self.opens)


@dataclass(frozen=True, slots=True)
class PassedBack:
    """An answer that goes on to a peer.

    Attributes:
        peer: The node.
        content: What the message to it says.
        reserved: The node with the reservation that the message was charged to.
    """

    peer: Identity
    content: ReplyContent
    reserved: Identity | None = None


@dataclass(frozen=True, slots=True)
class ExpectedAnswer:
    """An answer that this node waits for.

    Attributes:
        peer: The first hop of the path, by which the answer comes.
        reply_keys: Those of the hops of the path, in their order.
        asker: The identity of this node that asks.
        asked: The identity that it asks.
        expiry: When it is of no use any more, in Unix milliseconds.
        way: What the sender knows the path by, for what follows the answer.

    Raises:
        BadKey: There is no reply key, or one has another size.
    """

    peer: Identity
    reply_keys: tuple[bytes, ...] = field(repr=False)
    asker: Identity
    asked: Identity
    expiry: int
    way: bytes = b""

    def __post_init__(self) -> None:
        if not self.reply_keys:
            raise BadKey("a path has a reply key for each hop")
        for key in self.reply_keys:
            _check_reply_key(key)

    @property
    def user(self) -> Identity:
        """The node that may use the handle."""
        return self.peer

    @property
    def source(self) -> None:
        """No source behind the peer: the messages are of this node."""
        return


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that has come.

    Attributes:
        asker: The identity of this node that has asked.
        asked: The identity that was asked; its node has sealed the answer.
        data: What the far end has sealed.
        way: What the sender knows the path by.
    """

    asker: Identity
    asked: Identity
    data: bytes = field(repr=False)
    way: bytes = b""


def check_handle(handle: bytes) -> None:
    if len(handle) != HANDLE_SIZE:
        raise BadKey(f"a handle has {HANDLE_SIZE} bytes, not {len(handle)}")


def _check_reply_key(key: bytes) -> None:
    if len(key) != REPLY_KEY_SIZE:
        raise BadKey(f"a reply key has {REPLY_KEY_SIZE} bytes, not {len(key)}")
