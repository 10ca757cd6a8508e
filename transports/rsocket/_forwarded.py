"""Requests that this broker forwards to a peer broker.

The request is pinned to the route that this broker has chosen. From the first frame of the answer
on it is relayed like any other. If that frame is ERROR[REJECTED], the other broker has certainly
not handed the request over. Then it is sent elsewhere, at most `TRIES` times, as long as the whole
request is still kept: it is, until then, within `GatheringOptions.max_forwarded`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...actors.broker.table._choice import next_free
from ...protocol import DeliveryError, NotDelivered, ProtocolError
from ...protocol.broker import RoutingType, TagList, WellKnownKey, format_id
from ...protocol.rsocket import CLOSED, ErrorCode, Frame, FrameType, Stream
from ._metadata import FORMS, PEER, Form
from ._pinning import named_address, pinned
from ._request import FRAME_COST, more_follow

if TYPE_CHECKING:
    from ...actors.broker import Ask
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["TRIES", "Forwarded", "forward", "frames_for_peer"]

_logger = logging.getLogger("onward.transports.rsocket")

TRIES: Final = 2
"""Most further destinations for a request that peer brokers have rejected."""

_ERROR: Final = int(FrameType.ERROR)
_FNF: Final = int(FrameType.REQUEST_FNF)
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_NAMED: Final = next(form for form in FORMS.values() if form.composite)


def frames_for_peer(exchange: StreamExchange) -> list[Frame]:
    """Return the frames of a request for a peer broker.

    With a chosen route they are pinned to it. The tags that the rules add to the query are in them
    as well: the other broker asks no rules.

    Raises:
        NotDelivered: The request came from a peer broker.
        ProtocolError: Its metadata cannot be read, or would have too many tags.
    """
    link, route = exchange.link, exchange.route
    if link.to_broker:
        # Routes of other brokers are no candidates for such a request: there is a fault in here.
        link.core.counters["forwarded_again"] += 1
        _logger.error(
            "%s: a request of a peer broker would be forwarded again",
            link.name,
            extra={"event": "request.forwarded_again", "peer": link.name},
        )
        raise NotDelivered("the destination", "it is at another broker")
    tags: TagList = ()
    if route is not None:
        tags = ((_ROUTE_ID, format_id(route.route_id)),)
    principal = getattr(exchange, "checked", link.session.principal)
    if principal is not None and principal.tags and link.broker.authorization is not None:
        tags = (*tags, *sorted(principal.tags, key=str))
    ask: Ask | None = getattr(exchange, "named", None)
    asked = b"" if ask is None else named_address(ask)
    form = exchange.form or _NAMED
    return pinned(exchange.frames, form, tags, link.broker.broker_id.bytes, asked)


def forward(exchange: StreamExchange, link: Link) -> None:
    """Hand a request to a peer broker.

    Raises:
        NotDelivered: It does not keep up, takes no more streams, or has gone; or the request came
            from a peer broker.
        ProtocolError: The metadata of the request cannot be read.
    """
    form, frames = exchange.form, exchange.frames
    exchange.frames = frames_for_peer(exchange)
    exchange.form = PEER
    try:
        exchange.hand_to(link)
    except BaseException:
        exchange.form, exchange.frames = form, frames
        raise
    stream = exchange.taken
    if stream is None or exchange.ended or exchange.kind == _FNF or more_follow(frames[-1]):
        return
    size = sum(frame.end - frame.start + FRAME_COST for frame in frames)
    limits = link.gathering
    if size <= limits.max_gather and link.forwarded_held + size <= limits.max_forwarded:
        stream.peer = Forwarded(exchange, link, form, frames, size)


class Forwarded:
    """A request at a peer broker that has not answered yet; the `peer` of its stream there.

    Args:
        exchange: The request.
        link: The link to the peer broker.
        form: The form of its ADDRESS.
        frames: Its frames as the requester has sent them, all of them.
        size: Their bytes, with the cost of the objects.
    """

    __slots__ = ("_exchange", "_form", "_frames", "_link", "_size", "_state")

    def __init__(
        self,
        exchange: StreamExchange,
        link: Link,
        form: Form | None,
        frames: list[Frame],
        size: int,
    ) -> None:
        self._exchange = exchange
        self._link = link
        self._form = form
        self._frames = [frame.detached() for frame in frames]
        self._size = size
        # That changes with each frame of a channel's requester that is relayed.
        self._state = 0 if exchange.stream is None else exchange.stream.state
        link.forwarded_held += size
        exchange.withdraw = self.release

    def release(self) -> list[Frame]:
        """Return the frames that are kept, and keep them no longer."""
        frames, self._frames = self._frames, []
        self._link.forwarded_held -= self._size
        self._size = 0
        return frames

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Relay the first frame of the answer, or send the request elsewhere."""
        exchange = self._exchange
        exchange.withdraw = None
        frames = self.release()
        stream.peer = exchange
        # Error Codes, REJECTED: "The Responder guarantees that it didn't process the request."
        rejected = frame.type == _ERROR and frame.error_code == ErrorCode.REJECTED
        if not (rejected and self._goes_elsewhere(stream, frames)):
            exchange.on_answer(link, stream, frame)

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the request, as the link was lost."""
        self.release()
        self._exchange.withdraw = None
        self._exchange.on_gone(stream, text)

    def _goes_elsewhere(self, stream: Stream, frames: list[Frame]) -> bool:
        """Send the request to another destination; return whether there is one."""
        exchange, origin = self._exchange, self._exchange.stream
        route = exchange.route
        tried: tuple[bytes, ...] = getattr(exchange, "tried", ())
        if route is None or origin is None or len(tried) >= TRIES:
            return False
        if origin.state == CLOSED or origin.state != self._state:
            return False
        tried = (*tried, route.route_id)
        session = exchange.link.session
        index = exchange.link.broker.index
        exchange.frames = frames
        try:
            ask = session.ask_of(exchange)
        except (ProtocolError, DeliveryError):
            return False  # the rules are others by now
        if ask.routing is not RoutingType.UNICAST or ask.sticky:
            return False  # one destination is responsible
        found = tuple(each for each in index.candidates(ask) if each.route_id not in tried)
        if not found:
            return False
        at = index.choice.pick(ask, found) or 0
        if found[at].target.busy:
            free = next_free(found, at)
            at = at if free is None else free
        route.outstanding -= 1
        stream.peer = None
        exchange.taker = exchange.taken = exchange.route = None
        exchange.form, exchange.tried = self._form, tried
        to = found[at].target.choose(exchange)
        router = exchange.link.node.parts.router
        try:
            router.dispatch(session.message(exchange, (to,)))
        except DeliveryError as error:
            exchange.fail(error)
        return True
