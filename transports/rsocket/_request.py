"""Requests made of frames: what all that comes from a connection has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final
from uuid import UUID

from ...actors.broker import Exchange, Interaction, Request, route_of
from ...actors.broker._exchange import DROP, FAILED, INVALID, REJECTED
from ...protocol import InDoubt, NoRoute, NotDelivered
from ...protocol.broker import unwrap_metadata
from ...protocol.rsocket import COMPLETE, COMPOSITE_MIME, FOLLOWS, ErrorCode, Frame, FrameType

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

WITH_CREDIT: Final = frozenset({int(FrameType.REQUEST_STREAM), int(FrameType.REQUEST_CHANNEL)})
"""The requests whose first frame asks for a number of elements."""

FRAME_COST: Final = 256
"""Bytes counted for each frame that is kept besides its own, for the objects it is made of."""

INTERACTIONS: Final = {
    int(FrameType.REQUEST_RESPONSE): Interaction.RESPONSE,
    int(FrameType.REQUEST_FNF): Interaction.FIRE_AND_FORGET,
    int(FrameType.REQUEST_STREAM): Interaction.STREAM,
    int(FrameType.REQUEST_CHANNEL): Interaction.CHANNEL,
    int(FrameType.METADATA_PUSH): Interaction.METADATA_PUSH,
}
"""How is asked, by the frame type of the request."""


class DestinationSlow(NotDelivered):
    """The destination's socket is above `high_water`; it is given nothing new until it reads."""

    reason: ClassVar[str] = "does not keep up"


class DestinationUnleased(NotDelivered):
    """The destination honours leases, and has leased no more requests just now."""

    reason: ClassVar[str] = "has leased no more requests"


def text_of(error: Exception) -> str:
    """Return what a requester is told: its tags or the field at fault, never our internals."""
    if isinstance(error, NotDelivered) and type(error) not in (NotDelivered, NoRoute):
        return str(NotDelivered("the destination", error.reason))
    return str(error)


def more_follow(frame: Frame) -> bool:
    """Say whether a frame is a fragment that others follow."""
    if frame.type == FrameType.METADATA_PUSH:
        return False  # the flag means nothing there
    if frame.type == FrameType.PAYLOAD and frame.word & COMPLETE:
        return False  # "implicitly ignores the F flag"
    return bool(frame.word & FOLLOWS)


def completes(frames: list[Frame]) -> bool:
    """Say whether a whole request is also all that its requester sends.

    A channel's first frame may say so, and so may the last of its fragments; frames of other
    requests mean nothing by it.
    """
    first = frames[0]
    return first.type == FrameType.REQUEST_CHANNEL and bool(
        (first.word | frames[-1].word) & COMPLETE
    )


def code_of(error: Exception) -> int:
    """Return the RSocket error code that tells a requester whether to try again.

    REJECTED: nothing was handed over. CANCELED: it was, and the outcome is unknown.
    INVALID: the request itself is wrong.
    """
    if isinstance(error, NotDelivered):
        return ErrorCode.REJECTED
    if isinstance(error, InDoubt):
        return ErrorCode.CANCELED
    return ErrorCode.INVALID


def outcome_of_code(code: int) -> int:
    """Return how a request ended, for the event log, that the broker ended with an error code."""
    if code == ErrorCode.REJECTED:
        return REJECTED
    if code == ErrorCode.CANCELED:
        return DROP
    return INVALID if code == ErrorCode.INVALID else FAILED


class FrameExchange(Exchange):
    """A request that connections can take: what its frames are handed over by."""

    __slots__ = ()

    def hand_to(self, link: Link) -> None:
        """Open a stream to a connection's peer for the request, and join the two ends.

        Raises:
            NotDelivered: The peer does not keep up, the connection takes no more streams,
                or it has gone.
        """
        raise NotImplementedError

    def answer(self, payload: bytes) -> None:
        """Take the answer of a worker of this node.

        Raises:
            NotDelivered: The request is over, or has been answered already.
        """
        raise NotImplementedError


def request_of(frames: list[Frame], form: Form | None, kind: int) -> Request:
    """Return a whole request as handlers see it.

    Args:
        frames: Its frames.
        form: How its ADDRESS is wrapped.
        kind: The frame type of the request.

    Raises:
        ProtocolError: Its metadata cannot be read.
    """
    if form is None:
        raise AssertionError("a request is routed by its ADDRESS")
    metadata = b"".join(bytes(frame.metadata or b"") for frame in frames)
    mime = COMPOSITE_MIME if form.composite else form.mime.decode()
    asked, _, wrapped, entries = unwrap_metadata(metadata, mime)
    if asked is None:
        raise AssertionError("a request is routed by its ADDRESS")
    if not wrapped and kind == FrameType.METADATA_PUSH:
        wrapped = metadata
    origin = UUID(bytes=asked.origin_route_id) if any(asked.origin_route_id) else None
    return Request(
        b"".join(bytes(frame.data or b"") for frame in frames),
        wrapped or None,
        entries,
        origin,
        asked.tags,
        asked.encrypted,
        route_of(entries),
    )
