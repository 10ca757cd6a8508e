"""Limits of one connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ..options import Count, Range, Seconds, Size, check_options
from ._constants import MAX_FRAME
from ._serialize import MIN_MTU

__all__ = ["ConnectionLimits", "FrameSize"]

FrameSize: TypeAlias = Annotated[int, Range(least=MIN_MTU, most=MAX_FRAME, unit="bytes")]
"""The size of a frame without its length prefix, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of what one peer may use, and the consequence of exceeding each.

    Attributes:
        max_frame: Most bytes of a received frame, without its length prefix. Over it:
            ERROR[CONNECTION_ERROR] and close, before the frame is gathered. Default: what
            the specification allows, 16 MiB - 1.
        max_setup: The same for the first frame, from a peer that is not known yet. Over
            it: ERROR[INVALID_SETUP] and close. Default 256 KiB.
        max_streams: Most live streams, both sides' together. Over it a request of the peer
            gets ERROR[REJECTED] (a fire-and-forget is dropped and counted), and our own
            `open` raises `TooManyStreams`. Default 16384.
        max_keepalive_data: Most bytes of data in a KEEPALIVE, which have to be sent back.
            Over it: ERROR[CONNECTION_ERROR] and close. Default 64 KiB.
        setup_timeout: Seconds a client has for its SETUP. Then ERROR[INVALID_SETUP] and
            close. Default 10.
        max_keepalive: Longest time between KEEPALIVE frames a client may announce, in
            seconds. Over it: ERROR[UNSUPPORTED_SETUP] and close. Default 600.
        max_lifetime: Longest silence of a client, in seconds, whatever lifetime it
            announces; but never less than two of its keepalive intervals. Then
            ERROR[CONNECTION_ERROR] and close. Default 1200.
        lease: Whether a SETUP with the lease flag is accepted. If so, LEASE frames of the
            peer are handed out, and sending and honouring leases is up to the user of the
            connection. Otherwise: ERROR[UNSUPPORTED_SETUP] and close. Default no.
        mtu: Most bytes of a frame of this side's own payloads, without its length prefix;
            longer payloads are sent in fragments. At least 64. `None`, the default: one frame, and
            `PayloadTooBig` over 16 MiB - 1. Relayed frames keep their size.

    Raises:
        ValueError: A size of frames is not of 64 bytes to 16 MiB - 1, there may be no stream, a
            time is not more than 0, or `max_keepalive_data` is less.
    """

    max_frame: FrameSize = MAX_FRAME
    max_setup: FrameSize = 256 * 1024
    max_streams: Count = 16_384
    max_keepalive_data: Size = 64 * 1024
    setup_timeout: Seconds = 10.0
    max_keepalive: Seconds = 600.0
    max_lifetime: Seconds = 1200.0
    lease: bool = False
    mtu: FrameSize | None = None

    def __post_init__(self) -> None:
        check_options(self)
