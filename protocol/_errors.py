"""Every error Onward raises on purpose, as one tree.

```
OnwardError
├── ProtocolError                 the input breaks a specification (yours or the peer's)
│   ├── AddressError              an address cannot be read or is out of range
│   ├── RouteError                a route cannot be read
│   │   ├── EmptyRoute            there is nowhere to send to
│   │   └── RouteTooLong          more addresses than a route may have
│   ├── PayloadTooBig             a payload over the limit
│   ├── PayloadNotBytes           a payload that is of another type than bytes
│   ├── WireError                 bytes of a node-to-node connection: it must be closed
│   │   ├── BadPreamble
│   │   ├── FrameTooBig
│   │   └── MalformedMessage
│   ├── RSocketError              bytes of an RSocket connection; carries the code to answer with
│   └── BrokerFrameError          bytes of a Routing and Forwarding frame
└── DeliveryError                 a message did not get through
    ├── NotDelivered              certainly not handed over: it is safe to send it again
    │   ├── UnknownAddress        no worker has this local address
    │   ├── UnreadableAddress     the rule for its type cannot read this address
    │   ├── UnknownAddressType    no rule for this type of address
    │   ├── AddressInUse          two workers cannot have one address
    │   ├── MailboxFull           the worker does not keep up
    │   ├── NotExposed            from outside, for an address not reachable from there
    │   ├── NoRoute               no destination carries all the tags
    │   ├── LinkDown              there is no connection, and none can be had
    │   ├── WorkerStopped         the worker stopped before it took the message up
    │   └── NodeStopped           the node is stopping or has stopped
    └── InDoubt                   handed over, outcome unknown: sending it again may do it twice
        ├── RequestTimeout        no answer in time
        ├── LinkLost              the connection went while an answer was due
        └── WorkerFailed          the worker failed, or was stopped, with the message in hand
```

The two halves of `DeliveryError` are the one distinction a caller needs for a retry.
Exceptions carry data; `str()` formats it. RSocket's and the broker's own errors are
defined beside their codecs and join the tree there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ._words import counted

if TYPE_CHECKING:
    from ._message import Message

__all__ = [
    "AddressError",
    "AddressInUse",
    "BadPreamble",
    "DeliveryError",
    "EmptyRoute",
    "FrameTooBig",
    "InDoubt",
    "LinkDown",
    "LinkLost",
    "MailboxFull",
    "MalformedMessage",
    "NoRoute",
    "NodeStopped",
    "NotDelivered",
    "NotExposed",
    "OnwardError",
    "PayloadNotBytes",
    "PayloadTooBig",
    "ProtocolError",
    "RequestTimeout",
    "RouteError",
    "RouteTooLong",
    "UnknownAddress",
    "UnknownAddressType",
    "UnreadableAddress",
    "UnusableRoute",
    "WireError",
    "WorkerFailed",
    "WorkerStopped",
]


class OnwardError(Exception):
    """Root of every error Onward raises on purpose.

    Attributes:
        lost: The message that a worker was passing on or answering with when this was raised,
            or `None`. A handler that lets the error through has lost that message, and
            has not failed otherwise.
    """

    lost: Message | None = None


# --- the input breaks a specification -----------------------------------------------------


class ProtocolError(OnwardError, ValueError):
    """The input breaks a specification."""


class AddressError(ProtocolError):
    """An address cannot be read or is out of range.

    Attributes:
        text: The input.
        reason: What is wrong with it.
        written: The right form of the input, or of the route it is in; empty if it is not known.
        where: The place of the input in a route, or empty.
    """

    def __init__(self, text: object, reason: str, written: str = "") -> None:
        super().__init__(text, reason, written)
        self.text = text
        self.reason = reason
        self.written = written
        self.where = ""

    def __str__(self) -> str:
        right = f"; write `{self.written}`" if self.written else ""
        return f"bad address {self.text!r}{self.where}: {self.reason}{right}"


class RouteError(ProtocolError):
    """A route cannot be used."""


class EmptyRoute(RouteError):
    """There is nowhere to send to."""

    def __str__(self) -> str:
        return "the onward route is empty"


class RouteTooLong(RouteError):
    """A route has more addresses than the limit, as happens when relays form a loop.

    Attributes:
        length: Number of addresses it would have had.
        limit: Number of addresses it may have.
    """

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(length, limit)
        self.length = length
        self.limit = limit

    def __str__(self) -> str:
        return f"a route of {counted(self.length, 'address')} is over the limit of {self.limit}"


class PayloadTooBig(ProtocolError):
    """A payload is over the limit.

    Attributes:
        size: Its size in bytes.
        limit: The limit in bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        limit = counted(self.limit, "byte")
        return f"a payload of {counted(self.size, 'byte')} is over the limit of {limit}"


