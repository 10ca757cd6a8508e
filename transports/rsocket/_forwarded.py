"""Requests that this broker forwards to a peer broker.

The request is pinned to the route that this broker has chosen. From the first frame of the answer
on it is relayed like any other. If that frame is ERROR[REJECTED], the other broker has certainly
not handed the request over. Then it is sent elsewhere, at most `TRIES` times, as long as the whole
request is still kept: it is, until then, within `GatheringOptions.max_forwarded`. If there is no
other destination, and the last one has gone, it waits here as for any missing route.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...actors.broker._exchange import RELAYED
from ...protocol import DeliveryError, NoRoute, NotDelivered, ProtocolError
from ...protocol.broker import RoutingType, TagList, WellKnownKey, format_id
from ...protocol.cluster import LinkRole
from ...protocol.rsocket import (
    CLOSED,
    COMPLETE,
    FOLLOWS,
    HEADER_SIZE,
    PIN_HEAD,
    ErrorCode,
    Frame,
    FrameType,
    Stream,
)
from ._metadata import FORMS, JAVA
from ._pinning import named_address, pinned, pinned_for_java
from ._request import WITH_CREDIT, FrameExchange

if TYPE_CHECKING:
    from ...actors.broker import Ask
    from ...actors.broker.table._remote import AnyRoute
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = [
    "MAX_PINS",
    "MAX_PIN_SIZE",
    "TRIES",
    "ForwardedRequests",
    "forward",
    "frames_for_java",
    "frames_for_peer",
]

_logger = logging.getLogger("onward.transports.rsocket")

TRIES: Final = 2
"""Most further destinations for a request that peer brokers have rejected."""

MAX_PINS: Final = 4096
"""Most metadata of a link that are remembered with their pin; then all are forgotten."""
MAX_PIN_SIZE: Final = 512
"""Bytes of metadata above which they are not remembered."""

SPARE: Final = 64
"""Cancelled requests that are kept, besides as many as have not ended, before they are dropped."""

_GONE: Final = f"{NoRoute.reason}:".encode()
"""How the text of a peer broker's ERROR[REJECTED] begins if it has no such route."""
FROM_ZONE: Final = LinkRole.FROM_ZONE
MESH: Final = LinkRole.MESH

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_ERROR: Final = int(FrameType.ERROR)
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_NAMED: Final = next(form for form in FORMS.values() if form.composite)


def frames_for_peer(exchange: StreamExchange, link: Link) -> list[Frame]:
    """Return the frames of a request for a peer broker.

    With a chosen route they are pinned to it, unless that stands for a zone. The tags that the
    rules add to the query are in them as well: the other broker asks no rules.

    Args:
        exchange: The request.
        link: The link to the peer broker.

    Raises:
        NotDelivered: The request came from a peer broker, and may not go to this one.
        ProtocolError: Its metadata cannot be read, or would have too many tags.
    """
    tags = _added(exchange, link)
    if exchange.route is not None and link.role is MESH:
        tags = ((_ROUTE_ID, format_id(exchange.route.route_id)), *tags)
    form = exchange.form or _NAMED
    own = exchange.link.broker.broker_id.bytes
    return pinned(exchange.frames, form, tags, own, _asked(exchange))


def frames_for_java(exchange: StreamExchange, route: AnyRoute | None) -> list[Frame]:
    """Return the frames of a request for a destination of a Java broker.

    Args:
        exchange: The request.
        route: The destination: that of the request, or of a leg of it.

    Raises:
        NotDelivered: The request came from a peer broker.
        ProtocolError: Its metadata cannot be read, or has a tag that cannot be written for it.
    """
    if route is None:
        raise AssertionError("a request for a Java broker has a destination")
    form = exchange.form or _NAMED
    return pinned_for_java(
        exchange.frames, form, _added(exchange, None), route.route_id, _asked(exchange)
    )


def _asked(exchange: StreamExchange) -> bytes:
    """Return the ADDRESS of a request that names a route instead; empty for others."""
    ask: Ask | None = getattr(exchange, "named", None)
    return b"" if ask is None else named_address(ask)


