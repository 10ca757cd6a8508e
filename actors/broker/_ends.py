"""The two ends of an exchange, in elements.

An *exchange* is a request in progress between a requester and a destination. Whatever carries it
(frames of RSocket, a handler's task, a message and its answer, a delivery of AMQP), the two ends
tell each other the same few things:

| | requester to destination (`DestinationEnd`) | destination to requester (`RequesterEnd`) |
| --- | --- | --- |
| *element*: data, and metadata or none | `element`, of a channel | `element`, of each response |
| *credit*: elements that the other end may send | `credit` | `request_n`, of a channel |
| *completion*: no more elements follow | `input_complete` | `complete`, or the last element |
| *error*: a code and a text; both directions end | `input_error` | `error` |
| *cancellation*: no more elements are wanted | `cancel`: both directions end | `cancel_input` |

The first element of the requester and its metadata are the `Request`, which is given when the
destination's end is started (`StartEnd`, `Exchange.start`). The rules, which each end may rely on:

- No element is sent without credit. Credits add up, and cannot be taken back. A response and a
  fire-and-forget need none.
- After `complete`, `error` or an element that completes, the destination sends nothing but
  `cancel_input`. After `cancel`, neither end sends anything.
- Calls are made on the node's loop and do not block; nothing is queued between the ends. The
  receiver bounds what it holds by the credit it gives.
- The *outcome* (`Outcome`: delivered, rejected, failed, canceled, ...) is recorded once, by
  `Exchange.end`. REJECTED says that the destination has certainly not processed the request;
  CANCELED and a lost end leave that in doubt.

Ends that there are: a stream of an RSocket connection (`transports/rsocket`: as a requester
`ServedStream`, and `Leg` for one destination of a multicast); handlers of the node (`Handling`); a
worker, which takes the request as a message and answers with one (`Exchange.data`,
`Exchange.return_route`). Two streams of RSocket need none of these calls: their frames are relayed
as they are, byte for byte, with the same credit and outcomes.

A connection of RSocket as the destination takes requests as frames only
(`FrameExchange.hand_to`): for requesters of other protocols it needs a `DestinationEnd` that writes
frames.

A requester of another protocol is a subclass of `Exchange` that travels in messages to the tag
index like any, and a `RequesterEnd`. In a compiled build its module has to be compiled too.
For a delivery of AMQP: a transfer is the `Request`, link
credit is `credit`, a settled disposition is the answer's completion (accepted), error (rejected)
or refusal (released: not processed), and a detached link is `cancel`. A destination of another
protocol is a worker that starts a `DestinationEnd`, as `ServiceWorker` does for handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...protocol import Address

if TYPE_CHECKING:
    from .local._handlers import Interaction, Request

__all__ = ["DestinationEnd", "RequesterEnd", "StartEnd"]


class RequesterEnd(Protocol):
    """The requester's end of an exchange: the receiver of a destination's response."""

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an element of the response, for which the requester has given credit.

        Raises:
            PayloadTooBig: It is too big, and nothing was sent. The destination ends with an error.
        """

    def complete(self) -> None:
        """End the response."""

    def error(self, code: int, text: str) -> None:
        """End with an error. Not called for an interaction without a response."""

    def request_n(self, n: int) -> None:
        """Give the requester of a channel credit for more elements."""

    def cancel_input(self) -> None:
        """Cancel the requester's elements of a channel."""


class DestinationEnd(Protocol):
    """The destination's end of an exchange. Its methods do nothing once the exchange is over."""

    @property
    def over(self) -> bool:
        """Whether either end has ended the exchange."""
        ...

    @property
    def outcome(self) -> int:
        """How it ended, if it has no response; see `Outcome`."""
        ...

    @property
    def held(self) -> int:
        """Bytes of a channel's elements that were received and not taken yet."""
        ...

    def credit(self, n: int) -> None:
        """Give credit for more elements of the response, the first credit included."""

    def element(self, data: bytes, metadata: bytes | None) -> None:
        """Send an element of a channel. One without credit ends the exchange as INVALID."""

    def input_complete(self) -> None:
        """End the requester's elements of a channel."""

    def input_error(self, code: int, text: str) -> None:
        """End a channel with the requester's error."""

    def cancel(self) -> None:
        """Cancel the exchange: the requester has cancelled or disconnected."""

    def then(self, action: Callable[[], object]) -> None:
        """Call a function once the destination has ended its work; at once if it never began."""


StartEnd: TypeAlias = "Callable[[Interaction, Request, RequesterEnd, Address], DestinationEnd]"
"""Starts the destination's end of a request for a requester's end and the requester's address."""
