"""Requests made of frames: the parts that all interactions and both ends share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final
from uuid import UUID

from ...actors.broker import Exchange, Interaction, Request, route_of
from ...actors.broker._exchange import DROP, FAILED, INVALID, REJECTED
from ...protocol import InDoubt, NoRoute, NotDelivered
from ...protocol.broker import unwrap_metadata
from ...protocol.rsocket import COMPLETE, COMPOSITE_MIME, FOLLOWS, ErrorCode, Frame, FrameType
from ...protocol.security import NotAllowed, Principal

if TYPE_CHECKING:
    from ._link import Link
    from ._metadata import Form

__all__ = [
    "FRAME_COST",
    "INTERACTIONS",
    "WITH_CREDIT",
    "DestinationSlow",
    "DestinationUnleased",
    "FrameExchange",
    "code_of",
    "completes",
    "more_follow",
    "outcome_of_code",
    "request_of",
    "text_of",
]

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_PUSH: Final = int(FrameType.METADATA_PUSH)

WITH_CREDIT: Final = frozenset({int(FrameType.REQUEST_STREAM), _CHANNEL})
"""Frame types of the requests with an initial request-n."""

FRAME_COST: Final = 256
"""Bytes counted for each kept frame besides its own, for the objects that hold it."""

INTERACTIONS: Final = {
    int(FrameType.REQUEST_RESPONSE): Interaction.RESPONSE,
    int(FrameType.REQUEST_FNF): Interaction.FIRE_AND_FORGET,
    int(FrameType.REQUEST_STREAM): Interaction.STREAM,
    int(FrameType.REQUEST_CHANNEL): Interaction.CHANNEL,
    int(FrameType.METADATA_PUSH): Interaction.METADATA_PUSH,
}
"""The interaction of each frame type of a request."""


class DestinationSlow(NotDelivered):
    """Refusal: the destination's backlog is above four times `high_water`, until it reads."""

    reason: ClassVar[str] = "does not keep up"


class DestinationUnleased(NotDelivered):
    """Refusal: the destination honours leases, and its lease allows no more requests."""

    reason: ClassVar[str] = "has leased no more requests"


def text_of(error: Exception) -> str:
    """Return the text for a requester: its tags or the field at fault, no internals."""
    if isinstance(error, NotDelivered) and type(error) not in (NotDelivered, NoRoute, NotAllowed):
        return str(NotDelivered("the destination", error.reason))
    return str(error)


def more_follow(frame: Frame) -> bool:
    """Return whether a frame is a fragment that others follow."""
    if not frame.word & FOLLOWS:
        return False
    if frame.type == _PUSH:
        # METADATA_PUSH: the flag is not specified, and "Flag bits not specified for a particular
        # frame MUST be ignored."
        return False
    # Handling the Unexpected: "A PAYLOAD with both F and C flags set, implicitly ignores the F
    # flag."
    return not (frame.type == _PAYLOAD and frame.word & COMPLETE)


def completes(frames: list[Frame]) -> bool:
    """Return whether a whole request is also the last element of its requester."""
    # Request Channel: "A Requester may indicate COMPLETE by setting the C bit on either the
    # initial REQUEST_CHANNEL frame, or on the last PAYLOAD frame sent."
    first = frames[0]
    return first.type == _CHANNEL and bool((first.word | frames[-1].word) & COMPLETE)


def code_of(error: Exception) -> int:
    """Return the RSocket error code for a requester.

    REJECTED: "The Responder guarantees that it didn't process the request." CANCELED: it "may
    have started processing it". INVALID: "The request is invalid." (Error Codes)
    """
    if isinstance(error, NotAllowed):
        # REJECTED would invite the peer to try again.
        return ErrorCode.INVALID
    if isinstance(error, NotDelivered):
        return ErrorCode.REJECTED
    if isinstance(error, InDoubt):
        return ErrorCode.CANCELED
    return ErrorCode.INVALID


def outcome_of_code(code: int) -> int:
    """Return the outcome, for the event log, of a request that the broker ended with a code."""
    if code == ErrorCode.REJECTED:
        return REJECTED
    if code == ErrorCode.CANCELED:
        return DROP
    return INVALID if code == ErrorCode.INVALID else FAILED


class FrameExchange(Exchange):
    """A request that can be handed to a connection as frames.

    Two connections are the zero-copy case of an exchange: frames are relayed as they are, and are
    not taken apart into elements.
    """

    __slots__ = ()

    def hand_to(self, link: Link) -> None:
        """Open a stream to a connection's peer for the request, and join the two streams.

        Raises:
            NotDelivered: The peer does not keep up, the connection takes no more streams,
                or it has gone.
        """
        raise NotImplementedError


def request_of(
    frames: list[Frame],
    form: Form | None,
    kind: int,
    principal: Principal | None,
    *,
    shared: bool = False,
    source: str = "",
) -> Request:
    """Return a whole request as it is given to handlers.

    Args:
        frames: Its frames.
        form: The form of its ADDRESS; `None` if it names a route.
        kind: The frame type of the request.
        principal: The principal of its requester, if it is authenticated.
        shared: Whether several processes listen where it came in.
        source: The source of its connection.

    Raises:
        ProtocolError: Its metadata cannot be read.
    """
    metadata = b"".join(bytes(frame.metadata or b"") for frame in frames)
    data = b"".join(bytes(frame.data or b"") for frame in frames)
    mime = COMPOSITE_MIME if form is None or form.composite else form.mime.decode()
    asked, _, wrapped, entries = unwrap_metadata(metadata, mime)
    if asked is None:
        route = route_of(entries)
        return Request(
            data,
            None,
            entries,
            route=route,
            principal=principal,
            shared=shared,
            source=source,
        )
    if not wrapped and kind == FrameType.METADATA_PUSH:
        wrapped = metadata
    origin = UUID(bytes=asked.origin_route_id) if any(asked.origin_route_id) else None
    return Request(
        data,
        wrapped or None,
        entries,
        origin,
        asked.tags,
        asked.encrypted,
        route_of(entries),
        principal,
        shared,
        source,
    )