def _added(exchange: StreamExchange, to: Link | None) -> TagList:
    """Return the tags that the rules add to the query of a request that goes to a peer broker.

    Args:
        exchange: The request.
        to: The link to the peer broker; `None` for a Java broker.

    Raises:
        NotDelivered: The request came from a peer broker, and may not go to this one.
    """
    link = exchange.link
    if link.to_broker:
        # Roles go strictly down: from another zone to brokers of the own one, and no further.
        if link.role is FROM_ZONE and (to is None or to.role is MESH):
            return ()
        # Routes of other brokers are no candidates for such a request: there is a fault in here.
        link.core.counters["forwarded_again"] += 1
        _logger.error(
            "%s: a request of a peer broker would be forwarded again",
            link.name,
            extra={"event": "request.forwarded_again", "peer": link.name},
        )
        raise NotDelivered("the destination", "it is at another broker")
    principal = getattr(exchange, "checked", link.session.principal)
    if principal is None or not principal.tags or link.broker.authorization is None:
        return ()
    return tuple(sorted(principal.tags, key=str))


def forward(exchange: StreamExchange, link: Link) -> None:
    """Hand a request to a peer broker, and keep it until that answers.

    Raises:
        NotDelivered: It does not keep up, takes no more streams, or has gone; or the request came
            from a peer broker.
        ProtocolError: The metadata of the request cannot be read, or it would be too large.
    """
    route, form, frames = exchange.route, exchange.form, exchange.frames
    first = frames[0]
    alone = len(frames) == 1 and not first.word & FOLLOWS
    plain = alone and exchange.kind not in WITH_CREDIT and not exchange.link.session.adds_tags
    if plain and route is not None and form is not None:
        buffer, start = first.buffer, first.start + HEADER_SIZE + 3
        data = start + int.from_bytes(buffer[start - 3 : start])
        # A client mostly repeats the same few metadata: what is made of them is remembered.
        pin = link.pins.get((buffer[start:data], route.route_id, form))
        if pin is not None:
            _forward_pinned(exchange, link, first, data, pin)
            return
    java = link.form is JAVA
    made = frames_for_java(exchange, route) if java else frames_for_peer(exchange, link)
    if plain and len(made) == 1:
        _remember(link, exchange, first, made[0])
    exchange.form, exchange.frames = link.form, made
    exchange.uncounted = exchange.log is not None and exchange.kind in WITH_CREDIT
    try:
        exchange.hand_to(link)
    except BaseException:
        exchange.uncounted = False
        raise
    finally:
        exchange.form, exchange.frames = form, frames
    link.legs.taken += 1
    stream = exchange.taken
    # A channel that its requester goes on with is not the same request later.
    again = alone and (exchange.kind != _CHANNEL or first.word & COMPLETE)
    if not again:
        exchange.frames = []
    elif stream is not None and not exchange.ended:
        link.forwarded.keep(exchange, stream)
    if stream is not None and stream.peer is not link.forwarded:
        _count(exchange)


def _count(exchange: StreamExchange) -> None:
    """Count in the event log that a peer broker has the request, if that is not counted yet."""
    if getattr(exchange, "uncounted", False):
        exchange.uncounted = False
        exchange.forwarded()


def _forward_pinned(
    exchange: StreamExchange, link: Link, frame: Frame, data: int, pin: bytes
) -> None:
    """Hand over a request without credit; as `hand_to`, but with other metadata."""
    now = exchange.link.now
    if exchange.withdraw is not None:
        now = exchange.began = link.time()  # it waited for a route until now
    core = link.core
    stream = link.open(exchange.kind, now)
    try:
        core.relay_pinned(stream, frame, data, pin)
    except ProtocolError:
        core.send_cancel(stream)
        raise
    link.legs.taken += 1
    exchange.taker, exchange.taken = link, stream
    if not link.flushing:
        link.flush_soon()
    if stream.state == CLOSED:
        exchange.link.tally.sent += 1
        FrameExchange.end(exchange, 0.0, RELAYED)
        exchange.unlink()
    else:
        stream.peer = exchange
        link.forwarded.keep(exchange, stream)


def _remember(link: Link, exchange: StreamExchange, frame: Frame, made: Frame) -> None:
    """Remember the metadata that were made of others, in which no principal has a part."""
    form, route = exchange.form, exchange.route
    if form is None or route is None:
        return
    spans: list[bytes] = []
    for each in (frame, made):
        start = each.start + HEADER_SIZE
        end = start + 3 + int.from_bytes(each.buffer[start : start + 3])
        spans.append(each.buffer[start:end])
    if len(spans[0]) <= MAX_PIN_SIZE:
        if len(link.pins) >= MAX_PINS:
            link.pins.clear()
        link.pins[spans[0][3:], route.route_id, form] = bytes(PIN_HEAD) + spans[1]