class PayloadNotBytes(ProtocolError, TypeError):
    """A payload that is not `bytes`; nothing was sent.

    Attributes:
        kind: Name of its type.
        what: The value that has to be `bytes`: the payload, or a part of a request or an answer.
    """

    def __init__(self, kind: str, what: str = "a payload") -> None:
        super().__init__(kind, what)
        self.kind = kind
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is bytes, not {self.kind}"


class WireError(ProtocolError):
    """The bytes of a node-to-node connection are wrong; nothing after them can be trusted."""


class BadPreamble(WireError):
    """The peer does not start with the version byte we speak.

    Attributes:
        value: The byte it sent.
    """

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return f"the peer starts with 0x{self.value:02x}, not with protocol version 0x01"


class FrameTooBig(WireError):
    """A frame announces, or would have, more bytes than the limit.

    Attributes:
        size: Its size in bytes, without the length prefix.
        limit: The limit in bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        limit = counted(self.limit, "byte")
        return f"a frame of {counted(self.size, 'byte')} is over the limit of {limit}"


class MalformedMessage(WireError):
    """A frame does not hold a message.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"malformed message: {self.reason}"


class UnusableRoute(MalformedMessage):
    """A message can be read, and has a route that no node can use: it alone is lost.

    An address in it has no value or one that is too long, or it has more addresses than a route
    may have.
    """


# --- a message did not get through --------------------------------------------------------


class DeliveryError(OnwardError):
    """A message did not get through.

    Attributes:
        target: The receiver of the message, as text; empty where it is not known.
        detail: More about the reason; may be empty.
    """

    reason: ClassVar[str] = "not delivered"

    def __init__(self, target: object = "", detail: str = "") -> None:
        super().__init__(target, detail)
        self.target = str(target)
        self.detail = detail

    def __str__(self) -> str:
        text = f"{self.reason}: {self.target}" if self.target else self.reason
        return f"{text} ({self.detail})" if self.detail else text


class NotDelivered(DeliveryError):
    """The message was certainly not handed over; it is safe to send it again."""


class UnknownAddress(NotDelivered):
    """No worker of this node has the address."""

    reason = "no such worker"


class UnreadableAddress(NotDelivered):
    """The rule for the type of the address cannot read the value: there is no such place."""

    reason = "unreadable address"


class UnknownAddressType(NotDelivered):
    """This node has no rule for the type of the address."""

    reason = "no rule for this type of address"


class AddressInUse(NotDelivered):
    """Another worker of the node has the address already."""

    reason = "address in use"


class MailboxFull(NotDelivered):
    """The worker's mailbox is at its limit.

    Attributes:
        room: What the runtime waits for room by, or `None`; of no use to others.
    """

    reason = "mailbox full"
    room: Any = None


class NotExposed(NotDelivered):
    """A message came from outside for an address that is not reachable from there."""

    reason = "not exposed"


class NoRoute(NotDelivered):
    """No destination carries all the tags asked for."""

    reason = "no route"


class LinkDown(NotDelivered):
    """There is no connection to send on."""

    reason = "link down"


class NodeStopped(NotDelivered):
    """The node is stopping or has stopped."""

    reason = "node stopped"


class WorkerStopped(NotDelivered):
    """The worker stopped before it took the message up."""

    reason = "worker stopped"


class InDoubt(DeliveryError):
    """The message was handed over and the outcome is unknown; a retry may do it twice."""

    reason = "in doubt"


class RequestTimeout(InDoubt, TimeoutError):
    """No answer came in time."""

    reason = "no answer in time"


class LinkLost(InDoubt):
    """The connection was lost while an answer was due."""

    reason = "link lost"


class WorkerFailed(InDoubt):
    """The worker failed, or was stopped, while it had the message in hand.

    Where the handler raised, that is the `__cause__`.
    """

    reason = "worker failed"
