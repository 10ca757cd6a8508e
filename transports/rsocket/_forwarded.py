"""Requests that this broker forwards to a peer broker.

The request is pinned to the route that this broker has chosen. From the first frame of the answer
on it is relayed like any other. If that frame is ERROR[REJECTED], the other broker has certainly
not handed the request over. Then it is sent elsewhere, at most `TRIES` times, as long as the whole
request is still kept: it is, until then, within `GatheringOptions.max_forwarded`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...protocol import DeliveryError, NotDelivered, ProtocolError
from ...protocol.broker import RoutingType, TagList, WellKnownKey, format_id
from ...protocol.rsocket import (
    FOLLOWS,
    HEADER_SIZE,
    LENGTH_SIZE,
    MAX_FRAME,
    ErrorCode,
    Frame,
    FrameType,
    Stream,
)
from ._metadata import FORMS, PEER, Form
from ._pinning import named_address, pinned
from ._request import FRAME_COST, WITH_CREDIT
from ._translate import with_metadata

if TYPE_CHECKING:
    from ...actors.broker import Ask
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["MAX_PINS", "MAX_PIN_SIZE", "TRIES", "Forwarded", "forward", "frames_for_peer"]

_logger = logging.getLogger("onward.transports.rsocket")

TRIES: Final = 2
"""Most further destinations for a request that peer brokers have rejected."""

MAX_PINS: Final = 4096
"""Most metadata of a link that are remembered with their pin; then all are forgotten."""
MAX_PIN_SIZE: Final = 512
"""Bytes of metadata above which they are not remembered."""

_LONG_HEADER: Final = HEADER_SIZE + 4
"""Bytes before the metadata of a request with an initial request-n."""
_ERROR: Final = int(FrameType.ERROR)
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
    first = frames[0]
    kind, requester, route = exchange.kind, exchange.link, exchange.route
    buffer, metadata = first.buffer, b""
    at = end = 0
    if len(frames) == 1 and not first.word & FOLLOWS and not requester.to_broker:
        at = first.start + (_LONG_HEADER if kind in WITH_CREDIT else HEADER_SIZE)
        start = at + 3
        end = start + int.from_bytes(buffer[at:start])
        metadata = buffer[start:end]
    made: Frame | None = None
    plain = metadata and form is not None and not requester.session.adds_tags
    if plain and form is not None and route is not None:
        # A client mostly repeats the same few metadata: what is made of them is remembered.
        key = (metadata, route.route_id, form)
        pin = link.pins.get(key)
        if pin is not None:
            size = first.end - first.start + len(pin) - 3 - len(metadata)
            if size <= MAX_FRAME:
                parts = (size.to_bytes(3), buffer[first.start : at], pin, buffer[end : first.end])
                raw = b"".join(parts)
                made = Frame.of(raw, LENGTH_SIZE, size + LENGTH_SIZE, first.stream_id, first.word)
                exchange.frames = [made]
    if made is None:
        exchange.frames = made_frames = frames_for_peer(exchange)
        if len(made_frames) == 1 and metadata:
            made = made_frames[0]
            if plain and len(metadata) <= MAX_PIN_SIZE:
                _remember(link, exchange, metadata, made)
    exchange.form = PEER
    try:
        exchange.hand_to(link)
    except BaseException:
        exchange.form, exchange.frames = form, frames
        raise
    stream = exchange.taken
    if stream is None or made is None or exchange.ended:
        return
    size = made.end + FRAME_COST
    limits = link.gathering
    if size <= limits.max_gather and link.forwarded_held + size <= limits.max_forwarded:
        link.forwarded_held += size
        stream.peer = exchange.withdraw = Forwarded(exchange, form, made, metadata)


def _remember(link: Link, exchange: StreamExchange, metadata: bytes, made: Frame) -> None:
    """Remember what has been made of some metadata, in which no principal has a part."""
    form, route = exchange.form, exchange.route
    if form is None or route is None:
        return
    if len(link.pins) >= MAX_PINS:
        link.pins.clear()
    at = made.start + (_LONG_HEADER if exchange.kind in WITH_CREDIT else HEADER_SIZE)
    end = at + 3 + int.from_bytes(made.buffer[at : at + 3])
    link.pins[metadata, route.route_id, form] = made.buffer[at:end]


class Forwarded:
    """A request at a peer broker that has not answered yet; the `peer` of its stream there.

    Calling it keeps the request no longer.

    Args:
        exchange: The request.
        form: The form of its ADDRESS.
        made: Its one frame, as it was sent to the peer broker.
        metadata: Its metadata as the requester has sent them.
    """

    __slots__ = ("_exchange", "_form", "_made", "_metadata", "_state")

    def __init__(
        self, exchange: StreamExchange, form: Form | None, made: Frame, metadata: bytes
    ) -> None:
        self._exchange = exchange
        self._form = form
        self._made: Frame | None = made
        self._metadata = metadata
        # It changes with each frame of a channel's requester that is relayed.
        self._state = 0 if exchange.stream is None else exchange.stream.state

    def __call__(self) -> None:
        """Keep the request no longer: it has ended, or was taken up."""
        made, taker = self._made, self._exchange.taker
        if made is not None and taker is not None:
            self._made = None
            taker.forwarded_held -= made.end + FRAME_COST

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Relay the first frame of the answer, or send the request elsewhere."""
        exchange, made = self._exchange, self._made
        exchange.withdraw = None
        self()
        stream.peer = exchange
        # Error Codes, REJECTED: "The Responder guarantees that it didn't process the request."
        if (
            frame.type == _ERROR
            and made is not None
            and frame.error_code == ErrorCode.REJECTED
            and self._goes_elsewhere(stream, made)
        ):
            return
        exchange.on_answer(link, stream, frame)

    def on_gone(self, stream: Stream, text: str) -> None:
        """End the request, as the link was lost."""
        self()
        self._exchange.withdraw = None
        self._exchange.on_gone(stream, text)

    def _goes_elsewhere(self, stream: Stream, made: Frame) -> bool:
        """Send the request to another destination; return whether there is one."""
        exchange, origin = self._exchange, self._exchange.stream
        route = exchange.route
        tried: tuple[bytes, ...] = getattr(exchange, "tried", ())
        if route is None or origin is None or len(tried) >= TRIES or origin.state != self._state:
            return False
        tried = (*tried, route.route_id)
        session = exchange.link.session
        index = exchange.link.broker.index
        exchange.frames = with_metadata([made], self._metadata)
        try:
            ask = session.ask_of(exchange)
        except (ProtocolError, DeliveryError):
            return False  # the rules are others by now
        if ask.routing is not RoutingType.UNICAST or ask.sticky:
            return False  # one destination is responsible
        to = index.choose_other(ask, exchange, tried)
        if to is None:
            return False
        route.outstanding -= 1
        stream.peer = None
        exchange.taker = exchange.taken = None
        exchange.form, exchange.tried = self._form, tried
        router = exchange.link.node.parts.router
        try:
            router.dispatch(session.message(exchange, (to,)))
        except DeliveryError as error:
            exchange.fail(error)
        return True