class ForwardedRequests:
    """The requests at one peer broker that has not answered them; the `peer` of their streams.

    A request is kept with the chunk of input that it is in, and counted with all of that. Those
    that their requesters have cancelled are dropped later, in one go.

    Attributes:
        held: Bytes kept, those of cancelled requests included.

    Args:
        most: See `GatheringOptions.max_forwarded`.
    """

    __slots__ = ("_most", "_pending", "_sweep_at", "held")

    def __init__(self, most: int) -> None:
        self._most = most
        self._pending: dict[Stream, StreamExchange] = {}
        self._sweep_at = SPARE
        self.held = 0

    def keep(self, exchange: StreamExchange, stream: Stream) -> None:
        """Keep a request until the peer broker answers on a stream, if there is room for it."""
        pending = self._pending
        size = len(exchange.frames[0].buffer)
        if self.held + size > self._most or len(pending) >= self._sweep_at:
            self._sweep()
            if self.held + size > self._most:
                exchange.frames = []
                return
        self.held += size
        pending[stream] = exchange
        stream.peer = self

    def _sweep(self) -> None:
        """Drop the requests that have ended."""
        pending = self._pending
        for stream in [each for each in pending if each.state == CLOSED]:
            del pending[stream]
        self._sweep_at = 2 * len(pending) + SPARE
        self.held = sum(len(each.frames[0].buffer) for each in pending.values())

    def on_answer(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Relay the first frame of an answer, or send the request elsewhere."""
        exchange = self._pending.pop(stream)
        self.held -= len(exchange.frames[0].buffer)
        # Error Codes, REJECTED: "The Responder guarantees that it didn't process the request."
        rejected = frame.type == _ERROR and frame.error_code == ErrorCode.REJECTED
        if rejected and _goes_on(exchange, gone=bytes(frame.data or b"").startswith(_GONE)):
            return
        exchange.frames = []
        stream.peer = exchange
        _count(exchange)
        exchange.on_answer(link, stream, frame)

    def on_gone(self, stream: Stream, text: str) -> None:
        """End a request, as the link was lost."""
        exchange = self._pending.pop(stream)
        self.held -= len(exchange.frames[0].buffer)
        exchange.frames = []
        exchange.on_gone(stream, text)


def _goes_on(exchange: StreamExchange, *, gone: bool) -> bool:
    """Send a rejected request to another destination, or let it wait for one.

    Args:
        exchange: The request.
        gone: Whether the destination is not at the peer broker any more.

    Returns:
        False if the requester has to get the error: the destination cannot take it now, or there
        are others that the request must not go to.
    """
    route, session, index = exchange.route, exchange.link.session, exchange.link.broker.index
    if route is None or exchange.ended:
        return False
    try:
        ask = session.ask_of(exchange)
    except (ProtocolError, DeliveryError):
        return False  # the rules are others by now
    tried = (*getattr(exchange, "tried", ()), route)
    others = index.others(ask, tried)
    # A request of a peer broker goes to no other zone, and never waits.
    client = not exchange.link.to_broker
    group = index.zones.pick(ask, tried) if client and not others else None
    if others or group is not None:
        # Shard requests and sticky keys have one destination that is responsible.
        if ask.routing is not RoutingType.UNICAST or ask.sticky or len(tried) > TRIES:
            return False
    elif ask.routing is RoutingType.MULTICAST or not gone or not client:
        return False
    exchange.route = None
    route.outstanding -= 1
    if exchange.taken is not None:
        exchange.taken.peer = None
    exchange.taker = exchange.taken = None
    exchange.uncounted = False
    if not others and group is None:
        exchange.tried = ()
        since = getattr(exchange, "read_at", 0.0) or exchange.began
        index.wait(session.message(exchange, (ask.address,)), ask, since)
        return True
    exchange.tried = tried
    to = index.choose_among(others, exchange) if group is None else group.choose(exchange)
    try:
        exchange.link.node.parts.router.dispatch(session.message(exchange, (to,)))
    except DeliveryError as error:
        exchange.fail(error)
    return True
