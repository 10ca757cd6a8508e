"""Requests that this broker forwards to a peer broker.

The request is pinned to the route that this broker has chosen. From the first frame of the answer
on it is relayed like any other. If that frame is ERROR[REJECTED], the other broker has certainly
not handed the request over. Then it is sent elsewhere, at most `TRIES` times, as long as the whole
request is still kept. It is, until then, with the chunk of input that it is in, and counts with all
of that: `StreamExchange.frames` has it, and `Link.retry_room` says how much more may be kept. If
there is no other destination, and the last one has gone, it waits here as for any missing route.
"""

from __future__ import annotations

import logging
from functools import lru_cache
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
)
from ._metadata import FORMS, JAVA, PEER
from ._pinning import named_address, pinned, pinned_for_java
from ._request import WITH_CREDIT, FrameExchange

if TYPE_CHECKING:
    from ...actors.broker import Ask
    from ...actors.broker.table._remote import AnyRoute
    from ._exchange import StreamExchange
    from ._link import Link
    from ._metadata import Form

__all__ = [
    "MAX_ROUTE_TEXTS",
    "TRIES",
    "Pin",
    "drop_kept",
    "forward",
    "frames_for_java",
    "frames_for_peer",
    "sent_elsewhere",
]

_logger = logging.getLogger("onward.transports.rsocket")

TRIES: Final = 2
"""Most further destinations for a request that peer brokers have rejected."""

MAX_ROUTE_TEXTS: Final = 4096
"""Most route ids that are remembered as text; the least recently used is forgotten."""

_GONE: Final = f"{NoRoute.reason}:".encode()
"""How the text of a peer broker's ERROR[REJECTED] begins if it has no such route."""
FROM_ZONE: Final = LinkRole.FROM_ZONE
MESH: Final = LinkRole.MESH

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_ERROR: Final = int(FrameType.ERROR)
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_NAMED: Final = next(form for form in FORMS.values() if form.composite)


def _route_id_text(route_id: bytes) -> bytes:
    return format_id(route_id).encode()


route_id_text: Final = lru_cache(MAX_ROUTE_TEXTS)(_route_id_text)


class Pin:
    """The metadata of requests for peer brokers, as they are around the RouteId of the destination.

    A client mostly repeats the same few metadata. What is made of them is the same for each
    destination but for that tag, so it is remembered with them. Tags of a principal are not in it.

    Attributes:
        form: The form of the peer broker; `None` until there was a request.
        data: The offset of the data in a request of the client.
        front: `PIN_HEAD` bytes, the length of the metadata, and the bytes before the id.
        back: The bytes behind the id.
        route: The destination that they were last written for.
        whole: `PIN_HEAD` bytes and the metadata for that one, with their length.
        zone: The same for a broker of another zone: without an id; empty until there was such a
            request.
    """

    __slots__ = ("back", "data", "form", "front", "route", "whole", "zone")

    def __init__(self) -> None:
        self.form: Form | None = None
        self.route: AnyRoute | None = None
        self.data = 0
        self.front = self.back = self.whole = self.zone = b""

    def learn(self, link: Link, frame: Frame, made: Frame, text: bytes) -> None:
        """Remember the metadata that were made of those of a request.

        Args:
            link: The link to the peer broker.
            frame: The request of a client.
            made: The request for the peer broker.
            text: The RouteId that was added to its ADDRESS.
        """
        if frame.type in WITH_CREDIT:
            return
        spans: list[bytes] = []
        for each in (frame, made):
            start = each.start + HEADER_SIZE
            end = start + 3 + int.from_bytes(each.buffer[start : start + 3])
            spans.append(each.buffer[start:end])
        self.data = HEADER_SIZE + len(spans[0])
        if link.form is PEER and link.role is not MESH:
            self.zone = bytes(PIN_HEAD) + spans[1]
        # A requester that names the route itself may mean no other.
        elif text not in spans[0] and spans[1].count(text) == 1:
            front, self.back = spans[1].split(text)
            self.front = bytes(PIN_HEAD) + front
            self.form = link.form
            self.route, self.whole = None, b""

    def written(self, link: Link, route: AnyRoute | None) -> bytes:
        """Return the metadata for a destination, as `whole` or `zone` has them.

        Args:
            link: The link to its peer broker.
            route: The destination.

        Returns:
            The metadata; empty if they are not known.
        """
        if route is None:
            return b""
        if link.role is not MESH:
            return self.zone
        if self.form is not link.form:
            return b""
        self.route = route
        self.whole = b"".join((self.front, route_id_text(route.route_id), self.back))
        return self.whole


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
    route = exchange.route
    around = exchange.pin
    kind = exchange.kind
    metadata = b""
    if around is not None and kind not in WITH_CREDIT:
        if around.route is route and around.form is link.form:
            metadata = around.whole
        else:
            metadata = around.written(link, route)
    if around is None or not metadata:
        _forward_anew(exchange, link)
        return
    first = exchange.frames[0]
    # As `hand_to` does for a request without credit, but with other metadata.
    now = exchange.link.now
    if exchange.withdraw is not None:
        now = exchange.began = link.time()  # it waited for a route until now
    core = link.core
    stream = link.open(kind, now)
    try:
        core.relay_pinned(stream, first, first.start + around.data, metadata)
    except ProtocolError:
        core.send_cancel(stream)
        raise
    link.legs.taken += 1
    exchange.taker, exchange.taken = link, stream
    stream.peer = exchange
    if not link.flushing:
        link.flush_soon()
    if stream.state == CLOSED:
        exchange.link.tally.sent += 1
        exchange.frames.clear()
        FrameExchange.end(exchange, 0.0, RELAYED)
        exchange.unlink()
        return
    # As `_keep` does, without the call: this runs for each request.
    room = link.retry_room - len(first.buffer)
    if room < 0:
        exchange.frames.clear()
    else:
        link.retry_room = room


def _forward_anew(exchange: StreamExchange, link: Link) -> None:
    """Hand a request to a peer broker with metadata that are made for it."""
    route, form, frames = exchange.route, exchange.form, exchange.frames
    java = link.form is JAVA
    made = frames_for_java(exchange, route) if java else frames_for_peer(exchange, link)
    if exchange.pin is not None and route is not None and len(made) == 1:
        exchange.pin.learn(link, frames[0], made[0], route_id_text(route.route_id))
    exchange.form, exchange.frames = link.form, made
    exchange.uncounted = exchange.log is not None and exchange.kind in WITH_CREDIT
    try:
        exchange.hand_to(link)
    except BaseException:
        exchange.uncounted = False
        exchange.taker = exchange.taken = None
        raise
    finally:
        exchange.form, exchange.frames = form, frames
    link.legs.taken += 1
    # A channel that its requester goes on with is not the same request later.
    first = frames[0]
    alone = len(frames) == 1 and not first.word & FOLLOWS
    again = alone and (exchange.kind != _CHANNEL or first.word & COMPLETE)
    room = link.retry_room - len(first.buffer)
    if exchange.taken is None or exchange.ended or not again or room < 0:
        exchange.frames = []
        _count(exchange)
    else:
        link.retry_room = room


def _count(exchange: StreamExchange) -> None:
    """Count in the event log that a peer broker has the request, if that is not counted yet."""
    if getattr(exchange, "uncounted", False):
        exchange.uncounted = False
        exchange.forwarded()


def drop_kept(exchange: StreamExchange) -> None:
    """Drop a request that was kept until a peer broker answers, if it is."""
    link = exchange.taker
    if exchange.frames and link is not None and link.to_broker:
        link.retry_room += len(exchange.frames[0].buffer)
        exchange.frames.clear()


def sent_elsewhere(exchange: StreamExchange, link: Link, frame: Frame) -> bool:
    """Send a kept request elsewhere if the first frame of its answer allows it; drop it if not.

    Returns:
        Whether it was sent. If not, the frame goes to the requester.
    """
    link.retry_room += len(exchange.frames[0].buffer)
    # Error Codes, REJECTED: "The Responder guarantees that it didn't process the request."
    rejected = frame.type == _ERROR and frame.error_code == ErrorCode.REJECTED
    if rejected and _goes_on(exchange, gone=bytes(frame.data or b"").startswith(_GONE)):
        return True
    exchange.frames.clear()
    if exchange.kind in WITH_CREDIT:
        _count(exchange)
    return False


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
    route.released()
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
